"""Reads tests/corpus/AREA: NAME.json is the expectation, NAME.sse or NAME.body beside it the bytes; and cuts bytes up."""
from __future__ import annotations

import json
import os

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def named(area):
    """{name: (bytes, expectation)}; a file without its partner is an error."""
    folder = os.path.join(ROOT, area)
    found = {}
    files = set(os.listdir(folder))
    for name in sorted(files):
        stem, extension = os.path.splitext(name)
        if extension == ".json":
            continue
        assert stem + ".json" in files, name
        with open(os.path.join(folder, name), "rb") as data, open(os.path.join(folder, stem + ".json"), "rb") as wanted:
            found[stem] = (data.read(), json.loads(wanted.read().decode("utf-8")))
    assert len(found) * 2 == len(files), "an expectation without bytes in " + folder
    return found


def cuts(data, at_most=1500):
    """The bytes whole, byte by byte, and in two pieces at every offset (evenly chosen ones for long inputs)."""
    yield [data]
    yield [data[at:at + 1] for at in range(len(data))]
    step = max(1, len(data) // at_most)
    for at in range(1, len(data), step):
        yield [data[:at], data[at:]]

"""JSON from strangers neither raises, hangs nor overflows a 256 KiB stack, and big documents are read without being built."""
from __future__ import annotations

import json
import mmap
import random
import tempfile
import threading
import time

import pytest

from tests.corpora import cuts
from transport.json_bytes import DEEPEST, ArraySplitter, loads, too_deep, top_level

DEEP = [b"[" * 5000, b"[" * 200000, b'{"a":' * 100000, b"[" * 5000 + b"]" * 5000, b'[{"a":' * 3000 + b"1" + b"}]" * 3000,
        b"[[]" * 100000, b'"' + b"[" * 5000 + b'"' + b"[" * 500, b'{"a":"\\\\"' + b"[" * 5000]


def repr_cut(value):
    return repr(value)[:30]


@pytest.mark.parametrize("data, value", [
    (b'{"a": 1}', {"a": 1}), (b"\xef\xbb\xbf{}", {}), (b' \n[1, "\\u00e9"]\r\n', [1, "\u00e9"]), (b'"a\tb"', "a\tb"),
    (b"", None), (b"{", None), (b"nul", None), (b'{"a":}', None), (b"\xff\xfe", None), (b"{} x", None), (b"[1,]", None),
    (b"[NaN, Infinity, -Infinity]", [None] * 3), (b"[1" + b"0" * 18 + b"]", [10 ** 18]), (b"[" + b"9" * 5000000 + b"]", [None]),
    (b"[-" + b"9" * 50 + b"]", [None]), (b'"\xff"', "\ufffd"),
], ids=repr_cut)
def test_values(data, value):
    started = time.monotonic()
    assert loads(data) == value
    assert time.monotonic() - started < 10


def test_deep_nesting_is_refused_on_a_small_stack():
    answers = []
    size = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: answers.extend(loads(data) for data in DEEP))
        thread.start()
    finally:
        threading.stack_size(size)
    thread.join(60)
    assert answers == [None] * len(DEEP)


@pytest.mark.parametrize("depth", [1, 50, DEEPEST - 1])
def test_ordinary_depth_is_read(depth):
    value = 1
    for _ in range(depth // 2):
        value = {"a]{": [value, "]}\\\"{["]}
    assert loads(json.dumps([value] * 300).encode())[299] == value
    assert not too_deep(b'["' + b"[{" * 10000 + b'"]')


def random_value(rng, depth=0):
    kind = rng.randrange(8 if depth < 4 else 5)
    if kind < 3:
        return rng.choice(("", 'a"b', "\\", "\\\\\"", "{[", "]},:", "\u00e9\U0001f9ea", "model", "x" * 50, "\n"))
    if kind < 5:
        return rng.choice((None, True, 0, -1.5, 12))
    if kind == 5:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    names = ("model", "tools", "stream", "a", 'q"', "")
    return {rng.choice(names): random_value(rng, depth + 1) for _ in range(rng.randrange(5))}


def test_top_level_finds_what_a_whole_parse_finds():
    rng = random.Random(2)
    wanted = ("model", "tools", "stream")
    for _ in range(3000):
        value = {key: random_value(rng) for key in rng.sample(("model", "tools", "stream", "b", "input", 'm"'), rng.randrange(6))}
        text = json.dumps(value, indent=rng.choice((None, 1)), ensure_ascii=rng.random() < 0.5,
                          separators=rng.choice((None, (",", ":")))).encode()
        assert top_level(text, wanted) == {key: value[key] for key in wanted if key in value}, text


def test_top_level_reads_a_mapped_file_and_never_raises_on_pieces():
    body = json.dumps({"input": [{"image": "x" * 300000, "t": "\\\"" * 2000}], "model": "m", "stream": True}).encode()
    with tempfile.TemporaryFile() as file:
        file.write(body)
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert top_level(mapped, ("model", "stream")) == {"model": "m", "stream": True}
    for at in range(0, 3000, 97):
        assert top_level(body[at:], ("model",)) in ({}, {"model": "m"})
        assert top_level(body[:at], ("model",)) == {}
    for odd in (b"", b"[]", b"null", b'"', b'{"model"', b'{"model":', b'{"model":"m"', b"}}}", b'{,:,"model":1}', b"{]"):
        assert isinstance(top_level(odd, ("model",)), dict)


ELEMENTS = [b'{"a":"]}\\"{"}', b"[1,[2]]", b"{}", b'{"b":{"c":"\\\\"}}', '{"d":"\u00e9"}'.encode()]


def test_an_array_is_split_alike_at_every_cut():
    data = b" [" + b"\n,\r\n".join(ELEMENTS) + b"\n] [{}]"
    for chunks in cuts(data):
        splitter = ArraySplitter(1000)
        assert [element for chunk in chunks for element in splitter.feed(chunk)] == ELEMENTS
        assert splitter.closed


def test_an_oversized_element_is_skipped_and_counted():
    data = b'[{"a":1},{"b":"' + b"x" * 500 + b'"},{"c":1}]'
    for chunks in cuts(data):
        splitter = ArraySplitter(100)
        assert [e for chunk in chunks for e in splitter.feed(chunk)] == [b'{"a":1}', b'{"c":1}']
        assert splitter.oversized == 1

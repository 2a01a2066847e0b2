"""The pure half of framing: every reader is run whole, byte by byte, cut at every offset, and with bytes that follow."""
from __future__ import annotations

import ast
import json
import os
import random

import pytest

from transport import http1

CORPUS = os.path.join(os.path.dirname(__file__), "corpus", "http1")
NAMES = sorted(name[:-5] for name in os.listdir(CORPUS) if name.endswith(".http"))
PURE = ("http1", "answer", "errors", "latch", "outgoing", "redact", "refusals", "request", "routes", "attempts")
FORBIDDEN = {"socket", "os", "time", "select", "ssl"}


def load(name):
    with open(os.path.join(CORPUS, name + ".http"), "rb") as file, open(os.path.join(CORPUS, name + ".json")) as expected:
        return file.read(), json.load(expected)


def read(pieces, method=b"GET"):
    """Feed a message in pieces -> what the corpus states about it."""
    data, head, body, out, wire, rest = b"", None, None, b"", b"", b""
    try:
        for piece in pieces:
            if head is None:
                data += piece
                end = http1.head_end(data)
                if end < 0:
                    continue
                request = not data.startswith(b"HTTP/")
                head = (http1.parse_request if request else http1.parse_response)(data[:end])
                body = http1.request_body(head) if request else http1.response_body(head, method)
                piece = data[end:]
            if body.done:
                rest += piece
            elif piece:
                out += body.feed(piece)
                wire += body.wire
                rest += body.excess
    except http1.Malformed as error:
        return {"refused": error.status}
    if head is None:
        return {"incomplete": "head"}
    result = {"framing": body.framing, "body": out.decode("latin-1"), "rest": rest.decode("latin-1"),
              "whole": body.eof(), "keep_alive": head.keeps_alive()}
    result["wire"] = (wire + body.tail).decode("latin-1") if body.framing == "chunked" else None
    result["trailers"] = [[k.decode("latin-1"), v.decode("latin-1")] for k, v in getattr(body, "trailers", [])]
    return result


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_is_read_alike_however_it_is_cut(name):
    data, expected = load(name)
    method = expected.get("method", "GET").encode()
    whole = read([data], method)
    for key, value in expected.items():
        if key not in ("method", "about"):
            assert whole.get(key) == value, (name, key, whole)
    assert read([data[i:i + 1] for i in range(len(data))], method) == whole
    for cut in range(1, len(data)):
        assert read([data[:cut], data[cut:]], method) == whole, cut


@pytest.mark.parametrize("name", NAMES)
def test_what_is_cut_off_is_never_taken_for_whole(name):
    data, expected = load(name)
    if "refused" in expected or expected["framing"] == "close" or expected["rest"]:
        return
    method = expected.get("method", "GET").encode()
    for cut in range(len(data)):
        result = read([data[:cut]], method)
        assert "incomplete" in result or not result["whole"], cut


def test_whatever_comes_it_is_read_or_refused():
    """The invariant: any bytes either parse or raise Malformed, nothing else."""
    rng, seeds = random.Random(3), [load(name)[0] for name in NAMES]
    for _ in range(3000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data) + 1)
            data[at:at + rng.randrange(3)] = bytes(rng.randrange(256) for _ in range(rng.randrange(3)))
        cut = rng.randrange(len(data) + 1)
        assert read([bytes(data)]) == read([bytes(data[:cut]), bytes(data[cut:])])


@pytest.mark.parametrize("name", PURE)
def test_pure_files_do_no_io(name):
    path = os.path.join(os.path.dirname(http1.__file__), name + ".py")
    with open(path) as file:
        tree = ast.parse(file.read())
    imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert not imported & FORBIDDEN

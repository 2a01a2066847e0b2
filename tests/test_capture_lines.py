"""What each line of stdout becomes, whole, byte by byte and cut anywhere."""
from __future__ import annotations

import json
import os

import pytest

from tests.runs import strict
from transport.sandbox_transport import EvidenceFile, Redactor
from worker.capture import Capture

OBJECT = object()  # the line stays an object with the same value as json reads it
DONE = b'{"type":"turn.completed","usage":{"input_tokens":5}}'

# line -> what stands in events.jsonl: OBJECT, a value, or None where nothing does
LINES = [
    (b'{"type":"a","n":1.50,"s":"\\u00e9 \\/"}', OBJECT),
    (b'  {"a":1}  ', {"a": 1}),
    (b'{"a":1}\r', {"a": 1}),
    (b'{"a":\r1}', {"a": 1}),
    (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
    (b'\x00\x00{"a":1}\x00', {"a": 1}),
    (b'\x1b[2K\x1b[1G{"a":1}\x1b[0m', {"a": 1}),
    (b'\x1b]0;title\x07{"a":1}', {"a": 1}),
    (b'\x1b]8;;http://x\x1b\\{"a":1}', {"a": 1}),
    (b'\x1b7\x1b(B\x1b={"a":1}', {"a": 1}),
    (b"", None),
    (b" \t\r", None),
    (b"\x1b[0m\x00\xef\xbb\xbf", None),
    (b"plain text", "plain text"),
    (b"[1,2]", "[1,2]"),
    (b"12", "12"),
    (b'"text"', '"text"'),
    (b"null", "null"),
    (b'{"a":1} trailing', '{"a":1} trailing'),
    (b'{"a":1}{"b":2}', '{"a":1}{"b":2}'),
    (b'{"a":1', '{"a":1'),
    (b'{"a":01}', '{"a":01}'),
    (b"{'a':1}", "{'a':1}"),
    (b'{"a":"tab\there"}', '{"a":"tab\there"}'),
    (b'{"a":NaN}', '{"a":NaN}'),
    (b'{"a":[1,-Infinity]}', '{"a":[1,-Infinity]}'),
    (b'{"a":"NaN"}', {"a": "NaN"}),
    (b'{"a":1e999}', OBJECT),
    (b'{"n":' + b"7" * 5000 + b"}", '{"n":' + "7" * 5000 + "}"),
    (b'{"n":"' + b"7" * 5000 + b'"}', OBJECT),
    (b'{"n":' + b"7" * 4000 + b"}", OBJECT),
    (b"[" * 100000, "[" * 100000),
    (b'{"a":' * 100000, '{"a":' * 100000),
    (b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}", '{"a":' + "[" * 3000 + "]" * 3000 + "}"),
    (b'{"a":' + b"[" * 400 + b"]" * 400 + b"}", OBJECT),
    (b'{"a":"' + b"[" * 3000 + b'"}', OBJECT),
    (b'{"a":[' + b",".join([b"[{}]"] * 3000) + b"]}", OBJECT),
    (b'{"a":"' + b"x" * 9000 + b'"}', OBJECT),
    (b"caf\xe9", "caf\ufffd"),
    (b'{"t":"caf\xe9"}', {"t": "caf\ufffd"}),
    (b'{"t":"\xed\xa0\xbd"}', {"t": "\ufffd\ufffd\ufffd"}),
    (b'{"t":"cut \\ud83d"}', {"t": "cut \ufffd"}),
    (b'{"t":"half \\udc88 x"}', {"t": "half \ufffd x"}),
    (b'{"t":"\\uDC88\\uD83D"}', {"t": "\ufffd\ufffd"}),
    (b'{"t":"\\ud83d\\ude00"}', {"t": "\U0001f600"}),
    (b'{"t":"\\\\ud83d"}', {"t": "\\ud83d"}),
    (b'{"t":"\\\\\\ud83d"}', {"t": "\\\ufffd"}),
    (b'{"t":"\\ud83d\\ud83d\\ude00"}', {"t": "\ufffd\U0001f600"}),
    (b'{"t":"\\ud83d", "n":1e999}', OBJECT),
    ("{\"t\":\"a\u2028b\u0085c\"}".encode(), OBJECT),
    (b'{"a":1,"a":2}', {"a": 2}),
]


def captured(folder, pieces, secrets=(), limits=None):
    """(events.jsonl as bytes, what on_event saw, the capture)."""
    seen = []
    dirfd = os.open(folder, os.O_RDONLY)
    limits = dict({"stdout_bytes": 64 << 20, "stderr_bytes": 64 << 20}, **(limits or {}))
    capture = Capture(EvidenceFile(dirfd, "events.jsonl"), EvidenceFile(dirfd, "stderr.log"), lambda: 1.5, seen.append,
                      limits, Redactor(list(secrets)), dirfd)
    for piece in pieces:
        capture.stdout(piece)
    capture.close()
    os.close(dirfd)
    with open(os.path.join(folder, "events.jsonl"), "rb") as file:
        return file.read(), seen, capture


def values(data):
    assert data == b"" or data.endswith(b"\n")
    entries = [strict(line) for line in data.split(b"\n")[:-1]]
    assert all(entry[0] == 1.5 and len(entry) == 2 for entry in entries)
    return [entry[1] for entry in entries]


def expected(line, value):
    if value is not OBJECT:
        return [] if value is None else [value]
    return [json.loads(json.dumps(json.loads(line)).replace("\\ud83d", "\\ufffd"))]


@pytest.mark.parametrize("line,value", LINES, ids=[repr(line[:40]) for line, _ in LINES])
def test_line(tmp_path, line, value):
    """B13 among others."""
    data, seen, capture = captured(tmp_path, [line + b"\n" + DONE + b"\n"])
    want = expected(line, value)
    assert values(data) == want + [json.loads(DONE)]
    assert seen == [entry for entry in want if isinstance(entry, dict)] + [json.loads(DONE)]
    assert capture.gaps == [] and capture.lines == len(want) + 1


@pytest.mark.parametrize("cut", ["bytes", "lines", "no last newline", "all together"])
def test_the_same_however_it_arrives(tmp_path, cut):
    """B15."""
    lines = [(line, value) for line, value in LINES if len(line) < 10000]
    data = b"".join(line + b"\n" for line, _ in lines) + DONE
    pieces = {"bytes": [data[i:i + 1] for i in range(len(data))], "lines": data.splitlines(True),
              "no last newline": [data], "all together": [data + b"\n"]}[cut]
    found, _, _ = captured(tmp_path, pieces)
    assert values(found) == sum((expected(*line) for line in lines), []) + [json.loads(DONE)]


def test_cut_at_every_offset(tmp_path):
    data = b'{"a":"\xe2\x82\xac \\ud83d\\ude00"}\r\n\x1b[0m{"b":2}\ntext\n' + DONE
    want = values(captured(make(tmp_path, "whole"), [data])[0])
    for at in range(1, len(data)):
        assert values(captured(make(tmp_path, str(at)), [data[:at], data[at:]])[0]) == want, at


def make(folder, name):
    (folder / name).mkdir()
    return folder / name


def test_objects_keep_their_bytes(tmp_path):
    line = b'{"z":1.50,  "a":"\\u00e9\\/","e":1E+2}'
    assert captured(tmp_path, [line + b"\n"])[0] == b"[1.500000," + line + b"]\n"


def test_secrets_are_blanked_for_file_and_reader(tmp_path):
    secret = b"sk-0123456789"
    data, seen, _ = captured(tmp_path, [b'{"a":"sk-01', b'23456789"}\nkey ' + secret + b"\n"], [secret])
    assert secret not in data
    assert values(data) == [{"a": "*" * 13}, "key " + "*" * 13] and seen == [{"a": "*" * 13}]

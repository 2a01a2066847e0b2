"""However a transcript is cut into pieces, it says the same; what is written behind is what was read; a full disk is a gap."""

from __future__ import annotations

import importlib
import json
import threading

import pytest

from tests import transcript_corpus
from tests.rollouts import (
    Home,
    announced,
    call,
    codes,
    event,
    exited,
    figures,
    invocations,
    message,
    meta,
    output,
    tokens,
    tools,
)  # fmt: skip
from transport.sandbox_transport import EvidenceFile, Redactor
from worker.behind import Behind
from worker.harnesses import codex_lines, transcript_files


def usual(value, ascii_only=False):
    """As Codex writes a record."""
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))


def numbered(line):
    """As 0.171.0 does."""
    return line.replace('","type":', '","ordinal":7,"type":', 1)


LINES = [
    usual(meta()),
    usual(message("plain")),
    usual(message("caf\u00e9 \u2028 \U0001f600")),
    usual(message("escaped \U0001f600 \ud83d"), True),
    usual(call("a")),
    numbered(usual(output("a", exited(3, "x" * 300 + "\u00e9")))),
    usual(event("user_message", message="u")),
    usual(tokens(figures(5, 6))),
    "no record",
    usual(message("twice")).replace("}}", '},"payload":{}}'),
    usual(message("ended")) + "\r",
    b'{"timestamp":"2026-09-20T10:00:01.000Z","type":"response_item","payload":{"type":"message","x":"\xff"}}',
    numbered(usual(message("last"))),
]
ITEMS = 9  # the record with two payloads has the last, as JSON readers do


def told(folder, lines=LINES, **run):
    home = Home(folder)
    home.write(lines, tail=b'{"timestamp":"2026-')
    evidence = home.collect([announced()], **run)
    return invocations(evidence)[0]["conversation"], tools(evidence), evidence["gaps"], evidence["usage_transcript"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100, 257, 1000])
def test_pieces_of_any_size(size, tmp_path, monkeypatch):
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    conversation, calls, gaps, usage = told(tmp_path / "whole")
    assert [one[2:] for one in calls] == [["failed", "exit_code_3"]] and usage["input_tokens"] == 5
    assert len(conversation) == ITEMS and conversation[2]["content"][0]["text"] == "escaped \U0001f600 \ufffd"
    monkeypatch.setattr(transcript_files, "CHUNK", size)
    assert told(tmp_path / "cut") == (conversation, calls, gaps, usage)


def test_the_layout_does_not_matter(tmp_path):
    values = [meta(), message("m"), call("a"), output("a", exited(3)), tokens(figures(5, 6)), event("user_message", message="u")]
    found = []
    for name, layout in (("usual", usual), ("spaced", json.dumps), ("numbered", lambda value: numbered(usual(value)))):
        (tmp_path / name).mkdir()
        found.append(told(tmp_path / name, [layout(value) for value in values])[:2])
    assert found[0] == found[1] == found[2]


def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path):
    found = []
    for name, mark in (("bare", ""), ("marked", "\ufeff")):
        (tmp_path / name).mkdir()
        found.append(told(tmp_path / name, [mark + usual(meta()), usual(message("m")), usual(tokens(figures(5, 6)))]))
    gaps = [[one["code"] for one in each[2]] for each in found]
    assert found[0][:2] == found[1][:2] and found[0][3] == found[1][3] and gaps[0] == gaps[1]


MARKED, TWICE = b"\xef\xbb\xbf%s", b"%s%s"
CHANGED = [("claude_code", "tools_and_sub_agent", MARKED), ("gemini", "tools", MARKED), ("qwen", "error_after_tool", MARKED),
           ("mini", "tools", MARKED), ("claude_code", "error_after_tool", TWICE), ("qwen", "error_after_tool", TWICE)]


@pytest.mark.parametrize("harness, case, change", CHANGED)
def test_marked_and_repeated_transcripts_of_others(harness, case, change, tmp_path):
    """A mark before the first record, or every record once more (a resumed session that copied its history), change nothing."""
    state, stdout, wanted = transcript_corpus.load(harness, case, tmp_path)
    for path in transcript_corpus.files(state):
        with open(path, "rb") as file:
            data = file.read()
        with open(path, "wb") as file:
            file.write(change % ((data,) * change.count(b"%s")))
    reader = importlib.import_module("worker.harnesses.%s_reader" % harness)
    found = transcript_corpus.summary(transcript_corpus.collect(reader, state, stdout, str(tmp_path / "session")))
    also = set(found.pop("gaps")) - set(wanted.pop("gaps"))
    assert found == wanted and also <= ({"transcript_record_repeated", "model_attempts_untold"} if change is TWICE else set())


def test_what_is_no_record_is_a_gap_each(tmp_path):
    good, bad = usual(message("m")), [
        usual(message("m"))[:-1],
        usual(message("m")).replace('"content":[', '"content":[NaN,'),
        usual(message("m")).replace('"m"', '"\t"'),
        usual(message("m")).replace('"m"', '"\\x"'),
        usual(message("m")) + "}",
        usual(message("m")) + usual(message("m")),
    ]  # fmt: skip
    lines = [usual(meta())] + [line for wrong in bad for line in (wrong, good)]
    conversation, _, gaps, _ = told(tmp_path, lines)
    assert len(conversation) == len(bad)
    assert [one["code"] for one in gaps].count("agent_artifact_record_unparseable") == len(bad)


def test_a_secret_across_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(transcript_files, "CHUNK", 5)
    conversation, *_ = told(tmp_path, redactor=Redactor([b"plain"]))
    assert "*****" in json.dumps(conversation) and "plain" not in json.dumps(conversation)


def test_a_disk_that_is_full_ends_the_copy_not_the_reading(tmp_path, monkeypatch):
    monkeypatch.setattr(transcript_files, "CHUNK", 200)
    write = EvidenceFile.write

    def full(self, data):
        if self.size > 600:
            self.lost_bytes += len(data)
        else:
            write(self, data)

    monkeypatch.setattr(EvidenceFile, "write", full)
    home = Home(tmp_path)
    home.write(LINES)
    evidence = home.collect([announced()])
    assert "transcript_copy_incomplete" in codes(evidence["gaps"])
    assert [one[2] for one in tools(evidence)] == ["failed"], "what was read counts"
    assert 0 < len(list(invocations(evidence)[0]["conversation"])) < ITEMS
    (size,) = [one["size"] for one in evidence["native_files"].values()]
    assert size <= 800


def test_behind_keeps_the_order_and_hands_errors_on():
    found = []
    behind = Behind(found.append)
    for number in range(1000):
        behind.put(number)
    behind.close()
    assert found == list(range(1000))
    failing = Behind(lambda piece: 1 // piece)
    for number in (1, 0, 1, 1, 1, 1, 1, 1, 1):
        failing.put(number)
    with pytest.raises(ZeroDivisionError):
        failing.close()


def test_behind_without_a_thread(monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    found = []
    behind = Behind(found.append)
    behind.put(1)
    assert found == [1]
    behind.close()


STAMPS = {
    "1970-01-01T00:00:00Z": 0.0,
    "2000-02-29T23:59:59.999Z": 951868799.999,
    "2026-11-30T10:00:01.500Z": 1796032801.5,
    "2026-11-30T10:00:02.250Z": 1796032802.25,
    "2026-11-30T10:00:0\u0662.250Z": None,
    "2026-11-30T10:00:+2.250Z": None,
    "2026-11-30 10:00:02.250Z": None,
}


@pytest.mark.parametrize("stamp", STAMPS)
def test_stamps(stamp):
    assert codex_lines.unix_time(stamp) == STAMPS[stamp]

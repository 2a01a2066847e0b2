"""Promise: what Gemini CLI leaves is read whole, damaged or odd: transcripts of real runs (tests/corpus/gemini)."""
from __future__ import annotations

import pytest

from tests import transcript_corpus as corpus
from worker.harnesses import gemini_reader as reader

CASES = corpus.cases("gemini")


@pytest.mark.parametrize("case", CASES)
def test_a_real_run(case, tmp_path):
    corpus.check(reader, "gemini", case, tmp_path)


def test_cut_anywhere(tmp_path):
    corpus.cut_everywhere(reader, "gemini", CASES[-1], tmp_path)


@pytest.mark.parametrize("case", [CASES[-1]])
def test_any_part_of_any_record_may_be_anything(case, tmp_path):
    corpus.odd_everywhere(reader, "gemini", case, tmp_path)


def wrapped(text):
    return "<untrusted_context>\nOutput: %s\nProcess Group PGID: 1\n</untrusted_context>" % text


@pytest.mark.parametrize("status,name,text,wanted", [
    ("success", reader.SHELL, wrapped("x"), ("completed", None)),
    ("success", reader.SHELL, wrapped("x\nExit Code: 7"), ("failed", "exit_code_7")),
    ("success", reader.SHELL, wrapped("Exit Code: 5\nmore words"), ("completed", None)),
    ("success", "read_file", wrapped("x\nExit Code: 7"), ("completed", None)),
    ("error", "read_file", "File not found", ("failed", "tool_error")),
    ("cancelled", reader.SHELL, "x", ("cancelled", "cancelled")),
    ("success", reader.SHELL, "Command was automatically cancelled because it exceeded the timeout", ("timeout", "timeout")),
])
def test_how_a_tool_ended(status, name, text, wanted):
    assert reader.result_of({"status": status}, name, text) == wanted


@pytest.mark.parametrize("events,terminal,limit", [
    ([{"type": "result", "status": "success"}], "success", None),
    ([{"type": "error", "severity": "warning", "message": "Loop detected, stopping execution"},
      {"type": "result", "status": "success"}], "failure", None),
    ([{"type": "error", "severity": "error", "message": "x"}, {"type": "result", "status": "success"}], "failure", None),
    ([{"type": "result", "status": "error", "error": {"type": "FatalTurnLimitedError", "message": "x"}}], "failure", "turn_limit"),
    ([{"type": "message", "role": "assistant", "content": "x", "delta": True}], None, None),
], ids=["success", "a loop", "an error before", "turns", "cut"])
def test_the_terminal_event(events, terminal, limit):
    live = reader.Live()
    for event in events:
        live.feed(event)
    assert (live.terminal, live.limit) == (terminal, limit)


@pytest.mark.parametrize("finish,terminal", [("STOP", "success"), ("SAFETY", "failure"), ("MAX_TOKENS", "failure")])
def test_a_refusal_and_the_output_limit_are_no_success(tmp_path, finish, terminal):
    state, stdout, _ = corpus.load("gemini", "tools", tmp_path)
    wire = {"main": {"last": {"finish": finish}}, "user_agents": ["GeminiCLI-tui/0.61.0/m (linux)"]}
    evidence = corpus.collect(reader, state, stdout, str(tmp_path / "session"), wire=wire)
    assert (evidence["live"].terminal, evidence["version"]) == (terminal, "0.61.0")

"""Promise: what Gemini CLI leaves is read whole, damaged or odd: transcripts of real runs (tests/corpus/gemini)."""
from __future__ import annotations

import pytest

from tests import transcript_corpus as corpus
from transport.provider_errors import finish_kind
from worker.harnesses import gemini_reader as reader
from worker.harnesses import gemini_wire

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
    wire = {"main": {"last": {"finish": finish}, "ended_by": finish_kind(finish)}, "user_agents": ["GeminiCLI-tui/0.61.0/m (linux)"]}
    evidence = corpus.collect(reader, state, stdout, str(tmp_path / "session"), wire=wire)
    assert (evidence["live"].terminal, evidence["version"]) == (terminal, "0.61.0")


def body(words, *offered):
    return {"contents": [{"role": "user", "parts": [{"text": words}]}], "tools": [{"functionDeclarations": [{"name": n} for n in offered]}]}


@pytest.mark.parametrize("asked,prompts,wanted", [
    (body("context", "invoke_agent"), [("Compute.", "one")], "root"),
    (body("Compute.", "complete_task"), [("Compute.", "one"), ("Look.", "two")], "one"),
    (body("Something else.", "complete_task"), [("Compute.", "one")], "one"),
    (body("Something else.", "complete_task"), [("Compute.", "one"), ("Look.", "two")], None),
    (body("Compute.", "complete_task"), [("Compute.", "one"), ("Compute.", "two")], None),
    (None, [("Compute.", "one")], None),
    ({"tools": [1, {"functionDeclarations": [2]}], "contents": 3}, [("Compute.", "one")], "root"),
], ids=["the root's", "by its first words", "the only one", "nobody's", "two alike", "no body kept", "any shape"])
def test_whose_a_request_is(asked, prompts, wanted):
    assert gemini_wire.whose(asked, "root", prompts) == wanted


def test_calls_that_were_open_when_it_was_killed(tmp_path):
    """The transcript has a call when it has ended; stdout when it begins."""
    state, stdout, _ = corpus.load("gemini", "tools", tmp_path)
    begun = {"type": "tool_use", "tool_id": "run_shell_command__call_x", "tool_name": "run_shell_command",
             "timestamp": "2026-11-30T08:11:33.914Z", "parameters": {"command": "sleep 9"}}
    evidence = corpus.collect(reader, state, stdout + [begun], str(tmp_path / "session"))
    found = [one for one in evidence["records"] if one["kind"] == "tool_call" and one["tool_call_id"] == begun["tool_id"]]
    assert [(one["status"], one["started_at"], one["completed_at"]) for one in found] == [("incomplete", 1796026293.914, None)]

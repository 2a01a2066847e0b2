"""Promise: what Claude Code leaves is read whole, damaged or odd: transcripts of real runs (tests/corpus/claude_code)."""
from __future__ import annotations

import json

import pytest

from tests import transcript_corpus as corpus
from worker import launch
from worker.harnesses import claude_code
from worker.harnesses import claude_code_reader as reader
from worker.harnesses.claude_code_events import Live

CASES = corpus.cases("claude_code")


@pytest.mark.parametrize("case", CASES)
def test_a_real_run(case, tmp_path):
    corpus.check(reader, "claude_code", case, tmp_path)


def test_cut_anywhere(tmp_path):
    corpus.cut_everywhere(reader, "claude_code", CASES[-1], tmp_path)


@pytest.mark.parametrize("case", [CASES[-1]])
def test_any_part_of_any_record_may_be_anything(case, tmp_path):
    corpus.odd_everywhere(reader, "claude_code", case, tmp_path)


def job(**more):
    return dict({"command": None, "env": {"PATH": "/bin"}, "cwd": "/", "prompt": b"x", "timeout": 60, "model": {"name": "m"}}, **more)


def nowhere(program, path, cwd):
    return None


def test_the_command(tmp_path):
    made = claude_code.prepare(job(), "http://127.0.0.1:1", "token", str(tmp_path), nowhere)
    session = made["argv"][made["argv"].index("--session-id") + 1]
    assert made["argv"][:7] == ["claude", "-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"]
    assert len(session) == 36 and session[14] == "4" and made["stdin"] == "prompt"
    env = made["env"]
    assert (env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_API_KEY"], env["ANTHROPIC_MODEL"]) == ("http://127.0.0.1:1", "token", "m")
    assert env["CLAUDE_CODE_MAX_RETRIES"] == "0" and env["IS_SANDBOX"] == "1" and env["API_TIMEOUT_MS"] == "120000"
    assert env["CLAUDE_CONFIG_DIR"].startswith(str(tmp_path))
    firm = json.loads((tmp_path / "claude-settings.json").read_text())
    direct = [firm["env"].pop(name).split(",") for name in ("NO_PROXY", "no_proxy")]
    assert all(set(launch.LOOPBACK) <= set(hosts) for hosts in direct)
    assert firm["env"] == dict(dict.fromkeys(claude_code.AWAY, ""), **env) and not firm["apiKeyHelper"]


def test_the_callers_words_and_variables_stay(tmp_path):
    given = ["claude", "--print", "--dangerously-skip-permissions", "--resume", "s-1", "--output-format=json", "hi"]
    made = claude_code.prepare(job(command=given, env={"PATH": "/bin", "IS_SANDBOX": "0"}), None, None, str(tmp_path), nowhere)
    firm = str(tmp_path / "claude-settings.json")
    assert made["argv"] == ["claude", "--verbose", "--settings", firm] + given[1:]
    variables = json.loads((tmp_path / "claude-settings.json").read_text())["env"]
    assert variables["IS_SANDBOX"] == "0" and "ANTHROPIC_AUTH_TOKEN" not in variables
    assert "IS_SANDBOX" not in made["env"] and "ANTHROPIC_API_KEY" not in made["env"]


INIT = {"type": "system", "subtype": "init", "session_id": "s", "claude_code_version": "2.1.332"}


def result(**more):
    return dict({"type": "result", "subtype": "success", "is_error": False, "result": "done"}, **more)


@pytest.mark.parametrize("events,terminal,message,limit", [
    ([INIT, result()], "success", None, None),
    ([INIT, result(is_error=True, result="API Error: 529", terminal_reason="api_error")], "failure", "API Error: 529", None),
    ([INIT, result(), INIT], None, None, None),
    ([INIT, result(), INIT, result(is_error=True, result="no")], "failure", "no", None),
    ([INIT, {"type": "result", "subtype": "error_max_turns", "is_error": True}], "failure", "error_max_turns", "turn_limit"),
    ([INIT], None, None, None),
], ids=["success", "subtype success beside an error", "a second turn begun", "the last result counts", "turns", "none"])
def test_the_terminal_event(events, terminal, message, limit):
    live = Live()
    for event in events:
        live.feed(event)
    assert (live.terminal, live.message, live.limit) == (terminal, message, limit)


@pytest.mark.parametrize("block,beside,wanted", [
    ({"content": "ok", "is_error": False}, {"stdout": "ok"}, ("completed", None)),
    ({"content": "Exit code 7\nout", "is_error": True}, "Error: Exit code 7", ("failed", "exit_code_7")),
    ({"content": "<tool_use_error>Error: No such tool available: X", "is_error": True}, "x", ("failed", "invalid_call")),
    ({"content": "x", "is_error": True}, {"interrupted": True}, ("cancelled", "interrupted")),
    ({"content": [{"type": "text", "text": "Command timed out after 2s"}], "is_error": True}, None, ("timeout", "timeout")),
    ({"content": "it says Exit code 7 within", "is_error": True}, None, ("failed", "tool_error")),
])
def test_how_a_tool_ended(block, beside, wanted):
    assert reader.result_of(block, reader.text_in(block), beside) == wanted

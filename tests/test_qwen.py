"""Promise: what Qwen Code leaves is read whole, damaged or odd: transcripts of real runs (tests/corpus/qwen)."""
from __future__ import annotations

import pytest

from tests import transcript_corpus as corpus
from worker.harnesses import qwen
from worker.harnesses import qwen_reader as reader

CASES = corpus.cases("qwen")


@pytest.mark.parametrize("case", CASES)
def test_a_real_run(case, tmp_path):
    corpus.check(reader, "qwen", case, tmp_path)


def test_cut_anywhere(tmp_path):
    corpus.cut_everywhere(reader, "qwen", CASES[-1], tmp_path)


@pytest.mark.parametrize("case", [CASES[-1]])
def test_any_part_of_any_record_may_be_anything(case, tmp_path):
    corpus.odd_everywhere(reader, "qwen", case, tmp_path)


@pytest.mark.parametrize("code,told,limit", [(53, False, "turn_limit"), (55, False, "turn_limit"), (1, False, None), (53, True, None)])
def test_out_of_turns_is_told_by_the_exit_code_alone(code, told, limit, tmp_path):
    state, events, _ = corpus.load("qwen", CASES[-1], tmp_path)
    events = [event for event in events if event["type"] != "result"]
    success = [{"type": "result", "subtype": "success", "is_error": False, "result": "done"}] if told else []
    assert corpus.collect(reader, state, events + success, str(tmp_path / "session"), exit=code)["live"].limit == limit


def job(**more):
    return dict({"command": None, "env": {"PATH": "/bin"}, "cwd": "/", "prompt": b"x", "timeout": 60, "model": {"name": "m"}}, **more)


def test_the_launcher_is_replaced(tmp_path):
    for name in ("cli-entry.js", "cli.js"):
        (tmp_path / name).write_text("")
    (tmp_path / "state").mkdir()
    (tmp_path / "qwen").symlink_to(tmp_path / "cli-entry.js")
    which = {"qwen": str(tmp_path / "qwen"), "node": "/opt/node"}.get
    made = qwen.prepare(job(), "http://127.0.0.1:1/v1", "token", str(tmp_path / "state"), lambda program, path, cwd: which(program))
    assert made["argv"][:6] == ["/opt/node", "--expose-gc", str(tmp_path / "cli.js"), "--output-format", "stream-json", "--yolo"]
    assert "cli-entry.js replaced by" in made["notes"][0] and made["env"]["QWEN_CODE_NO_RELAUNCH"] == "true"


@pytest.mark.parametrize("told,text,wanted", [
    ({"status": "success", "resultDisplay": {"exitCode": 0, "outcome": "completed"}}, "x", ("completed", None)),
    ({"status": "error", "resultDisplay": {"exitCode": 7, "outcome": "failed"}}, "x", ("failed", "exit_code_7")),
    ({"status": "error", "errorType": "invalid_tool_params"}, "x", ("failed", "invalid_tool_params")),
    ({"status": "cancelled"}, "x", ("cancelled", "cancelled")),
    ({"status": "error"}, reader.SKIPPED + " before execution", ("cancelled", "provider_retry")),
    ({}, "x", (None, None)),
])
def test_how_a_tool_ended(told, text, wanted):
    assert reader.result_of(told, text) == wanted


def test_what_a_task_must_not_choose_stands_in_our_settings(tmp_path):
    made = qwen.prepare(job(), "http://127.0.0.1:1/v1", "token", str(tmp_path), lambda program, path, cwd: None)
    firm = corpus.json.loads((tmp_path / "qwen-settings.json").read_text())
    assert "OPENAI_ORG_ID" in firm["advanced"]["excludedEnvVars"]
    assert firm["model"]["name"] == "m" and firm["modelProviders"] == {"openai": []} and made["env"]["QWEN_SANDBOX"] == "false"


def test_the_clis_own_words_are_no_message():
    assert reader.without_error("Partial text[API Error: 503 busy]") == "Partial text"
    assert reader.without_error("[API Error: 400 bad]") is None

"""Promise: Claude Code is run and told of as the contract says, whatever the endpoint answers: the real CLI, a scripted model."""
from __future__ import annotations

import os

import pytest

from tests.conftest import elsewhere
from tests.endpoint import function_call, message
from tests.real_runs import KEY, Cli, tools

CLI = Cli("claude_code")
pytestmark = pytest.mark.harness_cli


def test_success_tools_and_a_sub_agent(bundle, tmp_path):
    agent = function_call("Agent", {"description": "sub", "prompt": "Compute.", "subagent_type": "general-purpose"}, "toolu_3")
    done, seen = CLI.play(bundle, tmp_path / "play", [
        CLI.says(message("Let me see."), CLI.shell("echo one; echo err >&2; exit 7", "toolu_1")),
        CLI.says(CLI.shell("pwd", "toolu_2"), agent), CLI.says(message("It is 42."), usage=[500, 0, 7, 0]), CLI.final()])
    assert (done.outcome["kind"], done.code, done.result["final_message"]) == ("completed", 0, "All done.")
    assert tools(done) == [
        ("toolu_1", "failed", "exit_code_7"), ("toolu_2", "completed", None), ("toolu_3", "completed", None)]
    root, sub = done.records("agent_invocation")
    assert (sub["parent_invocation_id"], sub["spawned_by_tool_call_id"]) == (root["invocation_id"], "toolu_3")
    assert [call["response_id"] for call in root["model_calls"]] == ["msg_0001", "msg_0002", "msg_0004"]
    assert [call["response_id"] for call in sub["model_calls"]] == ["msg_0003"]
    usage = done.result["usage"]
    for source in ("wire", "transcript", "events"):
        assert (usage[source]["input_tokens"], usage[source]["output_tokens"]) == (3700, 117), source
    assert set(done.gaps()) == {"reasoning_token_usage_unavailable"}
    assert done.result["harness"]["version"] == "2.1.332" and not done.result["warnings"]
    assert all(dict(map(tuple, one["headers"]))["x-api-key"] == KEY for one in seen)


def results(done):
    return [(event["subtype"], event["is_error"]) for event in done.events if event["type"] == "result"]


def test_an_error_whose_subtype_is_success(bundle, tmp_path):
    done, _ = CLI.play(bundle, tmp_path / "play", [CLI.error(400, "bad", kind="invalid_request_error")])
    assert results(done) == [("success", True)] and done.outcome["kind"] == "invalid_request"
    assert done.result["final_message"] is None and done.result["return_code"] == 1


def background(command):
    return function_call("Bash", {"command": command, "description": "x", "run_in_background": True}, "toolu_1")


ALLOWED = {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "0"}


def test_the_last_of_several_results_counts(bundle, tmp_path):
    """A background task that ends makes it take a second turn after its first result."""
    answers = [CLI.says(background("sleep 2; echo late")), CLI.final(text="First."), CLI.final(text="Second.")]
    done, _ = CLI.play(bundle, tmp_path / "play", answers, env=ALLOWED, linger=90)
    assert (done.outcome["kind"], done.result["final_message"]) == ("completed", "Second.")
    assert results(done) == [("success", False)] * 2 and done.receipt["signals"] == []


def test_a_cli_that_stays_after_its_result_is_ended_by_linger(bundle, tmp_path):
    done, _ = CLI.play(bundle, tmp_path / "play", [CLI.says(background("exec sleep 987")), CLI.final()], env=ALLOWED, linger=8)
    assert (done.outcome["kind"], done.result["final_message"]) == ("completed", "All done.")
    assert "lingered" in done.warnings() and done.receipt["signals"][0]["signal"] == "SIGTERM"
    assert done.result["cleanup_confirmed"]


def test_a_hidden_repeat_is_told_of(bundle, tmp_path):
    """With the CLI's own repeat of a broken stream switched on again: its stdout and exit code show plain success."""
    plan = [CLI.final(cut_after=4, then="rst"), CLI.final()]
    done, seen = CLI.play(bundle, tmp_path / "play", plan, retry={"hold": "first_event"},
                      env={"CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "0", "CLAUDE_CODE_MAX_RETRIES": "1"})
    assert (done.outcome["kind"], done.result["return_code"], len(seen)) == ("completed", 0, 2)
    assert "recovered_errors" in done.warnings() and [one["failure"] for one in done.attempts] == ["stream_interrupted", None]


def test_it_refuses_root_without_the_switch(bundle, tmp_path):
    """Then there is no request and no event, only words on stderr."""
    if os.geteuid() != 0:
        elsewhere("only root is refused")
    done, seen = CLI.play(bundle, tmp_path / "play", [CLI.final()], env={"IS_SANDBOX": ""})
    assert (done.outcome["kind"], done.code, done.result["return_code"], seen) == ("no_model_call", 69, 1, [])
    assert b"root/sudo" in done.read("stderr.log")


def test_turn_limit(bundle, tmp_path):
    plan = {"default": CLI.says(CLI.shell("echo again", "toolu_1"))}
    done, _ = CLI.play(bundle, tmp_path / "play", plan, command=["claude", "-p", "--max-turns", "2"])
    assert (done.outcome["kind"], done.code, done.result["return_code"]) == ("turn_limit", 0, 1)


def test_a_given_command_keeps_its_words(bundle, tmp_path):
    done, _ = CLI.play(bundle, tmp_path / "play", [CLI.final()], command=["claude", "--append-system-prompt", "Be kind."])
    launched = done.document("launch.json")
    assert launched["given_command"] == ["claude", "--append-system-prompt", "Be kind."]
    assert launched["command"][-2:] == ["--append-system-prompt", "Be kind."] and "-p" in launched["command"]
    assert done.outcome["kind"] == "completed"

"""Promise: Gemini CLI is run and told of as the contract says, whatever the endpoint answers: the real CLI, a scripted model."""
from __future__ import annotations

import os

import pytest

from tests.endpoint import function_call, message
from tests.real_runs import KEY, Cli, tools

CLI = Cli("gemini")
pytestmark = pytest.mark.harness_cli


def test_success_and_tools(bundle, tmp_path):
    done, seen = CLI.play(bundle, tmp_path / "play", [
        CLI.says(message("Let me see."), CLI.shell("echo one; echo err >&2; exit 7", "call_1"), usage=[1000, 400, 50, 20]),
        CLI.says(CLI.shell("printf 'Exit Code: 5\\n'", "call_2")), CLI.final()])
    assert (done.outcome["kind"], done.code, done.result["final_message"]) == ("completed", 0, "All done.")
    assert tools(done) == [
        ("run_shell_command__call_1", "failed", "exit_code_7"), ("run_shell_command__call_2", "completed", None)]
    root, = done.records("agent_invocation")
    assert [call["response_id"] for call in root["model_calls"]] == ["gen_0001", "gen_0002", "gen_0003"]
    for source in ("wire", "transcript", "events"):
        usage = done.result["usage"][source]
        assert (usage["input_tokens"], usage["output_tokens"]) == (3200, 110), source
        assert usage["reasoning_output_tokens"] == 45
    assert set(done.gaps()) <= {"event_times_unavailable"} and done.result["harness"]["version"] == "0.61.0"
    assert all(dict(map(tuple, one["headers"]))["x-goog-api-key"] == KEY for one in seen)


def test_a_sub_agent_owns_its_requests(bundle, tmp_path):
    """Neither a header nor the transcript tells whose a request is; its body does."""
    task = function_call("invoke_agent", {"agent_name": "generalist", "prompt": "Compute."}, "call_1")
    finish = function_call("complete_task", {"result": {"response": "It is 42."}}, "call_2")
    done, _ = CLI.play(bundle, tmp_path / "play", [CLI.says(task), CLI.says(finish, usage=[500, 0, 7, 0]), CLI.final()])
    root, sub = done.records("agent_invocation")
    assert (sub["parent_invocation_id"], sub["spawned_by_tool_call_id"]) == (root["invocation_id"], "invoke_agent__call_1")
    assert [call["response_id"] for call in root["model_calls"]] == ["gen_0001", "gen_0003"]
    assert [call["response_id"] for call in sub["model_calls"]] == ["gen_0002"]
    assert done.result["usage"]["transcript"]["input_tokens"] == done.result["usage"]["wire"]["input_tokens"] == 2700


def test_a_loop_is_no_success(bundle, tmp_path):
    done, _ = CLI.play(bundle, tmp_path / "play", {"default": CLI.says(CLI.shell("echo again", "call_1"))})
    assert (done.outcome["kind"], done.result["return_code"]) == ("agent_error", 0)


def test_an_answer_may_take_longer_than_the_header_timer_of_a_minute(bundle, tmp_path):
    done, seen = CLI.play(bundle, tmp_path / "play", [CLI.final(delay=70)])
    assert (done.outcome["kind"], len(seen)) == ("completed", 1)


def test_a_long_output_is_there_to_its_end(bundle, tmp_path):
    """On a pipe the CLI drops all that the pipe does not hold when it exits; its stdout is a file."""
    text = " ".join(str(number * 7919) for number in range(900000))     # what repeats itself is taken for a loop
    done, _ = CLI.play(bundle, tmp_path / "play", [CLI.final(text=text)])
    assert done.outcome["kind"] == "completed"
    said = [event["content"] for event in done.events if event["type"] == "message" and event["role"] == "assistant"]
    assert "".join(said) == text and done.events[-1]["type"] == "result"
    assert done.result["usage"]["events"]["input_tokens"] == 1200


def test_what_it_writes_about_an_error_is_evidence_and_not_left_behind(bundle, tmp_path):
    """It puts the whole conversation into a file in the directory for temporary files."""
    elsewhere, link = tmp_path / "tmp", tmp_path / "link"
    elsewhere.mkdir()
    link.symlink_to(tmp_path)           # it names its home without symlinks, and so must we to know the file for the run's
    (elsewhere / "gemini-client-error-of-another-run.json").write_text("{}")
    done, _ = CLI.play(bundle, link / "play", [CLI.error(400, "bad")], env={"TMPDIR": str(elsewhere)})
    assert (done.outcome["kind"], done.result["return_code"]) == ("invalid_request", 144)
    assert os.listdir(str(elsewhere)) == ["gemini-client-error-of-another-run.json"]
    report, = [name for name in done.result["files"] if name.startswith("native/gemini-client-error-")]
    assert b"Do the task." in done.read(*report.split("/"))


def test_at_the_deadline_its_exit_code_0_is_no_success(bundle, tmp_path):
    """It takes 1 to 10 s to stop, with no result; the tool that runs is on stdout only."""
    done, _ = CLI.play(bundle, tmp_path / "play", [CLI.says(CLI.shell("touch started; sleep 987 & wait", "call_1"))], timeout=40)
    assert (tmp_path / "play" / "work" / "started").exists(), "the machine is too slow for this test's deadline"
    assert (done.outcome["kind"], done.receipt["timed_out"], done.code) == ("wall_timeout", True, 0)
    assert tools(done) == [("run_shell_command__call_1", "incomplete", None)]
    assert done.receipt["signals"][0]["signal"] == "SIGTERM" and done.result["final_message"] is None


def test_the_turn_limit_of_the_tasks_own_settings(bundle, tmp_path):
    plan = {"default": CLI.says(CLI.shell("echo again; date +%N", "call_1"))}
    done, seen = CLI.play(bundle, tmp_path / "play", plan, files={".gemini/settings.json": '{"model": {"maxSessionTurns": 2}}'})
    assert (done.outcome["kind"], done.result["return_code"], len(seen)) == ("turn_limit", 53, 2)

"""Promise: Gemini CLI is run and told of as the contract says, whatever the endpoint answers: the real CLI, a scripted model."""
from __future__ import annotations

import os
import signal

import pytest

from tests import real_harnesses_2 as real
from tests.conftest import lacking
from tests.endpoint import function_call, message

NAME = "gemini"
pytestmark = pytest.mark.harness_cli


@pytest.fixture(autouse=True)
def installed():
    reason = real.why_not(NAME)
    if reason:
        lacking(reason)


def play(bundle, tmp_path, plan, **more):
    return real.play(NAME, bundle, tmp_path / "play", plan, **more)


def shell(command, call_id):
    return real.shell(NAME, command, call_id)


def answer(*items, **more):
    return real.answer(NAME, *items, **more)


def test_success_and_tools(bundle, tmp_path):
    done, seen = play(bundle, tmp_path, [
        answer(message("Let me see."), shell("echo one; echo err >&2; exit 7", "call_1"), usage=(1000, 400, 50, 20)),
        answer(shell("printf 'Exit Code: 5\\n'", "call_2")), real.final(NAME)])
    assert (done.outcome["kind"], done.code, done.result["final_message"]) == ("completed", 0, "All done.")
    assert real.tools(done) == [
        ("run_shell_command__call_1", "failed", "exit_code_7"), ("run_shell_command__call_2", "completed", None)]
    root, = done.records("agent_invocation")
    assert [call["response_id"] for call in root["model_calls"]] == ["gen_0001", "gen_0002", "gen_0003"]
    for source in ("wire", "transcript", "events"):
        usage = done.result["usage"][source]
        assert (usage["input_tokens"], usage["output_tokens"]) == (3200, 110), source
        assert usage["reasoning_output_tokens"] == 20
    assert set(done.gaps()) <= {"event_times_unavailable"} and done.result["harness"]["version"] == "0.61.0"
    assert all(dict(map(tuple, one["headers"]))["x-goog-api-key"] == real.KEY for one in seen)


# name, plan, further input and the CLI's exit code -> kind, exit code of run, requests that the endpoint saw
SLOW = real.error(NAME, 429, "resource_exhausted", **{"Retry-After": "0.1"})
CASES = {
    "429 twice": ([SLOW, SLOW, real.final(NAME)], {}, "completed", 0, 3),
    "429 for ever is exit code 173": ({"default": SLOW}, {"exits": 173}, "rate_limited", 75, 3),
    "400 after a tool is exit code 144": ([answer(shell("echo one", "call_1")), real.error(NAME, 400, "invalid_argument", "bad")],
                                          {"exits": 144}, "invalid_request", 69, 2),
    "401 is exit code 145": ([real.error(NAME, 401, "unauthenticated", "no")], {"exits": 145}, "authentication", 69, 1),
    "512 is exit code 0": ({"default": real.error(NAME, 512, "internal", "oh")}, {"exits": 0}, "server_error", 75, 1),
    "an error within the stream is exit code 0": (
        {"default": answer(message("x"), error={"code": 503, "status": "UNAVAILABLE", "message": "busy"})}, {"exits": 0},
        "overloaded", 75, 3),
    "an empty answer is exit code 0": ({"default": answer()}, {"exits": 0}, "agent_error", 0, None),
    "a stream that was passed on and cut": ({"default": real.final(NAME, cut_after=1, then="rst")},
                                            {"exits": 1, "retry": {"hold": "first_event"}}, "stream_interrupted", 75, None),
    "a cut is retried unseen": ([real.final(NAME, cut_after=1, then="rst"), real.final(NAME)], {}, "completed", 0, 2),
    "a clean end without finish is retried unseen": ([real.final(NAME, cut_after=1, then="end"), real.final(NAME)], {},
                                                     "completed", 0, 2),
    "a refusal is no success": ([answer(message("I can"), finish="SAFETY")], {"exits": 0}, "refusal", 0, 1),
    "the output limit is no success": ([answer(message("A long"), finish="MAX_TOKENS")], {"exits": 0}, "output_limit", 0, 1),
}


def test_a_sub_agent_owns_its_requests(bundle, tmp_path):
    """Neither a header nor the transcript tells whose a request is; its body does."""
    task = function_call("invoke_agent", {"agent_name": "generalist", "prompt": "Compute."}, "call_1")
    finish = function_call("complete_task", {"result": {"response": "It is 42."}}, "call_2")
    done, _ = play(bundle, tmp_path, [answer(task), answer(finish, usage=(500, 0, 7, 0)), real.final(NAME)])
    root, sub = done.records("agent_invocation")
    assert (sub["parent_invocation_id"], sub["spawned_by_tool_call_id"]) == (root["invocation_id"], "invoke_agent__call_1")
    assert [call["response_id"] for call in root["model_calls"]] == ["gen_0001", "gen_0003"]
    assert [call["response_id"] for call in sub["model_calls"]] == ["gen_0002"]
    assert done.result["usage"]["transcript"]["input_tokens"] == done.result["usage"]["wire"]["input_tokens"] == 2700


def test_a_loop_is_no_success(bundle, tmp_path):
    done, _ = play(bundle, tmp_path, {"default": answer(shell("echo again", "call_1"))})
    assert (done.outcome["kind"], done.result["return_code"]) == ("agent_error", 0)


def test_an_answer_may_take_longer_than_the_header_timer_of_a_minute(bundle, tmp_path):
    done, seen = play(bundle, tmp_path, [real.final(NAME, delay=70)])
    assert (done.outcome["kind"], len(seen)) == ("completed", 1)


def test_a_long_output_is_there_to_its_end(bundle, tmp_path):
    """On a pipe the CLI drops all that the pipe does not hold when it exits; its stdout is a file."""
    text = " ".join(str(number * 7919) for number in range(900000))     # what repeats itself is taken for a loop
    done, _ = play(bundle, tmp_path, [real.final(NAME, text=text)])
    assert done.outcome["kind"] == "completed"
    said = [event["content"] for event in done.events if event["type"] == "message" and event["role"] == "assistant"]
    assert "".join(said) == text and done.events[-1]["type"] == "result"
    assert done.result["usage"]["events"]["input_tokens"] == 1200


def test_what_it_writes_about_an_error_is_evidence_and_not_left_behind(bundle, tmp_path):
    """It puts the whole conversation into a file in the directory for temporary files."""
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    (elsewhere / "gemini-client-error-of-another-run.json").write_text("{}")
    done, _ = play(bundle, tmp_path, [real.error(NAME, 400, "invalid_argument", "bad")], env={"TMPDIR": str(elsewhere)})
    assert (done.outcome["kind"], done.result["return_code"]) == ("invalid_request", 144)
    assert os.listdir(str(elsewhere)) == ["gemini-client-error-of-another-run.json"]
    report, = [name for name in done.result["files"] if name.startswith("native/gemini-client-error-")]
    assert b"Do the task." in done.read(*report.split("/"))


@pytest.mark.parametrize("name", CASES)
def test_endings(bundle, tmp_path, name):
    plan, more, kind, code, requests = CASES[name]
    more = dict(more)
    exits = more.pop("exits", 0)
    done, seen = play(bundle, tmp_path, plan, **more)
    assert (done.outcome["kind"], done.code, done.result["return_code"]) == (kind, code, exits), done.outcome
    assert requests is None or len(seen) == requests


def test_usage_that_is_not_told_is_unknown(bundle, tmp_path):
    done, _ = play(bundle, tmp_path, [real.final(NAME, usage="omit")])
    chosen = done.result["usage"]["chosen"]
    assert (done.outcome["kind"], chosen["input_tokens"], chosen["total_tokens"]) == ("completed", None, None)
    assert "usage_omitted" in done.gaps()


def test_as_an_ordinary_user(bundle, tmp_path):
    for place in (tmp_path, tmp_path.parent):
        place.chmod(0o755)
    done, _ = play(bundle, tmp_path, [answer(shell("id -u", "call_1")), real.final(NAME)], agent_user="12345")
    items = done.records("agent_invocation")[0]["conversation"]
    outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert done.outcome["kind"] == "completed" and "12345" in outputs[0]


def test_at_the_deadline_its_exit_code_0_is_no_success(bundle, tmp_path):
    """It takes 1 to 10 s to stop, with no result; the tool that runs is on stdout only."""
    done, _ = play(bundle, tmp_path, [answer(shell("touch started; sleep 987 & wait", "call_1"))], timeout=40)
    assert (tmp_path / "play" / "work" / "started").exists(), "the machine is too slow for this test's deadline"
    assert (done.outcome["kind"], done.receipt["timed_out"], done.code) == ("wall_timeout", True, 0)
    assert real.tools(done) == [("run_shell_command__call_1", "incomplete", None)]
    assert done.receipt["signals"][0]["signal"] == "SIGTERM" and done.result["final_message"] is None


def test_the_turn_limit_of_the_tasks_own_settings(bundle, tmp_path):
    plan = {"default": answer(shell("echo again; date +%N", "call_1"))}
    done, seen = play(bundle, tmp_path, plan, files={".gemini/settings.json": '{"model": {"maxSessionTurns": 2}}'})
    assert (done.outcome["kind"], done.result["return_code"], len(seen)) == ("turn_limit", 53, 2)


def test_stopped_within_a_tool(bundle, tmp_path):
    def stop(endpoint, process):
        endpoint.wait_for(1)
        real.wait_for(tmp_path / "play" / "work" / "started")
        process.send_signal(signal.SIGTERM)

    done, _ = play(bundle, tmp_path, [answer(shell("touch started; sleep 987 & wait", "call_1"))], during=stop)
    assert (done.outcome["kind"], done.code) == ("terminated", 75)
    assert done.receipt["signals"][0]["signal"] == "SIGTERM"
    assert done.result["cleanup_confirmed"] and all(status != "completed" for _, status, _ in real.tools(done))


def test_no_request_to_any_other_host(bundle, tmp_path):
    told = real.play_alone(NAME, bundle, tmp_path / "alone")
    if told is None:
        lacking("no network namespaces here")
    assert (told[0], told[1]["outcome"]["kind"]) == (0, "completed")

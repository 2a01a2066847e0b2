"""Promise: Claude Code is run and told of as the contract says, whatever the endpoint answers: the real CLI, a scripted model."""
from __future__ import annotations

import os
import signal

import pytest

from tests import real_harnesses_2 as real
from tests.conftest import lacking
from tests.endpoint import function_call, message

NAME = "claude_code"
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


def test_success_tools_and_a_sub_agent(bundle, tmp_path):
    agent = function_call("Agent", {"description": "sub", "prompt": "Compute.", "subagent_type": "general-purpose"}, "toolu_3")
    done, seen = play(bundle, tmp_path, [
        answer(message("Let me see."), shell("echo one; echo err >&2; exit 7", "toolu_1")),
        answer(shell("pwd", "toolu_2"), agent), answer(message("It is 42."), usage=(500, 0, 7, 0)), real.final(NAME)])
    assert (done.outcome["kind"], done.code, done.result["final_message"]) == ("completed", 0, "All done.")
    assert real.tools(done) == [
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
    assert all(dict(map(tuple, one["headers"]))["x-api-key"] == real.KEY for one in seen)


# name, plan, further input -> kind, action, tools, requests that the endpoint saw
SLOW = real.error(NAME, 429, "rate_limit_error", **{"Retry-After": "0.1"})
CASES = {
    "429 twice": ([SLOW, SLOW, real.final(NAME)], {}, "completed", 0, 3),
    "429 for ever": ({"default": SLOW}, {}, "rate_limited", 75, 3),
    "403": ([real.error(NAME, 403, "permission_error", "no")], {}, "permission", 69, 1),
    "413 is no image error": ([real.error(NAME, 413, "request_too_large", "Request exceeds the maximum size")], {}, "context_length", 0, 1),
    "400 costs one request, not six": ([real.error(NAME, 400, "invalid_request_error", "bad")], {}, "invalid_request", 69, 1),
    "prompt too long": ([real.error(NAME, 400, "invalid_request_error", "prompt is too long: 21 tokens > 20 maximum")], {},
                        "context_length", 0, 1),
    "credit": ([real.error(NAME, 400, "invalid_request_error", "Your credit balance is too low to access the API.")], {},
               "quota_exhausted", 69, 1),
    "401 is not retried": ([real.error(NAME, 401, "authentication_error", "invalid x-api-key")], {}, "authentication", 69, 1),
    "404 is asked for again, without a stream": ({"default": real.error(NAME, 404, "not_found_error", "model: x")}, {},
                                                 "model_not_found", 69, 2),
    "529": ({"default": real.error(NAME, 529, "overloaded_error", "Overloaded")}, {}, "overloaded", 75, 3),
    "a cut is retried unseen": (
        [real.final(NAME, cut_after=4, then="rst"), real.final(NAME)], {}, "completed", 0, 2),
    "a cut that was passed on is told": ({"default": real.final(NAME, cut_after=4, then="rst")},
                                         {"retry": {"hold": "first_event"}}, "stream_interrupted", 75, None),
    "an error within the stream": (
        {"default": real.answer(NAME, message("x"), error={"type": "overloaded_error", "message": "Overloaded"})}, {},
        "overloaded", 75, 12),     # the CLI asks it to go on, three times, each a new request with three attempts
    "refusal": ({"default": real.answer(NAME, message("I can not."), finish="refusal")}, {}, "refusal", 0, None),
    "output limit": ({"default": real.answer(NAME, message("A long"), finish="max_tokens")}, {}, "output_limit", 0, None),
}


@pytest.mark.parametrize("name", CASES)
def test_endings(bundle, tmp_path, name):
    plan, more, kind, code, requests = CASES[name]
    done, seen = play(bundle, tmp_path, plan, **more)
    assert (done.outcome["kind"], done.code) == (kind, code), done.outcome
    assert requests is None or len(seen) == requests
    assert not [one for one in done.attempts if not one["main"]]


def results(done):
    return [(event["subtype"], event["is_error"]) for event in done.events if event["type"] == "result"]


def test_an_error_whose_subtype_is_success(bundle, tmp_path):
    done, _ = play(bundle, tmp_path, [real.error(NAME, 400, "invalid_request_error", "bad")])
    assert results(done) == [("success", True)] and done.outcome["kind"] == "invalid_request"
    assert done.result["final_message"] is None and done.result["return_code"] == 1


def background(command):
    return function_call("Bash", {"command": command, "description": "x", "run_in_background": True}, "toolu_1")


ALLOWED = {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "0"}


def test_the_last_of_several_results_counts(bundle, tmp_path):
    """A background task that ends makes it take a second turn after its first result."""
    answers = [answer(background("sleep 2; echo late")), real.final(NAME, text="First."), real.final(NAME, text="Second.")]
    done, _ = play(bundle, tmp_path, answers, env=ALLOWED, linger=90)
    assert (done.outcome["kind"], done.result["final_message"]) == ("completed", "Second.")
    assert results(done) == [("success", False)] * 2 and done.receipt["signals"] == []


def test_a_cli_that_stays_after_its_result_is_ended_by_linger(bundle, tmp_path):
    done, _ = play(bundle, tmp_path, [answer(background("exec sleep 987")), real.final(NAME)], env=ALLOWED, linger=8)
    assert (done.outcome["kind"], done.result["final_message"]) == ("completed", "All done.")
    assert "lingered" in done.warnings() and done.receipt["signals"][0]["signal"] == "SIGTERM"
    assert done.result["cleanup_confirmed"]


def test_a_hidden_repeat_is_told_of(bundle, tmp_path):
    """With the CLI's own repeat of a broken stream switched on again: its stdout and exit code show plain success."""
    plan = [real.final(NAME, cut_after=4, then="rst"), real.final(NAME)]
    done, seen = play(bundle, tmp_path, plan, retry={"hold": "first_event"},
                      env={"CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "0", "CLAUDE_CODE_MAX_RETRIES": "1"})
    assert (done.outcome["kind"], done.result["return_code"], len(seen)) == ("completed", 0, 2)
    assert "recovered_errors" in done.warnings() and [one["failure"] for one in done.attempts] == ["stream_interrupted", None]


def test_it_refuses_root_without_the_switch(bundle, tmp_path):
    """Then there is no request and no event, only words on stderr."""
    if os.geteuid() != 0:
        pytest.skip("only root is refused")
    done, seen = play(bundle, tmp_path, [real.final(NAME)], env={"IS_SANDBOX": ""})
    assert (done.outcome["kind"], done.code, done.result["return_code"], seen) == ("no_model_call", 69, 1, [])
    assert b"root/sudo" in done.read("stderr.log")


def test_turn_limit(bundle, tmp_path):
    plan = {"default": answer(shell("echo again", "toolu_1"))}
    done, _ = play(bundle, tmp_path, plan, command=["claude", "-p", "--max-turns", "2"])
    assert (done.outcome["kind"], done.code, done.result["return_code"]) == ("turn_limit", 0, 1)


def test_usage_that_is_not_told_is_unknown(bundle, tmp_path):
    done, _ = play(bundle, tmp_path, [real.final(NAME, usage="omit")])
    chosen = done.result["usage"]["chosen"]
    assert (done.outcome["kind"], chosen["input_tokens"], chosen["total_tokens"]) == ("completed", None, None)
    assert "usage_omitted" in done.gaps()


def test_stopped_by_sigterm_within_a_tool(bundle, tmp_path):
    def stop(endpoint, process):
        endpoint.wait_for(1)
        real.wait_for(tmp_path / "play" / "work" / "started")
        process.send_signal(signal.SIGTERM)

    done, _ = play(bundle, tmp_path, [answer(shell("touch started; sleep 987", "toolu_1"))], during=stop)
    assert (done.outcome["kind"], done.code) == ("terminated", 75)
    assert [one["signal"] for one in done.receipt["signals"]] == ["SIGTERM"]
    assert done.result["cleanup_confirmed"] and real.tools(done)[0][0] == "toolu_1"
    assert real.tools(done)[0][1] != "completed"


def test_as_an_ordinary_user(bundle, tmp_path):
    for place in (tmp_path, tmp_path.parent):
        place.chmod(0o755)
    done, _ = play(bundle, tmp_path, [answer(shell("id -u", "toolu_1")), real.final(NAME)], agent_user="12345")
    items = done.records("agent_invocation")[0]["conversation"]
    outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert (done.outcome["kind"], outputs) == ("completed", ["12345"])


def test_a_given_command_keeps_its_words(bundle, tmp_path):
    done, _ = play(bundle, tmp_path, [real.final(NAME)], command=["claude", "--append-system-prompt", "Be kind."])
    launched = done.document("launch.json")
    assert launched["given_command"] == ["claude", "--append-system-prompt", "Be kind."]
    assert launched["command"][-2:] == ["--append-system-prompt", "Be kind."] and "-p" in launched["command"]
    assert done.outcome["kind"] == "completed"


def test_no_request_to_any_other_host(bundle, tmp_path):
    told = real.play_alone(NAME, bundle, tmp_path / "alone")
    if told is None:
        lacking("no network namespaces here")
    assert (told[0], told[1]["outcome"]["kind"]) == (0, "completed")

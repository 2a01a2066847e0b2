"""Promise: Qwen Code is run and told of as the contract says, whatever the endpoint answers: the real CLI, a scripted model."""
from __future__ import annotations

import os
import signal

import pytest

from tests import real_harnesses_2 as real
from tests.conftest import lacking
from tests.endpoint import function_call, message, reasoning

NAME = "qwen"
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
    agent = function_call("agent", {"description": "sub", "prompt": "Compute.", "subagent_type": "general-purpose",
                                    "run_in_background": False}, "call_3")
    done, seen = play(bundle, tmp_path, [
        answer(reasoning("Hm."), message("Let me see."), shell("echo one; echo err >&2; exit 7", "call_1"),
               usage=(1000, 400, 50, 20)),
        answer(shell("pwd", "call_2"), agent), answer(message("It is 42."), usage=(500, 0, 7, 0)), real.final(NAME)])
    assert (done.outcome["kind"], done.code, done.result["final_message"]) == ("completed", 0, "All done.")
    assert real.tools(done) == [
        ("call_1", "failed", "exit_code_7"), ("call_2", "completed", None), ("call_3", "completed", None)]
    root, sub = done.records("agent_invocation")
    assert (sub["parent_invocation_id"], sub["spawned_by_tool_call_id"]) == (root["invocation_id"], "call_3")
    assert [call["response_id"] for call in root["model_calls"]] == ["chatcmpl-0001", "chatcmpl-0002", "chatcmpl-0004"]
    assert [call["response_id"] for call in sub["model_calls"]] == ["chatcmpl-0003"]
    for source in ("wire", "transcript", "events"):
        usage = done.result["usage"][source]
        assert (usage["input_tokens"], usage["output_tokens"]) == (3700, 117), source
    assert not done.gaps() and done.result["harness"]["version"] == "0.24.4"
    command = done.document("launch.json")["command"]
    assert command[2].endswith("/cli.js"), "the launcher would orphan the real process"
    assert len(seen) == 4, "no memory agent after the answer"


# name, plan, further input -> kind, exit code, requests that the endpoint saw
SLOW = real.error(NAME, 429, "rate_limit_error", **{"Retry-After": "0.1"})
CASES = {
    "429 twice": ([SLOW, SLOW, real.final(NAME)], {}, "completed", 0, 3),
    "429 for ever": ({"default": SLOW}, {}, "rate_limited", 75, 3),
    "400 after a tool": ([answer(shell("echo one", "call_1")), real.error(NAME, 400, "invalid_request_error", "bad")], {},
                         "invalid_request", 69, 2),
    "401": ([real.error(NAME, 401, "invalid_api_key", "no")], {}, "authentication", 69, 1),
    "503": ({"default": real.error(NAME, 503, "overloaded", "busy")}, {}, "overloaded", 75, 3),
    "a cut is retried unseen": ([real.final(NAME, cut_after=2, then="rst"), real.final(NAME)], {}, "completed", 0, 2),
    "a clean end without finish is retried unseen": ([real.final(NAME, cut_after=2, then="end"), real.final(NAME)], {},
                                                     "completed", 0, 2),
    "glued pieces at the output limit are no success": ({"default": answer(message("A long"), finish="length")}, {},
                                                        "output_limit", 0, None),
    "content filter": ({"default": answer(message("I can not."), finish="content_filter")}, {}, "refusal", 0, None),
}


@pytest.mark.parametrize("name", CASES)
def test_endings(bundle, tmp_path, name):
    plan, more, kind, code, requests = CASES[name]
    done, seen = play(bundle, tmp_path, plan, **more)
    assert (done.outcome["kind"], done.code) == (kind, code), done.outcome
    assert requests is None or len(seen) == requests


def test_pieces_that_it_glues_together(bundle, tmp_path):
    """A stream that was passed on and broke: the CLI asks to go on and puts the pieces together; the wire tells of it."""
    plan = [real.final(NAME, text="Half an answer.", cut_after=2, then="rst"), real.final(NAME)]
    done, seen = play(bundle, tmp_path, plan, retry={"hold": "first_event"})
    assert (done.outcome["kind"], len(seen)) == ("completed", 2)
    assert [one["failure"] for one in done.attempts] == ["stream_interrupted", None]
    assert done.result["final_message"].endswith("All done.") and "cli_retry" in done.warnings()


def test_its_launcher_is_not_what_runs(bundle, tmp_path):
    """The words of a caller who names the launcher become the real program; stopping it leaves nobody."""
    entry = os.path.realpath(real.program(NAME))
    assert entry.endswith("cli-entry.js")

    def stop(endpoint, process):
        real.wait_for(tmp_path / "play" / "work" / "started")
        process.send_signal(signal.SIGTERM)

    done, _ = play(bundle, tmp_path, [answer(shell("touch started; sleep 987 & wait", "call_1"))], during=stop,
                   command=["node", entry])
    launched = done.document("launch.json")
    assert launched["given_command"] == ["node", entry] and launched["command"][2].endswith("/cli.js")
    assert (done.outcome["kind"], done.result["cleanup_confirmed"]) == ("terminated", True)
    assert done.receipt["return_code"] in (130, -9)  # it may take longer than its grace on a busy machine
    assert not [one for one in done.receipt["killed"] if any(word.endswith("cli.js") for word in one["argv"] or ())]


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

"""Promise: mini-swe-agent is run and told of as the contract says: the real CLI, a scripted model."""
from __future__ import annotations

import os
import signal

import pytest

from tests import real_harnesses_2 as real
from tests.conftest import lacking
from tests.endpoint import message

NAME = "mini"
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
    prompt = "Do 'the' \"task\" = -t {{x}} \u00fc\u2028\x07\U0001f600\\ud83d\\ude00" + "x" * 200000
    done, seen = play(bundle, tmp_path, [
        answer(message("Let me see."), shell("echo one; echo err >&2; exit 7", "call_1")), answer(shell("pwd", "call_2")),
        real.final(NAME)], prompt=prompt)
    assert (done.outcome["kind"], done.code, done.result["final_message"]) == ("completed", 0, "All done.\n")
    assert real.tools(done) == [
        ("call_1", "failed", "exit_code_7"), ("call_2", "completed", None), ("call_end", "completed", None)]
    root, = done.records("agent_invocation")
    assert [call["response_id"] for call in root["model_calls"]] == ["chatcmpl-0001", "chatcmpl-0002", "chatcmpl-0003"]
    for source in ("wire", "transcript"):
        usage = done.result["usage"][source]
        assert (usage["input_tokens"], usage["output_tokens"]) == (3200, 110), source
    assert set(done.gaps()) == {"event_times_unavailable"} and done.result["harness"]["version"] == "2.4.6"
    assert not any(prompt[:20] in word for word in done.document("launch.json")["command"])
    assert prompt in real.json.loads(seen[0]["body"])["messages"][1]["content"]


def open_to_all(path):
    while path != "/" and os.stat(path).st_mode & 1:
        path = os.path.dirname(path)
    return path == "/"


# name, plan, further input -> kind, exit code, requests that the endpoint saw
SLOW = real.error(NAME, 429, "rate_limit_error", **{"Retry-After": "0.1"})
CASES = {
    "429 twice": ([SLOW, SLOW, real.final(NAME)], {}, "completed", 0, 3),
    "429 for ever": ({"default": SLOW}, {}, "rate_limited", 75, 3),
    "400 after a tool": ([answer(shell("echo one", "call_1")), real.error(NAME, 400, "invalid_request_error", "bad")], {},
                         "invalid_request", 69, 2),
    "401": ([real.error(NAME, 401, "invalid_api_key", "no")], {}, "authentication", 69, 1),
    "500": ({"default": real.error(NAME, 500, "server_error", "oh")}, {}, "server_error", 75, 3),
    "words without a tool, three times, with exit code 0": ({"default": answer(message("All done."))}, {}, "agent_error", 0, 3),
}


@pytest.mark.parametrize("name", CASES)
def test_endings(bundle, tmp_path, name):
    plan, more, kind, code, requests = CASES[name]
    done, seen = play(bundle, tmp_path, plan, **more)
    assert (done.outcome["kind"], done.code) == (kind, code), done.outcome
    assert requests is None or len(seen) == requests


def test_usage_that_is_not_told_is_unknown(bundle, tmp_path):
    done, _ = play(bundle, tmp_path, [real.final(NAME, usage="omit")])
    chosen = done.result["usage"]["chosen"]
    assert (done.outcome["kind"], chosen["input_tokens"], chosen["total_tokens"]) == ("completed", None, None)
    assert "usage_omitted" in done.gaps()


def test_as_an_ordinary_user(bundle, tmp_path):
    python = os.path.realpath(os.path.join(os.path.dirname(real.program(NAME)), "python"))
    if not open_to_all(python):
        pytest.skip("the Python of the CLI lies where other users do not come: " + python)
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
    assert done.receipt["signals"][0]["signal"] == "SIGINT"
    assert done.result["cleanup_confirmed"] and all(status != "completed" for _, status, _ in real.tools(done))


def test_killed_in_its_first_step_it_leaves_no_trajectory(bundle, tmp_path):
    done, _ = play(bundle, tmp_path, [answer(shell("trap '' TERM; kill -9 $PPID; sleep 987", "call_1"))])
    assert (done.outcome["kind"], done.result["return_code"], done.result["cleanup_confirmed"]) == ("killed", -9, True)
    assert "agent_artifact_unavailable" in done.gaps()
    assert done.result["usage"]["chosen"]["input_tokens"] == 1000


def test_no_request_to_any_other_host(bundle, tmp_path):
    told = real.play_alone(NAME, bundle, tmp_path / "alone")
    if told is None:
        lacking("no network namespaces here")
    assert (told[0], told[1]["outcome"]["kind"]) == (0, "completed")

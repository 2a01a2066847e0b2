"""Promise: the command that the worker builds for Codex, the token, and the attempt log; on the built bundle, in seconds.

A script named `codex` on PATH stands in for the CLI: it writes down its arguments, environment and standard input, reads its
configuration as Codex does (a `-c` of the deepest subcommand's level discards those above, of one key the last counts), and
posts to the proxy with the headers of a real thread. The endpoint's witness says what arrived.
"""
from __future__ import annotations

import json
import os
import sys

import pytest

from tests.conformance import runner
from tests.endpoint import Endpoint, message

KEY = "sk-fake-codex-0123456789abcdef"
THREAD = "01a00000-0000-7000-8000-000000000001"
FAKE = '''#!%(python)s -S
import http.client, json, os, sys
SUBCOMMANDS = (("exec", "e"), ("resume", "review", "fork"))
VALUES = ("-m", "-s", "-C", "-i", "-p", "--model", "--sandbox", "--cd", "--color", "-o")

def effective(words):
    """The settings that Codex takes from these arguments, by level: {key: value} of the deepest level that has any."""
    levels, index = [{}], 0
    while index < len(words) and words[index] != "--":
        word = words[index]
        if word in ("-c", "--config"):
            key, _, value = words[index + 1].partition("=")
            levels[-1][key] = value
            index += 1
        elif word in VALUES:
            index += 1
        elif len(levels) <= 2 and word in SUBCOMMANDS[len(levels) - 1]:
            levels.append({})
        index += 1
    return next((level for level in reversed(levels) if level), {})

found = effective(sys.argv[1:])
seen = {"argv": sys.argv, "env": dict(os.environ), "stdin": sys.stdin.read(), "effective": found, "answers": []}
def say(**event):
    print(json.dumps(event), flush=True)
def setting(key):
    return json.loads(found["model_providers.sandbox_worker." + key])
say(type="thread.started", thread_id=%(thread)r)
say(type="turn.started")
host = setting("base_url").split("/")[2]
for token in (os.environ[setting("env_key")], "wrong"):
    connection = http.client.HTTPConnection(host)
    connection.request("POST", "/v1/responses", json.dumps({"model": "m", "input": "x", "stream": True}), {
        "Authorization": "Bearer " + token, "Content-Type": "application/json",
        "session-id": %(thread)r, "thread-id": %(thread)r})
    answer = connection.getresponse()
    seen["answers"].append([answer.status, answer.read().decode()])
with open("seen.json", "w") as file:
    json.dump(seen, file)
if seen["answers"][0][0] == 200:
    say(type="item.completed", item={"id": "item_0", "type": "agent_message", "text": "Done."})
    say(type="turn.completed", usage={
        "input_tokens": 10, "cached_input_tokens": 2, "output_tokens": 3, "reasoning_output_tokens": 1})
else:
    say(type="turn.failed", error={"message": "no"})
    sys.exit(1)
'''
SLOW_DOWN = {"status": 429, "headers": {"Retry-After": "0.05"},
             "json": {"error": {"type": "rate_limit_error", "message": "slow"}}}
ANSWER = {"responses": {"items": [message("Done.")], "usage": [10, 2, 3, 1]}}


@pytest.fixture
def launch(bundle, tmp_path):
    """launch(plan, **document) -> (Done, what the script saw, the endpoint's requests)."""
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "codex"
    script.write_text(FAKE % {"python": sys.executable, "thread": THREAD})
    script.chmod(0o755)

    def go(plan, url_field="model", **document):
        work = tmp_path / "work"
        work.mkdir()
        with Endpoint(plan) as endpoint:
            base = {"cwd": str(work), "prompt": "Fix it.\nPlease: \u00e4", "timeout": 30,
                    "env": {"PATH": "%s:%s" % (tmp_path / "bin", runner.PATH)}}
            if url_field == "model_base_url":
                base["model_base_url"] = endpoint.url + "/v1"
            else:
                (tmp_path / "key").write_text(KEY)
                base["model"] = {"base_url": endpoint.url + "/v1", "name": "m", "api_key_file": str(tmp_path / "key")}
            done = runner.start(bundle, tmp_path / "run", runner.merged(base, document))
        path = work / "seen.json"
        return done, json.loads(path.read_text()) if path.exists() else None, endpoint.requests()
    return go


def header(request, name):
    return next((value for key, value in request["headers"] if key.lower() == name), None)


def test_a_rate_limit_is_absorbed_and_recorded(launch):
    done, seen, requests = launch([SLOW_DOWN, ANSWER], harness="codex", invocation_id="inv-7")
    assert (done.code, done.outcome["kind"], done.action) == (0, "completed", "grade")
    assert [one["answer"]["unplanned"] for one in requests] == [False, False]
    forwarded = [one for one in done.attempts if one["decision"] != "refused"]
    assert [(one["status"], one["decision"], one["failure"]) for one in forwarded] == [
        (429, "retried", "rate_limited"), (200, "forwarded", None)]
    assert [one["attempt"] for one in forwarded] == [1, 2] and len({one["request"] for one in forwarded}) == 1
    assert {one["invocation_id"] for one in done.attempts} == {"inv-7"} == {done.result["invocation_id"]}
    assert [one["request_sha256"] for one in forwarded] == [one["body_sha256"] for one in requests]
    assert {one["identity"]["thread-id"] for one in forwarded} == {THREAD}
    assert forwarded[0]["wait"]["source"] == "retry-after" and 0.05 <= forwarded[0]["wait"]["seconds"] <= 0.056
    assert requests[1]["at"] - requests[0]["answer"]["first_sent_at"] >= 0.05
    assert forwarded[1]["usage"]["total_tokens"] == 13 == done.result["usage"]["chosen"]["total_tokens"]


def test_attempts_are_saved_byte_for_byte(launch):
    done, seen, requests = launch([SLOW_DOWN, ANSWER], harness="codex")
    assert done.read("bodies", "000001.request").decode() == requests[0]["body"] == requests[1]["body"]
    assert json.loads(done.read("bodies", "000001.response")) == SLOW_DOWN["json"]
    assert done.read("bodies", "000002.response").decode() == seen["answers"][0][1]
    assert {name: entry["size"] for name, entry in done.result["files"].items() if name.endswith(".response")} == {
        "bodies/%06d.response" % one["seq"]: one["response_bytes"] for one in done.attempts if one["decision"] != "refused"}


def test_the_agent_gets_a_token_and_the_endpoint_the_key(launch):
    done, seen, requests = launch([SLOW_DOWN, ANSWER], harness="codex")
    token = seen["env"]["SANDBOX_WORKER_TOKEN"]
    assert len(token) >= 32 and KEY not in json.dumps(seen)
    assert {header(one, "authorization") for one in requests} == {"Bearer " + KEY}
    assert token not in json.dumps(requests)
    assert seen["answers"][1][0] == 401                             # the script's second request had a wrong token
    refused = [one for one in done.attempts if one["decision"] == "refused"]
    assert [(one["status"], one["main"]) for one in refused] == [(401, False)] and len(requests) == 2
    assert not [name for name, data in done.everything().items() if KEY.encode() in data or token.encode() in data]


def test_the_command_that_is_built(launch):
    done, seen, requests = launch([ANSWER], harness="codex")
    port = done.document("launch.json")["port"]
    assert seen["argv"][1] == "exec" and seen["argv"][-1] == "-" and "--json" in seen["argv"]
    assert seen["stdin"] == "Fix it.\nPlease: \u00e4" and "Fix it" not in json.dumps(seen["argv"])
    ours = {key: json.loads(value) for key, value in seen["effective"].items()}
    provider = "model_providers.sandbox_worker."
    assert ours["model_provider"] == "sandbox_worker" and ours["model"] == "m"
    assert ours[provider + "base_url"] == "http://127.0.0.1:%d/v1" % port
    assert (ours[provider + "request_max_retries"], ours[provider + "stream_max_retries"]) == (0, 0)
    assert ours[provider + "stream_idle_timeout_ms"] == 30000 and ours[provider + "wire_api"] == "responses"
    assert ours["analytics.enabled"] is ours["features.plugins"] is ours["check_for_update_on_startup"] is False
    assert done.document("launch.json")["command"][1:] == seen["argv"][1:]
    assert seen["env"]["CODEX_HOME"].startswith(os.path.realpath(done.directory)) and "127.0.0.1" in seen["env"]["NO_PROXY"]


# given words after `codex`; settings that must still hold
COMMANDS = {
    "exec": (["exec", "--skip-git-repo-check", "-"], {}),
    "above": (["-c", "a=1", "-m", "exec", "exec", "-"], {"a": "1"}),
    "both levels": (["-c", "a=1", "-c", "b=1", "exec", "-c", "b=2", "--config", "c=3", "-"], {"a": "1", "b": "2", "c": "3"}),
    "three levels": (["-c", "a=1", "exec", "-c", "b=2", "--json", "resume", "--last", "-c", "c=3", "-"],
                     {"a": "1", "b": "2", "c": "3"}),
    "end of options": (["exec", "-c", "a=1", "--", "exec -c model_provider=evil"], {"a": "1"}),
    "prompt looks like ours": (["exec", "-c", "a=1", "--", "-c", "model_provider=evil"], {"a": "1"}),
    "own provider": (["exec", "-c", 'model_provider="other"', "-c", 'model_providers.other.base_url="http://evil.test"', "-"],
                     {}),
    "own quiet settings": (["exec", "-c", "features.plugins=true", "-"], {"features.plugins": "true"}),
}


def without_settings(words):
    """The words but for the settings before `--`."""
    kept, index = [], 0
    while index < len(words) and words[index] != "--":
        if words[index] in ("-c", "--config"):
            index += 1
        else:
            kept.append(words[index])
        index += 1
    return kept + words[index:]


@pytest.mark.parametrize("given,settings", COMMANDS.values(), ids=list(COMMANDS))
def test_a_given_command_keeps_its_words_and_gains_ours(launch, given, settings):
    done, seen, requests = launch([ANSWER], command=["codex"] + given)
    assert done.outcome["kind"] == "completed" and done.result["harness"]["name"] == "codex" and len(requests) == 1
    rest = [word for word in without_settings(seen["argv"][1:]) if word != "--json"]
    assert rest == [word for word in without_settings(given) if word != "--json"]
    assert seen["argv"][1:].count("--json") == 1
    assert {key: seen["effective"].get(key) for key in settings} == settings
    assert seen["effective"]["model_provider"] == '"sandbox_worker"'
    assert seen["effective"]["model_providers.sandbox_worker.request_max_retries"] == "0"
    assert done.document("launch.json")["given_command"] == ["codex"] + given


def test_the_short_form_of_the_reference(launch, tmp_path):
    done, seen, requests = launch(
        [SLOW_DOWN, ANSWER], url_field="model_base_url", directory=str(tmp_path / "run"), cleanup_timeout=5,
        command=["codex", "exec", "--json", "-"], env={"OPENAI_API_KEY": KEY})
    assert (done.code, done.outcome["kind"]) == (0, "completed")
    assert {name: done.result[name] for name in ("return_code", "timed_out", "cleanup_confirmed", "error")} == {
        "return_code": 0, "timed_out": False, "cleanup_confirmed": True, "error": None}
    assert isinstance(done.result["hostname"], str) and isinstance(done.result["pid"], int)
    assert seen["env"]["OPENAI_API_KEY"] == seen["env"]["SANDBOX_WORKER_TOKEN"] != KEY and KEY not in json.dumps(seen)
    assert {header(one, "authorization") for one in requests} == {"Bearer " + KEY}


def test_without_the_short_form_no_wire_is_recorded(launch):
    """The reference's input without `model_base_url`: nothing is wired in, and a gap says so."""
    done, seen, requests = launch([], command=["codex", "exec", "-"], harness="codex", model=None)
    assert seen is None and requests == [] and done.attempts == []          # the script finds no provider and dies
    assert "no_wire" in done.gaps() and done.outcome["kind"] == "agent_crash"


def test_a_run_without_a_rollout_says_so(launch):
    done, seen, requests = launch([ANSWER], harness="codex")
    assert "agent_artifact_unavailable" in done.gaps() and done.result["final_message"] == "Done."

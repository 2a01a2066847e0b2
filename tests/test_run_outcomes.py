"""Promise: what became of a run, on the built bundle with real agents and a real endpoint: one row of the outcome table each."""
from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys

import pytest

from tests import agents, runs
from tests.endpoint import Endpoint, message
from worker.supervise import STOP_SIGNALS

SLOW_DOWN = {"status": 429, "headers": {"Retry-After": "0"}, "json": {"error": {"type": "rate_limit_error", "message": "slow down"}}}
ANSWER = {"responses": {"items": [message("42")], "usage": [10, 2, 3, 1]}}


def error(status, code, text="x"):
    return {"status": status, "json": {"error": {"code": code, "type": code, "message": text}}}


ONCE = "status, _ = ask(); sys.exit(0 if status == 200 else 1)"
# name, plan, agent, further input, (kind, status, fault, action, exit code)
ROWS = [
    ("completed", [ANSWER], ONCE, {}, ("completed", "completed", "none", "grade", 0)),
    ("recovered", [SLOW_DOWN, SLOW_DOWN, ANSWER], ONCE, {}, ("completed", "completed", "none", "grade", 0)),
    ("429 for ever", {"default": SLOW_DOWN}, ONCE, {"retry": {"max_attempts": 2}},
     ("rate_limited", "failed", "model", "retry", 75)),
    ("quota", [error(429, "insufficient_quota")], ONCE, {}, ("quota_exhausted", "failed", "host", "mask", 69)),
    ("401", [error(401, "invalid_api_key")], ONCE, {}, ("authentication", "failed", "host", "mask", 69)),
    ("403", [error(403, "permission_denied")], ONCE, {}, ("permission", "failed", "host", "mask", 69)),
    ("404", [error(404, "model_not_found")], ONCE, {}, ("model_not_found", "failed", "host", "mask", 69)),
    ("400", [error(400, "invalid_value")], ONCE, {}, ("invalid_request", "failed", "agent", "mask", 69)),
    ("context", [error(400, "context_length_exceeded")], ONCE, {}, ("context_length", "incomplete", "limit", "grade", 0)),
    ("policy", [error(400, "cyber_policy")], ONCE, {}, ("refusal", "completed", "model", "grade", 0)),
    ("500 for ever", {"default": error(500, "server_error")}, ONCE, {"retry": {"max_attempts": 2, "base": 0.01}},
     ("server_error", "failed", "model", "retry", 75)),
    ("529", {"default": error(529, "overloaded_error")}, ONCE, {"retry": {"max_attempts": 1}},
     ("overloaded", "failed", "model", "retry", 75)),
    ("HTML", [{"html": "<html>blocked</html>"}], ONCE, {}, ("unexpected_response", "failed", "model", "retry", 75)),
    ("200 that answers nothing", [{"json": {}}], ONCE, {}, ("unexpected_response", "failed", "model", "retry", 75)),
    ("a document that was cancelled", {"default": {"json": {"id": "r", "object": "response", "status": "cancelled", "output": []}}}, ONCE,
     {"retry": {"max_attempts": 2, "base": 0.01}}, ("stream_interrupted", "failed", "model", "retry", 75)),
    ("409", [error(409, "conflict")], ONCE, {}, ("server_error", "failed", "model", "retry", 75)),
    ("403 for a rate", {"default": error(403, None, "API rate limit exceeded")}, ONCE, {"retry": {"max_attempts": 2, "base": 0.01}},
     ("rate_limited", "failed", "model", "retry", 75)),
    ("no call", [], "say(type='hello')", {}, ("no_model_call", "failed", "environment", "mask", 69)),
    ("crash", [ANSWER], "ask(); say(type='x'); sys.exit(3)", {}, ("agent_crash", "failed", "agent", "grade", 0)),
    ("no output", [ANSWER], "ask(); sys.exit(3)", {}, ("no_output", "failed", "agent", "grade", 0)),
    ("own failure", [ANSWER], "ask(); say(type='turn.failed', error={'message': 'no'}); sys.exit(1)", {},
     ("agent_error", "failed", "agent", "grade", 0)),
    ("killed", [ANSWER], "ask(); os.kill(os.getpid(), 9)", {}, ("killed", "failed", "environment", "retry", 75)),
    ("request limit", {"default": ANSWER}, "\nfor i in range(3): status, _ = ask()\nsys.exit(1)", {"limits": {"requests": 2}},
     ("request_limit", "incomplete", "limit", "grade", 0)),
    ("token limit", {"default": ANSWER}, "\nfor i in range(3): status, _ = ask()\nsys.exit(1)", {"limits": {"total_tokens": 20}},
     ("token_limit", "incomplete", "limit", "grade", 0)),
]


@pytest.mark.parametrize("plan,agent,more,expected", [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_the_first_row_that_matches_decides(bundle, tmp_path, plan, agent, more, expected):
    with Endpoint(plan) as endpoint:
        done = runs.run(bundle, tmp_path, command=agents.python(agent),
                        model={"base_url": endpoint.url + "/v1", "api": "responses"}, **more)
        seen = endpoint.requests()
    found = (done.outcome["kind"], done.outcome["status"], done.outcome["fault"], done.action, done.code)
    assert found == expected, done.outcome
    sent = [record for record in done.attempts if record["decision"] not in ("refused", "latched")]
    assert [record["request_sha256"] for record in sent] == [one["body_sha256"] for one in seen]
    assert done.result["cleanup_confirmed"] and done.result["disposition"]["verify_allowed"]


ON_AND_ON = "\nwhile True: ask()"


@pytest.mark.parametrize("plan, limits, kind", [({"default": SLOW_DOWN}, {}, "rate_limited"), ({"default": ANSWER}, {"requests": 2}, "request_limit")],
                         ids=["its attempts are used up", "its limit is reached"])
def test_an_agent_that_asks_on_and_on_is_as_good_as_silent(bundle, tmp_path, plan, limits, kind):
    """As OpenCode 1.17.11 does, which takes a short Retry-After at its word each time."""
    with Endpoint(plan) as endpoint:
        done = runs.run(bundle, tmp_path, command=agents.python(ON_AND_ON), linger=1, timeout=90, limits=limits,
                        retry={"max_attempts": 2}, model={"base_url": endpoint.url + "/v1", "api": "responses"})
        assert len(endpoint.requests()) == 2
    assert (done.outcome["kind"], done.receipt["timed_out"]) == (kind, False) and "lingered" in done.warnings()
    assert len([one for one in done.attempts if one["main"]]) > 20


def test_requests_that_are_given_up_end_nothing_once_one_succeeds(bundle, tmp_path):
    with Endpoint([error(400, "invalid_value")] * 25 + [ANSWER]) as endpoint:
        agent = "\nimport time\nfor i in range(25): ask({'model': 'm', 'input': str(i)})\nask(); time.sleep(2); say(**%r)" % agents.DONE
        done = runs.run(bundle, tmp_path, command=agents.python(agent), harness="generic", linger=1,
                        model={"base_url": endpoint.url + "/v1", "api": "responses"})
    assert done.outcome["kind"] == "completed" and done.receipt["signals"] == []


PINGED = {"send": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: ping\n\n"}


@pytest.mark.parametrize("steps, agent", [
    ([{"stall": True}], "ask()"),
    ([PINGED, {"stall": True}], "ask()"),
    ([PINGED] + [{"sleep": 0.5}, {"send": ": ping\n\n"}] * 24, "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(1)); ask()"),
    ([{"stall": True}], "import socket; socket.setdefaulttimeout(6)\ntry: ask()\nexcept OSError: sys.exit(1)"),
], ids=["before the head", "in the stream", "but for its pings, and it leaves in order", "until the agent gave up"])
def test_a_model_that_was_silent_at_the_deadline_is_not_the_agents_fault(bundle, tmp_path, steps, agent):
    """Told to stop, the agent closes its connection before it ends: the silence before that decides, not that it left."""
    with Endpoint([{"steps": steps}]) as endpoint:
        done = runs.run(bundle, tmp_path, command=agents.python(agent), timeout=9, grace=2,
                        model={"base_url": endpoint.url + "/v1", "api": "responses"})
    assert (done.outcome["kind"], done.outcome["fault"], done.action) == ("model_timeout", "model", "retry"), done.outcome
    assert done.result["usage"]["chosen"]["completeness"] == "unknown"


@pytest.mark.parametrize("finish", ["abort", "error", "insufficient_system_resource"])
def test_an_answer_that_its_server_broke_off_is_asked_for_again(bundle, tmp_path, finish):
    """SGLang and vLLM say abort, OpenRouter error, DeepSeek insufficient_system_resource: after a 200, with a clean end."""
    plan = [{"chat": {"items": [message("4")], "finish": finish}}, {"chat": {"items": [message("42")]}}]
    agent = agents.python("status, body = ask({'model': 'm', 'messages': [], 'stream': True}, '/chat/completions'); "
                          "say(broken=body.count(b'\"%s\"'), whole=body.count(b'\"stop\"'))" % finish)
    with Endpoint(plan) as endpoint:
        done = runs.run(bundle, tmp_path, command=agent, model={"base_url": endpoint.url + "/v1", "api": "chat"},
                        retry={"base": 0.01, "hold": "answer"})
        assert len(endpoint.requests()) == 2
    assert [(record["decision"], record["failure"], record["finish"]) for record in done.attempts] == [
        ("retried", "stream_interrupted", finish), ("forwarded", None, "stop")]
    assert done.events == [{"broken": 0, "whole": 1}]
    assert done.outcome["kind"] == "completed" and "recovered_errors" in done.warnings()


@pytest.mark.parametrize("bad", [{"input_tokens": -1, "output_tokens": 3}, {"input_tokens": None, "output_tokens": 3},
                                 {"input_tokens": 10.5, "output_tokens": 3}, {"output_tokens": 3}])
def test_a_sum_over_an_answer_of_unknown_input_is_never_called_complete(bundle, tmp_path, bad):
    plan = [{"responses": {"items": [message("1")], "usage": bad}}, ANSWER]
    with Endpoint(plan) as endpoint:
        done = runs.run(bundle, tmp_path, command=agents.python("ask(); ask()"),
                        model={"base_url": endpoint.url + "/v1", "api": "responses"})
    chosen = done.result["usage"]["chosen"]
    assert (chosen["completeness"], chosen["input_tokens"], chosen["output_tokens"]) == ("partial", 10, 6)
    assert "partial_model_usage_unavailable" in done.gaps()


def test_figures_that_contradict_each_other_on_the_wire_are_a_gap(bundle, tmp_path):
    with Endpoint([{"responses": {"items": [message("1")], "usage": [10, 50, 3, 0]}}]) as endpoint:
        done = runs.run(bundle, tmp_path, command=agents.python("ask()"),
                        model={"base_url": endpoint.url + "/v1", "api": "responses"})
    assert done.result["usage"]["chosen"]["cached_input_tokens"] == 50 and "usage_inconsistent" in done.gaps()


NO_MODEL = [
    ("exit 0", agents.shell("exit 0"), {}, ("completed", "grade", 0)),
    ("exit 7", agents.shell("echo x; exit 7"), {}, ("agent_crash", "grade", 0)),
    ("not found", ["/no/such/program"], {}, ("launch_failed", "mask", 69)),
    ("not found on PATH", ["no-such-program-anywhere"], {}, ("launch_failed", "mask", 69)),
    ("bad cwd", agents.shell("true"), {"cwd": "/no/such/folder"}, ("launch_failed", "mask", 69)),
    ("timeout", agents.shell("sleep 600"), {"timeout": 0.5, "grace": 5}, ("wall_timeout", "grade", 0)),
    ("SIGKILL", agents.shell("echo x; kill -9 $$"), {}, ("killed", "retry", 75)),
    ("policy of the host", agents.shell("echo x; exit 7"), {"policy": {"agent_crash": "mask"}}, ("agent_crash", "mask", 69)),
    ("last attempt", agents.shell("echo x; kill -9 $$"), {"run_attempt": 2, "run_max_attempts": 2}, ("killed", "mask", 69)),
]


@pytest.mark.parametrize("command,more,expected", [row[1:] for row in NO_MODEL], ids=[row[0] for row in NO_MODEL])
def test_runs_without_a_model(bundle, tmp_path, command, more, expected):
    done = runs.run(bundle, tmp_path, command=command, **more)
    assert (done.outcome["kind"], done.action, done.code) == expected, done.outcome
    assert "no_wire" in done.gaps()


def test_the_two_lines_on_stdout_name_the_run_and_every_file(bundle, tmp_path):
    done = runs.run(bundle, tmp_path, command=agents.shell("echo '{}'"), nonce="n-1", invocation_id="i-1")
    assert [line["event"] for line in done.lines] == ["started", "finished"]
    assert {(line["nonce"], line["invocation_id"]) for line in done.lines} == {("n-1", "i-1")}
    assert set(done.lines[1]["files"]) == set(done.result["files"]) | {"result.json"}
    assert done.lines[1]["outcome"] == done.outcome


def test_a_closed_stdout_does_not_stop_a_run(bundle, tmp_path):
    process, directory = runs.start(bundle, tmp_path, command=agents.shell("echo '{}'"))
    process.stdout.close()
    process.stdout = open(os.devnull, "rb")
    assert runs.finish(process, directory).outcome["kind"] == "completed"


def test_the_prompt_arrives_unchanged_and_never_by_environment(bundle, tmp_path):
    """E05."""
    prompt = "Zeile 1\n" + "ü$(x)'\"\0" * 40000
    source = "import hashlib; d = sys.stdin.buffer.read(); say(size=len(d), sha=hashlib.sha256(d).hexdigest(), env=str(dict(os.environ)).count('Zeile'))"
    done = runs.run(bundle, tmp_path, command=agents.python(source), prompt=prompt)
    data = prompt.encode()
    assert done.events == [{"size": len(data), "sha": hashlib.sha256(data).hexdigest(), "env": 0}]


def test_without_a_prompt_stdin_is_at_its_end(bundle, tmp_path):
    """B16."""
    done = runs.run(bundle, tmp_path, command=agents.shell("cat; echo '{\"a\": 1}'"))
    assert done.events == [{"a": 1}]


def test_other_vendors_variables_do_not_reach_the_agent(bundle, tmp_path):
    """A35, E15."""
    source = "say(names=sorted(os.environ), no_proxy=[os.environ['NO_PROXY'], os.environ['no_proxy']], e=os.environ['E'],"
    source += " tmp=os.access(os.environ['TMPDIR'], os.W_OK))"
    given = {"GOOGLE_API_KEY": "real", "OPENAI_BASE_URL": "https://api.openai.com", "BIG": "x" * 120000, "LC_TIME": "C",
             "NO_PROXY": "corp.example", "TMPDIR": "/nonexistent", "http_proxy": "http://127.0.0.1:9", "MY_ONE": "1", "MY_TWO": "2", "TWO": "2"}
    done = runs.run(bundle, tmp_path, environ=given, command=agents.python(source), pass_env=["MY_*", "TWO"],
                    env={"E": "line1\nline2 $HOME"})
    event = done.events[0]
    assert event["e"] == "line1\nline2 $HOME" and event["tmp"] is True
    assert {"MY_ONE", "MY_TWO", "TWO", "LC_TIME", "http_proxy", "PATH", "HOME"} <= set(event["names"])
    assert not {"GOOGLE_API_KEY", "OPENAI_BASE_URL", "BIG"} & set(event["names"])
    for value in event["no_proxy"]:
        assert {"127.0.0.1", "localhost", "::1"} <= set(value.split(","))
    assert "corp.example" in event["no_proxy"][0]
    launched = done.document("launch.json")
    assert set(event["names"]) - {"LC_CTYPE"} <= set(launched["env_names"])
    assert "real" not in done.read("launch.json").decode()


@pytest.mark.parametrize("signum", STOP_SIGNALS)
def test_a_signal_to_the_worker_is_an_orderly_stop(bundle, tmp_path, signum):
    heard = "import os, signal, sys; signal.signal(%d, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])" % signum
    process, directory = runs.start(bundle, tmp_path, wrapper=agents.python(heard), command=agents.shell(
        "echo '{\"type\": \"x\"}'; sleep 600"))
    assert json.loads(process.stdout.readline())["event"] == "started"
    process.send_signal(signum)
    done = runs.finish(process, directory)
    assert (done.outcome["kind"], done.outcome["status"], done.outcome["fault"], done.code) == ("terminated", "incomplete", "host", 75)
    assert done.result["cleanup_confirmed"]


ALL_AT_ONCE = """
import os, signal, time
worker = os.getppid()
guard = int(open("/proc/%d/stat" % worker).read().rsplit(")", 1)[1].split()[1])
for pid in (guard, worker):                 # neither can do anything before both signals are there
    os.kill(pid, signal.SIGSTOP)
agent = os.getpid()
if os.fork() == 0:
    os.setsid()
    while open("/proc/%d/stat" % agent).read().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.001)
    for pid in (worker, guard):
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
    os._exit(0)
os.kill(agent, signal.SIGTERM)
"""


def test_a_host_that_ends_all_processes_of_a_job_may_reach_the_agent_first(bundle, tmp_path):
    """Slurm's scancel does; the agent's own end by that signal is not the agent's fault."""
    done = runs.run(bundle, tmp_path, command=agents.python(ALL_AT_ONCE))
    assert (done.outcome["kind"], done.outcome["fault"], done.code) == ("terminated", "host", 75)
    assert done.result["return_code"] == -signal.SIGTERM and done.result["cleanup_confirmed"]


def test_the_end_of_stdin_stops_a_run_that_watches_it(bundle, tmp_path):
    process, directory = runs.start(bundle, tmp_path, stdin=subprocess.PIPE, command=agents.shell("sleep 600"), watch_stdin=True)
    assert json.loads(process.stdout.readline())["event"] == "started"
    process.stdin.close()
    process.stdin = None
    done = runs.finish(process, directory)
    assert done.outcome["kind"] == "terminated" and done.result["cleanup_confirmed"]


VERSIONS = [("tool 1.2.3", "1.2.3", "completed"), ("tool 1.2.30", "1.2.3", "launch_failed"), ("", "1.2.3", "launch_failed")]


@pytest.mark.parametrize("said,expected,kind", VERSIONS)
def test_expect_insists_on_a_version(bundle, tmp_path, said, expected, kind):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\nif [ \"$1\" = --version ]; then echo '%s'; else touch %s/ran; fi\n" % (said, tmp_path))
    tool.chmod(0o755)
    done = runs.run(bundle, tmp_path, command=[str(tool)], expect=expected)
    assert done.outcome["kind"] == kind and os.path.exists(tmp_path / "ran") is (kind == "completed")
    assert kind == "completed" or "expect" in done.outcome["message"]


def test_a_key_that_others_show_is_reported_and_refused_with_strict_key(bundle, tmp_path):
    key = "sk-visible-in-another-process"
    with subprocess.Popen(["sleep", "600"], env=dict(os.environ, MODEL_KEY=key)) as other:
        try:
            for strict, kind in ((False, "completed"), (True, "launch_failed")):
                folder = tmp_path / str(strict)
                folder.mkdir()
                (folder / "key").write_text(key)
                model = {"base_url": "http://127.0.0.1:9/v1", "api_key_file": str(folder / "key")}
                done = runs.run(bundle, folder, command=agents.shell("true"), strict_key=strict, model=model)
                assert "environ of process %d" % other.pid in str(done.result["warnings"])
                assert "key_exposed" in done.warnings() and (done.outcome["kind"] == kind or kind == "completed")
                assert not (folder / "key").exists()
        finally:
            other.kill()


@pytest.mark.parametrize("how", ["file", "environment", "stdin"])
def test_the_real_key_is_nowhere_that_the_agent_can_read(bundle, tmp_path, how):
    key = "sk-the-real-key-%s" % how
    look = """
import glob
def read(path):
    try:
        with open(path, "rb") as file: return file.read(1 << 20)
    except OSError: return b""
parts = ["sk-the", "real-key", HOW]
key = "-".join(parts).encode()
places = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline") + glob.glob(RUN + "/**", recursive=True)
status, _ = ask()
say(found=[p for p in places if "/%d/" % os.getpid() not in p and key in read(p)], own=key.decode() in str(os.environ), status=status)
""".replace("HOW", repr(how)).replace("RUN", repr(str(tmp_path / "run")))
    with Endpoint([ANSWER]) as endpoint:
        model = {"base_url": endpoint.url + "/v1"}
        document = {"directory": str(tmp_path / "run"), "command": agents.python(look), "timeout": 60, "model": model}
        environ, text = dict(os.environ), None
        (tmp_path / "run").mkdir()
        if how == "file":
            (tmp_path / "key").write_text(key)
            model["api_key_file"] = str(tmp_path / "key")
        elif how == "environment":
            environ["MODEL_KEY"] = key
            model["api_key_env"] = "MODEL_KEY"
        else:
            model["api_key"] = key
        if how == "stdin":
            text, words = json.dumps(document).encode() + b"\n", ["run", "-"]
        else:
            (tmp_path / "run" / "input.json").write_text(json.dumps(document))
            words = ["run", str(tmp_path / "run" / "input.json")]
        ended = subprocess.run([sys.executable, "-I", "-S", bundle, *words], input=text, env=environ, capture_output=True)
        sent = dict(endpoint.requests()[0]["headers"])
    done = runs.Done(tmp_path / "run", ended.returncode, ended.stdout, ended.stderr)
    assert done.events == [{"found": [], "own": False, "status": 200}] and "key_exposed" not in done.warnings()
    assert sent["Authorization"] == "Bearer " + key
    assert all(key.encode() not in content for content in done.everything().values())

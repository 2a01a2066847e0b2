"""Promise: every row of the outcome table comes from a real run of the built bundle; here are those that tests/test_run_outcomes.py
and the tests of other promises do not have, the failures on the wire among them."""
from __future__ import annotations

import os
import socket
import sys

import pytest

from tests import agents, pythons, runs
from tests.endpoint import Endpoint, message, shell
from tests.sandboxes import docker
from tests.test_run_outcomes import ANSWER, NO_MODEL, ONCE, ROWS, error
from worker import outcome

ROOT = os.path.dirname(os.path.abspath(__file__))
QUICK = {"max_attempts": 2, "base": 0.01, "cap": 0.02}
FIRST_EVENT = dict(QUICK, hold="first_event", max_attempts=1)
FAILED = "say(type='turn.failed', error={'message': 'no'});"
GIVES_UP = "ask(); say(type='x'); sys.exit(1)"
PARTIAL = "ask(); say(type='item.completed', item={'type': 'agent_message', 'text': 'partial'}); "
DONE = "say(type='turn.completed', usage={});"
WITH_TOOLS = "{'model': 'big', 'input': 'x', 'stream': True, 'tools': [{'type': 'function', 'name': 'f'}]}"
TITLE = "{'model': 'small', 'input': 'title?', 'stream': True}"


def told(items=(message("4"),), usage=(10, 2, 3, 1), **more):
    return {"responses": dict({"items": list(items), "usage": list(usage)}, **more)}


def wrong_type(status):
    return {"status": status, "json": {"error": {"type": "invalid_request_error", "message": "Something broke."}}}


def asked(*bodies):
    return "".join("ask(%s);" % body for body in bodies)


# An answer that is all there, and then no last chunk.
BREAKS_BEHIND = [{"send": 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n'
                          '54\r\ndata: {"type":"response.completed","response":{"id":"r","status":"completed"}}    \n\n\r\n'},
                 {"close": "fin"}]


# name, plan, agent, further input, (kind, status, fault, action), warnings that must be there
WIRE = [
    ("output limit", [told(finish="incomplete")], GIVES_UP, {}, ("output_limit", "incomplete", "limit", "grade"), ()),
    ("content filter", [told(finish="incomplete", reason="content_filter")], GIVES_UP, {}, ("refusal", "completed", "model", "grade"), ()),
    ("rate limit inside a 200", {"default": told(error={"code": "rate_limit_exceeded", "message": "slow down"})}, ONCE,
     {"retry": QUICK}, ("rate_limited", "failed", "model", "retry"), ()),
    ("error inside a 200 after the first event", {"default": told(error={"code": "server_error", "message": "oops"})}, ONCE,
     {"retry": FIRST_EVENT}, ("server_error", "failed", "model", "retry"), ()),
    ("a cut stream, held", {"default": told(cut_after=3, then="rst")}, ONCE, {"retry": dict(QUICK, hold="answer")},
     ("stream_interrupted", "failed", "model", "retry"), ()),
    ("a cut stream, passed on", {"default": told(cut_after=4, then="rst")},
     "\ntry: ask()\nexcept Exception as error: say(type='x'); sys.exit(1)", {"retry": FIRST_EVENT},
     ("stream_interrupted", "failed", "model", "retry"), ()),
    ("a clean end without the last event", {"default": told(cut_after=4, then="fin")},
     "\ntry: ask()\nexcept Exception as error: say(type='x')\nsys.exit(1)", {"retry": QUICK},
     ("stream_interrupted", "failed", "model", "retry"), ()),
    ("a connection that breaks behind the last event", [BREAKS_BEHIND],
     "\ntry: ask()\nexcept Exception as error: pass\n" + DONE, {"retry": dict(QUICK, hold="answer")},
     ("completed", "completed", "none", "grade"), ()),
    ("no first byte", {"default": {"stall": True}}, ONCE, {"retry": QUICK, "model": {"first_byte_timeout": 0.3}},
     ("model_timeout", "failed", "model", "retry"), ()),
    ("a stream that falls silent", {"default": told(cut_after=4, then="stall")},
     "\ntry: ask()\nexcept Exception as error: say(type='x')\nsys.exit(1)",
     {"retry": QUICK, "model": {"idle_timeout": 0.3}}, ("model_timeout", "failed", "model", "retry"), ()),
    ("a stall that our deadline ends", {"default": {"stall": True}}, ONCE, {"timeout": 6},
     ("model_timeout", "failed", "model", "retry"), ()),
    ("a Retry-After that outlasts our deadline", {"default": {"status": 429, "headers": {"Retry-After": "100"}, "json": {
        "error": {"type": "rate_limit_error", "message": "x"}}}}, ONCE + "; time.sleep(600)", {"timeout": 5},
     ("rate_limited", "failed", "model", "retry"), ()),
    ("400 after tool use", [told([shell("ls")]), error(400, "invalid_value")], asked("", "") + "say(type='x'); sys.exit(1)", {},
     ("invalid_request", "failed", "agent", "mask"), ()),
    ("exit 0 on failure", [error(401, "invalid_api_key")], "ask(); say(type='x'); %s sys.exit(0)" % FAILED, {},
     ("authentication", "failed", "host", "mask"), ()),
    ("exit 0 on a failure of its own", [ANSWER], "ask(); %s sys.exit(0)" % FAILED, {},
     ("agent_error", "failed", "agent", "grade"), ()),
    ("exit 1 after success", [ANSWER], "ask(); say(type='x'); %s sys.exit(1)" % DONE, {},
     ("completed", "completed", "none", "grade"), ("nonzero_exit",)),
    ("success without a model call", [], DONE, {}, ("no_model_call", "failed", "environment", "mask"), ()),
    ("text, then killed", [ANSWER], PARTIAL + "os.kill(os.getpid(), 9)", {}, ("killed", "failed", "environment", "retry"), ()),
    ("a failed side request", [ANSWER, error(404, "model_not_found")], asked("", TITLE) + DONE, {},
     ("completed", "completed", "none", "grade"), ("recovered_errors",)),
    ("a title first, then a failure", [told()] + [error(404, "model_not_found")] * 2, asked(TITLE, WITH_TOOLS) + "sys.exit(1)", {},
     ("model_not_found", "failed", "host", "mask"), ()),
    ("a title that fails, then success", [error(404, "model_not_found"), told()], asked(TITLE, WITH_TOOLS) + DONE, {},
     ("completed", "completed", "none", "grade"), ()),
    ("a 5xx that calls itself an invalid request", {"default": wrong_type(500)}, ONCE, {"retry": QUICK},
     ("server_error", "failed", "model", "retry"), ()),
    ("a wordless 413", [{"status": 413, "body": ""}], ONCE, {}, ("unexpected_response", "failed", "model", "retry"), ()),
    ("a 413 of the API", [{"status": 413, "json": {"error": {"type": "request_too_large", "message": "x"}}}], ONCE, {},
     ("context_length", "incomplete", "limit", "grade"), ()),
    ("a prompt that speaks of keys", [{"status": 400, "json": {"error": {"type": "invalid_request_error", "message":
     'input[1]: "they said missing api key" has a bad value'}}}], ONCE, {}, ("invalid_request", "failed", "agent", "mask"), ()),
    ("the CLI's own limit of turns", [ANSWER], "ask(); say(type='result', subtype='error_max_turns', is_error=True); sys.exit(1)", {},
     ("turn_limit", "incomplete", "limit", "grade"), ()),
]


@pytest.mark.parametrize("row", WIRE, ids=[row[0] for row in WIRE])
def test_rows_with_a_model(bundle, tmp_path, row):
    _, plan, agent, more, expected, warnings = row
    with Endpoint(plan) as endpoint:
        model = dict({"base_url": endpoint.url + "/v1", "api": "responses"}, **more.get("model", {}))
        done = runs.run(bundle, tmp_path, command=agents.python("import time\n" + agent), **dict(more, model=model))
    found = (done.outcome["kind"], done.outcome["status"], done.outcome["fault"], done.action)
    assert found == expected, done.outcome
    assert set(warnings) <= set(done.warnings()), done.warnings()
    assert done.outcome["evidence"] and done.result["cleanup_confirmed"]


def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_a_refused_connection(bundle, tmp_path):
    done = runs.run(bundle, tmp_path, command=agents.python(ONCE), retry=QUICK,
                    model={"base_url": "http://127.0.0.1:%d/v1" % closed_port(), "api": "responses"})
    assert (done.outcome["kind"], done.outcome["fault"], done.action) == ("connection", "model", "retry")
    assert done.outcome["evidence"]["seq"] == 2 and done.outcome["http_status"] is None


def test_a_certificate_that_nobody_trusts(bundle, tmp_path):
    with Endpoint([ANSWER], tls=(os.path.join(ROOT, "tls/other.pem"), os.path.join(ROOT, "tls/server.key"))) as endpoint:
        done = runs.run(bundle, tmp_path, command=agents.python(ONCE), model={
            "base_url": endpoint.url + "/v1", "api": "responses", "ca_file": os.path.join(ROOT, "tls/ca.pem")})
    assert (done.outcome["kind"], done.outcome["fault"], done.action) == ("tls_failed", "environment", "mask")
    assert len(done.attempts) == 1


# -- what only a kernel can say -----------------------------------------------------------------------------------------------

EAT = "import sys\nkept = []\nprint('{}', flush=True)\nwhile True: kept.append(bytes(1 << 20) + b'x')"
FORK = """
import os, sys, time
print('{}', flush=True)
try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
except OSError:
    sys.exit(3)
"""
FILL = """
import sys
print('{}', flush=True)
try:
    with open('/small/x', 'wb', buffering=0) as file:
        while True: file.write(bytes(1 << 16))
except OSError:
    sys.exit(3)
"""
FILES = FILL.replace("with open('/small/x', 'wb', buffering=0) as file:\n        while True: file.write(bytes(1 << 16))",
                     "for n in range(100000): open('/small/%d' % n, 'x').close()")
KERNEL = [("out_of_memory", ["--memory", "200m", "--memory-swap", "200m"], EAT), ("pids_exhausted", ["--pids-limit", "60"], FORK),
          ("disk_full", ["--tmpfs", "/small:size=8m"], FILL),
          ("disk_full", ["--tmpfs", "/small:nr_inodes=60"], FILES)]


@pytest.mark.engine
@pytest.mark.parametrize("kind, options, source", KERNEL, ids=[row[0] for row in KERNEL])
def test_rows_that_the_kernel_tells(bundle, tmp_path, kind, options, source):
    python = pythons.cached("3.13") or sys.executable
    with docker.Container(docker.image(python), *options) as box:
        inside = python if box.exec([python, "-c", ""], check=False).returncode == 0 else "python3"
        box.exec(["mkdir", "-p", "/small/run"])
        box.put(bundle, "/worker.pyz")
        text = '{"directory": "/small/run", "command": ["%s", "-c", %s], "timeout": 60}' % (inside, runs.json.dumps(source))
        ended = box.exec([inside, "-I", "-S", "/worker.pyz", "run", "-"], check=False, input=text.encode() + b"\n")
        result = runs.strict(box.read("/small/run/result.json"))
    assert result["outcome"]["kind"] == kind, (result["outcome"], result["resources"])
    assert (result["outcome"]["fault"], result["disposition"]["action"], ended.returncode) == ("environment", "retry", 75)


ELSEWHERE = {"worker_error": "test_supervise_deaths.py", "cancelled": "test_stop_and_fence.py", "terminated": "test_run_outcomes.py"}


def test_no_row_is_without_a_run():
    here = {row[4][0] for row in WIRE + [row + (0,) for row in ROWS]} | {row[3][0] for row in NO_MODEL}
    here |= {"connection", "tls_failed"} | {row[0] for row in KERNEL}
    for kind, name in ELSEWHERE.items():
        with open(os.path.join(ROOT, name), encoding="utf-8") as file:
            assert '"%s"' % kind in file.read()
    assert here | set(ELSEWHERE) == set(outcome.KINDS)

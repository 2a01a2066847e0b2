"""Promise: whenever guard, worker or both are killed, nothing survives, an outcome can be had, and what was complete is in it.

The points are events (tests/killer.py: the n-th entry into or return from a system call of guard and worker), spread evenly
from the worker's birth to the last instruction. What must be in the evidence is what the endpoint's own witness log says.
"""
from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import sys
import uuid

import pytest

from tests import killer, runs
from tests.conftest import CI
from tests.endpoint import Endpoint, message
from tests.escapes import survivors

ASKED = 8
# Leaves a descendant in a session of its own, asks ASKED times over one connection, and says so after each whole answer.
AGENT = """
import _socket, os, sys, time
if os.fork() == 0:
    os.setsid(); time.sleep(600)
host, port = os.environ["SANDBOX_WORKER_MODEL_URL"].split("/")[2].split(":")
sock = _socket.socket()
sock.connect((host, int(port)))
for number in range(%d):
    body = b'{"model":"m","stream":true,"input":"%%s:%%d"}' %% (sys.argv[1].encode(), number)
    sock.send(b"POST /v1/responses HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer %%s\\r\\nContent-Length: %%d\\r\\n\\r\\n%%s" %% (
        os.environ["SANDBOX_WORKER_TOKEN"].encode(), len(body), body))
    data = b""
    while not data.endswith(b"0\\r\\n\\r\\n"):
        piece = sock.recv(65536)
        if not piece:
            os._exit(1)
        data += piece
    os.write(1, b'{"n":%%d}\\n' %% number)
os.write(1, b'{"type":"turn.completed"}\\n')
""" % ASKED
PLAN = {"answers": [], "default": {"responses": {"items": [message("one two three")], "usage": [5, 0, 3, 0]}}}
STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
NOTHING_STARTED = "sandbox-worker: was told to stop before anything was started\n"
VICTIMS = [("worker",), ("guard",), ("guard", "worker")]


def killed_run(bundle, folder, endpoint, at, victims):
    """(token, killer's report, what the run left) of a run whose victims died at event `at`."""
    token, directory = uuid.uuid4().hex, folder / "run"
    directory.mkdir(parents=True)
    (directory / "input.json").write_text(json.dumps({
        "command": [sys.executable, "-I", "-S", "-c", AGENT, token], "cwd": "/", "timeout": 5 * runs.HANG, "nonce": token,
        "model": {"base_url": endpoint.url + "/v1", "api": "responses", "name": "m"}}))
    done = subprocess.run(
        [sys.executable, "-I", "-S", killer.__file__, str(folder / "report"), str(at), ",".join(victims),
         sys.executable, "-I", "-S", bundle, "run", str(directory / "input.json")],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=5 * runs.HANG)
    report = json.loads((folder / "report").read_text())
    return token, report, runs.Done(directory, report["status"], done.stdout, done.stderr)


def wrong(bundle, folder, endpoint, at, victims):
    """What is not as promised, in words; None where all is."""
    token, report, done = killed_run(bundle, folder, endpoint, at, victims)
    where = "killed at event %d: " % at
    finished = done.result is not None
    if not finished:
        if victims == ("worker",):
            return where + "no outcome, although the guard lived: " + done.stderr
        code, _, said = runs.command(["recover", done.directory], bundle=bundle)
        if code == 66 and os.listdir(done.directory) == ["input.json"]:
            return None  # killed before it had begun
        done = runs.Done(done.directory, code, b"", said.encode())
        if done.result is None or code != 70:
            return where + "recover: %s %s" % (code, said)
    runs.check(done)
    if survivors.of(token):
        return where + "alive: %s" % survivors.of(token)
    if done.result["cleanup_confirmed"] is not finished:
        return where + "cleanup_confirmed is %s" % done.result["cleanup_confirmed"]
    kinds = {"worker_error"} if not finished else {"completed", "worker_error"} if victims == ("worker",) else {
        "completed", "terminated"}
    if report["killed"] and done.outcome["kind"] not in kinds or done.result["nonce"] != (token if done.result["nonce"] else ""):
        return where + "outcome %s, nonce %s" % (done.outcome, done.result["nonce"])
    return lost(where, token, done, endpoint)


def lost(where, token, done, endpoint):
    """What the witness saw through and the evidence lacks. The agent asks one thing after the other on one connection: when a
    request came, the answer before it had arrived whole."""
    seen = [request for request in endpoint.requests() if token in request["body"]]
    recorded = {record["request_sha256"]: record for record in done.attempts}
    for request in seen[:-1]:
        record = recorded.get(request["body_sha256"])
        if record is None or record["terminal"] != "response.completed" or record["usage"]["output_tokens"] != 3:
            return where + "request %d of %d is not recorded as it was: %s" % (request["request"], len(seen), record)
        if b"response.completed" not in done.read("bodies", "%06d.response" % record["seq"]):
            return where + "the body of request %d is not whole" % request["request"]
    return None


def kill_everywhere(bundle, tmp_path, victims, points):
    with Endpoint(PLAN) as endpoint, concurrent.futures.ThreadPoolExecutor(4) as pool:
        _, whole, done = killed_run(bundle, tmp_path / "whole", endpoint, 10 ** 9, victims)
        assert done.outcome["kind"] == "completed" and not whole["killed"]
        step = (whole["events"] - whole["first"]) / points
        found = pool.map(lambda number: wrong(bundle, tmp_path / str(number), endpoint,
                                              whole["first"] + int(step * (number + 0.5)), victims), range(points))
        assert [fault for fault in found if fault] == []


def interrupted(bundle, folder, endpoint, at, name):
    """What a signal to the guard at its event `at` left that it should not; None where all is as promised."""
    token, report, done = killed_run(bundle, folder, endpoint, at, ["guard:" + name])
    code = os.WEXITSTATUS(report["status"]) if os.WIFEXITED(report["status"]) else -os.WTERMSIG(report["status"])
    if done.result is not None:
        fine = done.outcome["kind"] in ("terminated", "completed") and done.receipt["cleanup_confirmed"] and code in (0, 75)
    else:
        fine = code == 75 and done.stderr == NOTHING_STARTED and os.listdir(done.directory) == ["input.json"]
    return None if fine and not survivors.of(token) else "%s at event %d: %s, %s" % (name, at, code, done.stderr or done.outcome)


def test_a_stop_signal_at_any_point_is_an_orderly_end(bundle, tmp_path):
    """From the bundle's first lines on, where they are held: what comes before is Python's own start."""
    with Endpoint(PLAN) as endpoint, concurrent.futures.ThreadPoolExecutor(4) as pool:
        _, whole, _ = killed_run(bundle, tmp_path / "whole", endpoint, 10 ** 9, ["guard:SIGINT"])
        assert whole["held"] + 100 < whole["first"] < whole["events"]  # the block for the fork alone comes right before it
        assert whole["holds"]  # while Python ends, which gives signals their default actions back: such a one would be the exit code
        early = range(whole["held"], whole["first"], (whole["first"] - whole["held"]) // 8 + 1)
        later = range(whole["first"], whole["events"], (whole["events"] - whole["first"]) // 16 + 1)
        found = list(pool.map(lambda at: interrupted(bundle, tmp_path / str(at), endpoint, at, STOP_SIGNALS[at % 3]), [*early, *later]))
        assert [fault for fault in found if fault] == []


@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
def test_killed_at_some_points(bundle, tmp_path, victims):
    kill_everywhere(bundle, tmp_path, victims, 13)


@pytest.mark.slow
@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
def test_killed_at_many_points(bundle, tmp_path, victims):
    """At 201 points in all; in CI, which has twenty minutes for everything, at 36 (and 39 in `make test`)."""
    kill_everywhere(bundle, tmp_path, victims, 12 if CI else 67)

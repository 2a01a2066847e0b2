"""Worker, guard, or both are killed or stopped; nothing survives and an outcome can be read (DESIGN 12)."""
from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid

import pytest

from tests import runs
from tests.escapes import survivors
from tests.test_bundle import HIDE
from worker import processes, tree

# Starts two descendants in sessions of their own, prints one event when both are there, and stays.
AGENT = """
import os, sys, time
read, write = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        os.setsid(); os.write(write, b"x"); time.sleep(600)
while len(os.read(read, 1)) == 0: pass
os.read(read, 1)
print('{"type":"in place"}', flush=True)
%s
"""


class Started:
    """A run whose agent is in place: the pids of guard, worker and agent."""

    def __init__(self, bundle, tmp_path, then="time.sleep(600)", **document):
        self.token = uuid.uuid4().hex
        self.process, self.directory = runs.start(
            bundle, tmp_path, command=[sys.executable, "-I", "-S", "-u", "-c", AGENT % then, self.token], cwd="/", **document)
        self.guard = self.process.pid
        first = json.loads(self.process.stdout.readline())
        assert first["event"] == "started"
        self.wait_for_event()
        self.worker = first["pid"]  # the run may have ended by now
        self.agent = json.loads((self.directory / "launch.json").read_text())["agent_pid"]

    def wait_for_event(self):
        """Follows events.jsonl by inotify's portable stand-in: a blocking `tail -f` that ends with the first line."""
        path = str(self.directory / "events.jsonl")
        tail = subprocess.Popen(["tail", "-n", "+1", "-F", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert b"in place" in tail.stdout.readline()
        finally:
            tail.kill()
            tail.communicate()

    def end(self):
        stdout, stderr = self.process.communicate(timeout=runs.HANG)
        done = runs.Done(self.directory, self.process.returncode, stdout, stderr)
        assert survivors.of(self.token) == []
        return done


def test_a_killed_worker_leaves_receipt_and_result(bundle, tmp_path):
    run = Started(bundle, tmp_path)
    os.kill(run.worker, signal.SIGKILL)
    done = run.end()
    assert done.code == 70 and done.outcome["kind"] == "worker_error" and done.action == "retry"
    assert done.result["disposition"]["verify_allowed"] is False
    assert done.receipt["cleanup_confirmed"] is True and done.receipt["proof"] == "echild"
    assert len(done.receipt["killed"]) >= 2
    assert {"type": "in place"} in done.events


def test_a_killed_worker_where_orphans_come_to_nobody(bundle, tmp_path):
    """Without ctypes there is no subreaper: the guard finds strays by the run's marker, and confirms nothing."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nshift 2\nexec %s -I -S -c %s \"$@\"\n" % (sys.executable, shlex.quote(HIDE % ["ctypes", "_ctypes"])))
    script.chmod(0o755)
    run = Started(bundle, tmp_path, python=str(script))
    os.kill(run.worker, signal.SIGKILL)
    done = run.end()
    assert done.code == 70 and done.outcome["kind"] == "worker_error" and done.action == "mask"
    assert done.receipt["cleanup_confirmed"] is False and len(done.receipt["killed"]) == 3


def test_a_killed_guard_ends_the_run_in_order(bundle, tmp_path):
    run = Started(bundle, tmp_path)
    os.kill(run.guard, signal.SIGKILL)
    # the worker still has the pipe: it ends when the worker ends
    stdout, _ = run.process.communicate(timeout=runs.HANG)
    done = runs.Done(run.directory, 0, stdout, b"")
    assert survivors.of(run.token) == []
    assert done.outcome["kind"] == "terminated" and done.receipt["cleanup_confirmed"] is True
    assert "guard" in done.outcome["message"]  # not that somebody told the run to stop


def test_when_both_are_killed_the_agent_dies_too(bundle, tmp_path):
    run = Started(bundle, tmp_path, then="import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {15}); time.sleep(600)")
    os.kill(run.guard, signal.SIGSTOP)  # so that neither can do anything about the other's death
    os.kill(run.worker, signal.SIGKILL)
    os.kill(run.guard, signal.SIGKILL)
    until = time.monotonic() + runs.HANG
    while processes.stat(run.agent)[:1] not in ([], [b"Z"]):  # gone, or dead and waiting for whoever reaps here
        assert time.monotonic() < until, "the agent lives"
        os.sched_yield()
    run.process.communicate(timeout=runs.HANG)
    # its detached descendants are what `recover` finds by the marker
    launch = json.loads((run.directory / "launch.json").read_text())
    killed = tree.kill_marked(b"SANDBOX_WORKER_RUN=" + launch["marker"].encode())
    assert survivors.of(run.token) == []  # at once: it waits until they are dead, not only signalled
    assert len(killed) == 2 and all(run.token in entry["argv"] for entry in killed)
    assert tree.kill_marked(b"SANDBOX_WORKER_RUN=nobody") == []


@pytest.mark.parametrize("signum,name", [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT"), (signal.SIGHUP, "SIGHUP")])
@pytest.mark.parametrize("whom", ["guard", "worker"])
def test_signals_stop_in_order_with_full_evidence(bundle, tmp_path, signum, name, whom):
    run = Started(bundle, tmp_path)
    os.kill(getattr(run, whom), signum)
    done = run.end()
    assert done.outcome["kind"] == "terminated" and done.action == "retry"
    assert done.receipt["cleanup_confirmed"] is True
    assert [entry["signal"] for entry in done.receipt["signals"]] == ["SIGTERM"]


def test_a_stopped_worker_is_continued(bundle, tmp_path):
    run = Started(bundle, tmp_path, then="os.kill(os.getppid(), 19); print('{\"type\":\"stopped it\"}', flush=True)")
    done = run.end()
    assert {"type": "stopped it"} in done.events and done.receipt["cleanup_confirmed"] is True
    assert done.result["return_code"] == 0 and "supervision_stopped" in done.warnings()


STOP_BOTH = """
worker = os.getppid()
guard = int(open('/proc/%%d/stat' %% worker).read().rpartition(')')[2].split()[1])
%s
"""


@pytest.mark.parametrize("then", ["os.kill(guard, 19); os.kill(worker, 19); time.sleep(600)",
                                  "os.kill(guard, 19); os.kill(worker, 19)",
                                  "os.kill(guard, 19); os.kill(worker, 9); time.sleep(600)"],
                         ids=["and stays", "and exits", "and kills the worker"])
def test_guard_and_worker_stopped_together_go_on_at_the_deadline(bundle, tmp_path, then):
    """The kernel continues them by a timer (SIGCONT): the run ends by its own deadline, and says that it was stopped."""
    token = uuid.uuid4().hex
    done = runs.run(bundle, tmp_path, cwd="/", timeout=2, grace=0.5, command=[
        sys.executable, "-I", "-S", "-u", "-c", AGENT % (STOP_BOTH % then), token])
    assert survivors.of(token) == []
    assert done.receipt["cleanup_confirmed"] is True and len(done.receipt["killed"]) >= 2
    if "worker, 9" in then:
        assert done.outcome["kind"] == "worker_error"
    else:
        assert "supervision_stopped" in done.warnings()
        assert done.outcome["kind"] == ("wall_timeout" if "sleep" in then else "completed")


def test_a_stopped_guard_is_continued_at_the_end(bundle, tmp_path):
    stop = "guard = int(open('/proc/%d/stat' % os.getppid()).read().rpartition(')')[2].split()[1]); os.kill(guard, 19)"
    run = Started(bundle, tmp_path, then=stop)
    done = run.end()
    assert done.receipt["cleanup_confirmed"] is True and done.result["return_code"] == 0


# After its k-th event the agent kills the guard; what it had written before is in the outcome.
KILLER = r"""
guard = int(open('/proc/%%d/stat' %% os.getppid()).read().rpartition(')')[2].split()[1])
for number in range(%d):
    os.write(1, b'{"n":%%d}\n' %% number)
os.kill(guard, 9)
time.sleep(600)
"""


@pytest.mark.parametrize("events", [0, 1, 2, 65])
def test_events_before_the_death_of_the_guard_are_all_there(bundle, tmp_path, events):
    token = uuid.uuid4().hex
    process, directory = runs.start(bundle, tmp_path, cwd="/", command=[
        sys.executable, "-I", "-S", "-u", "-c", AGENT % (KILLER % events), token])
    done = runs.finish(process, directory)
    assert survivors.of(token) == [] and done.receipt["cleanup_confirmed"] is True
    assert [event["n"] for event in done.events[1:]] == list(range(events)), (done.events, done.result)


def test_the_owner_leaves(bundle, tmp_path):
    token = uuid.uuid4().hex
    process, directory = runs.start(bundle, tmp_path, stdin=subprocess.PIPE, watch_stdin=True, cwd="/",
                                    command=["sh", "-c", "sleep 600; : " + token])
    assert b"started" in process.stdout.readline()
    process.stdin.close()
    process.stdin = None
    done = runs.finish(process, directory)
    assert survivors.of(token) == [] and done.receipt["cleanup_confirmed"] is True
    assert done.outcome["status"] == "incomplete" and done.outcome["fault"] == "host"


def test_a_hung_up_terminal_does_not_stop_a_nohup_run(bundle, tmp_path):
    run = Started(bundle, tmp_path, wrapper=("nohup",), then="os.read(0, 1); time.sleep(0.5)")
    os.kill(run.guard, signal.SIGHUP)
    done = run.end()
    assert done.result["return_code"] == 0 and done.receipt["signals"] == []

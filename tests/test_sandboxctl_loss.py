"""Promise: a run neither depends on its host nor is lost by it, at most one starts, and only a genuine outcome counts.

What goes wrong here: Ctrl-C, a killed host, a channel that is cut, that corrupts, that has a time limit; an agent that
rewrites the bundle, kills its guard and forges an outcome.
"""
from __future__ import annotations

import concurrent.futures
import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests import ctl

UNTIL = "echo '{\"type\": \"x\"}'; while [ ! -e %s ]; do sleep 0.05; done; echo '" + ctl.DONE + "'"


class Going:
    """A run that has begun and goes on until its flag is there."""

    def __init__(self, dist, folder, *options, via="", **fields):
        self.dist, self.out, self.flag = dist, folder / "out", folder / "flag"
        path = ctl.document(folder, **dict({"command": ["/bin/sh", "-c", UNTIL % self.flag], "cwd": "/", "timeout": 300}, **fields))
        self.inside = folder / "inside"
        self.process = ctl.start(dist, "run", "--via", via, "--input", path, "--out", self.out, "--dir", self.inside, *options)

    def begun(self):
        ctl.wait_running(self.dist, self.out, self.process)
        return self

    def end(self):
        """(exit code, what was said) of `sandboxctl run`."""
        said = self.process.communicate(timeout=ctl.HANG)[1].decode()
        assert "Traceback" not in said, said
        return self.process.returncode, said

    def ctl(self, step, *options):
        return ctl.ctl(self.dist, step, self.out, *options)

    def found_again(self):
        """The rest of the job by single steps; the exit code of verdict."""
        self.flag.touch()
        done = [(step, self.ctl(step)) for step in ("wait", "collect", "verify", "clean")]
        assert [(step, one.returncode) for step, one in done if one.returncode] == [], done
        return self.ctl("verdict").returncode


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_the_run_and_waits_for_its_receipt(dist, tmp_path, signum):
    run = Going(dist, tmp_path).begun()
    run.process.send_signal(signum)
    code, said = run.end()
    found = ctl.outcome(run.out)
    assert (code, found.outcome["kind"], found.result["cleanup_confirmed"]) == (69, "cancelled", True), said
    assert "nothing of it is left" in said and found.events == [{"type": "x"}]


def test_an_interrupt_can_leave_the_run_alone(dist, tmp_path):
    run = Going(dist, tmp_path, "--on-interrupt", "continue").begun()
    run.process.send_signal(signal.SIGINT)
    code, said = run.end()
    assert code == 130 and "wait --out" in said and not (run.out / "result.json").exists()
    assert run.found_again() == 0 and ctl.outcome(run.out).outcome["kind"] == "completed"


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGHUP])
def test_a_run_whose_host_dies_goes_on_and_is_found_again(dist, tmp_path, signum):
    run = Going(dist, tmp_path).begun()
    run.process.send_signal(signum)
    run.end()
    look = json.loads(ctl.ctl(dist, "status", "--via", "", "--dir", run.inside, "--json").stdout)  # from anywhere, without OUT
    assert look["state"] == "running" and run.found_again() == 0


STALLS = """
import os
worker = os.getppid()
guard = int(open('/proc/%d/stat' % worker).read().rpartition(')')[2].split()[1])
open(os.sys.argv[1] + ".begun", "w").close()
while not os.path.exists(os.sys.argv[1]):
    os.kill(guard, 19)
    os.kill(worker, 19)
"""


@pytest.mark.slow             # it waits a minute
def test_a_run_that_its_agent_has_stalled_for_good_is_given_up(dist, tmp_path):
    """Guard and worker are stopped again as fast as anybody can continue them: only the host can say that it is over."""
    run = Going(dist, tmp_path, "--detach", command=[sys.executable, "-I", "-S", "-c", STALLS, str(tmp_path / "flag")])
    while not (tmp_path / "flag.begun").exists():
        time.sleep(0.05)
    try:
        run.process.kill()
        run.process.communicate()
        known = dict(ctl.record(run.out), limit=0.1)
        (run.out / ".sandboxctl" / "run.json").write_text(json.dumps(known))
        done = run.ctl("wait", "--patience", "2")
        found = ctl.outcome(run.out)
        assert done.returncode == 70 and "does not end" in done.stderr, done.stderr
        assert (found.outcome["kind"], found.result["cleanup_confirmed"], found.action) == ("worker_error", False, "mask")
        assert "end the sandbox" in found.outcome["message"] and run.ctl("verdict").returncode == 70
    finally:
        run.flag.touch()
    # It is still stopped; who asks it to stop continues it first. Its own deadline is five minutes away.
    assert ctl.ctl(dist, "stop", "--via", "", "--dir", run.inside).returncode == 0


def test_under_nohup_the_end_of_the_terminal_is_nothing(dist, tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup leaves it
    try:
        run = Going(dist, tmp_path).begun()
    finally:
        signal.signal(signal.SIGHUP, before)
    run.process.send_signal(signal.SIGHUP)
    run.flag.touch()
    code, said = run.end()
    assert code == 0 and "interrupted" not in said, said


def test_a_run_whose_host_dies_stops_where_that_is_asked(dist, tmp_path):
    run = Going(dist, tmp_path, "--on-lost", "stop").begun()
    run.process.kill()
    run.end()
    assert run.ctl("wait").returncode == 0  # nobody sets the flag
    assert [run.ctl(step).returncode for step in ("collect", "verify", "verdict")] == [0, 0, 75]
    assert ctl.outcome(run.out).outcome["kind"] == "terminated"


def test_an_interrupt_before_anything_was_started(dist, tmp_path):
    run = Going(dist, tmp_path, via="sleep 600; :")
    while not (run.out / ".sandboxctl" / "run.json").exists():
        os.sched_yield()
    run.process.send_signal(signal.SIGINT)
    code, said = run.end()
    found = ctl.outcome(run.out)
    assert code == 69 and "nothing was started" in said and (found.outcome["kind"], found.outcome["status"]) == ("cancelled", "not_run")


# Passes 32 KiB at a time on to the shell, so that the bundle is on its way for seconds.
SLOW = "%s -u -c 'import os, sys, time\nfor piece in iter(lambda: os.read(0, 32768), b\"\"): os.write(1, piece); time.sleep(0.1)' |"


@pytest.mark.parametrize("where", [(), ("--dir", "there")])
def test_an_interrupt_while_it_is_staged_leaves_nothing_inside(dist, tmp_path, where):
    path, out = ctl.document(tmp_path, command=["true"]), tmp_path / "out"
    process = ctl.start(dist, "run", "--via", SLOW % sys.executable, "--input", path, "--out", out,
                        *(str(tmp_path / word) if word == "there" else word for word in where))
    until, parts = time.monotonic() + ctl.HANG, []
    while not parts and time.monotonic() < until:
        inside = ctl.record(out)["dir"] if (out / ".sandboxctl" / "run.json").exists() else None
        parts = os.listdir(inside) if inside and os.path.isdir(inside) else []
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=ctl.HANG)[1].decode()
    assert process.returncode == 69 and "nothing was started" in said and "Traceback" not in said, said
    assert parts and (os.listdir(inside) == [] if where else not os.path.exists(inside)), said


def test_step_by_step_and_a_launch_that_returns_at_once(dist, tmp_path):
    out, flag = tmp_path / "out", tmp_path / "flag"
    path = ctl.document(tmp_path, command=["/bin/sh", "-c", UNTIL % flag], cwd="/")
    told = json.loads(ctl.ctl(dist, "stage", "--via", "", "--out", out).stdout)
    assert os.listdir(told["dir"]) == ["sandbox-worker.pyz"] and oct(os.stat(told["dir"]).st_mode)[-3:] == "700"
    launched = ctl.ctl(dist, "launch", "--out", out, "--input", path)
    assert launched.returncode == 0 and json.loads(launched.stdout)["nonce"] == ctl.record(out)["nonce"], launched.stderr
    assert ctl.ctl(dist, "launch", "--out", out, "--input", path).returncode == 73  # at most one agent
    flag.touch()
    assert [ctl.ctl(dist, step, out).returncode for step in ("wait", "collect", "verify", "clean", "verdict")] == [0] * 5
    assert not os.path.exists(told["dir"]) and ctl.outcome(out).result["seal"]


def test_a_stop_that_comes_first_wins(dist, tmp_path):
    out = tmp_path / "out"
    path = ctl.document(tmp_path, command=["/bin/sh", "-c", "touch %s/ran" % tmp_path], cwd="/")
    assert ctl.ctl(dist, "stage", "--via", "", "--out", out, "--dir", tmp_path / "inside").returncode == 0
    stopped = ctl.ctl(dist, "stop", out)
    assert stopped.returncode == 0 and "nothing was started here, and nothing will be" in stopped.stderr
    late = ctl.ctl(dist, "run", "--via", "", "--input", path, "--out", tmp_path / "late", "--dir", tmp_path / "inside")
    assert late.returncode == 73 and "stopped before it started" in late.stderr and not (tmp_path / "ran").exists()


def test_of_many_launches_one_wins(dist, tmp_path):
    path = ctl.document(tmp_path, command=["/bin/sh", "-c", "echo x >>%s/ran; echo '%s'" % (tmp_path, ctl.DONE)], cwd="/")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        codes = list(pool.map(lambda at: ctl.ctl(dist, "run", "--via", "", "--input", path, "--out", tmp_path / str(at), "--dir",
                                                 tmp_path / "inside", "--keep").returncode, range(3)))
    assert sorted(codes) == [0, 73, 73] and (tmp_path / "ran").read_text() == "x\n"


# A channel in Python: `channel.py MODE FOLDER COMMAND...`. "limit" hangs up three times once a run has begun in FOLDER/inside,
# always after some answers, and leaves a file in FOLDER/cuts each time.
CHANNEL = r'''
import os, select, subprocess, sys
mode, folder = sys.argv[1:3]
child = subprocess.Popen(sys.argv[3:], stdin=-1, stdout=-1)
sent, lines, fds = 0, 0, {0: child.stdin.fileno(), child.stdout.fileno(): 1}
while child.stdout.fileno() in fds:
    for fd in select.select(list(fds), [], [])[0]:
        data = os.read(fd, 4096)
        if fd == 0 and mode == "corrupt" and sent < 300000 <= sent + len(data):
            data = data.replace(b"A", b"B")
        if fd == 0 and mode == "cut" and sent > 300000:
            os._exit(5)
        sent += len(data) if fd == 0 else 0
        lines += 0 if fd == 0 else data.count(b"\n")
        if not data:
            if fd == 0:
                child.stdin.close()
            del fds[fd]
            continue
        try:
            while data:
                data = data[os.write(fds[fd], data):]
        except OSError:
            fds.pop(fd)
    if mode == "limit" and lines >= 4 and os.path.exists(folder + "/inside/launch.json") and len(os.listdir(folder + "/cuts")) < 3:
        open("%s/cuts/%d" % (folder, os.getpid()), "w").close()
        os._exit(137)
sys.exit(child.wait())
'''


@pytest.fixture
def channel(tmp_path):
    (tmp_path / "channel.py").write_text(CHANNEL)
    (tmp_path / "cuts").mkdir()
    return lambda mode: shlex.join([sys.executable, "-I", "-S", str(tmp_path / "channel.py"), mode, str(tmp_path)])


@pytest.mark.parametrize("mode,words", [("corrupt", "sandbox-worker.pyz: did not arrive as it was sent"), ("cut", "the connection ended")])
def test_nothing_that_arrived_in_part_is_ever_run(dist, tmp_path, channel, mode, words):
    """E12, on the way in: the error names the file, and no file of its name is there."""
    run = Going(dist, tmp_path, via=channel(mode))
    code, said = run.end()
    found = ctl.outcome(run.out)
    assert code != 0 and words in said and "sandbox-worker.pyz" not in os.listdir(run.inside)
    assert found.outcome["kind"] in ("launch_failed", "worker_error") and found.result["cleanup_confirmed"] is True


@pytest.mark.parametrize("options", [(), ("--detach",)], ids=["attached", "detached"])
def test_an_engine_whose_exec_has_a_time_limit(dist, tmp_path, channel, options):
    script = "while [ $(ls %s | wc -l) -lt 3 ]; do sleep 0.1; done; echo '%s'" % (tmp_path / "cuts", ctl.DONE)
    run = Going(dist, tmp_path, *options, via=channel("limit"), command=["/bin/sh", "-c", script])
    code, said = run.end()
    assert code == 0 and ctl.outcome(run.out).outcome["kind"] == "completed" and len(os.listdir(tmp_path / "cuts")) == 3, said


def test_a_sandbox_that_is_gone_is_given_up(dist, tmp_path):
    (tmp_path / "there").touch()
    run = Going(dist, tmp_path, "--patience", "2", via="test -e %s && exec" % (tmp_path / "there")).begun()
    (tmp_path / "there").unlink()
    guard = [name for name in os.listdir("/proc") if name.isdigit() and command_of(name)[-2:] == [b"run", b"-"] and str(run.inside).encode()
             in b" ".join(command_of(name))]
    for pid in guard:
        os.kill(int(pid), signal.SIGKILL)
    code, said = run.end()
    found = ctl.outcome(run.out)
    # A run whose last line was still heard is collected, in vain; any other is looked for, in vain (worker/host/attend.py).
    assert code == 70 and ("given up" in said or "gave no outcome" in said), said
    assert found.outcome["kind"] == "worker_error" and found.result["cleanup_confirmed"] is False


def command_of(pid):
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            return file.read().split(b"\0")[:-1]
    except OSError:
        return []


KILLS_AND_FORGES = """
import json, os, signal, time
inside = %(inside)r
def parent(pid): return int(open("/proc/%%d/stat" %% pid).read().rsplit(")", 1)[1].split()[1])
if os.fork(): time.sleep(600)
os.setsid()
worker = parent(os.getppid()); guard = parent(worker)
print(json.dumps({"type": "x"}), flush=True)
while not os.path.exists(inside + "/launch.json"): time.sleep(0.05)
while not os.path.getsize(inside + "/events.jsonl"): time.sleep(0.05)      # what was captured must be kept
launch = json.load(open(inside + "/launch.json"))
for pid in (guard, worker): os.kill(pid, signal.SIGSTOP)
os.environ.clear()
if os.fork() == 0:
    os.setsid()
    if %(forge)r:
        json.dump({"nonce": launch["nonce"], "invocation_id": "x", "cleanup_confirmed": True, "seal": "0" * 64, "files": {},
                   "outcome": {"status": "completed", "kind": "completed", "fault": "none", "message": "really"},
                   "disposition": {"action": "grade", "reason": "completed", "verify_allowed": True}}, open(inside + "/result.json", "w"))
    for pid in (guard, worker): os.kill(pid, signal.SIGKILL)
"""


@pytest.mark.parametrize("forge", [False, True], ids=["killed", "killed and forged"])
def test_an_agent_that_kills_its_guards_gains_nothing(dist, tmp_path, forge):
    """D17, E11: a result of the agent's own is set aside, and the host's stands in its place."""
    (tmp_path / "agent.py").write_text(KILLS_AND_FORGES % {"inside": str(tmp_path / "inside"), "forge": forge})
    run = Going(dist, tmp_path, command=[sys.executable, str(tmp_path / "agent.py")])
    code, said = run.end()
    found = ctl.outcome(run.out)
    assert code == 70 and found.outcome["kind"] == "worker_error" and found.result["disposition"]["verify_allowed"] is False, said
    assert found.result["nonce"] == ctl.record(run.out)["nonce"] and (run.out / "result.json.unverified").exists() is forge
    assert forge or found.events == [{"type": "x"}]
    assert ctl.ctl(dist, "verdict", run.out).returncode == 70


def test_a_bundle_that_the_agent_rewrote_is_put_again_before_it_is_used(dist, tmp_path):
    script = "printf 'import os; os.write(1, b\"pwned\")' >%s; " % (tmp_path / "inside" / "sandbox-worker.pyz") + UNTIL % (tmp_path / "flag")
    run = Going(dist, tmp_path, command=["/bin/sh", "-c", script]).begun()
    assert json.loads(run.ctl("status", "--json").stdout)["state"] == "running"
    run.flag.touch()
    code, said = run.end()
    assert code == 0 and "pwned" not in said and ctl.outcome(run.out).outcome["kind"] == "completed"


def test_evidence_that_changed_on_its_way_is_not_believed(dist, tmp_path):
    """E12, on the way back; and the sandbox's copy stays."""
    run = Going(dist, tmp_path, "--keep")
    run.flag.touch()
    assert run.end()[0] == 0
    with open(run.inside / "events.jsonl", "ab") as file:
        file.write(b"[1, {}]\n")
    assert run.ctl("collect").returncode == 0
    checked = run.ctl("verify")
    assert checked.returncode == 70 and "events.jsonl: is not as" in checked.stderr and (run.inside / "result.json").exists()
    assert ctl.outcome(run.out).outcome["kind"] == "worker_error"


def test_the_outcome_of_another_run_is_not_taken_for_this_one(dist, tmp_path):
    """E11: leftovers."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = Going(dist, tmp_path / "one", "--keep")
    first.flag.touch()
    assert first.end()[0] == 0
    second = ctl.ctl(dist, "run", "--via", "", "--input", tmp_path / "one" / "input.json", "--out", tmp_path / "two" / "out", "--dir", first.inside)
    assert second.returncode == 73 and "is not fresh" in second.stderr and not (tmp_path / "two" / "out").exists()


def test_clean_leaves_a_living_run_alone(dist, tmp_path):
    run = Going(dist, tmp_path).begun()
    cleaned = run.ctl("clean")
    assert cleaned.returncode == 73 and "still going on" in cleaned.stderr
    run.flag.touch()
    assert run.end()[0] == 0


def test_progress_is_shown_while_the_run_goes_on(dist, tmp_path):
    run = Going(dist, tmp_path, "--progress")
    line = b""
    while b"running" not in line and run.process.poll() is None:
        line = run.process.stderr.readline()
    assert b"s left)" in line
    run.flag.touch()
    assert run.end()[0] == 0


def test_on_a_terminal_one_line_moves_and_is_removed(dist, tmp_path):
    import pty

    path = ctl.document(tmp_path, command=["/bin/sh", "-c", UNTIL % (tmp_path / "flag")], cwd="/")
    mine, theirs = pty.openpty()
    process = subprocess.Popen(ctl.words(dist, "run", "--via", "", "--input", path, "--out", tmp_path / "out"), stderr=theirs,
                               stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    os.close(theirs)
    seen, until = b"", time.monotonic() + ctl.HANG
    while b"running" not in seen and time.monotonic() < until:
        seen += os.read(mine, 4096)
    (tmp_path / "flag").touch()
    assert process.wait(ctl.HANG) == 0 and b"\r\x1b[K" in seen
    process.communicate()
    os.close(mine)

"""How a run ended is what happened, not what the clock said: exit status, deadline, linger, stdout held open."""
from __future__ import annotations

import sys

import pytest

from tests import runs

DONE = '{"type":"turn.completed","usage":{"input_tokens":5,"cached_input_tokens":0,"output_tokens":2}}'


def sh(bundle, tmp_path, script, **document):
    return runs.run(bundle, tmp_path, command=["sh", "-c", script], cwd="/", **document)


def python(bundle, tmp_path, code, **document):
    return runs.run(bundle, tmp_path, command=[sys.executable, "-I", "-S", "-u", "-c", code], cwd="/", **document)


@pytest.mark.parametrize("code", [0, 1, 2, 64, 127, 137, 255])
def test_the_exit_code_is_exact(bundle, tmp_path, code):
    done = sh(bundle, tmp_path, "exit %d" % code)
    assert done.result["return_code"] == code and done.receipt["timed_out"] is False and done.receipt["signals"] == []


@pytest.mark.parametrize("signum", [1, 2, 6, 9, 11, 15])
def test_a_signal_that_was_not_ours(bundle, tmp_path, signum):
    done = sh(bundle, tmp_path, "ulimit -c 0; kill -%d $$" % signum)
    assert done.receipt["signals"] == [] and done.receipt["timed_out"] is False
    assert done.receipt["return_code"] == -signum


def test_stdout_held_open_delays_nothing(bundle, tmp_path):
    """B01."""
    done = sh(bundle, tmp_path, "echo '%s'; sleep 600 & exit 0" % DONE, timeout=60)
    assert done.result["duration_ms"] < 10000 and done.result["return_code"] == 0
    assert [entry["argv"] for entry in done.receipt["killed"]] == [["sleep", "600"]]
    assert done.events[0]["type"] == "turn.completed"


def test_a_leader_that_leaves_a_proof_worker(bundle, tmp_path):
    """B08."""
    done = sh(bundle, tmp_path, "sh -c 'trap \"\" TERM; sleep 600' & exit 0")
    assert done.result["return_code"] == 0 and done.receipt["cleanup_confirmed"] is True


def test_everything_that_was_written_is_there(bundle, tmp_path):
    """The last megabyte is still in the pipe when the agent is gone."""
    done = python(bundle, tmp_path, "import os\nfor i in range(20000): os.write(1, b'{\"n\":%d}\\n' % i)")
    assert [event["n"] for event in done.events] == list(range(20000))


def test_orphans_are_reaped_while_the_agent_runs(bundle, tmp_path):
    code = """
import os, subprocess, sys
for _ in range(50):
    if os.fork() == 0:
        if os.fork():
            os._exit(0)
        os.setsid()
        os._exit(0)
    os.wait()
worker = os.getppid()
def dead():
    with open("/proc/%d/task/%d/children" % (worker, worker)) as file:
        return [pid for pid in file.read().split() if int(pid) != os.getpid()]
while dead():
    pass
print('{"zombies":0}')
"""
    done = python(bundle, tmp_path, code, timeout=60)
    assert done.events == [{"zombies": 0}] and done.receipt["timed_out"] is False
    assert done.receipt["killed"] == []


@pytest.mark.parametrize("script,timed_out,status", [
    ("sleep 600", True, -15),
    ("trap '' TERM; while :; do sleep 1; done", True, -9),
    ("trap 'exit 7' TERM; while :; do sleep 0.05; done", True, 7),
])
def test_our_deadline(bundle, tmp_path, script, timed_out, status):
    done = sh(bundle, tmp_path, script, timeout=1, grace=0.5)
    assert done.receipt["timed_out"] is timed_out and done.receipt["return_code"] == status
    assert done.outcome["kind"] == "wall_timeout"


RACE = """
import sys, time, signal
if sys.argv[1] == "deaf": signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(float(sys.argv[2]))
print('%s')
""" % DONE


@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("ears,seconds", [("open", 0.93), ("open", 0.98), ("open", 1.0), ("deaf", 1.02)])
def test_who_was_first_at_the_deadline(bundle, tmp_path, ears, seconds, turn):
    """Timed out if and only if our signal ended it; by itself it always ends with 0 and its event."""
    done = runs.run(bundle, tmp_path, command=[sys.executable, "-I", "-S", "-c", RACE, ears, str(seconds)], cwd="/",
                    timeout=1.0, grace=5)
    if done.receipt["return_code"] == 0:
        assert done.receipt["timed_out"] is False and done.events[-1]["type"] == "turn.completed"
    else:
        assert done.receipt["return_code"] == -15 and done.receipt["timed_out"] is True


def test_no_timer_wakes_the_worker(bundle, tmp_path):
    """Voluntary switches of guard and worker over two seconds of an idle agent: what has to be done once, no more."""
    code = """
import os, time
worker = os.getppid()
guard = int(open("/proc/%d/stat" % worker).read().rpartition(")")[2].split()[1])
def switches(pid):
    return sum(int(line.split()[1]) for task in os.listdir("/proc/%d/task" % pid)
               for line in open("/proc/%d/task/%s/status" % (pid, task)) if line.startswith("voluntary"))
time.sleep(1)
before = switches(worker), switches(guard)
time.sleep(2)
print('{"worker":%d,"guard":%d}' % (switches(worker) - before[0], switches(guard) - before[1]))
"""
    done = python(bundle, tmp_path, code)
    event, = done.events
    assert event["worker"] <= 4 and event["guard"] == 0

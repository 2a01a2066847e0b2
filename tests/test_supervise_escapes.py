"""Whatever the agent leaves behind is dead, reaped and named before the result exists."""
from __future__ import annotations

import json
import subprocess
import sys
import uuid

import pytest

from tests import runs
from tests.conftest import CI
from tests.escapes import many, programs, survivors

SESSIONS = {"setsid", "double_fork", "proof_against_signals", "five_hundred", "chain_of_100"}


def escape(bundle, tmp_path, name, **document):
    token = uuid.uuid4().hex
    done = runs.run(bundle, tmp_path, command=[sys.executable, "-I", "-S", programs.__file__, name, token], cwd="/",
                    cleanup_timeout=60, **document)
    return done, survivors.of(token)


@pytest.mark.parametrize("name", sorted(programs.PROGRAMS))
def test_nothing_survives_and_everything_is_named(bundle, tmp_path, name):
    """B02 among others: every way out that tests/escapes knows."""
    done, left = escape(bundle, tmp_path, name)
    assert left == []
    assert done.receipt["cleanup_confirmed"] is True and done.receipt["proof"] == "echild"
    assert done.result["return_code"] == 0 and done.receipt["timed_out"] is False
    assert {"type": "done"} in done.events
    killed = done.receipt["killed"]
    assert len(killed) >= programs.PROGRAMS[name][1] and done.receipt["killed_count"] == len(killed)
    if name not in ("forking_on", "forking_all_at_once"):
        assert all(entry["argv"] for entry in killed)
        assert all(entry["age_s"] is not None for entry in killed[:100])
    if name in SESSIONS:
        assert {entry["escaped"] for entry in killed} == {"setsid"}
    if name in ("background", "nohup", "stopped"):
        assert [entry["escaped"] for entry in killed] == ["reparented"]
    if name == "new_process_group":
        assert [entry["escaped"] for entry in killed] == ["new_process_group"]


MORE_THAN_ARE_NAMED = """
import json, os, sys
from worker import kernel, supervise, tree
kernel.become_subreaper()
for _ in range(5):
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "600"])
tree.NAMED = 3
print(json.dumps(tree.clean_up(10, supervise.Wakeup())))
"""


def test_who_is_not_named_is_counted(tree):
    done = subprocess.run([sys.executable, "-c", MORE_THAN_ARE_NAMED], cwd=tree, stdout=subprocess.PIPE, timeout=runs.HANG, check=True)
    receipt = json.loads(done.stdout)
    assert receipt["proof"] == "echild" and len(receipt["killed"]) == 3 and receipt["killed_count"] == 5


def test_a_tree_that_is_alive_at_the_deadline_goes_with_its_root(bundle, tmp_path):
    code = ("import os,sys,time,signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "os.fork(); os.fork(); print('{}', flush=True); time.sleep(600)")
    token = uuid.uuid4().hex
    done = runs.run(bundle, tmp_path, command=[sys.executable, "-I", "-S", "-c", code, token], cwd="/", timeout=2, grace=0.2)
    assert survivors.of(token) == []
    assert done.receipt["timed_out"] is True and done.receipt["cleanup_confirmed"] is True
    assert [entry["signal"] for entry in done.receipt["signals"]] == ["SIGTERM", "SIGKILL"]
    assert len(done.receipt["killed"]) == 3


def random_trees(bundle, tmp_path, seeds, side_by_side=4):
    """Each seed is a run whose agent leaves the tree of processes that the seed describes."""
    token, lines = uuid.uuid4().hex, [[] for _ in range(side_by_side)]
    for seed in seeds:
        folder = tmp_path / str(seed) / "run"
        folder.mkdir(parents=True)
        (folder / "input.json").write_text(json.dumps({
            "command": [sys.executable, "-I", "-S", programs.__file__, str(seed), token], "cwd": "/", "timeout": 120,
            "harness": "generic", "cleanup_timeout": 60}))
        lines[seed % side_by_side].append(str(folder / "input.json") + "\n")
    words = [sys.executable, "-I", "-S", many.__file__, bundle]
    pool = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in lines]
    for process, some in zip(pool, lines):
        process.stdin.write("".join(some).encode())
        process.stdin.close()
    assert [process.wait() for process in pool] == [0] * side_by_side
    assert survivors.of(token) == []  # each would live for ten minutes
    for seed in seeds:
        done = runs.Done(tmp_path / str(seed) / "run", 0, b"", b"")
        assert done.receipt["cleanup_confirmed"] is True and done.receipt["proof"] == "echild", seed
        assert done.result["return_code"] == 0 and done.events[-1] == {"type": "done"}, seed
        plan = programs.tree(seed)
        assert len(done.receipt["killed"]) >= programs.counted(plan) - programs.counted(plan, (programs.leave,)), seed


def test_some_random_trees_leave_nobody(bundle, tmp_path):
    random_trees(bundle, tmp_path, range(40))


@pytest.mark.slow
def test_a_thousand_random_trees_leave_nobody(bundle, tmp_path):
    """In CI, which has twenty minutes for everything, 200."""
    random_trees(bundle, tmp_path, range(1000, 1200 if CI else 2000))

"""Whatever the agent leaves behind is dead, reaped and named before the result exists."""
from __future__ import annotations

import random
import sys
import uuid

import pytest

from tests import runs
from tests.escapes import programs, survivors

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
    assert len(killed) >= programs.PROGRAMS[name][1]
    if name not in ("forking_on", "forking_all_at_once"):
        assert all(entry["argv"] for entry in killed)
        assert all(entry["age_s"] is not None for entry in killed[:100])
    if name in SESSIONS:
        assert {entry["escaped"] for entry in killed} == {"setsid"}
    if name in ("background", "nohup", "stopped"):
        assert [entry["escaped"] for entry in killed] == ["reparented"]
    if name == "new_process_group":
        assert [entry["escaped"] for entry in killed] == ["new_process_group"]


def test_a_tree_that_is_alive_at_the_deadline_goes_with_its_root(bundle, tmp_path):
    code = ("import os,sys,time,signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "os.fork(); os.fork(); print('{}', flush=True); time.sleep(600)")
    token = uuid.uuid4().hex
    done = runs.run(bundle, tmp_path, command=[sys.executable, "-I", "-S", "-c", code, token], cwd="/", timeout=2, grace=0.2)
    assert survivors.of(token) == []
    assert done.receipt["timed_out"] is True and done.receipt["cleanup_confirmed"] is True
    assert [entry["signal"] for entry in done.receipt["signals"]] == ["SIGTERM", "SIGKILL"]
    assert len(done.receipt["killed"]) == 3


@pytest.mark.slow
def test_random_escape_programs_leave_nobody(bundle, tmp_path):
    names = [name for name in programs.PROGRAMS if name != "five_hundred"]
    for number in range(200):
        folder = tmp_path / str(number)
        folder.mkdir()
        done, left = escape(bundle, folder, random.Random(number).choice(names))
        assert left == [] and done.receipt["cleanup_confirmed"] is True, number

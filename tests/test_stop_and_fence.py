"""Promise: at most one agent ever runs in a directory, `stop` wins or is obeyed, and the host can tell which outcome it reads."""
from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests import agents, runs

FOREVER = agents.shell("echo '{\"type\": \"x\"}'; sleep 600")


def started(process):
    line = json.loads(process.stdout.readline())
    assert line["event"] == "started"
    return line


def test_stop_ends_a_run_and_waits_for_its_receipt(bundle, tmp_path):
    process, directory = runs.start(bundle, tmp_path, command=FOREVER)
    started(process)
    code, _, said = runs.command(["stop", directory], bundle=bundle)
    assert code == 0, said
    assert json.loads((directory / "cleanup.json").read_text())["cleanup_confirmed"] is True
    done = runs.finish(process, directory)
    assert (done.outcome["kind"], done.outcome["fault"], done.action, done.code) == ("cancelled", "host", "mask", 69)
    assert runs.command(["stop", directory], bundle=bundle)[0] == 0  # any number of times


def test_a_stop_that_comes_first_wins(bundle, tmp_path):
    directory = tmp_path / "run"
    code, _, _ = runs.command(["stop", directory], bundle=bundle)
    assert code == 0
    before = (directory / "result.json").read_bytes()
    done = runs.run(bundle, tmp_path, command=agents.shell("touch %s/ran" % tmp_path))
    assert done.code == 73 and not os.path.exists(tmp_path / "ran")
    assert "stopped before it started" in done.stderr
    assert (directory / "result.json").read_bytes() == before
    assert done.outcome["kind"] == "cancelled" and done.outcome["status"] == "not_run" and done.action == "mask"
    assert runs.command(["verdict", directory], bundle=bundle)[0] == 69


def test_a_directory_is_used_once(bundle, tmp_path):
    first = runs.run(bundle, tmp_path, command=agents.shell("echo '{}'"), nonce="one")
    second = runs.run(bundle, tmp_path, command=agents.shell("touch %s/ran" % tmp_path), nonce="two")
    assert (first.code, second.code) == (0, 73) and not os.path.exists(tmp_path / "ran")
    assert second.result["nonce"] == "one"
    assert runs.command(["verify", second.directory, "--nonce", "two"], bundle=bundle)[0] == 65
    assert runs.command(["verify", second.directory, "--nonce", "one"], bundle=bundle)[0] == 0


@pytest.mark.parametrize("name", ["result.json", "events.jsonl", "bodies", "native", "launch.claim", "cleanup.json", "run.lock"])
def test_leftovers_of_an_earlier_run_are_refused(bundle, tmp_path, name):
    """E11."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("old")
    done = runs.run(bundle, tmp_path, command=agents.shell("touch %s/ran" % tmp_path))
    assert done.code == 73 and name in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert (tmp_path / "run" / name).read_text() == "old" and not os.path.exists(tmp_path / "ran")


def test_where_input_and_directory_are_bad_the_input_is_named(bundle, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "result.json").write_text("old")
    assert runs.run(bundle, tmp_path, command=[]).code == 65


def test_a_directory_behind_a_symlink_is_used(bundle, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "real")
    assert runs.run(bundle, tmp_path, command=agents.shell("echo '{}'")).outcome["kind"] == "completed"
    assert (tmp_path / "real" / "result.json").exists()


def test_odd_names_and_values_are_only_data(bundle, tmp_path):
    """E14."""
    odd = tmp_path / "a b" / "\u00fc'\"$(touch pwn)`x`\n"
    odd.mkdir(parents=True)
    done = runs.run(bundle, odd, command=agents.shell("pwd; printf %s \"$E\" >&2"), cwd=str(odd), env={"E": "line1\nline2 $HOME"})
    assert done.outcome["kind"] == "completed" and done.read("stderr.log") == b"line1\nline2 $HOME"
    assert "".join(done.events) and not list(tmp_path.rglob("pwn"))


@pytest.mark.parametrize("victim", ["worker", "guard"])
def test_a_killed_worker_or_guard_leaves_an_outcome_and_nobody_alive(bundle, tmp_path, victim):
    command = agents.shell("setsid sleep 611 & echo '{\"type\": \"x\"}'; sleep 612")
    process, directory = runs.start(bundle, tmp_path, command=command, invocation_id="killed-" + victim)
    line = started(process)
    while not (directory / "events.jsonl").exists() or not (directory / "events.jsonl").read_bytes():
        os.sched_yield()
    os.kill(line["pid"] if victim == "worker" else process.pid, signal.SIGKILL)
    if victim == "guard":
        assert runs.command(["stop", directory], bundle=bundle)[0] == 0  # waits for the worker to end
    done = runs.finish(process, directory)
    assert alive(b"SANDBOX_WORKER_RUN=killed-" + victim.encode()) == []
    assert done.result["cleanup_confirmed"] is True and done.events == [{"type": "x"}]
    kind = {"worker": "worker_error", "guard": "terminated"}[victim]
    assert done.outcome["kind"] == kind and (victim == "guard" or done.code == 70)
    assert done.result["disposition"]["verify_allowed"] is (victim == "guard")


def alive(marker):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                if marker in file.read():
                    found.append(pid)
        except OSError:
            continue
    return found


def test_recover_makes_an_outcome_after_guard_and_worker_were_killed(bundle, tmp_path):
    command = agents.shell("setsid sleep 613 & echo '{\"type\": \"x\"}'; sleep 614")
    process, directory = runs.start(bundle, tmp_path, command=command, invocation_id="both-killed", nonce="n-both")
    worker = started(process)["pid"]
    while not (directory / "events.jsonl").read_bytes():
        os.sched_yield()
    os.kill(process.pid, signal.SIGSTOP)  # else it would clean up in between
    os.kill(worker, signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=runs.HANG)
    assert runs.command(["stop", directory], bundle=bundle)[0] == 70
    code, _, said = runs.command(["recover", directory], bundle=bundle)
    done = runs.Done(directory, code, b"", said.encode())
    runs.check(done)
    assert code == 70 and done.outcome["kind"] == "worker_error" and done.result["cleanup_confirmed"] is False
    assert done.result["nonce"] == "n-both" and done.events == [{"type": "x"}]
    assert sorted(killed["argv"] for killed in done.receipt["killed"]) == [["sleep", "613"], ["sleep", "614"]]
    assert alive(b"SANDBOX_WORKER_RUN=both-killed") == []
    before = done.read("result.json")
    assert runs.command(["recover", directory], bundle=bundle)[0] == 70 and done.read("result.json") == before
    assert runs.command(["verify", directory], bundle=bundle)[0] == 0


def test_recover_finds_by_the_claim_who_outlived_a_run_without_launch_json(bundle, tmp_path):
    """Killed before launch.json was written: the claim has the marker, too."""
    command = agents.shell("setsid sleep 617 & echo '{\"type\": \"x\"}'; sleep 618")
    process, directory = runs.start(bundle, tmp_path, command=command, invocation_id="no-launch-json")
    worker = started(process)["pid"]
    while not (directory / "events.jsonl").read_bytes():
        os.sched_yield()
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(worker, signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=runs.HANG)
    (directory / "launch.json").unlink()
    code, _, said = runs.command(["recover", directory], bundle=bundle)
    done = runs.Done(directory, code, b"", said.encode())
    runs.check(done)
    assert code == 70 and done.outcome["kind"] == "worker_error" and ["sleep", "617"] in [k["argv"] for k in done.receipt["killed"]]
    assert alive(b"SANDBOX_WORKER_RUN=no-launch-json") == []


def test_recover_of_a_run_that_had_not_been_claimed_fences_it(bundle, tmp_path):
    """Killed between lock and claim: nothing was launched, and a run that is still on its way there is refused."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.lock").write_text("")
    code, _, _ = runs.command(["recover", tmp_path / "run"], bundle=bundle)
    done = runs.run(bundle, tmp_path, command=agents.shell("touch %s/ran" % tmp_path))
    assert code == 70 and done.code == 73 and not os.path.exists(tmp_path / "ran")
    assert done.outcome["kind"] == "worker_error" and done.receipt["killed"] == []


def test_recover_signals_nobody_who_does_not_carry_the_runs_own_marker(bundle, tmp_path):
    victim = subprocess.Popen(["sleep", "615"], env={"SANDBOX_WORKER_RUN": "other/run"})
    try:
        (tmp_path / "run").mkdir()
        os.symlink("run x", tmp_path / "run" / "launch.claim")
        (tmp_path / "run" / "launch.json").write_text(json.dumps({"marker": "other", "started_at": 1, "pid": victim.pid, "harness": "nope"}))
        (tmp_path / "run" / "run.lock").write_text(str(victim.pid))
        assert runs.command(["recover", tmp_path / "run"], bundle=bundle)[0] == 70
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_recover_leaves_a_living_run_alone(bundle, tmp_path):
    process, directory = runs.start(bundle, tmp_path, command=FOREVER)
    started(process)
    code, _, said = runs.command(["recover", directory], bundle=bundle)
    assert code == 73 and "still going on" in said
    assert runs.command(["stop", directory], bundle=bundle)[0] == 0
    assert runs.finish(process, directory).outcome["kind"] == "cancelled"
    assert runs.command(["recover", tmp_path], bundle=bundle)[0] == 66  # nothing was started there

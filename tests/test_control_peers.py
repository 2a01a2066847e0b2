"""Who may stop a run, and what a forged file can do: make a `stop` wait or fail, never signal anybody."""
from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests import runs

# The agent asks its own run to stop, through both sockets, itself and through a daemon; then it is done.
ASK = """
import os, socket, sys
about = os.stat(sys.argv[1])
def ask(address):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(30)
    try:
        sock.connect(address)
        sock.sendall(b"stop\\n")
        return sock.recv(100)
    except OSError:
        return b""
os.chdir(sys.argv[1])
addresses = ["\\0sandbox-worker/%x/%x" % (about.st_dev, about.st_ino), "control.sock"]
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        os.write(write, b"".join(ask(address) for address in addresses) or b"refused")
    os._exit(0)
told = b"".join(ask(address) for address in addresses) or b"refused"
print('{"itself":"%s","daemon":"%s"}' % (told.decode(), os.read(read, 100).decode()))
"""


def test_an_agent_cannot_pass_as_the_host(bundle, tmp_path):
    done = runs.run(bundle, tmp_path, command=[sys.executable, "-I", "-S", "-c", ASK, str(tmp_path / "run")], cwd="/")
    assert done.events == [{"itself": "refused", "daemon": "refused"}]
    assert done.result["return_code"] == 0 and done.receipt["signals"] == []


def started(bundle, tmp_path, script):
    process, directory = runs.start(bundle, tmp_path, command=["sh", "-c", script], cwd="/")
    assert b"started" in process.stdout.readline()
    return process, directory


def stopping(bundle, directory):
    return subprocess.Popen([sys.executable, "-I", "-S", str(bundle), "stop", str(directory)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_several_stops_at_once_all_wait_for_the_same_end(bundle, tmp_path):
    process, directory = started(bundle, tmp_path, "trap '' TERM; while :; do sleep 1; done")
    stops = [stopping(bundle, directory) for _ in range(3)]
    for stop in stops:
        stop.communicate(timeout=runs.HANG)
        assert stop.returncode == 0 and (directory / "result.json").exists()
    done = runs.finish(process, directory)
    assert done.outcome["kind"] == "cancelled" and done.receipt["cleanup_confirmed"] is True


DAMAGES = ["rm control.sock", "rm control.sock; mkfifo control.sock", "rm control.sock; ln -s /dev/zero control.sock",
           "rm launch.claim", "rm launch.claim; ln -s stop launch.claim", "rm launch.claim; echo 1 > launch.claim",
           "rm launch.claim run.lock control.sock"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_the_agent_does_to_the_files_does_not_stop_a_stop(bundle, tmp_path, damage):
    """The abstract socket cannot be removed, and the lock is an open file, not a name."""
    script = "cd %s && %s; echo '{}'; sleep 600" % (tmp_path / "run", damage)
    process, directory = started(bundle, tmp_path, script)
    tail = subprocess.Popen(["tail", "-n", "+1", "-F", str(directory / "events.jsonl")], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)
    tail.stdout.readline()
    tail.kill()
    tail.communicate()
    stop = stopping(bundle, directory)
    stop.communicate(timeout=runs.HANG)
    done = runs.finish(process, directory)
    assert done.outcome["kind"] == "cancelled" and done.receipt["cleanup_confirmed"] is True
    assert stop.returncode in (0, 70)


def test_a_forged_lock_and_pid_signal_nobody(bundle, tmp_path):
    """A directory that claims to be run by a stranger, who lives on."""
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        directory = tmp_path / "run"
        directory.mkdir()
        (directory / "launch.claim").symlink_to("run %d" % stranger.pid)
        (directory / "run.lock").write_text(str(stranger.pid))
        (directory / "launch.json").write_text(json.dumps({"pid": stranger.pid, "agent_pid": stranger.pid}))
        code, _, said = runs.command(["stop", directory], bundle=bundle)
        assert code == 70 and "recover" in said
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("name", ["run.lock", "result.json"])
@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_planted_kinds_of_files_do_not_hang_a_stop(bundle, tmp_path, name, kind):
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "launch.claim").symlink_to("run x")
    path = directory / name
    {"fifo": lambda: os.mkfifo(path), "link": lambda: path.symlink_to("/dev/zero"), "directory": path.mkdir}[kind]()
    code, _, said = runs.command(["stop", directory], bundle=bundle)
    assert code == 70 and said

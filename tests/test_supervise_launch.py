"""What the agent starts with, and why it could not: descriptors, signals, session, score, rights; E04's table of errors."""
from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys

import pytest

from tests import runs
from tests.conftest import lacking

LOOK = """
import json, os, signal, sys
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
def limits(name):
    try:
        return open("/proc/%d/%s" % (os.getppid(), name), "rb").read(64) and "readable"
    except OSError as error:
        return error.strerror
print(json.dumps({
    "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)),
    "ignored": int(status["SigIgn"], 16) & ~(1 << 12 | 1 << 24), "blocked": int(status["SigBlk"], 16),
    "leader": os.getsid(0) == os.getpid() == os.getpgid(0), "stdin": os.read(0, 100).decode(),
    "oom": int(open("/proc/self/oom_score_adj").read()), "bounding": int(status["CapBnd"], 16),
    "permitted": int(status["CapPrm"], 16), "no_new_privs": status["NoNewPrivs"],
    "uid": os.getuid(),
    "groups": os.getgroups(),
    "environ": limits("environ"), "mem": limits("mem"), "maps": limits("maps"), "cwd": os.getcwd(),
    "tty": os.path.exists("/dev/tty") and os.access("/dev/tty", os.R_OK) and tty(),
    "reopened": [open("/dev/stdout", "w").close(), open("/dev/stderr", "w").close()]}))
"""
LOOK = "def tty():\n    try:\n        open('/dev/tty').close()\n        return True\n    except OSError:\n        return False\n" + LOOK


def look(bundle, tmp_path, **options):
    done = runs.run(bundle, tmp_path, command=[sys.executable, "-I", "-S", "-c", LOOK], **dict({"cwd": "/"}, **options))
    assert done.read("stderr.log") == b""
    return done.events[0]


def test_the_agent_starts_clean(bundle, tmp_path):
    leak = socket.socket()
    leak.set_inheritable(True)
    # a worker that was itself started with ignored and blocked signals, and with descriptors that are not its own
    trap = ("sh", "-c", "trap '' USR1 PIPE; exec 7</dev/null; exec \"$@\"", "sh")
    seen = look(bundle, tmp_path, wrapper=trap, prompt="hello")
    assert seen["fds"] in ([0, 1, 2], [0, 1, 2, 3])  # 3: the listing itself
    # 32 and 33 are the thread library's own: no program can reset what an invoker did to them
    assert seen["ignored"] & ~(3 << 31) == 0 and seen["blocked"] == 0 and seen["leader"] and seen["tty"] is False
    assert seen["oom"] >= 500 and seen["cwd"] == "/" and seen["no_new_privs"] == "0"


SYS_ADMIN, SYS_PTRACE, PERFMON = 21, 19, 38


def test_no_agent_reads_the_worker(bundle, tmp_path):
    """As root, too: the bounding set lacks SYS_PTRACE and PERFMON, and the worker is not dumpable. (Root with SYS_ADMIN
    may read environ and maps, which perfmon_capable() allows it; never the memory, where the key is.)"""
    seen = look(bundle, tmp_path)
    assert seen["mem"] == "Permission denied"
    if not seen["permitted"] >> SYS_ADMIN & 1:
        assert seen["environ"] == seen["maps"] == "Permission denied"
    for capability in (SYS_PTRACE, PERFMON):
        assert not seen["permitted"] >> capability & 1
        assert not (os.getuid() == 0 and seen["bounding"] >> capability & 1)


def test_another_user(bundle, tmp_path):
    if os.getuid():
        lacking("only root can become another user")
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o011)
    script = ("id -u; id -g; id -G; grep -c NoNewPrivs:.1 /proc/self/status; cat /proc/$PPID/mem /proc/$PPID/environ; "
              "echo again > /dev/stdout; (setsid sleep 600 &)")
    done = runs.run(bundle, tmp_path, command=["sh", "-c", script], cwd="/", agent_user="12345:54321", no_new_privs=True)
    assert done.events == ["12345", "54321", "54321", "1", "again"]
    assert done.read("stderr.log").count(b"Permission denied") == 2
    assert done.receipt["cleanup_confirmed"] is True and len(done.receipt["killed"]) == 1


@pytest.mark.parametrize("size", [0, 1, 65536, 64 << 20])
def test_prompts_of_any_size(bundle, tmp_path, size):
    text = ("0123456789abcdef" * (size // 16 + 1))[:size]
    (tmp_path / "prompt").write_text(text)
    code = "import json,sys; print(json.dumps({'n': len(sys.stdin.buffer.read())}))"
    done = runs.run(bundle, tmp_path, command=[sys.executable, "-I", "-S", "-c", code], cwd="/",
                    prompt_file=str(tmp_path / "prompt"))
    assert done.events == [{"n": size}]


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_started_without_standard_descriptors(bundle, tmp_path, closed):
    process, directory = runs.start(bundle, tmp_path, wrapper=("sh", "-c", 'exec "$@" ' + closed, "sh"), cwd="/",
                                    command=["sh", "-c", "echo out; echo err >&2; cat"])
    process.communicate(timeout=runs.HANG)
    done = runs.Done(directory, process.returncode, b"", b"")
    assert done.events == ["out"] and done.read("stderr.log") == b"err\n" and done.result["return_code"] == 0


def elf(machine=62, interpreter=None):
    """The head of a 64-bit program with at most one program header."""
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0x400000, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    name = (interpreter or "").encode() + b"\0"
    kind = 3 if interpreter else 1
    return head + struct.pack("<IIQQQQQQ", kind, 4, 120, 0x400078, 0x400078, len(name), len(name), 1) + name + bytes(4096)


FOREIGN = 183 if os.uname().machine == "x86_64" else 62
HERE = {"x86_64": 62, "aarch64": 183}.get(os.uname().machine, 62)
# name, file content (None: no file), mode, kind, words in the message
ERRORS = [
    ("missing", None, 0, "not_found", "no such file"),
    ("text", b"just text\n", 0o644, "not_executable", "0644"),
    ("no line", b"just text\n", 0o755, "not_executable", "#!"),
    ("empty", b"", 0o755, "not_executable", "empty"),
    ("script", b"#!/no/such/node\n", 0o755, "missing_interpreter", "/no/such/node"),
    ("dos", b"#!/bin/sh\r\nexit 0\r\n", 0o755, "missing_interpreter", "carriage return"),
    ("loader", elf(HERE, "/lib/ld-missing.so.1"), 0o755, "missing_loader", "/lib/ld-missing.so.1"),
    ("foreign", elf(FOREIGN), 0o755, "wrong_architecture", os.uname().machine),
    ("hex", bytes.fromhex("7f454c460201010000000000000000000200b700"), 0o755, "wrong_architecture", "AArch64"),
]


@pytest.mark.parametrize("name,content,mode,kind,words", ERRORS, ids=[row[0] for row in ERRORS])
def test_launch_errors_are_told_apart(bundle, tmp_path, name, content, mode, kind, words):
    program = tmp_path / name
    if content is not None:
        program.write_bytes(content)
        program.chmod(mode)
    failed(bundle, tmp_path, kind, words, command=[str(program)], cwd="/")


def failed(bundle, tmp_path, kind, words, **document):
    done = runs.run(bundle, tmp_path, **document)
    done = runs.Done(document.get("directory") or done.directory, done.code, b"", b"")
    assert done.outcome["status"] == "not_run" and done.outcome["kind"] == "launch_failed", done.outcome
    assert words in done.outcome["message"] and done.outcome["evidence"]["error"] == kind, done.outcome
    assert done.receipt["cleanup_confirmed"] is True and done.code == 69


def test_a_name_that_is_not_on_the_path(bundle, tmp_path):
    failed(bundle, tmp_path, "not_found", "PATH", command=["no-such-program"], cwd="/")


@pytest.mark.parametrize("harness", ["generic", "codex", "claude_code", "opencode", "gemini"])
def test_what_is_no_program(bundle, tmp_path, harness):
    """Nobody looks into it for its kind and waits: a FIFO has no writer."""
    os.mkfifo(tmp_path / "fifo", 0o755)
    for command, words in (("/tmp", "directory"), (str(tmp_path / "fifo"), "no regular file")):
        failed(bundle, tmp_path, "not_executable", words, command=[command], cwd="/", harness=harness, prompt="x",
               directory=str(tmp_path / words))


def test_a_program_that_is_being_written(bundle, tmp_path):
    shutil.copy("/bin/true", tmp_path / "tool")
    with open(tmp_path / "tool", "r+b"):
        failed(bundle, tmp_path, "other", "tool: Text file busy", command=[str(tmp_path / "tool")], cwd="/")


def test_a_working_directory_that_is_not_there(bundle, tmp_path):
    failed(bundle, tmp_path, "bad_cwd", "/no/such/place", command=["true"], cwd="/no/such/place")


def test_an_argument_that_no_kernel_takes(bundle, tmp_path):
    failed(bundle, tmp_path, "argument_too_long", "140000", command=["true", "x" * 140000], cwd="/")


def test_programs_are_found_as_the_agent_would(bundle, tmp_path):
    """In its own PATH and working directory; a directory or a file that cannot run does not hide a later program."""
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "tool").mkdir()
    (tmp_path / "b" / "tool").write_text("x")
    (tmp_path / "c" / "tool").write_text("#!/bin/sh\necho found $0\n")
    (tmp_path / "c" / "tool").chmod(0o755)
    path = ":".join(str(tmp_path / folder) for folder in "abc")
    done = runs.run(bundle, tmp_path, command=["tool"], env={"PATH": path}, cwd="/")
    assert done.events == ["found %s" % (tmp_path / "c" / "tool")]


def test_a_relative_program(bundle, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "bin" / "tool").chmod(0o755)
    done = runs.run(bundle, tmp_path, command=["bin/tool"], cwd=str(tmp_path))
    assert done.events == [os.path.realpath(tmp_path)]


def test_a_nul_in_a_word(bundle, tmp_path):
    process, directory = runs.start(bundle, tmp_path, command=["true", "a\0b"], cwd="/")
    process.communicate(timeout=runs.HANG)
    assert process.returncode in (65, 69)


def test_no_descriptor_survives_a_signal_during_the_launch(bundle, tmp_path):
    """SIGTERM as early as possible: whatever the moment, an orderly end or nothing at all."""
    for delay in range(8):
        folder = tmp_path / str(delay)
        folder.mkdir()
        process, directory = runs.start(bundle, folder, command=["sleep", "600"], cwd="/")
        try:
            process.wait(timeout=0.02 * delay)
        except subprocess.TimeoutExpired:
            pass
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=runs.HANG)
        result = directory / "result.json"
        if result.exists():
            assert json.loads(result.read_text())["cleanup_confirmed"] is True

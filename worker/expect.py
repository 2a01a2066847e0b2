"""`expect`: ask the program for its version before the launch, and refuse another one. Loaded only where it is asked for."""
from __future__ import annotations

import os
import re
import select
import signal
import time

from worker.harnesses import INTERPRETERS
from worker.supervise import exit_status, spawn

PATIENCE = 30.0  # seconds; the slowest CLI measured answers in 3
LONGEST = 64 << 10
VERSION = re.compile(r"(?<![0-9A-Za-z.])v?([0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+-]*)")


def unmet(run, env):
    """None, or the launch error of a program whose `--version` does not have the expected text as a word."""
    expected = run.job["expect"]
    if (run.launch.get("baseline") or {}).get("version") == expected:  # the package beside the program says so
        return None
    words = version_words(run.launch["argv"], run.harness)
    said, _ = ask(words, env, run.job)
    if said is None:
        return {"kind": "expect", "message": "expect: the program gave no version (%s)" % " ".join(words)}
    if expected in said.replace(",", " ").replace("(", " ").replace(")", " ").replace("/", " ").split():
        return None
    return {"kind": "expect", "message": "expect: the harness is %s, not %s" % (said.strip()[:100] or "silent", expected)}


def version_words(argv, harness):
    """The command that asks a CLI for its version: its program, or the script that an interpreter runs."""
    script = 1
    while os.path.basename(argv[0]) in INTERPRETERS and script < len(argv) and argv[script].startswith("-"):
        script += 1
    interpreted = os.path.basename(argv[0]) in INTERPRETERS and script < len(argv)
    return argv[:script + 1 if interpreted else 1] + [getattr(harness, "VERSION_WORD", "--version")]


def version_in(text):
    """The version number in what a CLI said, or None."""
    found = VERSION.search(text or "")
    return found and found.group(1)


def ask(words, env, job):
    """(what the command prints, on either stream; None), or (None, why there is nothing)."""
    stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    agent = spawn(words, env, job["cwd"], stdin, job["user"], job["no_new_privs"])
    os.close(stdin)
    failed = agent.go()
    if failed is not None:
        return None, failed.message
    end, text, poller, open_fds = time.monotonic() + PATIENCE, b"", select.poll(), {agent.stdout, agent.stderr}
    for fd in open_fds:
        poller.register(fd, select.POLLIN)
    while open_fds and time.monotonic() < end and len(text) < LONGEST:
        for fd, _ in poller.poll(max(0.0, end - time.monotonic()) * 1000):
            piece = os.read(fd, 4096)
            text += piece
            if not piece:
                poller.unregister(fd)
                open_fds.discard(fd)
    late = bool(open_fds)
    if late:
        os.kill(agent.pid, signal.SIGKILL)
    status = exit_status(os.waitpid(agent.pid, 0)[1])
    os.close(agent.stdout)
    os.close(agent.stderr)
    said = text.decode("utf-8", "replace")
    if late or status:
        last = said.strip().splitlines()[-1][:200] if said.strip() else "it says nothing"
        ended = "does not end within %d s" % PATIENCE if late else "ends with %d" % status
        return None, "%s %s (%s)" % (" ".join(words), ended, last)
    return said, None

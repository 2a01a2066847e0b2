"""`expect`: ask the program for its version before the launch, and refuse another one. Loaded only where it is asked for."""
from __future__ import annotations

import os
import select
import signal
import time

from worker.supervise import exit_status, spawn

PATIENCE = 30.0  # seconds; the slowest CLI measured answers in 3
LONGEST = 64 << 10


def unmet(run, env):
    """None, or the launch error of a program whose `--version` does not have the expected text as a word."""
    expected = run.job["expect"]
    said = ask(run.launch["argv"][0], env, run.job)
    if said is None:
        return {"kind": "expect", "message": "expect: the program gave no version (%s --version)" % run.launch["argv"][0]}
    if expected in said.replace(",", " ").replace("(", " ").replace(")", " ").replace("/", " ").split():
        return None
    return {"kind": "expect", "message": "expect: the harness is %s, not %s" % (said.strip()[:100] or "silent", expected)}


def ask(program, env, job):
    """What `program --version` prints, on either stream; None where it cannot be started or does not end."""
    stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    agent = spawn([program, "--version"], env, job["cwd"], stdin, job["user"], job["no_new_privs"])
    os.close(stdin)
    if agent.go() is not None:
        return None
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
    if open_fds:
        os.kill(agent.pid, signal.SIGKILL)
    status = exit_status(os.waitpid(agent.pid, 0)[1])
    os.close(agent.stdout)
    os.close(agent.stderr)
    return text.decode("utf-8", "replace") if status == 0 else None

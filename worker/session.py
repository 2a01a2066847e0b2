"""The session directory: the names in it, and the descriptor through which everything is written. It is opened before the
agent exists, so that a directory or file that the agent swaps in is never followed. Who may use one: intake.py.
"""
from __future__ import annotations

import fcntl
import os
import time

LAUNCH, EVENTS, STDERR, ATTEMPTS = "launch.json", "events.jsonl", "stderr.log", "model_attempts.jsonl"
OBSERVATIONS, CLEANUP, RESULT, PROMPT = "observations.json", "cleanup.json", "result.json", "prompt.txt"
BODIES, NATIVE, STATE = "bodies", "native", "state"
CLAIM, LOCK, SOCKET, RESERVE = "launch.claim", "run.lock", "control.sock", tuple(".reserve-%d" % n for n in range(6))
# `state/` is the agent's own and no evidence; claim, lock and socket serve `stop`; the reserve is gone at the end.
EVIDENCE = (LAUNCH, EVENTS, STDERR, ATTEMPTS, BODIES, NATIVE, OBSERVATIONS, CLEANUP, PROMPT)
WRITES = EVIDENCE + (RESULT, STATE, CLAIM, LOCK, SOCKET) + RESERVE
DONE = b"done"  # the worker's last word to the guard, once the result is written
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_APPEND
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Clock:
    """Unix time that never runs backwards: the wall clock at the start plus monotonic time since."""

    def __init__(self, wall0=None, mono0=None):
        self.wall0, self.mono0 = wall0 or time.time(), mono0 or time.monotonic()

    def now(self):
        return self.wall0 + time.monotonic() - self.mono0


class Session:
    """A process's hold on the directory. `files`: {name: {"size", "sha256"}} of what was written, kept by documents.py;
    `before`: the host's own files, which were there first. Raises OSError."""

    def __init__(self, path, job, secrets, clock, before):
        self.path, self.secrets, self.clock, self.before = path, secrets, clock, set(before)
        self.files, self.open_files, self.live, self.sockets, self.replaced = {}, [], {}, [], []
        self.ran_full = False
        self.identity = {"nonce": job["nonce"], "invocation_id": job["invocation_id"]}
        self.fd, self.real = os.open(path, DIRECTORY), os.path.realpath(path)

    def share_lock(self):
        """Guard and worker hold it, each its own: it can be had exclusively when both are gone."""
        self.lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        fcntl.flock(self.lock, fcntl.LOCK_SH)

    def open_live(self, name):
        """Open a file that will grow, so that no agent can plant something of that name."""
        self.live[name] = os.open(name, NEW, 0o600, dir_fd=self.fd)

    def unlinked_file(self):
        """A new file without a name, for an agent's stdout (output_file.py)."""
        name = ".stdout-" + os.urandom(8).hex()
        fd = os.open(name, NEW, 0o600, dir_fd=self.fd)
        os.unlink(name, dir_fd=self.fd)
        return fd

    def make_directory(self, name):
        os.mkdir(name, 0o700, dir_fd=self.fd)
        return os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd)

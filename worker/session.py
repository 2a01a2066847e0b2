"""The session directory: created 0700, refused when a name that a run writes is there already, and claimed in one atomic
step (the symlink `launch.claim`, which `stop` may win). Everything is written through the descriptor opened here, before
the agent exists, so that a directory or file that it swaps in is never followed.
"""
from __future__ import annotations

import errno
import fcntl
import os
import time

from worker import fence

LAUNCH, EVENTS, STDERR, ATTEMPTS = "launch.json", "events.jsonl", "stderr.log", "model_attempts.jsonl"
OBSERVATIONS, CLEANUP, RESULT, PROMPT = "observations.json", "cleanup.json", "result.json", "prompt.txt"
BODIES, NATIVE, STATE = "bodies", "native", "state"
CLAIM, LOCK, RESERVE = "launch.claim", "run.lock", ".reserve"
# `state/` is the agent's own and no evidence; claim, lock and socket serve `stop`; the reserve is gone at the end.
EVIDENCE = (LAUNCH, EVENTS, STDERR, ATTEMPTS, BODIES, NATIVE, OBSERVATIONS, CLEANUP, PROMPT)
WRITES = EVIDENCE + (RESULT, STATE, CLAIM, LOCK, RESERVE, fence.SOCKET)
RESERVED_BYTES = 256 << 10  # receipt and result of a run with thousands of calls; freed when the disk is full (B22)
DONE = b"done"  # the worker's last word to the guard, once the result is written
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_APPEND
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class NotUsable(Exception):
    """The directory cannot be written, is not fresh, or was used before: exit code 73."""


class Clock:
    """Unix time that never runs backwards: the wall clock at the start plus monotonic time since."""

    def __init__(self):
        self.wall0, self.mono0 = time.time(), time.monotonic()

    def now(self):
        return self.wall0 + time.monotonic() - self.mono0


class Session:
    """One claimed directory. `files`: {name: {"size", "sha256"}} of what the worker wrote, kept by documents.py."""

    def __init__(self, job, secrets):
        self.path, self.clock, self.secrets = os.path.abspath(job["directory"]), Clock(), secrets
        self.files, self.open_files = {}, []
        self.identity = {"nonce": job["nonce"], "invocation_id": job["invocation_id"]}
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            self.fd = os.open(self.path, DIRECTORY)
            self._claim()
            if job["user"]:
                os.fchmod(self.fd, 0o711)  # the agent must reach state/ through it, but not list it
        except OSError as error:
            raise NotUsable("%s: %s" % (self.path, os.strerror(error.errno or errno.EIO))) from None

    def _claim(self):
        self.before = set(os.listdir(self.fd))  # the host's own files, such as input.json
        found = sorted(self.before.intersection(WRITES))
        if found:
            from worker.control import claimed_by

            stopped = claimed_by(self.fd) == "stop"
            reason = "was stopped before it started" if stopped else "is not fresh, it has " + ", ".join(found)
            raise NotUsable("%s: %s" % (self.path, reason))
        # Lock, listen, claim, in this order: a `stop` that loses the claim finds somebody listening. The lock is
        # one open file, shared by guard and worker: it is free when both are gone.
        self.lock = os.open(LOCK, NEW, 0o600, dir_fd=self.fd)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.sockets = fence.listen(self.fd)
        try:
            os.symlink("run " + self.identity["nonce"], CLAIM, dir_fd=self.fd)
        except FileExistsError:
            raise NotUsable("%s: was stopped before it started" % self.path) from None
        self.write_new(RESERVE, bytes(RESERVED_BYTES))
        # Opened now, so that no agent can plant something under these names.
        self.live = {name: os.open(name, NEW, 0o600, dir_fd=self.fd) for name in (EVENTS, STDERR)}

    def write_new(self, name, data):
        fd, view = os.open(name, NEW, 0o600, dir_fd=self.fd), memoryview(data)
        while view:
            view = view[os.write(fd, view):]
        os.close(fd)

    def make_directory(self, name):
        os.mkdir(name, 0o700, dir_fd=self.fd)
        return os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd)

"""The session directory: who may use it, how documents get into it, which files belong to it.

A run owns its directory: it is created 0700, refused when any name that a run
writes is there already, and claimed by one atomic step (the symlink
`launch.claim`, which `stop` may win).  Everything is written through the
directory descriptor opened here, before the agent exists, so that a directory
or file swapped in by the agent is never followed.  A document under its final
name is always whole: it is written beside and renamed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time

from transport.sandbox_transport import EvidenceFile, Redactor, atomic_write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAUNCH, EVENTS, STDERR, ATTEMPTS = "launch.json", "events.jsonl", "stderr.log", "model_attempts.jsonl"
OBSERVATIONS, CLEANUP, RESULT, PROMPT = "observations.json", "cleanup.json", "result.json", "prompt.txt"
BODIES, NATIVE, STATE = "bodies", "native", "state"
CLAIM, LOCK, RESERVE = "launch.claim", "run.lock", ".reserve"
# `state/` is the agent's own and no evidence; the last three are tools of the run and removed or empty.
EVIDENCE = (LAUNCH, EVENTS, STDERR, ATTEMPTS, BODIES, NATIVE, OBSERVATIONS, CLEANUP, PROMPT)
WRITES = EVIDENCE + (RESULT, STATE, CLAIM, LOCK, RESERVE)
# The receipt and the result of a run with thousands of calls fit in this; freed when the disk is full (B22).
RESERVED_BYTES = 256 << 10


class NotUsable(Exception):
    """The directory cannot be written, is not fresh, or was used before; becomes exit code 73."""


class Clock:
    """Unix time that never runs backwards: the wall clock at the start plus monotonic time since."""

    __slots__ = ("wall0", "mono0")

    def __init__(self) -> None:
        self.wall0, self.mono0 = time.time(), time.monotonic()

    def now(self) -> float:
        return self.wall0 + time.monotonic() - self.mono0

    def at(self, monotonic: float) -> float:
        return self.wall0 + monotonic - self.mono0


class Session:
    """One claimed directory.  `files` collects `{name: {"size", "sha256"}}` of what was written."""

    def __init__(self, job: "dict[str, Any]", secrets: "list[bytes]") -> None:
        self.path = os.path.abspath(job["directory"])
        self.clock, self.redactor = Clock(), Redactor(secrets)
        self.files: "dict[str, dict[str, Any]]" = {}
        self.open_files: "list[EvidenceFile]" = []
        self.identity = {"nonce": job["nonce"], "invocation_id": job["invocation_id"]}
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._claim()
            if job["agent_user"]:
                os.fchmod(self.fd, 0o711)  # the agent must reach state/ through it, but not list it
        except OSError as error:
            raise NotUsable("%s: %s" % (self.path, os.strerror(error.errno or errno.EIO))) from None

    def _claim(self) -> None:
        found = sorted(set(os.listdir(self.fd)).intersection(WRITES))
        if found == [CLAIM] and self.claimed_by() == "stop":
            raise NotUsable("%s: was stopped before it started" % self.path)
        if found:
            raise NotUsable("%s: is not fresh, it has %s" % (self.path, ", ".join(found)))
        # The lock is this open file, shared by guard and worker: it is free when both are gone.
        self.lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            os.symlink("run", CLAIM, dir_fd=self.fd)
        except FileExistsError:
            raise NotUsable("%s: was stopped before it started" % self.path) from None
        atomic_write(self.fd, RESERVE, bytes(RESERVED_BYTES))

    def claimed_by(self) -> str:
        try:
            return os.readlink(CLAIM, dir_fd=self.fd)
        except OSError:
            return ""

    def open(self, name: str, cap: "int | None" = None) -> EvidenceFile:
        """A live evidence file; its size and hash enter the manifest when `collect_files` is called."""
        file = EvidenceFile(self.fd, name, self.redactor.fresh(), cap)
        self.open_files.append(file)
        return file

    def make_directory(self, name: str) -> int:
        os.mkdir(name, 0o700, dir_fd=self.fd)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)

    def write_json(self, name: str, document: "dict[str, Any]") -> None:
        """Write a whole document under its final name, giving up the reserve where the disk is full."""
        data = self.redactor.clean(strict_json(document) + b"\n")
        try:
            atomic_write(self.fd, name, data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or not self.free_reserve():
                raise
            atomic_write(self.fd, name, data)
        self.note(name, data)

    def note(self, name: str, data: bytes) -> None:
        import hashlib  # late: nothing is written before the agent runs

        self.files[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def free_reserve(self) -> bool:
        try:
            os.unlink(RESERVE, dir_fd=self.fd)
            return True
        except OSError:
            return False

    def close_files(self) -> "dict[str, EvidenceFile]":
        """Close the live files and enter them into the manifest; returns them by name."""
        for file in self.open_files:
            file.close()
            self.files[file.name] = file.entry()
        return {file.name: file for file in self.open_files}


def strict_json(document: "Any") -> bytes:
    """UTF-8 JSON that every strict parser reads: no NaN, no infinity, no lone surrogate (C25, C27)."""
    try:
        return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # UnicodeEncodeError is one, too
        return json.dumps(_strict(document), ensure_ascii=False, separators=(",", ":")).encode()


def _strict(value: "Any") -> "Any":
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in value)
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {_strict(str(key)): _strict(item) for key, item in value.items()}
    return [_strict(item) for item in value] if isinstance(value, (list, tuple)) else value

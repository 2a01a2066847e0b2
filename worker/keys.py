"""Secrets on the way in: a key that came by environment is wiped, and what still shows one is found.

A key may be read by the agent from another process's environment or command
line (`docker exec -e KEY=...` puts it into its own, `docker run -e` into that of
PID 1) or from a file in the session directory.  Those are outside the worker's
power, so they are said: warning `key_exposed`, and no start with `strict_key`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


SHORTEST = 8  # a shorter "secret" would blank out ordinary text (DESIGN 6, `redact`)


def secrets_of(job: "dict[str, Any]", token: str) -> "list[bytes]":
    """Every value that must not stand in any file."""
    model = job["model"] or {}
    values = [token, model.get("key"), job["seal_key"], *job["redact"]]
    return [value.encode() for value in values if value and len(value) >= SHORTEST]


def wipe(job: "dict[str, Any]") -> None:
    """Overwrite the key in this process's initial environment block, and remove a key file.

    The kernel shows that block in /proc/PID/environ for the whole life of a process, whatever
    happens to os.environ; getenv(3) points into it.
    """
    model = job["model"] or {}
    name = model.get("api_key_env")
    if name:
        _overwrite(name)
        os.environ.pop(name, None)
    if model.get("api_key_file") and not model["keep_key_file"]:
        os.unlink(model["api_key_file"])


def _overwrite(name: str) -> None:
    try:
        import ctypes
    except ImportError:
        return  # this process is not dumpable; `exposed` says what can be read all the same
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(name.encode())
    if address:
        ctypes.memset(address, ord("*"), len(ctypes.string_at(address)))


def exposed(keys: "list[bytes]", directory: int) -> "list[str]":
    """Places where another process or the session directory shows one of `keys`, in words."""
    found = []
    own = {str(os.getpid()), str(os.getppid())}
    for pid in [name for name in _listdir("/proc") if name.isdigit() and name not in own]:
        for part in ("environ", "cmdline"):
            if _shows("/proc/%s/%s" % (pid, part), keys):
                found.append("%s of process %s" % (part, pid))
    for name in os.listdir(directory):
        if _shows(name, keys, directory):
            found.append("file %s of the session directory" % name)
    return found


def _shows(path: str, keys: "list[bytes]", directory: "int | None" = None) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return False
    try:
        text = os.read(fd, 1 << 21)
    except OSError:
        return False
    finally:
        os.close(fd)
    return any(key in text for key in keys)


def _listdir(path: str) -> "list[str]":
    try:
        return os.listdir(path)
    except OSError:
        return []

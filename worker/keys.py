"""Secrets on the way in: which values they are, and wiping the places that they came from."""
from __future__ import annotations

import os

SHORTEST = 8  # a shorter "secret" would blank out ordinary text (DESIGN 6, `redact`)


def secrets_of(job, token):
    """Every value (bytes) that must not stand in any file."""
    values = [token, real_key(job), job["seal_key"], *job["redact"]]
    return [value.encode() for value in values if value and len(value) >= SHORTEST]


def real_key(job):
    return job["model"] and job["model"]["key"]


def wipe(job):
    """Overwrite the key in this process's initial environment block, and remove a key file.

    The kernel shows that block in /proc/PID/environ for the whole life of a process, whatever happens to
    os.environ; getenv(3) points into it.
    """
    model = job["model"] or {}
    name = model.get("api_key_env")
    if name:
        _overwrite(name)
        os.environ.pop(name, None)
    if model.get("api_key_file") and not model["keep_key_file"]:
        os.unlink(model["api_key_file"])


def _overwrite(name):
    try:
        import ctypes
    except ImportError:
        return  # this process is not dumpable, and exposure.py says what can be read all the same
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address = libc.getenv(name.encode())
    if address:
        ctypes.memset(address, ord("*"), len(ctypes.string_at(address)))

"""Where the real key can still be read by the agent: other processes' environments and command lines, the directory.

`docker exec -e KEY=...` puts a key into the exec's own environment, `docker run -e` into that of PID 1, a host may
have left it in a file. Those are outside the worker's power, so they are said: warning `key_exposed`, and no start
with `strict_key`. The guard looks while the worker prepares the launch. Both are left out: root would see the worker's
environment before it is wiped, which it is before the agent exists, and no agent can read either (not dumpable).
"""
from __future__ import annotations

import os

LARGEST = 1 << 21  # a whole environment: execve allows no more


def places(key, directory, own):
    """Where `key` (bytes) shows, in words. directory: descriptor of the session directory; own: pids of guard and worker."""
    found = []
    for pid in [name for name in _listdir("/proc") if name.isdigit() and int(name) not in own]:
        found += ["%s of process %s" % (part, pid) for part in ("environ", "cmdline")
                  if _shows("/proc/%s/%s" % (pid, part), key)]
    return found + ["file %s of the session directory" % name for name in os.listdir(directory)
                    if _shows(name, key, directory)]


def _shows(path, key, directory=None):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return False
    try:
        return key in os.read(fd, LARGEST)
    except OSError:  # a directory, or a process that ended meanwhile
        return False
    finally:
        os.close(fd)


def _listdir(path):
    try:
        return os.listdir(path)
    except OSError:
        return []

"""What this sandbox is: the facts that `result.json` repeats, so that a strange outcome can be explained later."""
from __future__ import annotations

import os
import sys
import time

from worker import kernel
from worker.processes import is_subreaper, read


def facts():
    """Python, kernel, user, and which of the means that supervision relies on are there; null where unknown."""
    system = os.uname()
    return {
        "python": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable, "machine": system.machine,
        "kernel": "%s %s" % (system.sysname, system.release), "uid": os.getuid(), "gid": os.getgid(),
        "cpus": len(os.sched_getaffinity(0)), "memory_limit_mib": _memory_limit(), "pid": os.getpid(),
        "pid_1": (read("/proc/1/cmdline", 200).split(b"\0")[0].decode("utf-8", "replace") or None),
        "proc": os.path.exists("/proc/self/stat"), "children_file": os.path.exists("/proc/self/task/%d/children" % os.getpid()),
        "ctypes": kernel.HAVE_CTYPES, "subreaper": is_subreaper(), "pidfd": _has_pidfd(),
        "seccomp": status("Seccomp"), "no_new_privs": status("NoNewPrivs"), "capabilities": status("CapEff"),
    }


def clock_moved(clock):
    """Seconds by which the wall clock is ahead of the run's own (session.Clock): it was set, or the machine slept."""
    return time.time() - clock.now()


def _has_pidfd():
    """Asked of the kernel: gVisor has none, whatever Python offers."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # Python 3.8; ENOSYS
        return False
    return True


def status(name):
    """A line of /proc/self/status, or None."""
    for line in read("/proc/self/status", 8192).decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return None


def _memory_limit():
    """Of the control group that a container sees at the root of its mount; null where there is none (or no limit)."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = read(path, 64).strip()
        if text.isdigit() and int(text) < 1 << 50:
            return round(int(text) / 2 ** 20, 1)
    return None

"""What can be known about other processes: children, ages, command lines; each way with what it does without.

Ways to find own children, best first: the kernel's `children` files (absent in old gVisor and some kernels), the parent
in every /proc/PID/stat, and without any /proc a waitid over all numbers, which only tells of own children. None is taken
as proof by itself: what ends a cleanup is waitpid's ECHILD.
"""
from __future__ import annotations

import os
import time

from worker import kernel

READ_ONLY = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
TICKS = os.sysconf("SC_CLK_TCK")
PID_LIMIT = 1 << 22  # PID_MAX_LIMIT of 64-bit kernels, for places where /proc/sys cannot be read
ARGV_BYTES = 4096
SWEEP = 4096


def _proc_is_ours():
    """Not where a pid namespace was made without a /proc of its own (`unshare -pf`): its numbers are other processes'."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


PROC_IS_OURS = _proc_is_ours()


def pids():
    """All processes that /proc shows."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()] if PROC_IS_OURS else []
    except OSError:
        return []


def is_child(pid):
    """The kernel's own word, dead children that are not reaped included."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def read(path, size=65536):
    """The beginning of a /proc file, or b"" where there is none (any more)."""
    try:
        fd = os.open(path, READ_ONLY)
    except OSError:
        return b""
    try:
        data = os.read(fd, size)
    except OSError:  # ESRCH: it died in between
        data = b""
    os.close(fd)
    return data


def children_by_file():
    """Children of every thread of ours (an orphan goes to any thread that lives)."""
    found: list = []
    if not PROC_IS_OURS:
        return found
    try:
        for task in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/children" % task, "rb", 0) as file:
                found += [int(pid) for pid in file.readall().split()]
    except OSError:  # no /proc, no such file
        pass
    return found


def children_by_scan():
    """Everything whose parent we are. A child that lives through the scan is in it: it stays until we reap it."""
    me = os.getpid()
    return [pid for pid in pids() if parent(pid) == me]


def children_by_sweep(start=2):
    """Ask the kernel for each number whether it is our child (43 ms for 32,768). Yields them, upwards from `start`."""
    text = read("/proc/sys/kernel/pid_max")
    limit = int(text) if text.strip().isdigit() else PID_LIMIT
    for first, last in ((max(2, start), limit), (2, max(2, start))):
        for pid in range(first, last):
            if is_child(pid):
                yield pid
            elif pid % SWEEP == 0:
                yield 0  # a moment for the caller to look at the clock


def stat(pid):
    """The first fields of /proc/PID/stat after the name, from `state` (proc(5) field 3) to `starttime` (22); [] when gone."""
    text = read("/proc/%d/stat" % pid, 512) if PROC_IS_OURS else b""
    fields = text[text.rfind(b")") + 2:].split(b" ", 20)
    return fields if len(fields) > 19 else []


def parent(pid):
    fields = stat(pid)
    return int(fields[1]) if fields else None


def descendants(roots):
    """[(pid, start ticks)] of everybody below `roots`, our own children, parents first; children of main threads only, and
    nobody where the kernel has no `children` files. A number counts while its start is the same before and after its children
    were read: they were not a stranger's."""
    found, queue = [], [(pid, start_ticks(pid)) for pid in roots]
    for parent_pid, started in queue:
        if len(found) > SWEEP:  # a tree that grows as fast as it is read
            break
        listed = read("/proc/%d/task/%d/children" % (parent_pid, parent_pid)) if PROC_IS_OURS else b""
        if listed and start_ticks(parent_pid) == started:
            below = [(int(pid), start_ticks(int(pid))) for pid in listed.split()]
            found += below
            queue += below
    return [(pid, started) for pid, started in found if started is not None]


def start_ticks(pid):
    """Start time in clock ticks since boot: together with the number it names a process for good."""
    fields = stat(pid)
    return int(fields[19]) if fields else None


def describe(pid, now):
    """{"pid", "argv" (list of text, null when unknown), "age_s", "state"}; now: `uptime()`, or None for argv alone."""
    words = read("/proc/%d/cmdline" % pid, ARGV_BYTES) if PROC_IS_OURS else b""
    fields = stat(pid) if now is not None else []
    age = now - int(fields[19]) / TICKS if fields else -1.0  # gVisor may count from elsewhere
    return {
        "pid": pid, "argv": words.rstrip(b"\0").decode("utf-8", "replace").split("\0") if words else None,
        "age_s": round(age, 2) if age >= 0 else None, "state": fields[0].decode() if fields else None}


def uptime():
    return time.clock_gettime(time.CLOCK_BOOTTIME) + 1 / TICKS  # starts are counted in whole ticks


def descends_from(pid, ancestor):
    """True, False, or None where that cannot be seen (no /proc, or the process is gone)."""
    for _ in range(PID_LIMIT):
        if pid == ancestor:
            return True
        if pid in (0, 1):
            return False
        pid = parent(pid)
        if pid is None:
            return None
    return None


def marked(marker):
    """Processes that have `marker` (bytes, NAME=value) in their first environment; only those that we may read."""
    me = os.getpid()
    return [pid for pid in pids() if pid != me and has_marker(pid, marker)]


def has_marker(pid, marker):
    return marker in read("/proc/%d/environ" % pid, 1 << 20).split(b"\0")


def is_subreaper():
    """PR_GET_CHILD_SUBREAPER. The mark is not inherited by a fork: it holds for this process alone."""
    if not kernel.HAVE_CTYPES:
        return False
    import ctypes

    answer = ctypes.c_int(0)
    return kernel.prctl(37, ctypes.addressof(answer)) == 0 and answer.value == 1

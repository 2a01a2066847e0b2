"""What the agent's processes used, and the kernel's word for why they died.

CPU time is that of reaped children (getrusage), so it covers every descendant whose death was seen by its parent or by
us. Peak memory of a whole tree is known to a control group only: its peak counts when it rose during the run; else null.
Out of memory and too many processes are claimed only where a counter of the kernel rose (cgroups v1 and v2; outside any
memory group the machine's own counter in /proc/vmstat). Begin before or right after the launch, `measure` after cleanup.
"""
from __future__ import annotations

import os
import resource
import time

from worker.processes import read

ROOT = "/sys/fs/cgroup"
# what: files (v2 first, then v1), with the word before the number, or None where the file is the number
COUNTERS = {
    "oom": (("", "memory.events", b"oom_kill"), ("memory", "memory.oom_control", b"oom_kill")),
    "pids": (("", "pids.events", b"max"), ("pids", "pids.events", b"max")),
    "peak": (("", "memory.peak", None), ("memory", "memory.max_usage_in_bytes", None)),
}


def groups():
    """{controller: path} of this process; "" is the unified hierarchy (cgroups(7))."""
    found = {}
    for line in read("/proc/self/cgroup").decode("utf-8", "replace").splitlines():
        number, names, path = (line.split(":", 2) + ["", ""])[:3]
        for name in [""] if number == "0" else names.split(","):
            found[name] = path
    return found


def counter(what, mine, early=None):
    """The number, or None; early: contents of some of the files, read before."""
    value = number_of(COUNTERS[what], mine, early)
    if value is None and what == "oom":
        return _number(read("/proc/vmstat", 1 << 17), b"oom_kill")
    return value


def number_of(files, mine, early=None):
    """The first number that one of the files (see COUNTERS) holds, or None.
    A container's own mount shows its group at the root, the host's below the group's path."""
    for controller, name, word in files:
        path = mine.get(controller, "/").strip("/")
        for place in (os.path.join(ROOT, controller, path), os.path.join(ROOT, controller),
                      os.path.join(ROOT, "unified", path)):
            path = os.path.join(place, name)
            value = _number(early[path] if early and path in early else read(path), word)
            if value is not None:
                return value
    return None


def _number(text, word):
    for line in text.splitlines():
        parts = line.split()
        if word is None and len(parts) == 1 and parts[0].isdigit():
            return int(parts[0])
        if len(parts) == 2 and parts[0] == word and parts[1].isdigit():
            return int(parts[1])
    return None


class Resources:
    """counters: what supervise.Agent read right before it let the agent go; else what is read now counts as before."""

    def __init__(self, counters=None):
        self.groups = groups()
        self.started, self.cpu_before = time.monotonic(), self.cpu()
        self.before = {what: counter(what, self.groups, counters) for what in COUNTERS}

    def measure(self):
        """{"wall_time_s", "cpu_time_s", "peak_memory_mib" (of the control group) or null, "largest_process_mib",
        "kernel": {"oom", "pids"}: true only with evidence}."""
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        peak = counter("peak", self.groups)
        rose = peak is not None and self.before["peak"] is not None and peak > self.before["peak"]
        return {
            "wall_time_s": round(time.monotonic() - self.started, 3),
            "cpu_time_s": round(self.cpu() - self.cpu_before, 3),
            "peak_memory_mib": round(peak / 2 ** 20, 1) if rose else None,
            "largest_process_mib": round(largest, 1) or None,
            "kernel": {"oom": self.rose("oom"), "pids": self.rose("pids")}}

    @staticmethod
    def cpu():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def rose(self, what):
        now, before = counter(what, self.groups), self.before[what]
        return now is not None and before is not None and now > before


def disk_is_full(files, dirfd):
    """Evidence for it: a write that failed with ENOSPC or EDQUOT, or a file system without a free block or inode."""
    import errno

    if any(getattr(file.error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) for file in files):
        return True
    try:
        disk = os.fstatvfs(dirfd)
        return disk.f_bavail == 0 or disk.f_files > 0 == disk.f_favail  # some do not count their files
    except OSError:
        return False

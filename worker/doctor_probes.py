"""What doctor looks at: every fact about this sandbox that a run depends on, tried and not assumed.

`facts` adds to sandbox_facts.facts() (which `result.json` repeats, too): sizes in bytes, null where unknown or unlimited. Nothing
that it makes stays. It changes this process only: it becomes a subreaper and drops what guard and worker drop, to see whether
that works here.
"""
from __future__ import annotations

import os
import resource
import sys
import time

from worker import kernel, processes, resources, sandbox_facts

TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")
LOOPBACK_PATIENCE = 5.0  # seconds
KEY_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS")
NOT_KEYS = ("SANDBOX_WORKER_TOKEN", "GPG_KEY")  # ours; python images' name of a public key
# What is limited -> (limit, used), each as in resources.COUNTERS: files of v2 first, then of v1
LIMITS = {
    "memory": ((("", "memory.max", None), ("memory", "memory.limit_in_bytes", None)),
               (("", "memory.current", None), ("memory", "memory.usage_in_bytes", None))),
    "pids": ((("", "pids.max", None), ("pids", "pids.max", None)), (("", "pids.current", None), ("pids", "pids.current", None))),
}
NO_LIMIT = 1 << 50  # cgroup v1 says "none" with a number near 2**63


def facts(directory, asked):
    """directory: where a session directory would lie; asked: whether the caller named it."""
    kernel.become_subreaper()
    found = sandbox_facts.facts()
    found.update(
        proc_is_ours=processes.PROC_IS_OURS, hidepid=hidepid(), loopback=loopback(), ptrace_dropped=ptrace_dropped(),
        bounding=sandbox_facts.status("CapBnd"), key_names=key_names(), path=os.environ.get("PATH") or os.defpath)
    found.update(modules(), **places(directory, asked))
    found.update(limits(), **clocks())
    found.update(person(), harness=None)
    return found


def modules():
    """Parts of the standard library without which a run goes on; `ca_certificates`: whether a TLS client finds any."""
    there = {}
    for name in ("ssl", "sqlite3"):
        try:
            there[name] = bool(__import__(name))
        except ImportError:
            there[name] = False
    return dict(there, ca_certificates=there["ssl"] and ca_certificates())


def ca_certificates():
    ssl = sys.modules["ssl"]
    paths = ssl.get_default_verify_paths()
    try:
        if ssl.create_default_context().cert_store_stats()["x509_ca"]:
            return True
        return bool(paths.capath and os.path.isdir(paths.capath) and os.listdir(paths.capath))  # those are loaded on demand
    except (OSError, ValueError, ssl.SSLError):  # SSL_CERT_FILE names something else
        return False


def loopback():
    """None where a connection to a listener of our own on 127.0.0.1 works, else what the kernel said."""
    import socket

    try:
        with socket.socket() as listener, socket.socket() as client:
            listener.settimeout(LOOPBACK_PATIENCE)
            client.settimeout(LOOPBACK_PATIENCE)
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            client.connect(listener.getsockname())
            listener.accept()[0].close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def hidepid():
    """Whether /proc is mounted so that other users' processes are hidden (proc(5))."""
    hides = False
    for line in processes.read("/proc/self/mounts", 1 << 20).decode("utf-8", "replace").splitlines():
        words = line.split()
        if len(words) > 3 and words[1:3] == ["/proc", "proc"]:
            values = [option[8:] for option in words[3].split(",") if option.startswith("hidepid=")]
            hides = any(value not in ("0", "off") for value in values)  # a later mount covers an earlier one
    return hides


def ptrace_dropped():
    """Whether guard and worker can take CAP_SYS_PTRACE from every later program; None where that cannot be told."""
    return kernel.drop_from_bounding_set() if kernel.HAVE_CTYPES else None


def key_names():
    """Variables that look like keys, of this process and of process 1 (whose environment `docker run -e` sets)."""
    names = {name for name, value in os.environ.items() if value}
    for entry in processes.read("/proc/1/environ", 1 << 20).split(b"\0"):
        name, _, value = entry.decode("utf-8", "replace").partition("=")
        names |= {name} if value else set()
    return sorted(name for name in names if name.upper().endswith(KEY_ENDINGS) and name not in NOT_KEYS and name.isprintable())


def places(directory, asked):
    """Whether the places that a run writes to can be written, and what room is there."""
    there = os.path.abspath(directory)
    while not os.path.isdir(there) and there != "/" and not os.path.lexists(there):
        there = os.path.dirname(there)  # `run` makes it
    room = room_of(there)
    wanted = [os.environ["TMPDIR"]] if os.environ.get("TMPDIR") else []
    tmp = next((place for place in wanted + list(TEMPORARY) if unwritable(place) is None), None)
    noexec = tmp is not None and bool(os.statvfs(tmp).f_flag & os.ST_NOEXEC)
    return dict(room, directory=os.path.abspath(directory), directory_asked=asked, directory_error=unwritable(there),
                tmp=tmp, tmp_noexec=noexec)


def unwritable(place):
    """None where a file with a byte in it can be made in directory `place`, else why not. A full disk is writable."""
    import errno

    path = os.path.join(place, ".sandbox-worker-%s" % os.urandom(8).hex())
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.close(fd)
        os.unlink(path)
    except OSError as error:
        return None if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
    return None


def room_of(place):
    try:
        found = os.statvfs(place)
    except OSError:
        return {"space_bytes": None, "free_inodes": None}
    counts_files = found.f_files > 0  # btrfs and some others do not
    return {"space_bytes": found.f_bavail * found.f_frsize if found.f_blocks else None,
            "free_inodes": found.f_favail if counts_files else None}


def limits():
    """What is left below each limit, the tightest of control group, ulimit and machine."""
    mine = resources.groups()
    memory = [left("memory", mine), available_memory()]
    pids = [left("pids", mine)]
    if os.getuid():  # root is not held to it (setrlimit(2))
        pids.append(processes_left())
    return {
        "memory_free_bytes": least(memory), "pids_free": least(pids), "open_files": soft(resource.RLIMIT_NOFILE),
        "address_space_bytes": soft(resource.RLIMIT_AS), "file_size_bytes": soft(resource.RLIMIT_FSIZE)}


def least(values):
    known = [value for value in values if value is not None]
    return min(known) if known else None


def soft(kind):
    value = resource.getrlimit(kind)[0]
    return None if value == resource.RLIM_INFINITY else value


def left(what, mine):
    """Limit less use of our own control group, or None without a limit. This process is among what is used."""
    limit, used = (resources.number_of(files, mine) for files in LIMITS[what])
    if limit is None or limit >= NO_LIMIT:
        return None
    return max(0, limit - (used or 0))


def processes_left():
    """RLIMIT_NPROC less the threads of this user that /proc shows, or None."""
    limit = soft(resource.RLIMIT_NPROC)
    if limit is None:
        return None
    used = 0
    for pid in processes.pids():
        try:
            if os.stat("/proc/%d" % pid).st_uid == os.getuid():
                used += int(processes.stat(pid)[17])  # num_threads
        except (OSError, IndexError):  # it is gone
            pass
    return max(0, limit - used)


def available_memory():
    for line in processes.read("/proc/meminfo", 8192).splitlines():
        words = line.split()
        if words[:1] == [b"MemAvailable:"]:
            return int(words[1]) << 10
    return None


def clocks():
    """Wall clock, and by how much it and the monotonic clock go apart within a moment."""
    wall, mono = time.time(), time.monotonic()
    time.sleep(0.02)
    drift = (time.time() - wall) - (time.monotonic() - mono)
    return {"wall_clock": round(wall, 3), "date": time.strftime("%Y-%m-%d", time.gmtime(wall)), "clock_drift_s": round(drift, 3)}


def person():
    """Who this is to the C library, and where home is."""
    home = os.environ.get("HOME") or ""
    try:
        import pwd

        name = pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        name = None
    return {"user_name": name, "home": home, "home_writable": os.path.isdir(home) and os.access(home, os.W_OK | os.X_OK)}

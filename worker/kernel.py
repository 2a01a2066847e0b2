"""The few things that only the kernel can promise, through libc. Numbers: linux/prctl.h.

Every function says whether the kernel did it and never raises: an old kernel, gVisor, a seccomp profile or a Python
without ctypes leave a promise unkept, which the receipt then says, but never stop a run.
"""
from __future__ import annotations

import signal

try:
    import ctypes

    _libc = ctypes.CDLL(None)
    _libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    HAVE_CTYPES = True
except (ImportError, OSError, AttributeError):  # python3-minimal, a static build without dlopen
    HAVE_CTYPES = False

CLOCK_MONOTONIC = 1
CAP_SYS_PTRACE, CAP_PERFMON = 19, 38  # with either, one could read the memory of guard and worker


def prctl(option, value):
    return _libc.prctl(option, value, 0, 0, 0) if HAVE_CTYPES else -1


def become_subreaper():
    """PR_SET_CHILD_SUBREAPER: orphaned descendants come to this process. False in gVisor before 2023."""
    return prctl(36, 1) == 0


def set_death_signal(signum):
    """PR_SET_PDEATHSIG: sent when the parent's forking thread dies. setuid and a setuid exec clear it: call it last."""
    return prctl(1, signum) == 0


def set_not_dumpable():
    """PR_SET_DUMPABLE: /proc/PID/mem and environ, ptrace only for CAP_SYS_PTRACE. Kept by fork, reset by exec."""
    return prctl(4, 0) == 0


def share_one_heap():
    """mallopt M_ARENA_MAX (glibc's malloc.h): else each thread has a heap of its own, though Python's take turns."""
    return HAVE_CTYPES and hasattr(_libc, "mallopt") and _libc.mallopt(-8, 1) == 1


def set_no_new_privs():
    return prctl(38, 1) == 0


def continue_in(seconds, times=20):
    """Timers in the kernel that send SIGCONT to this process in `seconds`, and then once a second. The mere sending of SIGCONT
    continues a stopped process; to one that runs it means nothing. Each is a timer of its own: a periodic one is armed again by
    delivery, and a new SIGSTOP takes a SIGCONT away before that. False where the libc has no such timers."""
    try:
        libc = _libc if hasattr(_libc, "timer_create") else ctypes.CDLL("librt.so.1")  # glibc before 2.34
    except (NameError, OSError):
        return False
    event = (ctypes.c_int * 16)()  # struct sigevent: a pointer, the signal, 0 for SIGEV_SIGNAL
    event[ctypes.sizeof(ctypes.c_void_p) // 4] = signal.SIGCONT
    for number in range(times):
        timer, spec = ctypes.c_void_p(), (ctypes.c_long * 4)(0, 0, int(seconds) + number, int(seconds % 1 * 1e9))
        if libc.timer_create(CLOCK_MONOTONIC, event, ctypes.byref(timer)) or libc.timer_settime(timer, 0, spec, None):
            return False
    return True


def drop_from_bounding_set(capabilities=(CAP_SYS_PTRACE, CAP_PERFMON)):
    """PR_CAPBSET_DROP: no later exec gains these, not even root's, which gets inheritable | bounding (capabilities(7)): they
    leave the inheritable set too, which engines used to fill (CVE-2022-24769). True when none is left in either set."""
    if not HAVE_CTYPES:
        return False
    for capability in capabilities:
        prctl(24, capability)  # needs CAP_SETPCAP; judged by PR_CAPBSET_READ below, which is -1 where it is unknown
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable of 0-31, then of 32-63
    cleared = _libc.capget(header, sets) == 0
    for capability in capabilities:
        sets[2 + 3 * (capability // 32)] &= 0xFFFFFFFF ^ (1 << capability % 32)
    return cleared and _libc.capset(header, sets) == 0 and all(prctl(23, c) != 1 for c in capabilities)

"""The few things that only the kernel can promise, through libc.

Every function says whether the kernel did it (True or False) and never raises: an old kernel, gVisor, a seccomp
profile or a Python without ctypes leave a promise unkept, which the receipt then says, but never stop a run.
Numbers are those of linux/prctl.h and linux/capability.h.
"""
from __future__ import annotations

try:
    import ctypes

    _libc = ctypes.CDLL(None, use_errno=True)
    _prctl = _libc.prctl
    _prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    _prctl.restype = ctypes.c_int
except (ImportError, OSError, AttributeError):  # python3-minimal, static builds without dlopen
    _libc = None

HAVE_CTYPES = _libc is not None

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP = 1, 4, 23, 24
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 37, 38
CAP_SYS_PTRACE, CAP_PERFMON = 19, 38
CAPABILITY_VERSION_3 = 0x20080522


def _set(option, value):
    return HAVE_CTYPES and _prctl(option, value, 0, 0, 0) == 0


def become_subreaper():
    """Orphaned descendants come to this process. False in gVisor before 2023 (EINVAL)."""
    return _set(PR_SET_CHILD_SUBREAPER, 1)


def is_subreaper():
    """What the kernel says; the mark is not inherited by a fork, so it holds for this process alone."""
    if not HAVE_CTYPES:
        return False
    answer = ctypes.c_int(0)
    return _prctl(PR_GET_CHILD_SUBREAPER, ctypes.addressof(answer), 0, 0, 0) == 0 and answer.value == 1


def set_death_signal(signum):
    """`signum` when the parent thread dies. Cleared by setuid and by the exec of a setuid program: call it last."""
    return _set(PR_SET_PDEATHSIG, signum)


def set_not_dumpable():
    """No ptrace, /proc/PID/mem or environ for others without CAP_SYS_PTRACE. Inherited by fork, reset by exec."""
    return _set(PR_SET_DUMPABLE, 0)


def set_no_new_privs():
    return _set(PR_SET_NO_NEW_PRIVS, 1)


def drop_from_bounding_set(capabilities=(CAP_SYS_PTRACE, CAP_PERFMON)):
    """No later exec gains these, not even as root: P'(permitted) of uid 0 is inheritable | bounding (capabilities(7)).

    The inheritable set is cleared of them too: container engines used to fill it (CVE-2022-24769).
    True when afterwards none of them is in either set.
    """
    if not HAVE_CTYPES:
        return False
    for capability in capabilities:
        if _prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1:
            _prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # needs CAP_SETPCAP; judged by the read below
    kept = [c for c in capabilities if _prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1]  # -1: unknown to this kernel
    return not kept and _clear_inheritable(capabilities)


def _clear_inheritable(capabilities):
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # twice effective, permitted, inheritable: capabilities 0-31, then 32-63
    if _libc.capget(header, sets) != 0:
        return False
    before = list(sets)
    for capability in capabilities:
        sets[2 + 3 * (capability // 32)] &= ~(1 << capability % 32) & 0xFFFFFFFF
    return list(sets) == before or _libc.capset(header, sets) == 0

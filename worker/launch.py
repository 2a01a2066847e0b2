"""What the agent starts with: its environment and its standard input, and that no key is among them.

The environment is an allow-list: a whole host environment has other vendors' credentials and base URLs (E15). The harness
adds where its CLI finds the proxy. The real key never passes: where a value has it, the run's token takes its place.
"""
from __future__ import annotations

import os

from worker.session import PROMPT

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")
INHERITED = ("PATH", "LANG", "TZ", "TERM", "HOME", "TMPDIR") + PROXIES
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MARKER = "SANDBOX_WORKER_RUN"  # every descendant carries it; strays are found by it, but it is never proof (DESIGN 12)
SHORTEST = 8  # bytes: a shorter "secret" stands in ordinary words, too (DESIGN 6, `redact`)


def real_key(job):
    return job["model"] and job["model"]["key"]


def secrets_of(job, token):
    """Every value (bytes) that must not stand in any file."""
    values = [token, real_key(job), job["seal_key"], *job["redact"]]
    return [value.encode() for value in values if value and len(value) >= SHORTEST]


def wipe_key(job, remove=False):
    """Remove a key file (the guard); overwrite a key in this process's initial environment block, which the kernel shows in
    /proc/PID/environ for the whole life of a process whatever happens to os.environ. getenv(3) points into it."""
    model = job["model"] or {}
    if remove and model.get("api_key_file") and not model["keep_key_file"]:
        os.unlink(os.path.realpath(model["api_key_file"]))
        if os.path.islink(model["api_key_file"]):  # the link to it, not the same file by way of a linked directory
            os.unlink(model["api_key_file"])
    if model.get("api_key_env"):
        try:
            import ctypes

            getenv = ctypes.CDLL(None).getenv
            getenv.restype = ctypes.c_void_p
            address = getenv(model["api_key_env"].encode())
            ctypes.memset(address, ord("*"), len(ctypes.string_at(address)))
        except ImportError:
            pass  # this process is not dumpable, and exposure.py says what can be read all the same
        del os.environ[model["api_key_env"]]


def environment(job, additions, token, marker):
    """The agent's variables. additions: the harness's own, which win over everything else."""
    env = {name: value for name, value in os.environ.items()
           if name in INHERITED or name.startswith("LC_") or _passed(name, job["pass_env"])}
    env.update(job["env"])
    env.update(additions)
    for name in ("NO_PROXY", "no_proxy"):  # many CLIs send even loopback calls to an ambient proxy (A35)
        listed = [item.strip() for item in env.get(name, "").split(",") if item.strip()]
        env[name] = ",".join(listed + [host for host in LOOPBACK if host not in listed])
    key = real_key(job)
    for name, value in env.items() if key else ():
        if value == key or (len(key) >= SHORTEST and key in value):
            env[name] = value.replace(key, token)
    env[MARKER] = marker
    return env


def _passed(name, patterns):
    if not any(mark in pattern for pattern in patterns for mark in "*?["):
        return name in patterns
    from fnmatch import fnmatchcase  # pulls `re`: only where a glob is given

    return any(fnmatchcase(name, pattern) for pattern in patterns)


def home(env, user, state):
    """HOME as the image has it (toolchains live there); a private one only where it is unset or not writable.  TMPDIR likewise:
    without one OpenCode does not start, and every shell tool of Gemini CLI fails."""
    for name, usual in (("TMPDIR", "/tmp"), ("HOME", "")):
        if not writable(env.get(name, usual), user):
            env[name] = os.path.join(state, name.lower())
            os.makedirs(env[name], 0o700, exist_ok=True)
    return env["HOME"]


def writable(path, user):
    """Whether the agent may create files in directory `path`. user: (uid, gid), or None for ours."""
    if user is None or not os.path.isdir(path):
        return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)
    about = os.stat(path)
    shift = 6 if about.st_uid == user[0] else 3 if about.st_gid == user[1] else 0
    return not os.statvfs(path).f_flag & os.ST_RDONLY and (user[0] == 0 or (about.st_mode >> shift) & 3 == 3)


def read_prompt(session):
    """The prompt, or its first MiB: enough for a CLI that takes it as an argument (128 KiB at most, checked by its harness)."""
    with os.fdopen(open_stdin(session, "prompt"), "rb") as file:
        return file.read(1 << 20)


def open_stdin(session, kind):
    """A descriptor for the agent's stdin: the prompt file, or /dev/null; never our own stdin (B16)."""
    if kind == "prompt":
        return os.open(PROMPT, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=session.fd)
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

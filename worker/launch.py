"""What the agent starts with: its environment, its prompt, and the check that no key is within its reach.

The environment is an allow-list, because a whole host environment hands the
agent other vendors' credentials and base URLs (E15).  The harness adds where its
CLI finds the proxy; `env` of the input document wins over what is inherited.
The real key never passes: a value that contains it gets the run's token instead.
"""

from __future__ import annotations

import os

from worker.session import PROMPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
    from worker.session import Session

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")
INHERITED = ("PATH", "LANG", "TZ", "TERM", "HOME", "TMPDIR") + PROXIES
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Every descendant carries it: strays are found by it where there is no subreaper (never proof, DESIGN 12).
MARKER = "SANDBOX_WORKER_RUN"


def environment(job: "dict[str, Any]", additions: "dict[str, str]", token: "str | None") -> "dict[str, str]":
    """The agent's variables.  additions: the harness's own, which win over everything else."""
    env = {name: value for name, value in os.environ.items()
           if name in INHERITED or name.startswith("LC_") or _passed(name, job["pass_env"])}
    env.update(job["env"])
    env.update(additions)
    for name in ("NO_PROXY", "no_proxy"):  # many CLIs send even loopback calls to an ambient proxy (A35)
        listed = [item.strip() for item in env.get(name, "").split(",") if item.strip()]
        env[name] = ",".join(listed + [host for host in LOOPBACK if host not in listed])
    key = job["model"] and job["model"]["key"]
    if key:
        env = {name: _without(key, value, token or "") for name, value in env.items()}
    env[MARKER] = job["invocation_id"]
    return env


def _without(key: str, value: str, token: str) -> str:
    if len(key) < 8:  # a placeholder such as "x" stands in ordinary words, too
        return token if value == key else value
    return value.replace(key, token)


def _passed(name: str, patterns: "list[str]") -> bool:
    if name in patterns:
        return True
    globs = [pattern for pattern in patterns if "*" in pattern or "?" in pattern or "[" in pattern]
    if not globs:
        return False
    from fnmatch import fnmatchcase  # pulls `re`: only where a glob is given

    return any(fnmatchcase(name, pattern) for pattern in globs)


def home(env: "dict[str, str]", user: "tuple[int, int] | None", state: str) -> str:
    """HOME as the image has it (toolchains live there), a private one only where that cannot be used."""
    if not _writable(env.get("HOME", ""), user):
        env["HOME"] = os.path.join(state, "home")
        os.makedirs(env["HOME"], 0o700, exist_ok=True)
    return env["HOME"]


def _writable(path: str, user: "tuple[int, int] | None") -> bool:
    if not path or not os.path.isdir(path):
        return False
    if user is None:
        return os.access(path, os.W_OK | os.X_OK)
    found = os.stat(path)
    shift = 6 if found.st_uid == user[0] else 3 if found.st_gid == user[1] else 0
    return user[0] == 0 or (found.st_mode >> shift) & 3 == 3


def open_stdin(session: "Session", kind: str) -> int:
    """A descriptor for the agent's stdin: the prompt file, or /dev/null (never our own stdin, B16)."""
    if kind == "prompt":
        return os.open(PROMPT, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=session.fd)
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def give(state: str, user: "tuple[int, int]") -> None:
    """Hand the CLI's state directory to the agent's user."""
    for root, directories, files in os.walk(state):
        for name in [root] + [os.path.join(root, each) for each in directories + files]:
            os.chown(name, user[0], user[1], follow_symlinks=False)

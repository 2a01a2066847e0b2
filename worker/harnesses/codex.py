"""OpenAI Codex CLI (`codex exec`): the command. What is particular about it, measured with 0.144.4 and 0.171.0:

It is pointed at the proxy by `-c` overrides, which must stand at the right level (codex_arguments.py). Its own retries are off;
0.171.0 retries a refused connection for ever unless `BOUNDED` is set. Its stream idle timer becomes the run's timeout, as the
proxy may hold an answer that long. Plugins, analytics and update check would call other hosts. SIGINT makes it write its last
records, SIGTERM loses them. The native program is launched, not the npm wrapper (codex_program.py).
"""
from __future__ import annotations

import json
import os
import signal

from worker import harnesses

NAME = "codex"
PROGRAMS = ("codex", "codex.js")
TESTED = ("0.144.4", "0.171.0")
APIS = ("responses",)
STOP_SIGNAL = signal.SIGINT
GRACE = 5.0
HOLD = "answer"
MAIN_HEADERS = ("session-id",)  # the root thread's id, the same for its sub-agents
IDENTITY_HEADERS = ("thread-id", "session-id", "x-codex-turn-metadata", "x-codex-parent-thread-id")
READER = "worker.harnesses.codex_rollout"
CLIENT_TIMER = None  # no header timer; the idle timer is raised to the run's timeout
EXIT_ZERO_IS_SUCCESS = False

TOKEN_VARIABLE = "SANDBOX_WORKER_TOKEN"
PROVIDER = "model_providers.sandbox_worker."

BOUNDED = "features.unbounded_connection_retries"
# Settings that keep the CLI silent toward other hosts, and the token out of the tools' environment.
QUIET = (
    ("features.plugins", "false"), ("analytics.enabled", "false"), ("check_for_update_on_startup", "false"),
    ("features.shell_snapshot", "false"),
    ("shell_environment_policy.exclude", json.dumps([TOKEN_VARIABLE, "OPENAI_API_KEY"])),
)  # fmt: skip


def prepare(job, base_url, token, state_dir, which=harnesses.which):
    """argv, environment additions and stdin of one run.  job: the input document, filled; base_url, token: the proxy's, or
    None without one; state_dir: where CODEX_HOME goes unless the document's env sets it.  Creates CODEX_HOME (the CLI
    refuses to start without it); raises OSError where it cannot."""
    given, env = list(job["command"] or ()), job["env"]
    program, words, notes = resolve(given or ["codex"], env.get("PATH") or os.environ.get("PATH"), job["cwd"], which)
    argv = [program] + (with_overrides(words, overrides(job, base_url)) if given else built(job, base_url))
    home = os.path.join(job["cwd"], env.get("CODEX_HOME") or os.path.join(state_dir, "codex"))
    os.makedirs(home, 0o700, exist_ok=True)
    additions = {} if env.get("CODEX_HOME") else {"CODEX_HOME": home}
    if base_url is not None:
        additions[TOKEN_VARIABLE] = token
    return {
        "argv": argv, "given_argv": given or argv, "program": program, "env": additions,
        "state": os.path.realpath(home), "baseline": baseline(home) if os.path.isdir(home + "/sessions") else {}, "notes": notes,
        "stdin": "null" if job["prompt"] is None else "prompt", "prompt_in_argv": False,
    }  # fmt: skip


def baseline(home):
    """{path: size} of rollouts that are there before the run (a CODEX_HOME of the caller's may hold threads to resume)."""
    from worker.harnesses import codex_sessions

    return codex_sessions.sizes(home)


def resolve(words, path, cwd, which):
    """(program, its arguments, notes): the npm wrapper becomes the native program that it would start."""
    interpreted = len(words) > 1 and os.path.basename(words[0]) in harnesses.INTERPRETERS
    script = os.path.join(cwd, words[1]) if interpreted else which(words[0], path, cwd)
    program, rest = (words[0], words[1:]) if interpreted or not script else (script, words[1:])
    if not script or not (interpreted or may_be_wrapper(script)):
        return program, rest, []
    from worker.harnesses import codex_program

    native, note = codex_program.native_of(script)
    return (native, words[2:] if interpreted else rest, [note]) if native else (program, rest, [note] if note else [])


def may_be_wrapper(path):
    """A hint only: a file, link or shell shim of the npm package, not the native program or somebody's script."""
    return b"@openai/codex" in harnesses.beginning(path) or os.path.basename(os.path.realpath(path)) == "codex.js"


def built(job, base_url):
    """Arguments of our own: no approvals and no inner sandbox (this is one), events as JSON lines, prompt on stdin."""
    own = ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return own + flags(overrides(job, base_url) or QUIET) + ["-"]


def with_overrides(words, ours):
    from worker.harnesses import codex_arguments

    return codex_arguments.arguments(words, ours, QUIET, BOUNDED)


def flags(settings):
    return [word for key, value in settings for word in ("-c", key + "=" + value)]


def overrides(job, base_url):
    """[(configuration key, TOML value)] that point the CLI at the proxy; nothing without one."""
    if base_url is None:
        return []
    provider = (
        ("name", '"sandbox-worker"'), ("base_url", json.dumps(base_url)), ("wire_api", '"responses"'),
        ("env_key", json.dumps(TOKEN_VARIABLE)), ("request_max_retries", "0"), ("stream_max_retries", "0"),
        ("stream_idle_timeout_ms", str(int(job["timeout"] * 1000))), ("supports_websockets", "false"),
    )  # fmt: skip
    name = job["model"].get("name")
    own = [("model_provider", '"sandbox_worker"')] + [(PROVIDER + key, value) for key, value in provider]
    own += [("model", json.dumps(name, ensure_ascii=False))] if name else []
    return own + [(BOUNDED, "false")] + list(QUIET)

"""Hermes Agent (`hermes --oneshot`): the command, tested with 0.19.0 (PyPI).

Launch path (budget 150 lines).  What is particular about this CLI, each measured with the real one:
  - It is pointed at the proxy by config.yaml in HERMES_HOME (JSON is YAML); its retries are cut to one request there.
  - The prompt has no other way in than one argument: `--oneshot=PROMPT`, at most MOST_PROMPT bytes (execve: 131,071 a word).
  - stdout holds the final text only; the exit code is 0 for most failures.  `--usage-file` and state.db tell the rest.
  - After a cut it asks the model to go on, in the user's name; so the proxy holds answers, and its stream timers are raised.
  - A loopback endpoint is a "local" one: it asks /api/v1/models (outside /v1) first; the proxy passes that on without the key.
  - SIGINT makes it write its usage file and end its tools; SIGTERM leaves both undone.
  - Its security scanner (tirith) would be downloaded from GitHub.
"""

from __future__ import annotations

import json
import os
import signal

from worker import harnesses
from worker.harnesses import python_program

NAME = "hermes"
PROGRAMS = ("hermes", "hermes-agent")
TESTED = ("0.19.0",)
APIS = ("chat",)
STOP_SIGNAL = signal.SIGINT
GRACE = 10.0  # it ends its tools first
HOLD = "answer"
MAIN_HEADERS = ()  # no header names the session: model and tools of the first request do
IDENTITY_HEADERS = ()
READER = "worker.harnesses.hermes_reader"
CLIENT_TIMER = None
EXIT_ZERO_IS_SUCCESS = False

TOKEN_VARIABLE = "SANDBOX_WORKER_TOKEN"
ONESHOT = "--oneshot="
ASKING = ("-z", "-q", "--query")
MOST_PROMPT = 131071 - len(ONESHOT)
USAGE = "usage.json"
TOOLSETS = "terminal,file"
CONTEXT = 131072  # tokens; without it the CLI probes the endpoint for it
TIMERS = (
    "HERMES_API_TIMEOUT", "HERMES_STREAM_READ_TIMEOUT", "HERMES_STREAM_STALE_TIMEOUT", "HERMES_LOCAL_STREAM_STALE_TIMEOUT",
    "HERMES_API_CALL_STALE_TIMEOUT",
)  # fmt: skip


def check(job):
    """Raises BadInput where the prompt cannot be an argument."""
    prompt, wrong = job["prompt"], None
    if prompt is not None and len(prompt) > MOST_PROMPT:
        wrong = "prompt: has %d bytes, %s takes %d in its one argument" % (len(prompt), NAME, MOST_PROMPT)
    elif prompt is not None and b"\0" in prompt:
        wrong = "prompt: has a NUL byte, which no argument can hold"
    if wrong:
        from worker.contract import BadInput  # loaded already where this can happen, and 200 lines of the launch path elsewhere

        raise BadInput(wrong)


def prepare(job, base_url, token, state_dir, which=harnesses.which):
    """See worker/harnesses/README.md.  Writes config.yaml; raises OSError where it cannot."""
    check(job)
    given, env = list(job["command"] or ()), job["env"]
    home = os.path.join(job["cwd"], env.get("HERMES_HOME") or os.path.join(state_dir, "hermes"))
    os.makedirs(home, 0o700, exist_ok=True)
    usage = os.path.join(home, USAGE)
    additions = {} if env.get("HERMES_HOME") else {"HERMES_HOME": home}
    timer = str(int(job["timeout"]) + 60)
    additions.update((name, timer) for name in TIMERS if name not in env)
    if base_url is not None:
        put(os.path.join(home, "config.yaml"), settings(job, base_url, token))
        additions[TOKEN_VARIABLE] = token
    words = given or ["hermes", "-t", TOOLSETS]
    asked = job["prompt"] is not None and not any(word in ASKING or word.startswith("--oneshot") for word in words)
    argv = words + ([ONESHOT + os.fsdecode(job["prompt"])] if asked else [])
    oneshot = any(word == "-z" or word.startswith("--oneshot") for word in argv)
    if oneshot and not any(word.startswith("--usage-file") for word in argv):
        argv = argv[:1] + ["--usage-file", usage] + argv[1:]
    program = which(argv[0], env.get("PATH") or os.environ.get("PATH"), job["cwd"]) or argv[0]
    return {
        "argv": argv, "given_argv": given or argv, "program": program, "env": additions, "state": os.path.realpath(home),
        "baseline": {"version": python_program.version_of(program, "hermes_agent"), "prompt_in_argv": asked},
        "notes": [], "stdin": "null",
        "prompt_in_argv": asked,
    }  # fmt: skip


def settings(job, base_url, token):
    """The proxy as Hermes' `custom` provider."""
    model = {"provider": "custom", "base_url": base_url, "api_key": token, "default": job["model"].get("name") or "default",
             "context_length": CONTEXT}  # fmt: skip
    return {"model": model, "agent": {"api_max_retries": 1}, "security": {"tirith_enabled": False}}


def put(path, own):
    """A configuration of the caller's own is left beside it: YAML cannot be merged without a YAML reader."""
    if os.path.lexists(path):
        os.rename(path, path + ".before-run")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(own, file)

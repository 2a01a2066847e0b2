"""Gemini CLI (`gemini`): the command, tested with 0.61.0.

Launch path (budget 150 lines).  What is particular about this CLI, each measured with the real one:
  - On a pipe it drops what is not yet written when it exits: the end of a long output, with the result in it.  It needs a
    regular file for stdout (STDOUT = "file"), which is read when it has ended.
  - It starts itself a second time and ignores signals in the first process, unless told not to.
  - Its exit code is the HTTP status modulo 256 (512 is 0), or 41 (authentication), 42 (input), 53 (turns), 55 (trust): it decides
    nothing.  A refusal, a cut at the output limit and a detected loop are `success` with exit code 0.
  - It retries 10 times and hardly listens to Retry-After; `maxAttempts: 1` and `retryFetchErrors: false` switch that off.
  - A task's settings or .env may ask for a sandbox of the CLI's own: it fetches an image and runs itself in Docker, or ends
    where there is none.  That is off.
  - Without a model on the command line it asks another model which one to take.
  - Its header timer is 60 s; a file of experiment flags (GEMINI_EXP) raises it, so that an answer may be held.
  - `@name` in the prompt adds the content of a file of that name, where there is one.
  - It takes 8 MiB of stdin at most.  SIGTERM ends it with exit code 0 after 1 to 10 s, a running tool survives it.
  - Settings are mandatory.  They go into the home's file and into one of the highest precedence, so that the task's own does
    not undo them; the latter is taken only where it and all directories above it belong to root and to nobody else (/tmp does
    not).  Elsewhere a task's .gemini/settings.json may name a way of authentication that ends the run (`no_model_call`), and its
    telemetry is sent whatever the environment says (OTEL_SDK_DISABLED would stop it, and that of all programs of the task).
"""

from __future__ import annotations

import os
import signal

from worker import harnesses
from worker.harnesses import node_program

NAME = "gemini"
PROGRAMS = ("gemini", "gemini.js")
TESTED = ("0.61.0",)
APIS = ("generate_content",)
STOP_SIGNAL = signal.SIGTERM
GRACE = 12.0
HOLD = "answer"
STDOUT = "file"
MAIN_HEADERS = ("x-sandbox-worker-session",)  # it sends none of its own; GEMINI_CLI_CUSTOM_HEADERS adds one
IDENTITY_HEADERS = MAIN_HEADERS
READER = "worker.harnesses.gemini_reader"
CLIENT_TIMER = None  # the header timer is raised to the run's timeout
EXIT_ZERO_IS_SUCCESS = False

SWITCHES = (("--output-format", "stream-json", ("-o",)), ("--approval-mode", "yolo", ("--yolo", "-y")))
QUIET = (
    ("GEMINI_CLI_NO_RELAUNCH", "true"), ("GEMINI_CLI_TRUST_WORKSPACE", "true"), ("GEMINI_TELEMETRY_ENABLED", "false"),
    ("GEMINI_SANDBOX", "false"), ("NO_COLOR", "1"),
)  # fmt: skip
CUSTOM_HEADERS = "GEMINI_CLI_CUSTOM_HEADERS"
REQUEST_TIMEOUT_FLAG = 45773134  # ExperimentFlags.DEFAULT_REQUEST_TIMEOUT, seconds (bundle of 0.61.0)
LONGEST = 2**31 // 1000 - 1  # s, what a JavaScript timer takes


def prepare(job, base_url, token, state_dir, which=harnesses.which):
    """argv, environment additions and stdin of one run; see worker/harnesses/README.md.  Creates GEMINI_CLI_HOME."""
    given, env = list(job["command"] or ()), job["env"]
    path = env.get("PATH") or os.environ.get("PATH")
    node, script, rest, notes = node_program.resolve(given or ["gemini"], path, job["cwd"], which, "gemini.js")
    home = os.path.realpath(os.path.join(job["cwd"], env.get("GEMINI_CLI_HOME") or os.path.join(state_dir, "gemini")))
    os.makedirs(home, 0o700, exist_ok=True)
    system, flags = (os.path.join(state_dir, name) for name in ("gemini-settings.json", "gemini-flags.json"))
    node_program.write_json(system, settings())
    own_file = os.path.join(home, ".gemini", "settings.json")
    if not os.path.lexists(own_file):
        os.makedirs(os.path.dirname(own_file), 0o700, exist_ok=True)
        node_program.write_json(own_file, settings())
    seconds = str(min(int(job["timeout"]) + 60, LONGEST))
    node_program.write_json(flags, {"flags": [{"flagId": REQUEST_TIMEOUT_FLAG, "intValue": seconds}], "experimentIds": []})
    additions = dict(QUIET, GEMINI_CLI_HOME=home, GEMINI_CLI_SYSTEM_SETTINGS_PATH=system, GEMINI_EXP=flags)
    additions = {name: value for name, value in additions.items() if name not in env}
    header = "%s: %s" % (MAIN_HEADERS[0], node_program.uuid())
    additions[CUSTOM_HEADERS] = env[CUSTOM_HEADERS] + ", " + header if env.get(CUSTOM_HEADERS) else header
    if base_url is not None:
        additions.update(GOOGLE_GEMINI_BASE_URL=base_url, GEMINI_API_KEY=token)
    own = node_program.lacking(switches(job), rest)
    return {
        "argv": ([node, script] if script else [node]) + own + rest, "given_argv": given or ["gemini"], "program": node,
        "env": additions, "state": os.path.realpath(home), "baseline": node_program.baseline(os.path.realpath(home)),
        "notes": notes, "stdin": "null" if job["prompt"] is None else "prompt", "prompt_in_argv": False,
    }  # fmt: skip


def switches(job):
    name = (job["model"] or {}).get("name")
    return SWITCHES + ((("--model", name, ("-m",)),) if name else ())


def settings():
    """The settings file."""
    updates = {"enableAutoUpdate": False, "enableAutoUpdateNotification": False}
    return {
        "general": dict(updates, maxAttempts=1, retryFetchErrors=False),
        "security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False}, "advanced": {"ignoreLocalEnv": True},
    }  # fmt: skip

"""Qwen Code (`qwen`): the command, tested with 0.24.4.

Launch path (budget 150 lines).  What is particular about this CLI, each measured with the real one:
  - The npm entry is a launcher (spawnSync) that dies by SIGTERM and leaves the real process behind; so `node cli.js` is
    launched, told not to start itself again.  It needs Node 22.
  - It retries in three layers (4 in the SDK, 7 in the core, rounds a minute apart).  `maxRetries: 0` switches off the first
    and the third; the seven stay, some seconds in all, and the proxy answers their repeats without asking the endpoint.
  - After the answer a second agent extracts memories, with tools and tokens of its own; the settings switch it off.
  - Settings go into a file of the highest precedence, so that neither the home's nor the task's own file undoes them.  A task's
    `model.name` goes before OPENAI_MODEL, and its `modelProviders` before any address and key: so both stand in ours, too.
  - A task may ask for a sandbox of the CLI's own (`tools.sandbox`), which ends the run where there is no Docker: it is off.
  - Its timers (no answer 120 s, silent stream 240 s, whole stream 900 s) are raised to the run's timeout.
  - Where a line of the prompt begins with `@`, it adds a file of that name, or sets a space before it where there is none.
  - SIGTERM: exit code 130 within a second (5 s on a busy machine), its tool killed, no result event.
"""

from __future__ import annotations

import os
import signal

from worker import harnesses
from worker.harnesses import node_program

NAME = "qwen"
PROGRAMS = ("qwen", "cli-entry.js")
TESTED = ("0.24.4",)
APIS = ("chat",)
STOP_SIGNAL = signal.SIGTERM
GRACE = 10.0
HOLD = "answer"  # a broken stream makes the CLI ask for a continuation and glue the pieces together
MAIN_HEADERS = ("x-sandbox-worker-session",)  # it sends none of its own; settings can add one, sub-agents send it, too
IDENTITY_HEADERS = MAIN_HEADERS
READER = "worker.harnesses.qwen_reader"
CLIENT_TIMER = None  # all three timers are raised to the run's timeout
EXIT_ZERO_IS_SUCCESS = False

SWITCHES = (("--output-format", "stream-json", ("-o",)), ("--yolo", None, ("-y", "--approval-mode")))
SESSION = ("--session-id", "--resume", "-r", "--continue", "-c")  # then the session's id is the caller's
QUIET = (
    ("QWEN_CODE_NO_RELAUNCH", "true"), ("QWEN_CODE_SUPPRESS_YOLO_WARNING", "1"), ("QWEN_USAGE_STATISTICS_ENABLED", "false"),
    ("QWEN_CODE_SKIP_UPDATE_CHECK_ONCE", "true"), ("QWEN_SANDBOX", "false"), ("NO_COLOR", "1"),
)  # fmt: skip
# What a task's .env is not asked for: the CLI's own default, and what the SDK would send as headers (a 401 of the endpoint's).
NOT_FROM_TASK = ["DEBUG", "DEBUG_MODE", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"]
LONGEST_TIMER = 2**31 - 1  # ms, what a JavaScript timer takes


def prepare(job, base_url, token, state_dir, which=harnesses.which):
    """argv, environment additions and stdin of one run; see worker/harnesses/README.md.  Creates QWEN_HOME."""
    given, env = list(job["command"] or ()), job["env"]
    path = env.get("PATH") or os.environ.get("PATH")
    node, script, rest, notes = node_program.resolve(given or ["qwen"], path, job["cwd"], which, "cli-entry.js", "cli.js")
    home = os.path.join(job["cwd"], env.get("QWEN_HOME") or os.path.join(state_dir, "qwen"))
    os.makedirs(home, 0o700, exist_ok=True)
    timer = min(int(job["timeout"] * 1000) + 60000, LONGEST_TIMER)
    system = os.path.join(state_dir, "qwen-settings.json")
    session = node_program.uuid()
    name = (job["model"] or {}).get("name")
    node_program.write_json(system, settings(timer, session, name, base_url is not None))
    additions = {"QWEN_HOME": home, "QWEN_CODE_SYSTEM_SETTINGS_PATH": system}
    additions.update(QUIET, QWEN_STREAM_IDLE_TIMEOUT_MS=str(timer), QWEN_STREAM_MAX_LIFETIME_MS=str(timer),
                     QWEN_CODE_API_TIMEOUT_MS=str(timer))  # fmt: skip
    if name:
        additions["OPENAI_MODEL"] = name
    additions = {variable: value for variable, value in additions.items() if variable not in env}
    if base_url is not None:
        additions.update(OPENAI_BASE_URL=base_url, OPENAI_API_KEY=token)
    own = node_program.lacking(SWITCHES, rest)
    if not any(word.split("=")[0] in SESSION for word in rest):
        own += ["--session-id", session]
    argv = [node, "--expose-gc", script] if script else [node]
    return {
        "argv": argv + own + rest,
        "given_argv": given or ["qwen"], "program": node, "env": additions,
        "state": os.path.realpath(home), "baseline": node_program.baseline(os.path.realpath(home)), "notes": notes,
        "stdin": "null" if job["prompt"] is None else "prompt", "prompt_in_argv": False,
    }  # fmt: skip


def settings(timer, session, name, pointed):
    """The settings file; timer in ms, session: the value of the header that tells the conversation, name: the model's or None,
    pointed: whether the CLI is pointed at the proxy."""
    generation = {"maxRetries": 0, "timeout": timer, "streamIdleTimeoutMs": timer, "customHeaders": {MAIN_HEADERS[0]: session}}
    own = {
        "general": {"enableAutoUpdate": False}, "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
        "model": {"generationConfig": generation}, "advanced": {"excludedEnvVars": NOT_FROM_TASK},
    }  # fmt: skip
    if name:
        own["model"]["name"] = name
    if pointed:
        own["modelProviders"] = {"openai": []}
    return own

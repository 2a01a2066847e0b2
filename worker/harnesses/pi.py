"""Pi (`pi --mode json`): the command, tested with 0.80.2 and 1.6.0 (its four packages pinned to one version).

Launch path (budget 150 lines).  What is particular about this CLI, each measured with the real one:
  - It is pointed at the proxy by models.json and settings.json in PI_CODING_AGENT_DIR; its two layers of retries are off there,
    and its HTTP timers are the run's timeout.
  - `--mode json` alone runs once; the exit code is then 0 whatever happened.
  - The prompt comes on stdin: as an argument, a leading `@` would name a file and `-` an option.
  - It sends a session header only where it is told to (sendSessionAffinityHeaders); Responses requests have one in any case.
  - 1.6.0 keeps compiled code in a directory that all runs share (/tmp/node-compile-cache) unless Node is told not to.
  - SIGTERM ends it in order: 1.6.0 then completes its transcript; SIGINT leaves the running tool alive.
"""

from __future__ import annotations

import json
import os
import signal

from worker import harnesses

NAME = "pi"
PROGRAMS = ("pi", "pi-coding-agent")
TESTED = ("0.80.2", "1.6.0")
APIS = ("chat", "responses", "messages")
STOP_SIGNAL = signal.SIGTERM
GRACE = 5.0
HOLD = "answer"
MAIN_HEADERS = ("x-client-request-id", "x-session-affinity")  # both the session's id; messages has the second only
IDENTITY_HEADERS = MAIN_HEADERS
READER = "worker.harnesses.pi_reader"
CLIENT_TIMER = None
EXIT_ZERO_IS_SUCCESS = False

PROVIDER, TOKEN_VARIABLE = "sandbox-worker", "SANDBOX_WORKER_TOKEN"
KINDS = {"chat": "openai-completions", "responses": "openai-responses", "messages": "anthropic-messages"}
COMPAT = {"sendSessionAffinityHeaders": True, "supportsDeveloperRole": False, "supportsReasoningEffort": False}
QUIET = {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0", "NODE_DISABLE_COMPILE_CACHE": "1"}
OWN_WORDS = (
    ("--mode", "json"), ("--offline",), ("--no-extensions",), ("--no-skills",), ("--no-prompt-templates",), ("--no-themes",),
)  # fmt: skip
SESSION_WORDS = ("--session-dir", "--session", "--no-session", "--continue", "-c", "--resume", "-r")
MANAGING = ("install", "remove", "uninstall", "update", "list", "config", "auth")  # subcommands without a task
LONGEST_TIMER = 2147483647  # ms, setTimeout


def prepare(job, base_url, token, state_dir, which=harnesses.which):
    """See worker/harnesses/README.md.  Writes models.json and settings.json; raises OSError where it cannot."""
    given, env = list(job["command"] or ()), job["env"]
    interpreted = len(given) > 1 and os.path.basename(given[0]) in harnesses.INTERPRETERS
    head, words = (given[:2], given[2:]) if interpreted else (given[:1] or ["pi"], given[1:])
    home = os.path.join(state_dir, "pi")
    agent = os.path.join(job["cwd"], env.get("PI_CODING_AGENT_DIR") or os.path.join(home, "agent"))
    sessions = os.path.join(home, "sessions")
    for folder in (agent, sessions):
        os.makedirs(folder, 0o700, exist_ok=True)
    additions = {name: value for name, value in QUIET.items() if name not in env}
    additions.update({} if env.get("PI_CODING_AGENT_DIR") else {"PI_CODING_AGENT_DIR": agent})
    if base_url is not None:
        put(os.path.join(agent, "models.json"), {"providers": {PROVIDER: provider(job, base_url, token)}})
        put(os.path.join(agent, "settings.json"), settings(job))
        additions[TOKEN_VARIABLE] = token
    argv = head + (words if words[:1] and words[0] in MANAGING else switches(words, job, base_url, sessions) + words)
    path = env.get("PATH") or os.environ.get("PATH")
    script = os.path.join(job["cwd"], head[-1]) if interpreted else which(head[0], path, job["cwd"])
    return {
        "argv": argv, "given_argv": given or argv, "program": script or head[-1], "env": additions,
        "state": os.path.realpath(sessions), "baseline": {"version": version_of(script)}, "notes": [],
        "stdin": "null" if job["prompt"] is None else "prompt", "prompt_in_argv": False,
    }  # fmt: skip


def model_name(job):
    return job["model"].get("name") or "default"


def provider(job, base_url, token):
    """The proxy as a provider of models.json.  Context and output limits are left to the CLI's defaults (a caller's own
    models.json in PI_CODING_AGENT_DIR may say more)."""
    model = {"id": model_name(job), "name": model_name(job), "reasoning": True, "input": ["text", "image"]}
    return {"baseUrl": base_url, "api": KINDS[job["model"]["api"]], "apiKey": token, "compat": COMPAT, "models": [model]}


def settings(job):
    timer = min(int(job["timeout"] * 1000), LONGEST_TIMER)
    return {
        "retry": {"enabled": False, "maxRetries": 0, "provider": {"maxRetries": 0, "timeoutMs": timer}},
        "httpIdleTimeoutMs": timer, "enableInstallTelemetry": False,
    }  # fmt: skip


def switches(given, job, base_url, sessions):
    """Ours that the caller did not give."""
    own = list(OWN_WORDS)
    if not any(word in given for word in SESSION_WORDS):
        own.append(("--session-dir", sessions))
    if base_url is not None:
        own += [("--provider", PROVIDER), ("--model", model_name(job))]
    return [word for one in own if one[0] not in given for word in one]


def put(path, own):
    """Our settings into a JSON file, over what a caller's directory holds there already."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read().decode("utf-8", "replace"))
    except (OSError, ValueError):
        found = {}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(merged(found if isinstance(found, dict) else {}, own), file)


def merged(theirs, ours):
    both = dict(theirs)
    for name, value in ours.items():
        both[name] = merged(both[name], value) if isinstance(value, dict) and isinstance(both.get(name), dict) else value
    return both


def version_of(script):
    """The version in the package.json above a script; 0.80.2 names it nowhere else.  None where there is none."""
    place = os.path.dirname(os.path.realpath(script)) if script else "/"
    while place != os.path.dirname(place):
        try:
            with open(os.path.join(place, "package.json"), "rb") as file:
                return json.loads(file.read().decode("utf-8", "replace")).get("version")
        except (OSError, ValueError, AttributeError):
            place = os.path.dirname(place)
    return None

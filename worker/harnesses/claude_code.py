"""Claude Code (`claude -p`): the command, tested with 2.1.332.

Launch path (budget 150 lines).  What is particular about this CLI, each measured with the real binary:
  - As root it refuses to run without permission questions unless IS_SANDBOX is set.
  - Its retries, its silent repeat of a broken stream as a non-streaming request, and its six tries of a 400 (it drops beta
    headers one by one) are off: the proxy owns retries, and a hidden second request would count twice.
  - Its timers (header 600 s, silent stream 300 s, never less) are raised to the run's timeout, because the proxy may hold an
    answer for as long as the run lasts.
  - Background tasks are off: with one it says its result and stays.  `env` may set any of these variables otherwise.
  - The variables in a task's own .claude/settings.json go before the environment's, those of a file named by --settings before
    both: so ours stand there, too, and NO_PROXY with this machine: an HTTP_PROXY of the task's would get the model's requests.
    (Without the task's settings it would not read the task's CLAUDE.md either.)
  - SIGINT ends it with exit code 0 and no result, so it is stopped by SIGTERM (143, half a second, its tool group killed).
  - The npm wrapper only starts the native program, which is therefore launched itself.  The CLI is proprietary: it is used
    where it is found, never carried along.
  - The prompt goes in by stdin; the transcript's name is known before, because the session id is ours.
"""

from __future__ import annotations

import binascii
import json
import os
import signal

from worker import harnesses, launch

NAME = "claude_code"
PROGRAMS = ("claude", "claude.exe", "cli-wrapper.cjs")
TESTED = ("2.1.332",)
APIS = ("messages",)
STOP_SIGNAL = signal.SIGTERM
GRACE = 5.0
HOLD = "answer"
MAIN_HEADERS = ("x-claude-code-session-id",)  # the root's id, the same for its sub-agents
IDENTITY_HEADERS = ("x-claude-code-session-id", "x-claude-code-agent-id", "x-claude-code-parent-agent-id")
READER = "worker.harnesses.claude_code_reader"
CLIENT_TIMER = None  # header and idle timer are raised to the run's timeout
EXIT_ZERO_IS_SUCCESS = False

SWITCHES = (  # words that the command must have, each with its value or None
    ("-p", None), ("--output-format", "stream-json"), ("--verbose", None), ("--permission-mode", "bypassPermissions"),
)  # fmt: skip
SAME = {"-p": ("--print",), "--permission-mode": ("--dangerously-skip-permissions",)}  # other words that say it already
SESSION = ("--session-id", "--resume", "-r", "--continue", "-c", "--from-pr")  # then the session's id is the caller's
QUIET = (
    ("IS_SANDBOX", "1"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"), ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_TELEMETRY", "1"), ("DISABLE_ERROR_REPORTING", "1"), ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
    ("CLAUDE_CODE_MAX_RETRIES", "0"), ("CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK", "1"),
    ("CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS", "1"),
)  # fmt: skip
# What else a task could set to turn the CLI away from the proxy: "" is unset.
AWAY = ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX",
        "CLAUDE_CODE_USE_FOUNDRY")  # fmt: skip
TIMERS = ("API_TIMEOUT_MS", "CLAUDE_STREAM_IDLE_TIMEOUT_MS", "CLAUDE_STREAM_FIRST_BYTE_TIMEOUT_MS")
# Each alias that a sub-agent or a tool may ask for is the run's model.
MODELS = ("ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
          "ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")  # fmt: skip
LONGEST_TIMER = 2**31 - 1  # ms, what a JavaScript timer takes
PLATFORMS = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}


def prepare(job, base_url, token, state_dir, which=harnesses.which):
    """argv, environment additions and stdin of one run; see worker/harnesses/README.md.  Creates CLAUDE_CONFIG_DIR."""
    given, env = list(job["command"] or ()), job["env"]
    program, rest, notes = resolve(given or ["claude"], env.get("PATH") or os.environ.get("PATH"), job["cwd"], which)
    session = None if any(word.split("=")[0] in SESSION for word in rest) else identity()
    home = os.path.join(job["cwd"], env.get("CLAUDE_CONFIG_DIR") or os.path.join(state_dir, "claude"))
    scratch = os.path.join(state_dir, "claude-tmp")
    for folder in (home, scratch):
        os.makedirs(folder, 0o700, exist_ok=True)
    own = {name: env.get(name, value) for name, value in settings(job, home, scratch)}
    additions = {name: value for name, value in own.items() if name not in env}
    if base_url is not None:
        additions.update(ANTHROPIC_BASE_URL=base_url, ANTHROPIC_API_KEY=token)
        own.update({name: env.get(name, "") for name in AWAY}, **additions)
        for name in ("NO_PROXY", "no_proxy"):
            own[name] = ",".join(((env.get(name) or os.environ.get(name) or "127.0.0.1"),) + launch.LOOPBACK)
    firm = os.path.join(state_dir, "claude-settings.json")
    put(firm, own)
    argv = [program] + switches(rest, firm) + (["--session-id", session] if session else []) + rest
    return {
        "argv": argv, "given_argv": given or argv, "program": program, "env": additions,
        "state": os.path.realpath(home), "baseline": baseline(os.path.realpath(home)), "notes": notes, "thread_id": session,
        "stdin": "null" if job["prompt"] is None else "prompt", "prompt_in_argv": False,
    }  # fmt: skip


def settings(job, home, scratch):
    """(variable, value) that the document's env may set otherwise."""
    timer = str(min(int(job["timeout"] * 1000) + 60000, LONGEST_TIMER))
    name = (job["model"] or {}).get("name")
    own = list(QUIET) + [(timed, timer) for timed in TIMERS] + [(alias, name) for alias in MODELS if name]
    return own + [("CLAUDE_CONFIG_DIR", home), ("CLAUDE_CODE_TMPDIR", scratch)]


def put(path, variables):
    """The settings file of highest precedence; an apiKeyHelper would be asked for a key beside the given one."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump({"env": variables, "apiKeyHelper": ""}, file)


def switches(words, firm):
    """The switches of ours that the caller's words lack; they stand first, so that a later word of the caller's wins."""
    end = words.index("--") if "--" in words else len(words)
    there = {word.split("=")[0] for word in words[:end]}
    lacking = [pair for pair in (*SWITCHES, ("--settings", firm)) if not there.intersection((pair[0],) + SAME.get(pair[0], ()))]
    return [word for pair in lacking for word in pair if word is not None]


def identity():
    """A random UUID, version 4 (RFC 9562, 5.4)."""
    raw = bytearray(os.urandom(16))
    raw[6], raw[8] = raw[6] & 15 | 64, raw[8] & 63 | 128
    text = binascii.hexlify(bytes(raw)).decode()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def baseline(home):
    """{path: size} of transcripts that are there before the run (a directory of the caller's may hold sessions to resume)."""
    top, found = os.path.join(home, "projects"), {}
    for folder, _, names in os.walk(top) if os.path.isdir(top) else ():
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".jsonl") and os.path.isfile(path):
                found[os.path.relpath(path, home)] = os.path.getsize(path)
    return found


def resolve(words, path, cwd, which):
    """(program, its arguments, notes): the npm package's stub or wrapper becomes the native program beside it."""
    interpreted = len(words) > 1 and os.path.basename(words[0]) in harnesses.INTERPRETERS
    script = os.path.join(cwd, words[1]) if interpreted else which(words[0], path, cwd)
    program, rest = (words[0], words[1:]) if interpreted or not script else (script, words[1:])
    if not script or not may_be_wrapper(script):
        return program, rest, []
    native = native_of(os.path.realpath(script))
    if native is None:
        return program, rest, ["no native program found for " + script]
    return native, words[2:] if interpreted else rest, ["npm wrapper %s replaced by its native program" % script]


def may_be_wrapper(path):
    """Not a native program, and nothing that can only be executed."""
    return harnesses.beginning(path)[:4] not in (b"", b"\x7fELF")


def native_of(script):
    """The platform package's program, searched as Node resolves packages; None where there is none."""
    platform, place = PLATFORMS.get(os.uname().machine, ""), os.path.dirname(script)
    while place != os.path.dirname(place):
        for kind in ("", "-musl"):
            program = os.path.join(place, "node_modules", "@anthropic-ai", "claude-code-" + platform + kind, "claude")
            if os.path.isfile(program) and os.access(program, os.X_OK):
                return program
        place = os.path.dirname(place)
    return None

"""OpenAI Codex CLI (`codex exec`): the command, tested with 0.144.4 and 0.171.0.

Launch path (budget 200 lines).  What is particular about this CLI, each measured with the real binaries:
  - It is pointed at the proxy by `-c` overrides only.  A `-c` on a subcommand discards every `-c` of the levels above it, so
    ours stand behind the last word before `--`, and the caller's shallower ones are lifted there, in their order.
  - Its own retries are off (both layers), for the proxy owns them; 0.171.0 also retries a refused connection for ever unless
    features.unbounded_connection_retries is false (0.144.4 does not know the key and does not mind).
  - Its stream idle timer becomes the run's timeout: the proxy may hold an answer for as long as the run lasts.
  - Plugins, analytics and the update check would call other hosts.
  - The npm wrapper of 0.144.4 exits 0 when the CLI dies by SIGTERM, so the native program is launched.
  - SIGINT makes it write its last records; SIGTERM loses them.
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

# The CLI's platform packages and target triples (bin/codex.js of the npm package).
TARGETS = {
    "x86_64": ("codex-linux-x64", "x86_64-unknown-linux-musl"),
    "aarch64": ("codex-linux-arm64", "aarch64-unknown-linux-musl"),
}
# Options that take the next word (`codex exec --help`, `codex --help`, both versions).
VALUE_OPTIONS = frozenset(
    "-c --config --enable --disable -i --image -m --model --local-provider -p --profile -s --sandbox -C --cd --add-dir "
    "--output-schema --color -o --output-last-message --remote --remote-auth-token-env --thread-source "
    "--cyber-access-program -a --ask-for-approval".split()
)
CONFIG_OPTIONS = ("-c", "--config", "--enable", "--disable")
SUBCOMMANDS = (("exec", "e"), ("resume", "review", "fork"))


def prepare(job, base_url, token, state_dir, which=harnesses.which):
    """argv, environment additions and stdin of one run.  job: the input document, filled; base_url, token: the proxy's, or
    None without one; state_dir: where CODEX_HOME goes unless the document's env sets it.  Creates CODEX_HOME (the CLI
    refuses to start without it); raises OSError where it cannot."""
    given = list(job["command"]) if job.get("command") else None
    env = dict(job.get("env") or {})
    program, rest, notes = resolve(given or ["codex"], env.get("PATH") or os.environ.get("PATH"), job["cwd"], which)
    argv = [program] + (arguments(rest, overrides(job, base_url)) if given else built(job, base_url))
    additions = {} if base_url is None else {TOKEN_VARIABLE: token}
    home = env.get("CODEX_HOME")
    if not home:
        home = additions["CODEX_HOME"] = os.path.join(state_dir, "codex")
    os.makedirs(os.path.join(job["cwd"], home), 0o700, exist_ok=True)
    return {
        "argv": argv,
        "given_argv": given or argv,
        "program": program,
        "env": additions,
        "state": os.path.join(job["cwd"], home),
        "stdin": "prompt" if job.get("prompt") is not None else "null",
        "prompt_in_argv": False,
        "notes": notes,
    }


# -- the program ----------------------------------------------------------------------------------------------------------


def resolve(words, path, cwd, which):
    """(program, its arguments, notes): the npm wrapper becomes the native program that it would start."""
    interpreted = len(words) > 1 and words[0].rsplit("/", 1)[-1] in harnesses.INTERPRETERS
    script = os.path.join(cwd, words[1]) if interpreted else which(words[0], path, cwd)
    rest = words[2:] if interpreted else words[1:]
    if script is None:
        return words[0], rest, []
    wrapper = wrapper_of(script)
    native = wrapper and native_program(wrapper, os.uname().machine)
    if native:
        return native, rest, ["npm wrapper %s replaced by its native program" % script]
    if interpreted:
        return words[0], words[1:], ["no native program found for " + script]
    return script, rest, ["no native program found for " + script] if wrapper else []


def wrapper_of(script):
    """The codex.js that a file is, links to, or (the shims of pnpm and npm's cmd-shim) names; None for anything else."""
    real = os.path.realpath(script)
    if os.path.basename(real) == "codex.js":
        return real
    try:
        with open(real, "rb") as file:
            head = file.read(4096)
    except OSError:
        return None
    if not head.startswith(b"#!") or b"@openai/codex/bin/codex.js" not in head:
        return None
    for word in head.decode("utf-8", "replace").replace("'", '"').split('"'):
        if word.endswith("codex.js"):
            target = os.path.join(os.path.dirname(script), word.replace("$basedir/", "").replace("${basedir}/", ""))
            if os.path.isfile(target):
                return os.path.realpath(target)
    return None


def native_program(wrapper, machine):
    """The native program of the package that a codex.js belongs to, searched as Node resolves packages; None if absent."""
    package, triple = TARGETS.get({"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine), (None, None))
    if package is None:
        return None
    root = place = os.path.dirname(os.path.dirname(wrapper))
    vendors = []
    while place != os.path.dirname(place):
        vendors.append(os.path.join(place, "node_modules", "@openai", package, "vendor"))
        place = os.path.dirname(place)
    vendors.append(os.path.join(root, "vendor"))  # platform tarball, and releases before the split
    for vendor in vendors:
        for layout in ("bin/codex", "codex/codex"):
            program = os.path.join(vendor, triple, layout)
            if os.access(program, os.X_OK) and os.path.isfile(program):
                return program
    return None


# -- the arguments --------------------------------------------------------------------------------------------------------


def built(job, base_url):
    """Arguments of our own: no approvals and no inner sandbox (this is one), events as JSON lines, prompt on stdin."""
    return (
        ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        + flags(overrides(job, base_url) if base_url else QUIET)
        + ["-"]
    )


def arguments(words, ours):
    """The caller's words with our overrides at the deepest level.  A key of QUIET that the caller set stays the caller's."""
    end, deepest, settings = survey(words)
    lifted, kept = [], []
    for start, stop in settings:
        if start < deepest:
            lifted += words[start:stop]
    taken = {index for start, stop in settings if start < deepest for index in range(start, stop)}
    kept = [word for index, word in enumerate(words[:end]) if index not in taken]
    own = {key for key in (setting_key(words[start:stop]) for start, stop in settings)}
    quiet = [key for key, _ in QUIET]
    added = [(key, value) for key, value in ours if key not in own or key not in quiet]
    if deepest >= 0 and "--json" not in kept and "--experimental-json" not in kept:
        kept.append("--json")
    return kept + lifted + flags(added) + words[end:]


def survey(words):
    """(index of `--` or the end, index of the deepest subcommand or -1, [start, stop) of every configuration option)."""
    index, level, deepest, settings = 0, 0, -1, []
    while index < len(words) and words[index] != "--":
        word, start = words[index], index
        index += 2 if word in VALUE_OPTIONS else 1
        if word in CONFIG_OPTIONS or word.startswith(("--config=", "--enable=", "--disable=")):
            settings.append((start, min(index, len(words))))
        elif word.startswith("-c") and not word.startswith("--"):
            settings.append((start, index))
        elif not word.startswith("-") and level < len(SUBCOMMANDS):
            known = word in SUBCOMMANDS[level]
            deepest, level = (start, level + 1) if known else (deepest, len(SUBCOMMANDS))
    return min(index, len(words)), deepest, settings


def setting_key(option):
    """The configuration key that `-c key=value`, `-ckey=value`, `--config=key=value`, `--enable NAME` sets."""
    text = " ".join(option)
    for prefix, section in (("--config", ""), ("-c", ""), ("--enable", "features."), ("--disable", "features.")):
        if text.startswith(prefix):
            return section + text[len(prefix) :].lstrip("= ").split("=", 1)[0].strip()
    return ""


def flags(settings):
    return [word for key, value in settings for word in ("-c", key + "=" + value)]


# Harmless settings that keep the CLI silent toward other hosts and the token out of the tools' environment.
QUIET = (
    ("features.plugins", "false"),
    ("analytics.enabled", "false"),
    ("check_for_update_on_startup", "false"),
    ("features.shell_snapshot", "false"),
    ("shell_environment_policy.exclude", json.dumps([TOKEN_VARIABLE, "OPENAI_API_KEY"])),
)


def overrides(job, base_url):
    """[(configuration key, TOML value)] that point the CLI at the proxy; nothing without one."""
    if base_url is None:
        return []
    idle = str(int(job["timeout"] * 1000))
    provider = (
        ("name", '"sandbox-worker"'),
        ("base_url", json.dumps(base_url)),
        ("wire_api", '"responses"'),
        ("env_key", json.dumps(TOKEN_VARIABLE)),
        ("request_max_retries", "0"),
        ("stream_max_retries", "0"),
        ("stream_idle_timeout_ms", idle),
        ("supports_websockets", "false"),
    )
    own = [("model_provider", '"sandbox_worker"')] + [(PROVIDER + key, value) for key, value in provider]
    own.append(("features.unbounded_connection_retries", "false"))
    name = job["model"].get("name")
    return own + ([("model", json.dumps(name, ensure_ascii=False))] if name else []) + list(QUIET)

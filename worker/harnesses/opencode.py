"""OpenCode (`opencode run`): the command, tested with 1.17.11 and 1.18.33; kilocode.py is a fork of it and uses this file.

Launch path (budget 150 lines).  What is particular about this CLI, each measured with the real binaries:
  - It is pointed at the proxy by OPENCODE_CONFIG_CONTENT, which is merged over every other configuration.
  - An argv prompt is wrapped in quotes when it holds a space; on stdin it arrives byte for byte.
  - It looks at $PWD before getcwd().  `--thinking`: else no reasoning events; `--title`: else a side request for a title.
  - Its retries cannot be switched off: 5 more tries (1.18.33), or for ever, doubling from 2 s (1.17.11), or whatever
    Retry-After says.  The proxy's latch answers them at once, and `linger` ends the run.
  - A clean end of stream without finish makes it ask again for ever, so the proxy holds answers (HOLD).
  - For every configuration directory it runs a detached `npm install` unless that is there already (`seed`); ~/.opencode would
    be one, so its own idea of home is moved (OPENCODE_TEST_HOME; the tools' HOME stays).
  - 1.18.33 loads a task's `.opencode/plugin(s)/*.js` in spite of --pure and DISABLE_PROJECT_CONFIG.
  - `grep` and `glob` need ripgrep and download it from GitHub: without one they are not offered to the model.
"""

from __future__ import annotations

import json
import os
import signal

from worker import harnesses

NAME = "opencode"
PROGRAMS = ("opencode", "opencode.exe")
TESTED = ("1.17.11", "1.18.33")
APIS = ("chat", "responses", "messages")
STOP_SIGNAL = signal.SIGTERM  # no handler: dies at once; SQLite's log survives
GRACE = 5.0
HOLD = "answer"  # header and chunk timers are raised to the run's timeout
MAIN_HEADERS = ("x-session-id", "x-parent-session-id")  # a sub-agent's requests have its own session and its parent's
IDENTITY_HEADERS = MAIN_HEADERS
READER = "worker.harnesses.opencode_reader"
CLIENT_TIMER = None
EXIT_ZERO_IS_SUCCESS = False  # also 0 for an empty answer, a cut one, a rejected tool

FAMILY = {"prefix": "OPENCODE_", "folder": "opencode", "plugin": "@opencode-ai/plugin", "program": "opencode", "env": ()}
PROVIDER, TOKEN_VARIABLE = "sandbox-worker", "SANDBOX_WORKER_TOKEN"
PACKAGES = {"chat": "@ai-sdk/openai-compatible", "responses": "@ai-sdk/openai", "messages": "@ai-sdk/anthropic"}
SWITCHES = (
    "DISABLE_MODELS_FETCH", "DISABLE_AUTOUPDATE", "DISABLE_LSP_DOWNLOAD", "DISABLE_PROJECT_CONFIG", "DISABLE_DEFAULT_PLUGINS",
    "DISABLE_CLAUDE_CODE", "DISABLE_EXTERNAL_SKILLS", "DISABLE_SHARE",
)  # fmt: skip
DIRECTORIES = (("XDG_DATA_HOME", "data"), ("XDG_CONFIG_HOME", "config"), ("XDG_CACHE_HOME", "cache"), ("XDG_STATE_HOME", "state"))
LIBRARIES = "BUN_TMPDIR"  # where Bun puts the program's own shared library, 5 MB, for good; else /tmp
OWN_WORDS = (("--format", "json"), ("--pure",), ("--thinking",), ("--title", "run"))
LONGEST_TIMER = 2147483647  # ms, setTimeout
ALLOWED = {"*": "allow", "external_directory": "allow", "doom_loop": "allow"}  # 1.17.11 knows no --auto
RULES = "AGENTS.md"  # read by its path: with DISABLE_PROJECT_CONFIG the CLI does not look for it


def prepare(job, base_url, token, state_dir, which=harnesses.which, family=FAMILY):
    """See worker/harnesses/README.md.  Creates the CLI's directories; raises OSError where it cannot."""
    env, given = job["env"], list(job["command"] or ())
    path = env.get("PATH") or os.environ.get("PATH")
    program, words, notes = resolve(given or [family["program"]], path, job["cwd"], which, family)
    home = os.path.join(state_dir, family["folder"])
    own = dict({family["prefix"] + name: "1" for name in SWITCHES}, PWD=job["cwd"], **dict(family["env"]))
    own[family["prefix"] + "TEST_HOME"] = os.path.join(home, "home")
    own.update((name, os.path.join(home, folder)) for name, folder in DIRECTORIES)
    own[LIBRARIES] = os.path.join(home, "cache")
    places = dict(own, **env)
    for name, _ in DIRECTORIES:
        os.makedirs(os.path.join(job["cwd"], places[name], family["folder"]), 0o700, exist_ok=True)
    os.makedirs(own[family["prefix"] + "TEST_HOME"], 0o700, exist_ok=True)
    if "XDG_CONFIG_HOME" not in env:
        seed(os.path.join(own["XDG_CONFIG_HOME"], family["folder"]), family["plugin"])
    searching = ripgrep(which, path, job, places, family, notes)
    own = {name: value for name, value in own.items() if name not in env}
    own[family["prefix"] + "CONFIG_CONTENT"] = settings(job, base_url, searching, env.get(family["prefix"] + "CONFIG_CONTENT"))
    if base_url is not None:
        own[TOKEN_VARIABLE] = token
    data = os.path.join(job["cwd"], places["XDG_DATA_HOME"], family["folder"])
    argv = [program] + (arguments(words, job, base_url) if given else ["run"] + switches([], job, base_url))
    return {
        "argv": argv, "given_argv": given or argv, "program": program, "env": own, "state": os.path.realpath(data),
        "baseline": None, "notes": notes, "stdin": "null" if job["prompt"] is None else "prompt", "prompt_in_argv": False,
    }  # fmt: skip


def model_name(job):
    return (job["model"] or {}).get("name") or "default"


def settings(job, base_url, searching, theirs):
    """The configuration, as JSON.  Top-level keys of the caller's OPENCODE_CONFIG_CONTENT stay where ours say nothing."""
    own = {"autoupdate": False, "share": "disabled", "snapshot": False}
    own["permission"] = dict(ALLOWED) if searching else dict(ALLOWED, grep="deny", glob="deny")
    if os.path.isfile(os.path.join(job["cwd"], RULES)):
        own["instructions"] = [os.path.join(job["cwd"], RULES)]
    if base_url is not None:
        timer, api = min(int(job["timeout"] * 1000), LONGEST_TIMER), job["model"]["api"]
        options = {"baseURL": base_url + ("/v1" if api == "messages" else ""), "apiKey": "{env:%s}" % TOKEN_VARIABLE,
                   "chunkTimeout": timer, "headerTimeout": timer, "timeout": False}  # fmt: skip
        models = {model_name(job): {"name": model_name(job), "tool_call": True, "reasoning": True}}
        own["provider"] = {PROVIDER: {"npm": PACKAGES[api], "name": PROVIDER, "options": options, "models": models}}
        own["model"] = own["small_model"] = PROVIDER + "/" + model_name(job)
        own["enabled_providers"] = [PROVIDER]
    try:
        found = json.loads(theirs or "{}")
    except ValueError:
        found = {}
    return json.dumps(dict(found, **own) if isinstance(found, dict) else own, ensure_ascii=False)


def arguments(words, job, base_url):
    """The caller's words, with our switches behind `run`."""
    at = words.index("run") + 1 if "run" in words else 0
    return words[:at] + switches(words, job, base_url) + words[at:] if at else words


def switches(given, job, base_url):
    """Ours that the caller did not give; a second `-m` is an error of the CLI's."""
    own = OWN_WORDS + ((("-m", PROVIDER + "/" + model_name(job)),) if base_url is not None else ())
    return [word for one in own if not (one[0] in given or one[0] == "-m" and "--model" in given) for word in one]


def seed(folder, plugin):
    """What `npm install` would leave, so that it is not run (1.17.11 and 1.18.33 compare only the names)."""
    os.makedirs(os.path.join(folder, "node_modules"), 0o700, exist_ok=True)
    wanted = {"dependencies": {plugin: "*"}}
    for name, content in (("package.json", wanted), ("package-lock.json", {"lockfileVersion": 3, "packages": {"": wanted}})):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)


def ripgrep(which, path, job, places, family, notes):
    """Is there an rg that the CLI will find?"""
    if which("rg", path, job["cwd"]):
        return True
    from worker.harnesses import opencode_program

    home = job["env"].get("HOME") or os.environ.get("HOME") or "/"
    cache = os.path.join(job["cwd"], places["XDG_CACHE_HOME"], family["folder"])
    if opencode_program.earlier_ripgrep(os.path.join(home, ".cache", family["folder"]), cache):
        return True
    notes.append("no ripgrep (rg) here: the tools grep and glob are not offered to the model")
    return False


def resolve(words, path, cwd, which, family):
    """(program, its arguments, notes): the npm wrapper becomes the native program that it would start."""
    script = which(words[0], path, cwd)
    head = harnesses.beginning(script or os.devnull)
    wrapped = bool(head) and head[:4] != b"\x7fELF"  # what cannot be read is executed as it is: the launch says what is wrong
    if not wrapped and os.path.basename(words[0]) not in harnesses.INTERPRETERS:
        return script or words[0], words[1:], []
    from worker.harnesses import opencode_program

    return opencode_program.resolve(words, script, cwd, family["folder"])

"""What doctor says about one harness: is its CLI here, does it start, which version is it, and what would be missed."""
from __future__ import annotations

import os

from worker import expect, harnesses, kernel, launch

# What a run with this CLI lacks by the CLI's own nature, however healthy the sandbox; the gap's code where there is one.
MISSED = {
    "codex": (),
    "claude_code": ("a run that is stopped has no result event; what was done until then stands in its transcript",),
    "gemini": (
        "its output is read when it has ended: events have no times of their own (event_times_unavailable)",
        "its exit code and its word `success` decide nothing; exit statuses of tools stand in its transcript only",
    ),
    "qwen": ("a run that is stopped has no result event; its seven retries cannot be switched off, the proxy answers them",),
    "mini": (
        "it prints no events: nothing has a time of its own (event_times_unavailable)",
        "when the first step does not end there is no trajectory, only the wire (agent_artifact_unavailable)",
    ),
    "opencode": ("retries of its own cannot be switched off: the proxy answers them from memory, and `linger` ends the run",),
    "kilocode": ("it adds a block of environment details to each message of the user; the history shows it as it was sent",),
    "pi": ("there is no transcript before the first answer (agent_artifact_unavailable); its exit code is 0 whatever happened",),
    "hermes": (
        "the prompt is an argument that every process can read (prompt_in_argv), and at most 131,061 bytes long",
        "its requests name no session: main ones are told by model and tools",
    ),
    "generic": ("no transcript and no tool calls, only what it prints and the wire (agent_artifact_unavailable)",),
}


def look(name, tmp, path):
    """{"name", "word" (looked up on PATH), "program" (path or None), "version" or None, "tested" [...], "untested" (bool),
    "error" (why it does not start, or None), "notes" [...], "missed" [...]}.
    tmp: a directory where its state may lie for a moment."""
    harness = harnesses.find(name, None)
    word = harness.PROGRAMS[0] if harness.PROGRAMS else None
    found = {"name": name, "word": word, "program": word and harnesses.which(word, path, "/"), "version": None, "error": None,
             "tested": list(harness.TESTED), "untested": False, "notes": [], "missed": list(MISSED[name])}
    if not found["program"]:
        return found
    if tmp is None:
        found["notes"].append("not tried: there is no directory for its state")
        return found
    state = os.path.join(tmp, "sandbox-worker-doctor-" + os.urandom(8).hex())
    os.mkdir(state, 0o700)
    try:
        try_out(harness, found, state)
    finally:
        remove(state)
    found["untested"] = bool(found["version"] and found["tested"] and found["version"] not in found["tested"])
    return found


def try_out(harness, found, state):
    """Prepare the command as a run would, and ask it for its version."""
    job = {"command": None, "env": {}, "pass_env": [], "cwd": state, "prompt": None, "timeout": 60.0, "model": None, "user": None,
           "no_new_privs": False}
    try:
        prepared = harness.prepare(job, None, None, os.path.join(state, "state"))
        env = launch.environment(job, prepared["env"], None, "doctor")
        kernel.become_subreaper()
        said, error = expect.ask(expect.version_words(prepared["argv"], harness), env, job)
    except OSError as problem:
        said, error = None, str(problem)
    else:
        found["notes"] += prepared["notes"]
        known = (prepared.get("baseline") or {}).get("version")
        found["version"] = known if isinstance(known, str) else expect.version_in(said)
    found["error"] = error


def remove(top):
    for folder, folders, names in os.walk(top, topdown=False):
        for name in names:
            os.unlink(os.path.join(folder, name))
        for name in folders:
            path = os.path.join(folder, name)
            (os.unlink if os.path.islink(path) else os.rmdir)(path)
    os.rmdir(top)

"""The harnesses: one file per agent CLI, one row in TABLE; only the one that a run uses is imported. Add one: README.md."""
from __future__ import annotations

import os
import sys

from worker import supervise

beginning = supervise.read_file
TABLE = {  # name (its module's, too) -> program names that it is known by when the input document names no harness
    "codex": ("codex", "codex.js"),
    "claude_code": ("claude", "claude.exe", "cli-wrapper.cjs"),
    "gemini": ("gemini", "gemini.js"),
    "qwen": ("qwen", "cli-entry.js"),
    "mini": ("mini", "mini-swe-agent"),
    "opencode": ("opencode", "opencode.exe"),
    "kilocode": ("kilo", "kilocode"),
    "pi": ("pi", "pi-coding-agent"),
    "hermes": ("hermes", "hermes-agent"),
    "generic": (),
}
INTERPRETERS = ("node", "nodejs", "bun")


def find(name, command):
    """The harness module for a name or, where that is None, for the program that `command` (argv) runs; None if unknown."""
    if name is None:
        words = [os.path.basename(word) for word in (command or ())[:2]]
        program = words[1] if len(words) == 2 and words[0] in INTERPRETERS else (words or [""])[0]
        name = next((known for known, programs in TABLE.items() if program in programs), "generic")
    if name in TABLE:
        __import__("worker.harnesses." + name)
    return sys.modules.get("worker.harnesses." + name) if name in TABLE else None


def which(program, path, cwd):
    """The file that execvp would try first, or None. A relative PATH entry or program is taken from the agent's cwd."""
    return supervise.which(program, {"PATH": path or os.defpath}, cwd)

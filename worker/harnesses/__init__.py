"""The harnesses: one file per agent CLI, one line per file in TABLE.

Launch path (budget 40 lines): only the harness that a run uses is imported.  README.md here says how to add one.
"""

from __future__ import annotations

import os
import sys

# name -> (module, program names it is known by when the input document names no harness)
TABLE = {
    "codex": ("worker.harnesses.codex", ("codex", "codex.js")),
    "claude_code": ("worker.harnesses.claude_code", ("claude", "claude.exe", "cli-wrapper.cjs")),
    "gemini": ("worker.harnesses.gemini", ("gemini", "gemini.js")),
    "qwen": ("worker.harnesses.qwen", ("qwen", "cli-entry.js")),
    "mini": ("worker.harnesses.mini", ("mini", "mini-swe-agent")),
    "opencode": ("worker.harnesses.opencode", ("opencode", "opencode.exe")),
    "kilocode": ("worker.harnesses.kilocode", ("kilo", "kilocode")),
    "pi": ("worker.harnesses.pi", ("pi", "pi-coding-agent")),
    "hermes": ("worker.harnesses.hermes", ("hermes", "hermes-agent")),
    "generic": ("worker.harnesses.generic", ()),
}
INTERPRETERS = ("node", "nodejs", "bun")


def find(name, command):
    """The harness module for a harness name or, where that is None, for the program that the command (argv) runs;
    None for a name that is not in the table."""
    if name is None:
        words = [os.path.basename(word) for word in (command or ())[:2]]
        program = words[1] if len(words) == 2 and words[0] in INTERPRETERS else (words or [""])[0]
        name = next((known for known, (_, programs) in TABLE.items() if program in programs), "generic")
    if name not in TABLE:
        return None
    module = TABLE[name][0]
    __import__(module)
    return sys.modules[module]


def which(program, path, cwd):
    """The file that execvp would run, or None.  A relative PATH entry or program is taken from the agent's cwd."""
    places = [""] if "/" in program else (path or os.defpath).split(":")
    for place in places:
        full = os.path.join(cwd, place, program)
        if os.path.isfile(full) and os.access(full, os.X_OK):
            return full
    return None

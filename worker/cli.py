"""The commands: which module answers to which word.  Exit codes are those of DESIGN 5 (sysexits where they exist)."""

from __future__ import annotations

import os
import sys

# The word -> the module whose `main(arguments)` returns the exit code, and its usage line.
COMMANDS = {
    "run": ("worker.sandbox_runner", "run INPUT.json | run -"),
    "stop": ("worker.control", "stop DIR"),
    "status": ("worker.host.status", "status DIR [--follow] [--json]"),
    "verify": ("worker.host.verify", "verify OUT [--nonce N] [--manifest FILE] [--seal-key-file FILE]"),
    "show": ("worker.host.show", "show OUT"),
    "verdict": ("worker.host.verdict", "verdict OUT"),
    "schema": ("worker.host.schema", "schema NAME"),
    "explode": ("worker.host.explode", "explode DIR"),
}
LATER = ("recover", "proxy", "export", "report", "doctor")

GRADE, USAGE, BAD_INPUT, NO_OUTCOME, MASK, FAILED, NO_DIRECTORY, RETRY = 0, 64, 65, 66, 69, 70, 73, 75


def say(sentence: str) -> None:
    """One sentence on stderr; a closed stderr is no reason to fail."""
    try:
        os.write(2, ("sandbox-worker: %s\n" % sentence).encode("utf-8", "replace"))
    except OSError:
        pass


def usage() -> str:
    return "usage: sandbox-worker.pyz COMMAND ...\n" + "".join("  %s\n" % line for _, line in COMMANDS.values())


def main(arguments: "list[str]") -> int:
    word, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if word in ("-h", "--help", "help"):
        os.write(1, usage().encode())
        return 0
    if word == "--version":
        from worker.version import VERSION

        os.write(1, ("sandbox-worker %s\n" % VERSION).encode())
        return 0
    if word in COMMANDS:
        module = COMMANDS[word][0]
        __import__(module)
        return sys.modules[module].main(rest)
    if word in LATER:
        say("this version has no command %r yet" % word)
    else:
        os.write(2, usage().encode())
        say("%r is no command" % word if word else "a command is missing")
    return USAGE

"""The commands: which module answers to which word. Exit codes are those of DESIGN 5 (sysexits where they exist)."""
from __future__ import annotations

import os
import sys

# The word -> the module whose `main(arguments)` returns the exit code, and its usage.
COMMANDS = {
    "run": ("worker.sandbox_runner", "run INPUT.json | run -"),
    "stop": ("worker.stopping", "stop DIR"),
    "status": ("worker.host.status", "status DIR [--follow] [--json]"),
    "verify": ("worker.host.verify", "verify OUT [--nonce N] [--manifest FILE] [--seal-key-file FILE]"),
    "show": ("worker.host.show", "show OUT"),
    "verdict": ("worker.host.verdict", "verdict OUT"),
    "schema": ("worker.host.schema", "schema NAME"),
    "explode": ("worker.host.explode", "explode DIR"),
}
GRADE, USAGE, BAD_INPUT, NO_OUTCOME, MASK, FAILED, NO_DIRECTORY, RETRY = 0, 64, 65, 66, 69, 70, 73, 75


def say(sentence):
    """One sentence on stderr; a closed stderr is no reason to fail."""
    try:
        os.write(2, ("sandbox-worker: %s\n" % sentence).encode("utf-8", "replace"))
    except OSError:
        pass


def misuse(word, reason):
    say("%s: %s; usage: sandbox-worker.pyz %s" % (word, reason, COMMANDS[word][1]))
    return USAGE


def main(arguments):
    word, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if word in COMMANDS:
        __import__(COMMANDS[word][0])
        return sys.modules[COMMANDS[word][0]].main(rest)
    from worker.usage_text import answer

    text, complaint = answer(word, COMMANDS)
    if complaint:
        say(complaint)
        return USAGE
    os.write(1, text.encode())
    return 0

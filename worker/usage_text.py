"""What is said to a word that is no command: the usage, the version, or what this version lacks."""
from __future__ import annotations

from worker.version import VERSION

LATER = ("recover", "proxy", "export", "report", "doctor")


def usage(commands):
    lines = "".join("  %s\n" % line for _, line in commands.values())
    return "usage: sandbox-worker.pyz COMMAND ...\n%sversion %s; README.md explains each\n" % (lines, VERSION)


def answer(word, commands):
    """(text for stdout or None, sentence for stderr or None): what `word` asks for, or why it is none."""
    if word in ("-h", "--help", "help"):
        return usage(commands), None
    if word == "--version":
        return "sandbox-worker %s\n" % VERSION, None
    if word in LATER:
        return None, "this version has no command %r yet" % word
    return None, "%s\n%s" % ("%r is no command" % word if word else "a command is missing", usage(commands).rstrip())

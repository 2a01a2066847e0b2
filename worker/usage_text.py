"""What is said to a word that is no command: the usage, the version, or what this version lacks."""
from __future__ import annotations

import os

from worker import cli
from worker.version import VERSION


def usage():
    lines = "".join("  %s\n" % line for _, line in cli.COMMANDS.values())
    return "usage: sandbox-worker.pyz COMMAND ...\n%sversion %s; README.md explains each\n" % (lines, VERSION)


def answer(word):
    """Print what `word` asks for; the exit code."""
    if word in ("-h", "--help", "help"):
        os.write(1, usage().encode())
        return 0
    if word == "--version":
        os.write(1, ("sandbox-worker %s\n" % VERSION).encode())
        return 0
    if word in cli.LATER:
        cli.say("this version has no command %r yet" % word)
        return cli.USAGE
    cli.say("%r is no command" % word if word else "a command is missing")
    os.write(2, usage().encode())
    return cli.USAGE

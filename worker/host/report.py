"""`report OUT [-o FILE]`: the run as one self-contained HTML page, for a person."""

from __future__ import annotations

import os

from worker import cli, stdout
from worker.host import terminal
from worker.host.arguments import ODD, Misuse, parse
from worker.host.outcome_directory import NotReadable
from worker.report.page import page
from worker.report.reading import Run

DEFAULT = "report.html"


def main(words):
    try:
        # `-o FILE` is `--output FILE`, which is how `parse` knows options.
        (directory,), given = parse(["--output" if word == "-o" else word for word in words], 1, ("--output",))
        target = given.get("--output") or os.path.join(directory, DEFAULT)
        made = page(Run(directory))
    except Misuse as error:
        return cli.misuse("report", str(error))
    except NotReadable as error:
        cli.say(str(error))
        return cli.NO_OUTCOME
    except ODD as error:
        cli.say("report: %s: the outcome is not in its shape (%s)" % (directory, type(error).__name__))
        return cli.NO_OUTCOME
    try:
        write(target, made)
    except OSError as error:
        cli.say("report: %s cannot be written (%s)" % (target, error.strerror))
        return cli.NO_DIRECTORY
    return 0


def write(target, data):
    """To standard output for `-`; else to a new file that then takes the name: what an agent planted there is not followed."""
    if target == "-":
        stdout.put(1, data)
        return
    partial = "%s.%d.partial" % (target, os.getpid())
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.replace(partial, target)
    except OSError:
        os.unlink(partial)
        raise
    terminal.write(("%s\n" % target).encode("utf-8", "surrogateescape"))

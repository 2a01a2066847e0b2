"""`stop DIR`: the command, and the documents of a run that was stopped before it started."""
from __future__ import annotations

import os

from transport.sandbox_transport import atomic_write
from worker import cli
from worker.bare_outcome import STOPPED, documents
from worker.control import stop
from worker.host.arguments import Misuse, parse


def main(words):
    try:
        (directory,), _ = parse(words, 1)
    except Misuse as error:
        return cli.misuse("stop", str(error))
    try:
        os.makedirs(directory, 0o700, exist_ok=True)  # a run may be on its way to a directory that does not exist yet
    except OSError as error:
        cli.say("%s: %s" % (directory, error.strerror))
        return cli.NO_DIRECTORY
    return stop(directory, write_outcome, cli.say)


def write_outcome(dirfd):
    """Receipt and result: nothing was started, so nothing is left."""
    for name, text in documents(STOPPED).items():
        atomic_write(dirfd, name, text)

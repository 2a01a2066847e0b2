"""`explode DIR`: the bundle's files, for reading where it landed."""
from __future__ import annotations

import os

from worker import cli
from worker.host import terminal
from worker.host.arguments import Misuse, parse
from worker.version import FILES


def main(words):
    try:
        (directory,), _ = parse(words, 1)
        if not FILES:
            raise Misuse("this is a source tree, not a bundle")
        os.makedirs(directory, exist_ok=True)
        if os.listdir(directory):
            raise Misuse("%s is not empty" % directory)
        for name in sorted(FILES):
            path = os.path.join(directory, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "xb") as file:
                file.write(FILES[name])
    except Misuse as error:
        return cli.misuse("explode", str(error))
    except OSError as error:
        cli.say("explode: %s: %s" % (error.filename, error.strerror))
        return cli.NO_DIRECTORY
    terminal.write("%d files in %s\n" % (len(FILES), directory))
    return 0

"""`verify OUT`: is this the outcome that the worker wrote?  0 yes; 65 no, one sentence per fault; 66 nothing readable."""
from __future__ import annotations

import json

from worker import cli
from worker.host import terminal
from worker.host.arguments import ODD, Misuse, parse
from worker.host.outcome_directory import NotReadable, faults, read_result


def main(words):
    try:
        (directory,), given = parse(words, 1, ("--nonce", "--manifest", "--seal-key-file"))
        manifest = manifest_of(given.get("--manifest"))
        seal_key = key(given.get("--seal-key-file"))
        found = faults(directory, read_result(directory), given.get("--nonce"), manifest, seal_key)
    except Misuse as error:
        return cli.misuse("verify", str(error))
    except NotReadable as error:
        cli.say(str(error))
        return cli.NO_OUTCOME
    except ODD as error:
        cli.say("result.json: is not in its shape (%s)" % type(error).__name__)
        return cli.NO_OUTCOME
    for sentence in found:
        cli.say(sentence)
    if not found:
        terminal.write("verified\n")
    return cli.BAD_INPUT if found else 0


def key(path):
    """The bytes of a file without white space around them, or None where no path is given.  Raises Misuse."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read().strip()
    except OSError as error:
        raise Misuse("%s cannot be read (%s)" % (path, error.strerror)) from None


def manifest_of(path):
    """{file: SHA-256}: the `files` of the last line of what `run` printed on its stdout (saved in a file). Raises NotReadable
    where that is not its last line, as with a run that a bundle without content never began."""
    text = key(path)
    if text is None:
        return None
    try:
        files = json.loads(text.splitlines()[-1])["files"]
        return {str(name): str(sha256) for name, sha256 in files.items()}
    except ODD:
        raise NotReadable("%s does not end with the line that run prints at its end: it did not come to its end, or never "
                          "began" % path) from None

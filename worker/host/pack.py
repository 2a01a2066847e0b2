"""`pack DIR [--text]`: the evidence of a run as one stream on stdout, for a host that has nothing but this stdout.

    sandbox-worker-pack 1 binary|text
    {"name": "result.json"}        then pieces: a line with a length, so many bytes (text: a line of base64)
    0 SHA256                       the file's end
    {"end": COUNT}

The most valuable comes first, so that a stream that is cut has lost the least.  Only regular files, none through a symlink,
and where there is a result, only what it lists: what else an agent has left there is not asked for.  The other side is
`unpack`, which believes none of this.
"""
from __future__ import annotations

import base64
import hashlib
import json
import os
import stat

from worker import cli, manifest, stdout
from worker import session as names
from worker.host.arguments import ODD, Misuse, parse

HEAD = b"sandbox-worker-pack 1 "
PIECE = 1 << 18
TEXT_PIECE = 3 << 14
ORDER = (names.RESULT, names.CLEANUP, names.LAUNCH, names.OBSERVATIONS, names.ATTEMPTS, names.EVENTS, names.STDERR, names.PROMPT)
FOLDERS = (names.NATIVE, names.BODIES)
LONGEST_NAME = 230  # bytes; leaves room for the prefix of a partial file


def main(words):
    try:
        (directory,), given = parse(words, 1, (), ("--text",))
        dirfd = os.open(directory, names.DIRECTORY)
    except Misuse as error:
        return cli.misuse("pack", str(error))
    except OSError as error:
        cli.say("%s: %s" % (words[0], error.strerror))
        return cli.NO_OUTCOME
    try:
        pack(dirfd, "--text" in given)
    except BrokenPipeError:
        return cli.FAILED  # the host has left
    return 0


def allowed(name):
    """Whether an outcome may have a file of this name: one of the worker's, or one level below `native/` or `bodies/`."""
    if not isinstance(name, str) or name in ORDER:
        return isinstance(name, str)
    folder, slash, base = name.partition("/")
    try:
        length = len(base.encode("utf-8"))
    except UnicodeEncodeError:
        return False
    return (folder in FOLDERS and bool(slash) and 0 < length <= LONGEST_NAME and not base.startswith(".")
            and not any(c in "/\\\x7f" or c < " " for c in base))


def listed(dirfd):
    """Names of the evidence that is there, in the order of their worth."""
    found = [name for name in ORDER if os.access(name, os.R_OK, dir_fd=dirfd)]
    for folder in FOLDERS:
        try:
            inner = os.open(folder, names.DIRECTORY | os.O_NOFOLLOW, dir_fd=dirfd)
        except OSError:
            continue
        found += ["%s/%s" % (folder, name) for name in sorted(os.listdir(inner))]
        os.close(inner)
    wanted = of_result(dirfd)
    return [name for name in found if allowed(name) and (wanted is None or name in wanted)]


def of_result(dirfd):
    """The names that the result lists, and its own; None where there is no result that can be read."""
    try:
        with os.fdopen(manifest.open_below(dirfd, names.RESULT), "rb") as file:
            return {names.RESULT, *json.loads(file.read().decode("utf-8"))["files"]}
    except (OSError, *ODD):
        return None


def pack(dirfd, text):
    write(HEAD + (b"text\n" if text else b"binary\n"))
    count = 0
    for name in listed(dirfd):
        try:
            file = os.fdopen(manifest.open_below(dirfd, name), "rb", buffering=0)
        except OSError:
            continue
        with file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                write(json.dumps({"name": name}).encode() + b"\n")
                send(file, text)
                count += 1
    write(b'{"end": %d}\n' % count)


def send(file, text):
    sha256 = hashlib.sha256()
    for piece in iter(lambda: file.read(TEXT_PIECE if text else PIECE), b""):
        sha256.update(piece)
        data = base64.b64encode(piece) + b"\n" if text else piece
        write(b"%d\n%s" % (len(data), data))
    write(b"0 %s\n" % sha256.hexdigest().encode())


def write(data):
    stdout.put(1, data)

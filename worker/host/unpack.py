"""`unpack OUT [--max-files N] [--max-bytes N]`: write the stream of `pack` (stdin) into the directory OUT.

Nothing in the stream is believed. A file gets a name that the worker uses, or one in `native/` or `bodies/`, never one
that leads elsewhere; it is always a regular file, created anew, 0600; there is an end to their number and size. A stream
that is cut or wrong leaves what had come until then; `result.json` gets its name last.
Exit code 0: all of it came; 65: the stream was cut or is wrong, the sentence says where; 73: OUT cannot be written.
"""
from __future__ import annotations

import base64
import hashlib
import json
import os

from worker import cli
from worker import session as names
from worker.host.arguments import Misuse, parse
from worker.host.channel import Lost, Reader
from worker.host.pack import HEAD, allowed

MOST_FILES, MOST_BYTES = 200000, 16 << 30
LARGEST_PIECE = 1 << 20
SILENCE = 120.0  # s
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Wrong(Exception):
    """The stream is not one of `pack`, or wants what it may not."""


def main(words):
    try:
        (directory,), given = parse(words, 1, ("--max-files", "--max-bytes"))
        limits = [int(given.get(name, most)) for name, most in (("--max-files", MOST_FILES), ("--max-bytes", MOST_BYTES))]
        os.makedirs(directory, 0o700, exist_ok=True)
        count, problem = unpack(Reader(0), directory, *limits)
    except (Misuse, ValueError) as error:
        return cli.misuse("unpack", str(error))
    except OSError as error:
        cli.say("%s: %s" % (words[0], error.strerror))
        return cli.NO_DIRECTORY
    if problem:
        cli.say("%s; %d whole files are kept" % (problem, count))
    return cli.BAD_INPUT if problem else 0


def unpack(reader, directory, most_files=MOST_FILES, most_bytes=MOST_BYTES):
    """(number of whole files, None or what was wrong with the stream).  Raises OSError where the host cannot write."""
    target = Target(directory, most_files, most_bytes)
    try:
        head(reader, target)
        while one_file(reader, target):
            pass
        return target.count, None
    except (Wrong, Lost) as problem:
        return target.count, str(problem)
    finally:
        target.finish()


def head(reader, target):
    line = reader.line(SILENCE)
    if line + b"\n" not in (HEAD + b"text\n", HEAD + b"binary\n"):
        raise Wrong("this is no stream of pack")
    target.text = line.endswith(b"text")


def one_file(reader, target):
    """Take one file; False at the end of the stream."""
    try:
        told = json.loads(reader.line(SILENCE).decode("utf-8"))
        name = told.get("name")
    except (ValueError, AttributeError, RecursionError):
        raise Wrong("the stream is broken between two files") from None
    if name is None and "end" in told:
        if told["end"] != target.count:
            raise Wrong("the stream has %d files and says %s" % (target.count, str(told["end"])[:20]))
        return False
    file, sha256 = target.open(name), hashlib.sha256()
    try:
        for piece in pieces(reader, target.text, sha256):
            target.room(len(piece))
            sha256.update(piece)
            file.write(piece)
    finally:
        file.close()
    target.keep(name)
    return True


def pieces(reader, text, sha256):
    while True:
        length, _, told = reader.line(SILENCE).partition(b" ")
        if not length.isdigit() or len(length) > 8 or int(length) > LARGEST_PIECE:
            raise Wrong("the stream is broken within a file")
        if int(length) == 0:
            if told.decode("ascii", "replace") != sha256.hexdigest():
                raise Wrong("a file did not arrive as it was sent")
            return
        data = reader.exactly(int(length), SILENCE)
        try:
            yield base64.b64decode(data) if text else data
        except ValueError:
            raise Wrong("the stream is broken within a file") from None


class Target:
    """The directory on the host, what may still go into it, and the file that is being written."""

    def __init__(self, directory, most_files, most_bytes):
        self.directory, self.files, self.bytes = directory, most_files, most_bytes
        self.count, self.text, self.result, self.seen = 0, False, None, set()

    def path(self, name):
        return os.path.join(self.directory, *name.split("/"))

    def partial(self, name):
        folder, _, base = name.rpartition("/")
        return self.path((folder + "/" if folder else "") + ".part-" + base)

    def open(self, name):
        if not allowed(name) or name in self.seen:
            raise Wrong("%s: may not be written" % json.dumps(name)[:200])
        if not self.files:
            raise Wrong("there are too many files")
        self.files -= 1
        self.seen.add(name)
        if "/" in name:
            folder = self.path(name.split("/")[0])
            if os.path.islink(folder):
                raise Wrong("%s: is a symlink here" % folder)
            os.makedirs(folder, 0o700, exist_ok=True)
        remove(self.partial(name))
        return os.fdopen(os.open(self.partial(name), NEW, 0o600), "wb")

    def room(self, size):
        self.bytes -= size
        if self.bytes < 0:
            raise Wrong("it is too large")

    def keep(self, name):
        self.count += 1
        if name == names.RESULT:
            self.result = name
        else:
            os.replace(self.partial(name), self.path(name))

    def finish(self):
        """The result gets its name now; of a file that was cut, what came is kept under its own."""
        for name in sorted(self.seen):
            if os.path.lexists(self.partial(name)):
                if name != names.RESULT or self.result:
                    os.replace(self.partial(name), self.path(name))
                else:
                    remove(self.partial(name))


def remove(path):
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

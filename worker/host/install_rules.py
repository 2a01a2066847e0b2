"""What the parts of `install` share: how one of them fails, how a file of a package is written, how a script names its
interpreter."""
from __future__ import annotations

import os

from worker import cli

LONGEST_SHEBANG = 255


class Failed(Exception):
    """`code`: the exit code; the sentence says why."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def inner(parts):
    """Whether a path of these parts stays below the directory that it is taken from."""
    return bool(parts) and not any(part in ("", ".", "..") for part in parts)


def write(path, stream, executable):
    """A file of a package; its directories are made."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    mode = 0o755 if executable else 0o644
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode)
        for piece in iter(lambda: stream.read(1 << 20), b""):
            file.write(piece)


def name_interpreter(path, interpreter, placeholder=b"#!"):
    """The first line of a script that begins with `placeholder` names the interpreter by its path."""
    with open(path, "rb") as file:
        first, _, rest = file.read().partition(b"\n")
    if first.startswith(placeholder):
        with open(path, "wb") as file:
            file.write(shebang(interpreter) + rest)


def shebang(interpreter):
    """The first line of a script; the kernel reads 255 bytes of it (127 before Linux 5.1) and splits it at white space."""
    line = b"#!" + os.fsencode(interpreter) + b"\n"
    if len(line) > LONGEST_SHEBANG or len(line.split()) > 1:
        raise Failed(cli.NO_DIRECTORY, "%s: is too long or has spaces, but scripts must name it" % interpreter)
    return line

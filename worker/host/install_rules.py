"""What the parts of `install` share: how one of them fails, and how a script names its interpreter."""
from __future__ import annotations

import os

from worker import cli

LONGEST_SHEBANG = 255


class Failed(Exception):
    """`code`: the exit code; the sentence says why."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


def shebang(interpreter):
    """The first line of a script; the kernel reads 255 bytes of it (127 before Linux 5.1) and splits it at white space."""
    line = b"#!" + os.fsencode(interpreter) + b"\n"
    if len(line) > LONGEST_SHEBANG or len(line.split()) > 1:
        raise Failed(cli.NO_DIRECTORY, "%s: is too long or has spaces, but scripts must name it" % interpreter)
    return line

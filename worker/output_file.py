"""The agent's stdout as a file, for a CLI that drops on a pipe what it has not yet written when it exits (STDOUT = "file").

The file is open and unlinked, in the session directory, so nobody but the agent and this process has it.  Nothing tells when
it grows: it is read when a decision needs it (is the CLI done?), then when everything that could write to it is dead.  Its
events have no times of their own, which is a gap.

The bounds are those of a pipe.  Of what is new, the first and the last half of the cap are read and the rest is not, however
large or sparse the agent made the file; capture.py then keeps head and tail as ever.
"""
from __future__ import annotations

import os
import stat

PIECE = 256 << 10


def of(fd, capture, most):
    """An OutputFile where descriptor `fd` is a file; None for a pipe."""
    return OutputFile(fd, capture, most) if fd >= 0 and stat.S_ISREG(os.fstat(fd).st_mode) else None


def written_at(age, looked_at, before):
    """When (monotonic) a write was that the file puts `age` seconds ago and that came between two looks. Where both cannot be,
    the wall clock was set, or the agent set its file's time: then just now, so that nobody is taken for silent."""
    return looked_at - age if 0.0 <= age <= looked_at - before else looked_at


class OutputFile:
    """`read()` feeds what is new to capture.stdout, `most` bytes of it at most; `changed`: unix time of the last write."""

    def __init__(self, fd, capture, most):
        self.fd, self.capture, self.most = fd, capture, most
        self.at, self.changed = 0, 0.0

    def read(self):
        """Whether there was anything new."""
        about = os.fstat(self.fd)
        if about.st_size < self.at:  # the agent emptied its own stdout: what stands there now is new
            self.skip(0)
            self.at = 0
        if about.st_size == self.at:
            return False
        self.changed = about.st_mtime
        half = self.most // 2
        if about.st_size - self.at > 2 * half:
            self.feed(self.at + half)
            self.skip(about.st_size - half - self.at)
        self.feed(about.st_size)
        return True

    def feed(self, end):
        while self.at < end:
            piece = os.pread(self.fd, min(PIECE, end - self.at), self.at)
            if not piece:
                return
            self.at += len(piece)
            self.capture.stdout(piece)

    def skip(self, count):
        """Leave bytes out; a line that they cut has ended."""
        if self.capture.partial.size:
            self.capture.stdout(b"\n")
        if count:
            self.at += count
            self.gap("output_dropped", "%d bytes between head and tail; the line after them is cut" % count)

    def gap(self, code, detail):
        self.capture.gaps.append({"code": code, "detail": detail, "file": "events.jsonl", "offset": self.capture.events.size,
                                  "count": 1})

    def close(self):
        """The last look, when no process has the file any more."""
        self.read()
        if self.at:
            self.gap("event_times_unavailable", "stdout was a file; the times are those of its reading")
        os.close(self.fd)

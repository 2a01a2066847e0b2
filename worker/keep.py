"""Bounded keeping: a line that grows, a file that grows, lines for which memory is too small.

All use unlinked temporary files in the session directory, so nothing is left of them whatever happens. Where none can
be had (a full disk), what would have gone there is dropped and counted.
"""
from __future__ import annotations

import binascii
import os

COPY = 256 << 10


def temporary(dirfd):
    """A new unlinked file, or None."""
    if dirfd is None:
        return None
    name = ".tmp-" + binascii.hexlify(os.urandom(8)).decode()
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, 0o600, dir_fd=dirfd)
        os.unlink(name, dir_fd=dirfd)
    except OSError:
        return None
    return fd


class Spool:
    """Pieces of one thing: in memory up to `in_memory` bytes, on disk up to `whole`; beyond that only its head."""

    def __init__(self, dirfd, in_memory, whole):
        self.dirfd, self.in_memory, self.whole = dirfd, in_memory, whole
        self.head, self.size, self._lost = b"", 0, False
        self._pieces: list = []
        self._fd: int | None = None

    def add(self, piece):
        self.size += len(piece)
        if self._lost:
            return
        if self._fd is None:
            self._pieces.append(piece)
            if self.size <= self.in_memory:
                return
            piece = b"".join(self._pieces)
            self.head, self._pieces, self._fd = piece[:COPY], [], temporary(self.dirfd)
        if self.size > self.whole or self._fd is None or not _write(self._fd, piece):
            self._lost = True
            self._close()

    def take(self):
        """All of it, or None when it was too much (then `head` is there until the next thing begins)."""
        if self._lost:
            whole = None
        elif self._fd is None:
            whole = b"".join(self._pieces)
        else:
            whole = _read(self._fd, 0, self.size)
        self._close()
        self.size, self._pieces, self._lost = 0, [], False
        return whole

    def _close(self):
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class CappedFile:
    """An EvidenceFile that keeps the head and the tail of what is written.

    Half of the cap is written as it comes. What follows goes to two temporary files by turns, a quarter of the cap
    each, the older one being emptied when the newer is full; at the end what they have is appended. `lines`: each write
    is whole lines, and only whole lines are dropped.
    """

    def __init__(self, file, cap, name, dirfd, lines):
        self.file, self.name, self.dirfd, self.lines = file, name, dirfd, lines
        self.head, self.turn = cap // 2, cap // 4
        self.gaps: list = []
        self.tails: list = []
        self.sizes, self.counts, self.newer = [0, 0], [0, 0], 0
        self.dropped_bytes = self.dropped_lines = 0

    @property
    def size(self):
        return self.file.size

    def write(self, data):
        if not self.tails:
            if self.file.size + len(data) <= self.head:
                self._put(data)
                return
            self.tails = [temporary(self.dirfd), temporary(self.dirfd)]
            room = self.head - self.file.size
            cut = data.rfind(b"\n", 0, room) + 1 if self.lines else room
            self._put(data[:cut])
            data = data[cut:]
        while data:
            data = self._keep_later(data)

    def close(self):
        if self.tails:
            at = self.file.size
            for which in (1 - self.newer, self.newer):
                self._append(which)
            if self.dropped_bytes:
                self._gap("output_dropped", at, "%d bytes between head and tail" % self.dropped_bytes)
        if self.file.lost_bytes:
            self._gap("evidence_lost", self.file.size,
                      "%d bytes could not be written: %s" % (self.file.lost_bytes, self.file.error))

    def _put(self, data):
        """A full disk takes a batch as a whole or not at all: try its lines, the small ones may fit."""
        lost = self.file.lost_bytes
        if data:
            self.file.write(data)
        if self.file.lost_bytes > lost and self.lines and data.count(b"\n") > 1:
            self.file.lost_bytes = lost
            for line in data.splitlines(True):
                self.file.write(line)

    def _keep_later(self, data):
        """Put what fits into the newer tail, turn when it is full; returns the rest."""
        room = self.turn - self.sizes[self.newer]
        cut = len(data)
        if cut > room:
            cut = data.rfind(b"\n", 0, max(0, room)) + 1 if self.lines else room
        if cut <= 0:
            if not self.sizes[self.newer]:  # a single line larger than a turn
                end = data.find(b"\n") + 1 or len(data)
                self._drop(end, 1)
                return data[end:]
            self._turn()
            return data
        part = data[:cut]
        count = part.count(b"\n")
        fd = self.tails[self.newer]
        if fd is not None and _write(fd, part):
            self.sizes[self.newer] += cut
            self.counts[self.newer] += count
        else:
            self._drop(cut, count)
        return data[cut:]

    def _turn(self):
        self.newer = 1 - self.newer
        self._drop(self.sizes[self.newer], self.counts[self.newer])
        self.sizes[self.newer] = self.counts[self.newer] = 0
        fd = self.tails[self.newer]
        if fd is not None:
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)

    def _append(self, which):
        fd, done = self.tails[which], 0
        if fd is None:
            return
        while done < self.sizes[which]:
            piece = _read(fd, done, min(COPY, self.sizes[which] - done))
            done += len(piece)
            self.file.write(piece)
        os.close(fd)

    def _drop(self, size, lines):
        self.dropped_bytes += size
        self.dropped_lines += lines

    def _gap(self, code, offset, detail):
        self.gaps.append({"code": code, "file": self.name, "offset": offset, "count": self.dropped_lines or 1,
                          "detail": detail})


class Lines:
    """Lines out of memory's way; those that find no room are not in it at all, and nobody is told but the caller of `extend`."""

    def __init__(self, dirfd):
        self.dirfd, self.size = dirfd, 0
        self._file = None  # unbuffered; closes itself

    def extend(self, data):
        """`data` is whole lines, each with its end.  False: there was no room, and there will be none."""
        if self._file is None:
            fd = temporary(self.dirfd)
            self._file = None if fd is None else os.fdopen(fd, "r+b", 0)
        if self._file is None or not _write(self._file.fileno(), data):
            self.dirfd = None
            return False
        self.size += len(data)
        return True

    def __iter__(self):
        """Without their ends."""
        rest, done = b"", 0
        while self._file is not None and done < self.size:
            piece = _read(self._file.fileno(), done, min(COPY, self.size - done))
            if not piece:
                return
            done += len(piece)
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole

    def close(self):
        if self._file is not None:
            self._file.close()
            self._file, self.size = None, 0


def _write(fd, data):
    """False, and the file as it was, when the disk does not take all of it."""
    before = os.lseek(fd, 0, os.SEEK_CUR)
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view):]
    except OSError:
        os.ftruncate(fd, before)
        os.lseek(fd, before, os.SEEK_SET)
        return False
    return True


def _read(fd, offset, size):
    pieces = []
    while size > 0:
        piece = os.pread(fd, size, offset)
        if not piece:
            break
        pieces.append(piece)
        size, offset = size - len(piece), offset + len(piece)
    return b"".join(pieces)

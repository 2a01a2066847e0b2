"""A body that may be read again: in memory up to 1 MiB, beyond that in a file without a name.

The file is created in the session directory (where the host gave us room), mode 0600, and unlinked before the first
byte is in it, so nothing is left behind however the worker ends, and nobody else can open it. What lies in memory is hashed
when somebody asks (`sha256`), what goes to disk on its way there.
"""
from __future__ import annotations

import binascii
import hashlib
import os

from transport.errors import SpoolFull

IN_MEMORY = 1024 * 1024
PIECE = 256 * 1024


class Spool:
    __slots__ = ("size", "_pieces", "_fd", "_dirfd", "_hash")

    def __init__(self, dirfd):
        self.size, self._pieces, self._fd, self._dirfd, self._hash = 0, [], -1, dirfd, None

    def write(self, data):
        self.size += len(data)
        if self._fd < 0:
            if self.size <= IN_MEMORY:
                return self._pieces.append(data)
            self._to_disk()
        self._append(data)

    def pieces(self, start=0):
        """The content from `start`, in order. May be called again."""
        if self._fd < 0:
            whole = self.whole()
            if start < len(whole):
                yield whole[start:] if start else whole
            return
        while start < self.size:
            piece = os.pread(self._fd, PIECE, start)
            if not piece:
                return
            start += len(piece)
            yield piece

    def whole(self):
        """All of it, or None where it is on disk."""
        pieces = self._pieces
        if len(pieces) == 1:  # so it is most often, and then nothing is on disk
            return pieces[0]
        if self._fd >= 0:
            return None
        self._pieces = [b"".join(pieces)]
        return self._pieces[0]

    def head(self, limit=IN_MEMORY):
        """The first bytes, for those who look at a body."""
        return self.whole()[:limit] if self._fd < 0 else os.pread(self._fd, limit, 0)

    def sha256(self):
        return (self._hash or hashlib.sha256(self.whole())).hexdigest()

    def close(self):
        fd, self._fd = self._fd, -1
        self._pieces = []
        if fd >= 0:
            os.close(fd)

    def _to_disk(self):
        try:
            self._fd = _nameless(self._dirfd)
        except OSError as error:
            raise SpoolFull(error.strerror)
        self._hash = hashlib.sha256()
        for piece in self._pieces:
            self._append(piece)
        self._pieces = []

    def _append(self, data):
        self._hash.update(data)
        try:
            done = os.write(self._fd, data)
            while done < len(data):
                done += os.write(self._fd, memoryview(data)[done:])
        except OSError as error:
            raise SpoolFull(error.strerror)


def _nameless(dirfd):
    name = ".spool-" + binascii.hexlify(os.urandom(8)).decode()
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_APPEND, 0o600, dir_fd=dirfd)
    os.unlink(name, dir_fd=dirfd)
    return fd

"""bodies/SEQ.request and bodies/SEQ.response: what passed, redacted, within one cap for the whole run.

`all` writes while the bytes pass; `errors` writes too and removes the files of an attempt that went well (its bytes are
gone from the account); `none` writes nothing. A body that hits the cap, or a full disk, is cut and says so in `files()`.
"""
from __future__ import annotations

import os
import threading

from transport.evidence import EvidenceFile


class Bodies:
    def __init__(self, mode, dirfd, redactor, cap):
        self.mode, self._dirfd, self._redactor = mode, dirfd, redactor
        self._left, self._lock, self._files = cap, threading.Lock(), {}
        self.lost_bytes = 0

    def open(self, seq, kind):
        """A Body, or None when nothing is to be kept."""
        if self.mode == "none" or self._dirfd is None:
            return None
        name = "%06d.%s" % (seq, kind)
        try:
            return Body(self, EvidenceFile(self._dirfd, name, self._redactor.fresh()), name)
        except OSError:
            return None

    def take(self, wanted):
        """How many of `wanted` bytes may still be written."""
        with self._lock:
            if self._left is None:
                return wanted
            granted = min(wanted, self._left)
            self._left -= granted
            self.lost_bytes += wanted - granted
            return granted

    def ended(self, body, failed):
        if self.mode == "errors" and not failed:
            os.unlink(body.name, dir_fd=self._dirfd)
            with self._lock:
                self._left = None if self._left is None else self._left + body.file.size
            return
        with self._lock:
            self._files["bodies/" + body.name] = dict(body.file.entry())

    def files(self):
        with self._lock:
            return dict(self._files)


class Body:
    __slots__ = ("name", "file", "_bodies", "_open")

    def __init__(self, bodies, file, name):
        self.name, self.file, self._bodies, self._open = name, file, bodies, True

    def write(self, data):
        if data and self._open:
            granted = self._bodies.take(len(data))
            if granted:
                self.file.write(data if granted == len(data) else data[:granted])
            if granted < len(data) or self.file.error is not None:
                self._open = False  # a body without its middle would be a lie: only the head is kept

    def end(self, failed):
        self.file.close()
        self._bodies.ended(self, failed)

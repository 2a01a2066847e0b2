"""How evidence gets to disk: secrets blanked, hash and size kept while writing, nothing followed that somebody planted.

Rules of this file
- Names are relative to a directory descriptor opened before the agent started; a name that exists is an error
  (O_EXCL also refuses symlinks, FIFOs and devices), and a component is never resolved twice.
- Secrets are blanked on the way (redact.py); a file's last bytes may be held back until `close`, where they could
  be the beginning of a secret.
- Writing evidence never fails the run: a full disk (ENOSPC, EDQUOT, EIO, EFBIG) is remembered in `error` and
  `lost_bytes`. One write is kept whole or not at all, so a JSON line is never cut in its middle.
- Loaded after the launch; files that must exist before (sandbox_transport.py) are opened with the same flags there.
"""
from __future__ import annotations

import binascii
import hashlib
import os
import threading

from transport.redact import Redactor

__all__ = ["CREATE", "EvidenceFile", "Redactor", "atomic_write"]
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_APPEND


class EvidenceFile:
    """A new file, mode 0600, appended to from any thread; `size` and `sha256` are of the bytes in it.

    fd: the new file, where it was opened earlier (with CREATE, before the agent could plant one of that name).
    """
    __slots__ = ("name", "inode", "size", "lost_bytes", "error", "_fd", "_cap", "_redactor", "_hash", "_lock")

    def __init__(self, dirfd, name, redactor=None, cap=None, fd=None):
        self._fd = os.open(name, CREATE, 0o600, dir_fd=dirfd) if fd is None else fd
        self.name, self.inode, self.size, self.lost_bytes = name, os.fstat(self._fd).st_ino, 0, 0
        self._cap, self._redactor, self._lock = cap, redactor, threading.Lock()
        self.error, self._hash = None, hashlib.sha256()

    def write(self, data):
        with self._lock:
            self._append(self._redactor.feed(data) if self._redactor else data)

    def fileno(self):
        return self._fd

    def settle(self):
        """Write what the redactor still holds; afterwards size and hash are final."""
        with self._lock:
            if self._redactor and self._fd >= 0:
                self._append(self._redactor.flush())

    def close(self):
        self.settle()
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    @property
    def sha256(self):
        return self._hash.hexdigest()

    def entry(self):
        return {"size": self.size, "sha256": self.sha256}

    def _append(self, data):
        kept = data if self._cap is None else data[:max(0, self._cap - self.size)]
        if kept and (self._fd < 0 or not self._write_all(kept)):
            kept = b""
        self.lost_bytes += len(data) - len(kept)
        if kept:
            self._hash.update(kept)
            self.size += len(kept)

    def _write_all(self, data):
        try:
            _write_all(self._fd, data)
        except OSError as error:
            self.error = error
            os.ftruncate(self._fd, self.size)  # whole or not at all; making a file shorter needs no space
            return False
        return True


def atomic_write(dirfd, name, data):
    """Write `data` (bytes) as `name` in the directory, in one step: a reader sees the old file or the whole new one."""
    temporary = ".%s.tmp-%s" % (name, binascii.hexlify(os.urandom(6)).decode())
    fd = os.open(temporary, CREATE, 0o600, dir_fd=dirfd)
    try:
        try:
            _write_all(fd, data)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=dirfd, dst_dir_fd=dirfd)
    except OSError:
        os.unlink(temporary, dir_fd=dirfd)
        raise


def _write_all(fd, data):
    done = os.write(fd, data)
    while done < len(data):  # a nearly full disk takes a part first
        done += os.write(fd, memoryview(data)[done:])

"""How documents and live files get into the session directory.

A document under its final name is always whole: it is written beside and
renamed.  Where the disk is full the reserve made at the start is given up for
it (B22).  Every byte has its secrets blanked before it is written, and size and
hash of what was written are kept for the manifest.
"""
from __future__ import annotations

import errno
import hashlib
import json
import os
import stat

from transport.sandbox_transport import EvidenceFile, Redactor, atomic_write
from worker.session import RESERVE

BATCH = 256 << 10
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def open_live(session, name):
    """A file that grows while the agent runs; enters the manifest by `close_live`. Who writes blanks the secrets."""
    file = EvidenceFile(session.fd, name, fd=session.live[name])
    session.open_files.append(file)
    return file


def write_json(session, name, document, vocabulary=()):
    """Write a whole document under its final name; returns its SHA-256.  Raises OSError where even the reserve is not enough.
    vocabulary: texts that stay although a secret is in them."""
    return write_bytes(session, name, strict_json(_blanked(document, Redactor(session.secrets), vocabulary)) + b"\n", blank=False)


def write_bytes(session, name, data, blank=True):
    """Like write_json, for a text that is no document of ours."""
    data = Redactor(session.secrets).clean(data) if blank else data
    for tries_left in reversed(range(2 + len(RESERVE))):
        try:
            atomic_write(session.fd, name, data)
            break
        except OSError as error:
            if not tries_left or not make_way(session, name, error):
                raise
    session.files[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return session.files[name]["sha256"]


def make_way(session, name, error):
    """Whether it was possible to do something about what kept `name` from being written."""
    if error.errno in (errno.ENOENT, errno.EACCES):
        ensure_directory(session)
    elif error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY):
        move_aside(session.fd, name)  # the agent made a directory of that name
    elif error.errno in NO_SPACE and free_reserve(session):
        session.ran_full = True  # with the reserve gone, the disk itself no longer tells
    else:
        return False
    return True


def write_pieces(session, name, pieces):
    """A document that need not fit in memory; its agent is dead, so it is written in place and renamed at the end."""
    temporary = ".%s.new-%s" % (name, os.urandom(6).hex())
    file = EvidenceFile(session.fd, temporary, Redactor(session.secrets))
    batch, size = [], 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= BATCH:
            file.write(b"".join(batch))
            batch, size = [], 0
    file.write(b"".join(batch))
    file.close()
    move_aside(session.fd, name)
    os.rename(temporary, name, src_dir_fd=session.fd, dst_dir_fd=session.fd)
    session.files[name] = file.entry()


def blanked(session, document, vocabulary):
    """The document as a reader of the written file will see it."""
    return json.loads(strict_json(_blanked(document, Redactor(session.secrets), vocabulary)))


def _blanked(value, redactor, vocabulary):
    """Secrets overwritten in text, never in names, numbers or the words of our own vocabulary: a document stays one."""
    if isinstance(value, str):
        return value if value in vocabulary else redactor.clean(value.encode("utf-8", "replace")).decode("utf-8", "replace")
    if isinstance(value, dict):
        return {name: _blanked(item, redactor, vocabulary) for name, item in value.items()}
    return [_blanked(item, redactor, vocabulary) for item in value] if isinstance(value, (list, tuple)) else value


def fresh_directory(session, name):
    """A new directory `name`; what has that name already (the agent's, or a dead worker's) is moved aside, whatever it is."""
    move_aside(session.fd, name)
    return session.make_directory(name)


def ensure_directory(session):
    """Where the agent removed or replaced the session directory, make it anew. Says so, then and later, as a list for the gap.
    One that it has closed to its owner (`chmod -R a-w .`) is opened again."""
    here = os.fstat(session.fd)
    if here.st_mode & 0o700 != 0o700 and here.st_uid == os.geteuid():
        os.fchmod(session.fd, stat.S_IMODE(here.st_mode) | 0o700)
    try:
        found = os.stat(session.real, follow_symlinks=False)
    except OSError:
        found = None
    if found and (found.st_dev, found.st_ino) == (here.st_dev, here.st_ino):
        return session.replaced
    session.replaced = ["the session directory"]
    try:
        if found:
            os.rename(session.real, "%s.replaced-%s" % (session.real, os.urandom(6).hex()))
        os.makedirs(session.real, 0o700)
        fd = os.open(session.real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        if not here.st_nlink:
            raise
        return session.replaced  # the old one is there, though its path is closed to us
    os.close(session.fd)
    session.fd = fd
    return session.replaced


def move_aside(dirfd, name):
    """Free `name`, whatever has it; the file or folder stays under another name and becomes a foreign one."""
    try:
        os.rename(name, ".%s-%s" % (name, os.urandom(6).hex()), src_dir_fd=dirfd, dst_dir_fd=dirfd)
    except FileNotFoundError:
        pass


def free_reserve(session):
    """Give up the next file of it; False when none is left."""
    for name in reversed(RESERVE):
        try:
            os.unlink(name, dir_fd=session.fd)
            return True
        except OSError:  # gone, or the agent has put a directory in its place
            continue
    return False


def strict_json(document):
    """UTF-8 JSON that every strict parser reads: no NaN, no infinity, no lone surrogate (C25, C27)."""
    try:
        return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:  # UnicodeEncodeError is one, too
        return json.dumps(_strict(document), ensure_ascii=False, separators=(",", ":")).encode()


def _strict(value):
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in value)
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {_strict(str(key)): _strict(item) for key, item in value.items()}
    return [_strict(item) for item in value] if isinstance(value, (list, tuple)) else value

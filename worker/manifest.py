"""Which files belong to the outcome, and whether they are still what the worker wrote.

Live files are appended to while the agent runs, so an agent of the same user can
edit, replace or remove them.  After it is dead each is looked at once more: path,
inode, size and hash must be those of the writer.  What does not fit is written
again from the writer's own descriptor where that still has it, and is said either
way (gap `evidence_tampered`, never graded: D17).
"""
from __future__ import annotations

import hashlib
import os
import stat

from worker import documents
from worker import session as names

FOLDERS = (names.BODIES, names.NATIVE)
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOREIGN_NAMED = 20  # names in one gap; the count says how many there are


def check_live(session):
    """Close the live files and hold everything that was written during the run against what is there now.

    Returns the names that are not as they were written. A live file that was replaced or removed is written again
    from the writer's own descriptor; one that was edited in place stays, with the hash that it has now.
    """
    changed = []
    for file in session.open_files:
        file.settle()
        session.files[file.name] = file.entry()
        if not _same_file(session.fd, file):
            changed.append(file.name)
            _write_again(session.fd, file)
        file.close()
    for name in sorted(session.files):
        found = digest(session.fd, name)
        if found == session.files[name]:
            continue
        if name not in changed:
            changed.append(name)
        if found is None:
            del session.files[name]
        else:
            session.files[name] = found
    return changed


def _same_file(dirfd, file):
    try:
        found = os.stat(file.name, dir_fd=dirfd, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_ino == file.inode


def _write_again(dirfd, file):
    """The file that the writer has, under its name again; what stands there now is moved aside."""
    documents.move_aside(dirfd, file.name)
    try:
        copy = os.open(file.name, names.NEW, 0o600, dir_fd=dirfd)
    except OSError:
        return  # the gap says that it is lost
    offset = 0
    while True:
        chunk = os.pread(file.fileno(), 1 << 18, offset)
        if not chunk:
            break
        offset += os.write(copy, chunk)
    os.close(copy)


def digest(dirfd, name):
    """Size and hash of regular file `name` below the directory (no symlink on the way), or None."""
    sha256, size = hashlib.sha256(), 0
    try:
        fd = open_below(dirfd, name)
    except OSError:
        return None
    with os.fdopen(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        for chunk in iter(lambda: file.read(1 << 18), b""):
            sha256.update(chunk)
            size += len(chunk)
    return {"size": size, "sha256": sha256.hexdigest()}


def open_below(dirfd, name):
    """Open `name` (at most one folder deep) without following a symlink.  Raises OSError."""
    folder, _, base = name.rpartition("/")
    if not folder:
        return os.open(base, READ, dir_fd=dirfd)
    inner = os.open(folder, names.DIRECTORY | os.O_NOFOLLOW, dir_fd=dirfd)
    try:
        return os.open(base, READ, dir_fd=inner)
    finally:
        os.close(inner)


def present(session):
    """Every name in the session directory and its two evidence folders, sorted."""
    found = []
    for name in os.listdir(session.fd):
        found.append(name)
        if name in FOLDERS:
            try:
                inner = os.open(name, names.DIRECTORY | os.O_NOFOLLOW, dir_fd=session.fd)
            except OSError:
                continue
            found += [name + "/" + each for each in os.listdir(inner)]
            os.close(inner)
    return sorted(found)


def gaps(session, tampered):
    """What the manifest cannot vouch for, as gaps."""
    ours = set(session.files).union(names.WRITES, session.before)
    foreign = [name for name in present(session) if name not in ours]
    found = []
    if tampered:
        found.append(gap("evidence_tampered", ", ".join(tampered), len(tampered)))
    if foreign:
        found.append(gap("foreign_files", ", ".join(foreign[:FOREIGN_NAMED]), len(foreign)))
    for file in session.open_files:
        if file.error is not None:
            detail = "%s: %d bytes lost (%s)" % (file.name, file.lost_bytes, os.strerror(file.error.errno))
            found.append(gap("evidence_lost", detail, file.lost_bytes))
    return found


def gap(code, detail, count):
    return {"code": code, "invocation_id": None, "detail": detail, "file": None, "offset": None, "count": count}


def share(session):
    """Let others read the outcome (`share`), now that the agent is dead."""
    os.fchmod(session.fd, 0o755)
    for name in FOLDERS:
        try:
            inner = os.open(name, names.DIRECTORY | os.O_NOFOLLOW, dir_fd=session.fd)
        except OSError:
            continue
        os.fchmod(inner, 0o755)
        os.close(inner)
    for name in session.files:
        try:
            fd = open_below(session.fd, name)
        except OSError:
            continue
        os.fchmod(fd, 0o644)
        os.close(fd)


def blank_prompt(session):
    """Blank the secrets in prompt.txt, which the agent had to read as it is."""
    if names.PROMPT in session.files:
        with os.fdopen(open_below(session.fd, names.PROMPT), "rb") as file:
            text = file.read()
        if documents.Redactor(session.secrets).clean(text) != text:
            documents.write_bytes(session, names.PROMPT, text)

"""Transcripts on disk, where the agent could have planted anything: found, opened, copied and read line by line.

A name is only ever opened relative to a directory descriptor, with O_NOFOLLOW (no symlink, not even to a directory) and
O_NONBLOCK (a FIFO does not hang), and is read only if it is a plain file with one link.  The number of entries and files,
the depth, the size of a file and of a line are bounded; what lies beyond a bound is a gap, never a guess.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib

from transport.sandbox_transport import EvidenceFile
from worker.behind import Behind
from worker.harnesses.codex_lines import not_utf8

MOST_ENTRIES = 20000
MOST_FILES = 500
MOST_BYTES = 1 << 30  # of all transcripts of a run; sparse files of terabytes are cheap to plant
MARK = b"\xef\xbb\xbf"
LONGEST_LINE = 16 << 20
CHUNK = 256 << 10
OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def open_directory(path):
    """Descriptor of an absolute path that had no symlink in it before the agent ran; any symlink found now was planted."""
    fd = os.open("/", OPEN_DIRECTORY)
    for name in path.split("/"):
        if name:
            try:
                below = os.open(name, OPEN_DIRECTORY, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
    return fd


def find(root_fd, top, wanted, depth, gaps):
    """Sorted relative paths below `top` whose base name `wanted` accepts, at most `depth` directories down."""
    found, state = [], {"entries": MOST_ENTRIES}
    _walk(root_fd, top, wanted, depth, gaps, found, state)
    if len(found) > MOST_FILES:
        gaps.add("transcript_limit", "%d transcripts; the last %d in name order are read" % (len(found), MOST_FILES))
    return sorted(found)[-MOST_FILES:]


def _walk(parent_fd, path, wanted, depth, gaps, found, state):
    try:
        fd = os.open(os.path.basename(path), OPEN_DIRECTORY, dir_fd=parent_fd)
    except OSError as error:
        if error.errno != errno.ENOENT:
            gaps.add("transcript_not_regular", error.strerror, file=path, key="directory")
        return
    try:
        with os.scandir(fd) as entries:
            names = []
            for entry in entries:
                state["entries"] -= 1
                if state["entries"] < 0:
                    gaps.add("transcript_limit", "more than %d directory entries" % MOST_ENTRIES, key="entries")
                    break
                names.append((entry.name, entry.is_dir(follow_symlinks=False)))
        for name, is_directory in sorted(names):
            if is_directory and depth > 0:
                _walk(fd, path + "/" + name, wanted, depth - 1, gaps, found, state)
            elif not is_directory and wanted(name):
                found.append(path + "/" + name)
    finally:
        os.close(fd)


def open_file(root_fd, path, gaps):
    """Descriptor of a plain file at a relative path, or None with a gap."""
    fd = os.dup(root_fd)
    try:
        for name in path.split("/")[:-1]:
            below = os.open(name, OPEN_DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
        opened = os.open(os.path.basename(path), OPEN_FILE, dir_fd=fd)
    except OSError as error:
        gaps.add("transcript_not_regular", error.strerror, file=path, key="open")
        return None
    finally:
        os.close(fd)
    found = os.fstat(opened)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        return opened
    os.close(opened)
    gaps.add("transcript_not_regular", "mode %o, %d links" % (found.st_mode, found.st_nlink), file=path, key="open")
    return None


def pieces(fd, path, gaps, budget):
    """The bytes of an open transcript, gzip unpacked; at most `budget` of them.  None for a format that cannot be read."""
    head = os.pread(fd, 4, 0)
    if head.startswith(ZSTD):
        gaps.add("transcript_compressed", "zstd", file=path, key="zstd")
        return None
    if head.startswith(GZIP):
        return _bounded(_unpacked(fd, path, gaps), path, gaps, budget)
    return _bounded(_raw(fd), path, gaps, budget)


def _raw(fd):
    offset = 0
    while True:
        piece = os.pread(fd, CHUNK, offset)
        if not piece:
            return
        offset += len(piece)
        yield piece


def _unpacked(fd, path, gaps):
    unpack = zlib.decompressobj(31)  # 31: gzip framing (zlib manual, inflateInit2)
    for piece in _raw(fd):
        while piece:
            try:
                out = unpack.decompress(piece, CHUNK)
            except zlib.error as error:
                gaps.add("transcript_damaged", str(error), file=path, key="gzip")
                return
            if out:
                yield out
            piece = unpack.unconsumed_tail
            if unpack.eof:
                piece = unpack.unused_data
                unpack = zlib.decompressobj(31) if piece else unpack
    if not unpack.eof:
        gaps.add("transcript_damaged", "the compressed data breaks off", file=path, key="gzip")


def _bounded(source, path, gaps, budget):
    for piece in source:
        if len(piece) > budget:
            gaps.add("transcript_limit", "more than the bytes that are read of transcripts", file=path, key="bytes")
            yield piece[:budget]
            return
        budget -= len(piece)
        yield piece


class Copy:
    """A transcript on its way to native_fd/name, secrets blanked: at most `budget` bytes.

    `target` is the EvidenceFile, None where it is no plain file; `pieces` yields what is written, nothing where its format cannot
    be read.  After `close`, the copy is complete, whatever was taken from `pieces`.  A disk that is full ends the copy, not the
    reading."""

    def __init__(self, root_fd, path, native_fd, name, redactor, gaps, budget):
        self.name, self.gaps, self.redactor, self.target = name, gaps, redactor, None
        self.source = open_file(root_fd, path, gaps)
        if self.source is None:
            return
        try:
            data = pieces(self.source, path, gaps, budget)
            self.readable = data is not None
            self.written = self._written(data if self.readable else _bounded(_raw(self.source), path, gaps, budget))
            self.target = EvidenceFile(native_fd, name)
        except OSError:
            os.close(self.source)
            raise

    @property
    def pieces(self):
        return self.written if self.readable else iter(())

    def _written(self, data):
        redactor, behind = self.redactor, Behind(self.put)
        try:
            for piece in data:
                piece = redactor.feed(piece) if redactor else piece
                behind.put(piece)
                yield piece
            if redactor:
                piece = redactor.flush()
                behind.put(piece)
                yield piece
        finally:
            behind.close()

    def put(self, piece):
        if self.target.lost_bytes:
            self.target.lost_bytes += len(piece)  # what came after a hole would not stand where it belongs
        else:
            self.target.write(piece)

    def close(self):
        try:
            for _ in self.written:
                pass
        finally:
            self.target.close()
            os.close(self.source)
        if self.target.lost_bytes:
            detail = "%d bytes lost" % self.target.lost_bytes
            self.gaps.add("transcript_copy_incomplete", detail, file="native/" + self.name, key="lost")


def copy(root_fd, path, native_fd, name, redactor, gaps, budget):
    """Copy a transcript at once: (EvidenceFile, can it be read), or (None, False) where it is no plain file."""
    one = Copy(root_fd, path, native_fd, name, redactor, gaps, budget)
    if one.target is None:
        return None, False
    one.close()
    return one.target, one.readable


def texts(data, name, gaps):
    """(offset, text, does it end with a newline, None) of a transcript that comes in pieces: many lines of valid UTF-8 at once.

    A character of the text is a byte of the file (`unfold` makes the real text of a part), so an index is an offset, and nothing
    is converted that is not looked at.  A line that is no UTF-8 comes alone, as real text, and its size in place of the None.
    Memory is that of a piece, or of a line; a line over the bound is a gap."""
    for offset, block, ended in whole_lines(data, name, gaps):
        offset, block = without_mark(offset, block)
        if is_utf8(block):
            yield offset, block.decode("latin-1"), ended, None
            continue
        for line in block.split(b"\n"):
            good = is_utf8(line)
            yield offset, line.decode("latin-1" if good else "utf-8", "replace"), ended, None if good else len(line)
            offset += len(line) + 1


def without_mark(offset, data):
    """Without the byte order mark that tools which copy or edit a file may put before its first line."""
    return (3, data[3:]) if offset == 0 and data[:3] == MARK else (offset, data)


def is_utf8(data):
    return data.isascii() or not not_utf8(data)


def whole_lines(data, name, gaps):
    """(offset, lines without the newline at the end, was there one) of pieces of a file."""
    offset, parts, size = 0, [], 0
    for piece in data:
        end = piece.rfind(b"\n") + 1
        if end and size >= LONGEST_LINE:
            rest = piece.index(b"\n") + 1
            gaps.add("transcript_line_too_long", "%d bytes" % (size + rest), file=name, offset=offset)
            offset, parts, size = offset + size + rest, [], 0
            piece, end = piece[rest:], end - rest
        if end:
            block = b"".join(parts) + piece[: end - 1]
            for part in [block] if len(block) < LONGEST_LINE else block.split(b"\n"):
                if len(part) < LONGEST_LINE:
                    yield offset, part, True
                else:
                    gaps.add("transcript_line_too_long", "%d bytes" % (len(part) + 1), file=name, offset=offset)
                offset += len(part) + 1
            parts, size, piece = [], 0, piece[end:]
        size += len(piece)
        parts = parts + [piece] if size < LONGEST_LINE else []
    if size >= LONGEST_LINE:
        gaps.add("transcript_line_too_long", "%d bytes" % size, file=name, offset=offset)
    elif size:
        yield offset, b"".join(parts), False


def lines(file, name, gaps):
    """(offset, line with its newline) of a binary buffered file, in constant memory; a longer line is a gap."""
    offset = 0
    while True:
        line = file.readline(LONGEST_LINE)
        if not line:
            return
        start, offset = offset, offset + len(line)
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = file.readline(CHUNK)
                offset += len(line)
            gaps.add("transcript_line_too_long", "%d bytes" % (offset - start), file=name, offset=start)
            continue
        yield without_mark(start, line)

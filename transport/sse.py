"""Event streams (text/event-stream), read incrementally and without touching the bytes.

Source: the WHATWG HTML standard, section "Server-sent events", parsing and interpreting. Kept from it: one leading byte
order mark is dropped; CRLF, LF and CR end a line, mixed at will; a block of lines ends at an empty line; `data` lines are
joined by LF; one space after the colon goes; a line that starts with a colon is a comment; a block without a `data` line
is no event. Different on purpose, because this reader observes and does not act:
- a block that the stream ends in (no empty line, not even a newline: case A19) comes out of `finish`, marked incomplete;
- `id` and `retry` are ignored, and nothing is decoded: JSON readers want bytes, and a character may be split between reads;
- an event over `limit` bytes is skipped and counted in `oversized`; the next one is read again.

Every byte is looked at a fixed number of times, however the stream is cut. Two levels, so that a bulk reader can skip
what cannot matter: `take` gives whole blocks as one bytes object with LF line ends, `feed` gives events.
Pure: no I/O, no clock.
"""
from __future__ import annotations

import re

BOM = b"\xef\xbb\xbf"
LIMIT = 16 * 1024 * 1024
# An empty line shows as one of these pairs once CRLF may be cut anywhere: in "\r\n\r\n" it is the "\n\r" in the middle.
# A "\n" that is left behind when a cut falls inside the last CRLF is one more empty line, and those mean nothing.
_BOUNDARIES = (b"\n\n", b"\n\r", b"\r\r")
_EDGE = 3
_PILE = 1024 * 1024  # bytes of an unfinished block from which on it grows in one piece
_USUAL_START = re.compile(rb"\n\n(?:event:[^\n]*\n)?data:")


class Event:
    """One event. `event`: the name or None; `data`: bytes; `complete`: False when the stream ended inside its block."""

    __slots__ = ("event", "data", "complete")

    def __init__(self, event: str | None, data: bytes, complete: bool = True) -> None:
        self.event = event
        self.data = data
        self.complete = complete

    def __repr__(self) -> str:
        return "Event(%r, %r, %r)" % (self.event, self.data, self.complete)


def parse_block(block: bytes, complete: bool = True) -> Event | None:
    """The event of one block with LF line ends, or None where it holds none (comments, `event` alone)."""
    name = None
    data = []
    begin, last = 0, len(block)
    while begin <= last:
        end = block.find(b"\n", begin)
        end = last if end < 0 else end
        colon = block.find(b":", begin, end)
        colon = end if colon < 0 else colon
        field = block[begin:colon] if colon - begin < 6 else b""
        if field in (b"data", b"event"):  # one copy of the value: an event may have 16 MiB
            value = block[colon + 2 if block.startswith(b" ", colon + 1) and colon < end else colon + 1:end]
            if field == b"data":
                data.append(value)
            else:
                name = value.decode("utf-8", "replace") or None
        begin = end + 1
    return Event(name, data[0] if len(data) == 1 else b"\n".join(data), complete) if data else None


def blocks_of(region: bytes) -> list[bytes]:
    """The blocks of what `Parser.take` gave."""
    return [block for block in region.split(b"\n\n") if block]


def count_events(region: bytes) -> int:
    """How many events stand in a region, without making them."""
    usual = len(_USUAL_START.findall(region)) + (_USUAL_START.match(b"\n\n" + region[:200]) is not None)
    if usual and usual == region.count(b"\n\n"):
        return usual  # every block starts like an event
    count = 0
    for block in region.split(b"\n\n"):
        if block[:5] == b"data:" or b"\ndata:" in block:
            count += 1
        elif block and parse_block(block) is not None:
            count += 1
    return count


def count_alike(region: bytes, head: bytes) -> int:
    """The number of events in a region where every event starts with `head` and has no line after its `data` line;
    0 where that is not so. Two searches in C: this is what makes a bulk stream cheap.

    `head` must start at a block and reach into the first `data` line. Every block found has at least the lines of `head`
    and an empty one; when that accounts for every line of the region, there is nothing else in it.
    """
    found = region.count(b"\n\n" + head) + region.startswith(head)
    return found if region.count(b"\n") == found * (head.count(b"\n") + 2) else 0


class Parser:
    """feed(bytes) -> events that became complete; finish() -> the one that the stream ended in, if any."""

    __slots__ = ("limit", "oversized", "_parts", "_size", "_edge", "_skipping", "_head")

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.oversized = 0
        self._parts: list[bytes | bytearray] = []
        self._size = 0
        self._edge = b""
        self._skipping = False
        self._head: bytes | None = b""  # None once the place of the byte order mark is behind us

    @property
    def pending(self) -> bool:
        """True while bytes of an unfinished block are held (or are being skipped)."""
        return bool(self._size or self._head or self._skipping)

    def feed(self, chunk: bytes) -> list[Event]:
        region = self.take(chunk)
        return [event for event in map(parse_block, blocks_of(region)) if event is not None] if region else []

    def finish(self) -> list[Event]:
        event = parse_block(self.take_rest(), complete=False)
        return [] if event is None else [event]

    def take(self, chunk: bytes) -> bytes:
        """All blocks that are whole now, in one piece, LF line ends; b"" while there is none."""
        if self._head is not None:
            chunk = self._after_bom(chunk)
        if not chunk:
            return b""
        if not self._edge and chunk[-2:] == b"\n\n" and len(chunk) <= self.limit:
            return _unix_lines(chunk)  # one write of the server, one read here
        if self._skipping:
            chunk = self._skip(chunk)
        probe = self._edge + chunk
        end = _last_boundary(probe)
        if end < 0:
            self._hold(chunk, probe[-_EDGE:])
            return b""
        end -= len(self._edge)
        self._parts.append(chunk[:end])
        region = b"".join(self._parts)
        rest = chunk[end:]
        self._parts = []  # before anything is made of the region: both may be large
        self._size = 0
        self._edge = b""
        if rest:
            self._hold(rest, rest[-_EDGE:])
        region = _unix_lines(region)
        return region if len(region) <= self.limit else self._without_oversized(region)

    def _without_oversized(self, region: bytes) -> bytes:
        blocks = blocks_of(region)
        kept = [block for block in blocks if len(block) <= self.limit]
        self.oversized += len(blocks) - len(kept)
        return b"\n\n".join(kept) + b"\n\n" if kept else b""

    def take_rest(self) -> bytes:
        """What is left at the end of the stream (LF line ends); the parser is empty afterwards."""
        rest = (self._head or b"") + b"".join(self._parts)
        skipping = self._skipping
        self._parts = []
        self._size = 0
        self._edge = b""
        self._skipping = False
        self._head = None
        return b"" if skipping else _unix_lines(rest)

    def _hold(self, chunk: bytes, edge: bytes) -> None:
        self._edge = edge
        self._size += len(chunk)
        if self._size <= self.limit and not self._skipping:
            if self._size > _PILE:  # hundreds of reads would be left behind as holes in the heap
                if not (self._parts and isinstance(self._parts[0], bytearray)):
                    self._parts = [bytearray().join(self._parts)]
                self._parts[0] += chunk
            else:
                self._parts.append(chunk)
        elif not self._skipping:
            self.oversized += 1
            self._skipping = True
            self._parts = []
            self._size = 0

    def _skip(self, chunk: bytes) -> bytes:
        """Drops the rest of an oversized event: up to its first empty line, or all."""
        probe = self._edge + chunk
        end = _first_boundary(probe)
        if end < 0:
            self._edge = probe[-_EDGE:]
            self._size = 0
            return b""
        rest = probe[end:]
        self._edge = b""
        self._skipping = False
        return rest

    def _after_bom(self, chunk: bytes) -> bytes:
        head = (self._head or b"") + chunk
        if len(head) < len(BOM) and BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head[len(BOM):] if head.startswith(BOM) else head


def _last_boundary(data: bytes) -> int:
    """End of the last empty line, or -1; each search starts where the one before it found something."""
    at = data.rfind(b"\n\r") if b"\r" in data else -1
    at = max(at, data.rfind(b"\n\n", at + 1))
    if b"\r" in data:
        at = max(at, data.rfind(b"\r\r", at + 1))
    return -1 if at < 0 else _boundary_end(data, at)


def _first_boundary(data: bytes) -> int:
    found = [at for at in map(data.find, _BOUNDARIES) if at >= 0]
    return _boundary_end(data, min(found)) if found else -1


def _boundary_end(data: bytes, at: int) -> int:
    return at + 3 if data[at + 1:at + 3] == b"\r\n" else at + 2


def _unix_lines(data: bytes) -> bytes:
    if b"\r" not in data:
        return data
    if data.count(b"\r") == data.count(b"\r\n"):
        return data.translate(None, b"\r")  # twice as fast as replace
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

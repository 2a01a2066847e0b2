"""A conversation as Responses API items, kept as places in a transcript: constant memory at any size.

An item whose bytes in the transcript are strict JSON is written out as those bytes; any other is read again and re-encoded
(a lone surrogate becomes U+FFFD).  Where a transcript has no model items at all, its display events are turned into items.
"""

from __future__ import annotations

import json
import os
from array import array

PLAIN, RECORD, EVENT = 0, 1, 2
# A place is one integer: start, length and how it is read; of 63 bits the length has 28, a line has at most 16 MiB.
LENGTH, HOW = 28, 2
LENGTHS, HOWS = (1 << LENGTH) - 1, (1 << HOW) - 1
BLOCK = 256 << 10
ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Conversation:
    """fd: the transcript, open for reading for as long as the conversation is used; convert: display event -> item or None."""

    def __init__(self, fd, convert=None):
        self.fd, self.convert = fd, convert
        self.places, self.events = array("q"), array("q")

    def add(self, at):
        """A model item stands at `at` (see codex_lines.Place)."""
        if at.payload:
            start, length = at.payload
            self.places.append((start << LENGTH | length) << HOW | PLAIN)
        else:
            self.places.append((at.offset << LENGTH | at.length) << HOW | RECORD)

    def add_event(self, at):
        """A display event stands there; it counts only where there are no model items."""
        if not self.places:
            self.events.append((at.offset << LENGTH | at.length) << HOW | EVENT)

    @property
    def from_events(self):
        return not self.places and bool(self.events)

    def __len__(self):
        return len(self.places or self.events)

    def __iter__(self):
        for encoded in self.encoded():
            yield json.loads(encoded.decode("utf-8"))

    def encoded(self):
        """Each item as strict JSON bytes."""
        began, block = 0, b""
        for place in self.places or self.events:
            how, length, start = place & HOWS, place >> HOW & LENGTHS, place >> HOW + LENGTH
            at = start - began
            if at + length > len(block):
                began, at, block = start, 0, os.pread(self.fd, max(BLOCK, length), start)
            data = block[at : at + length]
            if how != PLAIN:
                item = self.item(how, data)
                if item is None:
                    continue
                data = strict(item)
            elif len(data) < length:
                return  # a full disk: the copy is not whole, which is a gap
            yield data

    def item(self, how, line):
        try:
            payload = json.loads(line.strip(b"\r\n \t\0").decode("utf-8", "replace"))["payload"]
        except (ValueError, KeyError, RecursionError):
            return None  # it was readable before: the file was changed under us, which the manifest tells
        return payload if how == RECORD else self.convert(payload)

    def close(self):
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def strict(value):
    """UTF-8 JSON that every strict parser reads (C25)."""
    text = ENCODE(value)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")

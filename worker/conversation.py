"""A conversation as Responses API items, kept as places in a transcript: constant memory at any size.

An item whose bytes in the transcript are strict JSON is written out as those bytes; any other is read again and re-encoded
(a lone surrogate becomes U+FFFD).  Where a transcript has no model items at all, its display events are turned into items.
"""

from __future__ import annotations

import json
import os
from array import array

PLAIN, RECORD, EVENT = 0, 1, 2
ENCODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class Conversation:
    """fd: the transcript, open for reading for as long as the conversation is used; convert: display event -> item or None."""

    def __init__(self, fd, convert=None):
        self.fd, self.convert = fd, convert
        self.places, self.events = array("q"), array("q")

    def add(self, payload, at):
        """A model item stands at `at` (see codex_thread.Place)."""
        if at.payload:
            self.places.extend((PLAIN, at.payload[0], at.payload[1]))
        else:
            self.places.extend((RECORD, at.offset, at.length))

    def add_event(self, payload, at):
        """A display event stands there; it counts only where there are no model items."""
        if not self.places:
            self.events.extend((EVENT, at.offset, at.length))

    @property
    def from_events(self):
        return not self.places and bool(self.events)

    def __len__(self):
        return len(self.places or self.events) // 3

    def __iter__(self):
        for encoded in self.encoded():
            yield json.loads(encoded.decode("utf-8"))

    def encoded(self):
        """Each item as strict JSON bytes."""
        places = self.places or self.events
        for index in range(0, len(places), 3):
            how, start, length = places[index : index + 3]
            data = os.pread(self.fd, length, start)
            if how != PLAIN:
                item = self.item(how, data)
                if item is None:
                    continue
                data = strict(item)
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

"""The book of a run: numbers for attempts, their records on disk, and the figures of all of them so far.

- `seq` is given out at an attempt's start (so that bodies/SEQ.* have their names), rising. A record is written once, redacted,
  as one line.
- What a client can know, the book knows: a record is `settled` before the end of its answer is sent on, so that a next
  request meets its tokens in the limits and an agent that exits leaves true figures. It is written, and folded for good,
  when the exchange is over; until then `figures` and `spent` count it as it stands.
"""
from __future__ import annotations

import itertools
import json
import threading

from transport.attempts import Summary, add_up

_encode = json.JSONEncoder(separators=(",", ":"), default=str, check_circular=False).encode  # records are trees


class Book:
    """Thread-safe. `file` is an EvidenceFile, `redactor` cleans each line as a whole."""

    def __init__(self, file, redactor):
        self._file, self._redactor, self._lock = file, redactor, threading.Lock()
        self._numbers, self._settled, self._summary = itertools.count(1), {}, Summary()
        self._lines, self._writing = [], threading.Lock()

    def next_seq(self):
        return next(self._numbers)

    def settle(self, record):
        """What became of the attempt is known; the record may still learn how the client took it."""
        self._settled[record["seq"]] = record

    def write(self, record):
        """Nobody waits for the disk behind somebody else: who writes also writes what the others have left meanwhile."""
        line = self._redactor.clean(_encode(record).encode()) + b"\n"
        with self._lock:
            self._settled.pop(record["seq"], None)
            self._summary.add(record)
            self._lines.append(line)
        while self._lines and self._writing.acquire(False):
            try:
                with self._lock:
                    lines, self._lines = self._lines, []
                self._file.write(b"".join(lines))
            finally:
                self._writing.release()

    def redacted(self, record):
        return record and json.loads(self._redactor.clean(_encode(record).encode()))

    def spent(self, main):
        """Token sums of main or auxiliary requests, for the limits."""
        with self._lock:
            spent = self._summary.spent[main]
            for record in list(self._settled.values()):
                if record["usage"] is not None and bool(record["main"]) is main:
                    spent = add_up(spent, record["usage"])
            return spent

    def figures(self):
        with self._lock:
            summary = self._summary
            if self._settled:
                summary = summary.copy()
                for record in list(self._settled.values()):
                    summary.add(record)
            figures = summary.as_dict()
            figures["main"]["last"] = self.redacted(figures["main"]["last"])
        return figures

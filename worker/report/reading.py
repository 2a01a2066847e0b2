"""What a report is made of: the files of an outcome, read once, each as far as it can be read.

Nothing here is trusted (host/outcome_directory.py), and any value may have any type: `part`, `number` and `listed` take what
has its type and give None or nothing for the rest, so that the parts of the page need no checks of their own.
"""

from __future__ import annotations

import json
import os

from worker.host.outcome_directory import NotReadable, open_regular, read_document, read_result
from worker.session import ATTEMPTS, CLEANUP, EVENTS, LAUNCH, OBSERVATIONS, STDERR

MOST_ATTEMPTS, MOST_LINE = 5000, 4 << 20
TAIL = 64 << 10
BODY = 4 << 20


def part(value, *names):
    """A nested value; None where any step is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def number(value):
    """A finite float, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if abs(found) < 1e15 else None  # false for NaN, too


def listed(value, kind=dict):
    """The elements of a list that are of `kind`."""
    return [one for one in value if isinstance(one, kind)] if isinstance(value, list) else []


def killed(receipt):
    """([entry], how many there were): a receipt names the first few thousand and counts all."""
    named = listed(receipt.get("killed"))
    return named, max(len(named), int(number(receipt.get("killed_count")) or 0))


class Run:
    """result, launch, receipt, observations (dicts), attempts (list of dicts), events (the last ones), stderr (its tail),
    unread: sentences about what could not be read."""

    def __init__(self, directory):
        self.directory, self.unread = directory, []
        self.result = read_result(directory)
        self.launch, self.receipt = self._document(LAUNCH), self._document(CLEANUP)
        self.observations = self._document(OBSERVATIONS)
        self.attempts = list(self._attempts())
        self.events = self._events()
        self.stderr = self.tail(STDERR).decode("utf-8", "replace")

    def _document(self, name):
        try:
            return read_document(self.directory, name)
        except NotReadable as error:
            self.unread.append(str(error))
            return {}

    def _attempts(self):
        try:
            fd = open_regular(self.directory, ATTEMPTS)
        except NotReadable as error:
            if part(self.result, "counts", "attempts"):
                self.unread.append(str(error))
            return
        with os.fdopen(fd, "rb") as file:
            for _ in range(MOST_ATTEMPTS):
                line = file.readline(MOST_LINE)
                if not line:
                    return
                record = parsed(line)
                if isinstance(record, dict):
                    yield record
            if file.readline(1):
                self.unread.append("%s: has more than %d lines; the first are shown" % (ATTEMPTS, MOST_ATTEMPTS))

    def _events(self):
        lines = self.tail(EVENTS).split(b"\n")
        return [one for one in map(parsed, lines[-8:]) if isinstance(one, list) and len(one) == 2]

    def tail(self, name):
        """The last bytes of a file; nothing where it cannot be read."""
        try:
            fd = open_regular(self.directory, name)
        except NotReadable:
            return b""
        with os.fdopen(fd, "rb") as file:
            file.seek(max(0, os.fstat(fd).st_size - TAIL))
            return file.read(TAIL)

    def body(self, name):
        """The first bytes of bodies/NAME; None where it cannot be read."""
        try:
            fd = open_regular(self.directory, name)
        except NotReadable:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read(BODY)

    # What several parts ask.
    def records(self, kind):
        return [one for one in listed(self.observations.get("records")) if one.get("kind") == kind]

    def span(self):
        """(start, end) of the time line in unix seconds; None where no time is known."""
        times = [number(self.result.get("started_at")), number(self.result.get("ended_at"))]
        if None in times or times[0] > times[1]:
            times = [
                time
                for one in self.attempts
                for time in map(number, (one.get("started_at"), one.get("ended_at")))
                if time is not None
            ]
        return (min(times), max(times)) if times else None


def parsed(line):
    try:
        return json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def sequence(record):
    """The number of an attempt as the page names it."""
    return str(record.get("seq"))[:40]

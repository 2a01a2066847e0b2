"""Waiting: one poll set per client connection. Every wait ends when the client leaves or the run stops.

Rules of this file
- No wait has a tick. It ends by a descriptor or by a real deadline (DESIGN 13: no timer wake-ups).
- `stop` is the read end of a pipe whose write end is closed once: every poll of every thread wakes by it, for good.
- A client's FIN is not a departure: HTTP/1.1 allows a half-close (departure.py).
"""
from __future__ import annotations

import select
import time

from transport.departure import closed_by_peer
from transport.errors import ClientLeft, Stopped

POLLIN, POLLOUT = select.POLLIN, select.POLLOUT
_RDHUP = getattr(select, "POLLRDHUP", 0x2000)
monotonic = time.monotonic


class Watch:
    """`client` is a connected socket or None; `stop` a descriptor."""
    __slots__ = ("_poll", "_reading", "_stop", "_client", "_client_fd", "_client_mask", "_fd", "_events")

    def __init__(self, stop, client=None):
        self._poll, self._stop, self._client = select.poll(), stop, client
        self._client_fd, self._client_mask, self._fd, self._events = -1, _RDHUP, -1, 0
        self._poll.register(stop, 0)  # POLLHUP needs no asking
        if client is not None:
            self._client_fd = client.fileno()
            self._poll.register(self._client_fd, _RDHUP)
            self._reading = select.poll()  # between requests, and while one arrives: never aimed elsewhere
            self._reading.register(stop, 0)
            self._reading.register(self._client_fd, POLLIN)

    def client_readable(self, until=None):
        """True when the client sent something or left, False when `until` (monotonic) has come."""
        ready = self._reading.poll(None if until is None else max(0.0, until - monotonic()) * 1000 + 0.5)
        for got, _ in ready:
            if got == self._stop:
                raise Stopped()
        return bool(ready)

    def wait(self, fd=-1, events=POLLIN, until=None):
        """True when `fd` is ready, False when `until` (monotonic) has come."""
        if fd != self._fd or events != self._events:
            self._aim(fd, events)
        while True:
            ready = self._poll.poll(None if until is None else max(0.0, until - monotonic()) * 1000 + 0.5)
            if len(ready) == 1 and ready[0][0] == fd:
                return True
            for got, mask in ready:
                if got == self._stop:
                    raise Stopped()
                if got == self._client_fd and got != fd:
                    self._look_at_client(mask)
            for got, _ in ready:
                if got == fd:
                    return True
            if until is not None and monotonic() >= until:
                return False

    def forget(self):
        """The descriptor last waited for is about to be closed."""
        self._aim(-1, 0)

    def _aim(self, fd, events):
        if self._fd >= 0 and self._fd != fd:
            if self._fd == self._client_fd:
                self._poll.modify(self._fd, self._client_mask)
            else:
                self._poll.unregister(self._fd)
        if fd >= 0:
            self._poll.register(fd, events)
        self._fd, self._events = fd, events

    def _look_at_client(self, mask):
        if mask & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
            raise ClientLeft("the client reset the connection")
        if closed_by_peer(self._client):
            raise ClientLeft()
        self._client_mask = 0  # half-closed: a reset still wakes us
        self._poll.modify(self._client_fd, 0)

"""Bytes to a descriptor that others may have changed: stdout and stderr belong to whoever started us, too."""
from __future__ import annotations

import os
import select


def put(fd, data):
    """All of it, also where somebody made the descriptor non-blocking (Node.js does that to what it shares). OSErrors pass."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left):]
        except BlockingIOError:
            poller = select.poll()
            poller.register(fd, select.POLLOUT)
            poller.poll()


def takes_at_once(fd):
    """Whether a line of at most PIPE_BUF bytes can be written without waiting for a reader."""
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return bool(poller.poll(0))

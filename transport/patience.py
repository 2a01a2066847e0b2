"""Waiting for other threads with an end in time, without a lock that has a deadline.

Before Python 3.10 such a deadline (`Condition.wait(seconds)`, `Thread.join(seconds)`) is one of the wall clock (bpo-41710,
sem_timedwait(3)): a clock that is set back by a day while a run ends would keep its worker for a day.
"""
from __future__ import annotations

import time

FIRST, LONGEST = 0.0001, 0.01  # s between two looks


def comes_true(holds, until):
    """Whether `holds()` is true before `until` (monotonic) has come."""
    pause = FIRST
    while not holds():
        if time.monotonic() >= until:
            return False
        time.sleep(pause)
        pause = min(2 * pause, LONGEST)
    return True

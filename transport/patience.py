"""Waiting with an end in time, for other threads without a lock that has a deadline.

Before Python 3.10 such a deadline (`Condition.wait(seconds)`, `Thread.join(seconds)`) is one of the wall clock (bpo-41710,
sem_timedwait(3)): a clock that is set back by a day while a run ends would keep its worker for a day.
"""
from __future__ import annotations

import select
import time

FIRST, LONGEST = 0.0001, 0.01  # s between two looks


def rest(seconds):
    """time.sleep is clock_nanosleep(2) since Python 3.11, which fails under libfaketime 0.9.10 (EINVAL)."""
    select.select((), (), (), seconds)


def comes_true(holds, until):
    """Whether `holds()` is true before `until` (monotonic) has come."""
    pause = FIRST
    while not holds():
        if time.monotonic() >= until:
            return False
        rest(pause)
        pause = min(2 * pause, LONGEST)
    return True

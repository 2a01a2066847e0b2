"""What a run needs later, loaded while it waits: one module at a time, so that whoever wakes the loop waits for one at most.

The bundle is compiled at every start, all of it in about a tenth of a second: much longer than a receipt takes, or an agent
that ends at once. So the way to the receipt is loaded first (finish.py), and the rest whenever there is nothing else to do.
"""
from __future__ import annotations

import re
import sys

from worker.version import FILES

AT_THE_TOP = re.compile(rb"^from ((?:worker|transport)[\w.]*) import ([\w, ]*)", re.M)
WAITING = 1000  # events that wait for their reader; a flood does not


def loading(name):
    """Import module `name` of the bundle; at each step of the iteration one of those that it needs, itself the last."""
    for module in leaves_first(name, set()):
        __import__(module)
        yield


def leaves_first(name, seen):
    """What is not loaded yet of module `name` and its imports, each after those that it imports."""
    if name in seen or name in sys.modules:
        return
    seen.add(name)
    for package, names in AT_THE_TOP.findall(source(name)):
        for found in (package, *(package + b"." + one.split()[0] for one in names.split(b",") if one.strip())):
            if source(found.decode()):
                yield from leaves_first(found.decode(), seen)
    yield name


def source(name):
    return FILES.get(name.replace(".", "/") + ".py", b"")


class LateLive:
    """A harness's `Live` (what the agent's events say), loaded when there is time for it, or when somebody asks what they say."""

    def __init__(self, load):
        self.load, self.real, self.waiting = load, None, []

    def feed(self, event):
        if self.real is None and len(self.waiting) < WAITING:
            self.waiting.append(event)
        else:
            self.loaded().feed(event)

    def loaded(self):
        if self.real is None:
            self.real = self.load()
            for event in self.waiting:
                self.real.feed(event)
            self.waiting = []
        return self.real

    @property
    def terminal(self):
        """"success", "failure" or None, as far as the agent has come."""
        return self.loaded().terminal if self.waiting or self.real else None

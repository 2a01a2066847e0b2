"""Kilocode's stdout and database are OpenCode's under another name; see opencode_reader.py."""

from __future__ import annotations

from worker.harnesses import kilocode, opencode_reader
from worker.harnesses.opencode_events import ERRORS, Live

__all__ = ("ERRORS", "Live", "collect")


def collect(run):
    return opencode_reader.collect(run, kilocode, "kilo.db")

"""Kilocode (`kilo run`): the command, tested with 7.7.7.  A fork of OpenCode: see opencode.py for all that is alike.

Launch path (budget 60 lines beside opencode.py).  What differs, each measured with the real binary:
  - It asks a refused or silently closed port again for ever, every 5 s: the proxy always answers with a status, and the one
    layer of retries is cut to one try by KILO_SESSION_RETRY_LIMIT (0 is ignored).
  - It may attach to a daemon (KILO_NO_DAEMON), and has telemetry, session uploads and presence of its own.
  - It appends a block <environment_details> to every user message; its errors go to stderr in colours, too.
"""

from __future__ import annotations

from worker import harnesses
from worker.harnesses import opencode
from worker.harnesses.opencode import (
    APIS,
    CLIENT_TIMER,
    EXIT_ZERO_IS_SUCCESS,
    HOLD,
    IDENTITY_HEADERS,
    MAIN_HEADERS,
    STOP_SIGNAL,
)  # fmt: skip

__all__ = ("APIS", "CLIENT_TIMER", "EXIT_ZERO_IS_SUCCESS", "HOLD", "IDENTITY_HEADERS", "MAIN_HEADERS", "STOP_SIGNAL", "prepare")

NAME = "kilocode"
PROGRAMS = ("kilo", "kilocode")
TESTED = ("7.7.7",)
GRACE = 5.0
READER = "worker.harnesses.kilocode_reader"

FAMILY = {
    "prefix": "KILO_", "folder": "kilo", "plugin": "@kilocode/plugin", "program": "kilo",
    "env": (
        ("KILO_NO_DAEMON", "1"), ("KILO_TELEMETRY_LEVEL", "off"), ("KILO_SESSION_RETRY_LIMIT", "1"),
        ("KILO_DISABLE_SESSION_INGEST", "1"), ("KILO_DISABLE_PRESENCE", "1"),
    ),
}  # fmt: skip


def prepare(job, base_url, token, state_dir, which=harnesses.which):
    return opencode.prepare(job, base_url, token, state_dir, which, FAMILY)

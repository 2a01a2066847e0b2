"""What Codex's own request headers tell about an attempt (0.144.4 and 0.171.0, facts: headers for correlation)."""

from __future__ import annotations

import json
import re

from worker.harnesses.codex_lines import text_of

AGENT = re.compile(r"codex[a-z_]*/([0-9][0-9A-Za-z.+-]*)")


def thread_of(attempt):
    identity = attempt.get("identity")
    return text_of(identity.get("thread-id")) if isinstance(identity, dict) else None


def metadata(attempt):
    """x-codex-turn-metadata of an attempt, as a dict."""
    identity = attempt.get("identity")
    try:
        found = json.loads(identity["x-codex-turn-metadata"])
    except (TypeError, KeyError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def describe(attempt):
    found = metadata(attempt)
    told = {"turn_id": text_of(found.get("turn_id")), "request_kind": text_of(found.get("request_kind"))}
    compaction = found.get("compaction")
    return dict(told, compaction_trigger=text_of(compaction.get("trigger"))) if isinstance(compaction, dict) else told


def version_on_wire(wire):
    """The CLI's version from a user-agent that the proxy saw."""
    for agent in (wire or {}).get("user_agents") or ():
        found = AGENT.match(str(agent))
        if found:
            return found.group(1)
    return None

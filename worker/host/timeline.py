"""What happened in a run, in the order of time: rows for `show` and `status --follow`.  Pure.

A row is (seconds since the start of the run, what, words, colour); the documents may have any shape.
"""
from __future__ import annotations

BAD, ODD_ONE = "31", "33"  # SGR colours
TOOL_COLOURS = {"failed": ODD_ONE, "timeout": BAD, "cancelled": ODD_ONE, "incomplete": BAD}


def rows(started, attempts, records):
    """All rows of a run, sorted; what has no time of its own comes last."""
    found = [attempt_row(started, one) for one in attempts if isinstance(one, dict)]
    for one in records:
        if one.get("kind") == "tool_call":
            found.append(tool_row(started, one))
        elif one.get("kind") == "context_compaction":
            words = "%13s  context: %s -> %s tokens" % ("", known(one.get("tokens_before")), known(one.get("tokens_after")))
            found.append((since(started, one.get("observed_at")), "compact", words, ODD_ONE))
    return sorted(found, key=lambda row: (row[0] is None, row[0] or 0))


def attempt_row(started, one):
    """One HTTP attempt: what came back, how long it took, and what was done about it."""
    usage, wait, failure = part(one, "usage"), part(one, "wait"), one.get("failure")
    took = length(one.get("started_at"), one.get("ended_at"))
    words = ["%-4s %8s" % (known(one.get("status")), took)]
    if failure:
        words.append(str(failure))
    if one.get("decision") == "retried":
        words.append("waits %s (%s)" % (seconds(wait.get("seconds")), known(wait.get("source"))))
    elif one.get("decision") not in ("forwarded", None):
        words.append(str(one.get("decision")).replace("_", " "))
    if usage.get("input_tokens") is not None or usage.get("output_tokens") is not None:
        words.append("%s in, %s out" % (known(usage.get("input_tokens")), known(usage.get("output_tokens"))))
    if one.get("main") is False:
        words.append("(side request)")
    what = "call %s" % known(one.get("request"))
    return since(started, one.get("started_at")), what, "  ".join(word for word in words if word), BAD if failure else ""


def tool_row(started, one):
    status = str(one.get("status"))
    took = length(one.get("started_at"), one.get("completed_at"))
    words = ["%-4s %8s" % ("", took), known(one.get("tool_name")), status, str(one.get("error_type") or "")]
    return since(started, one.get("started_at")), "tool", "  ".join(word for word in words if word), TOOL_COLOURS.get(status, "")


def part(one, name):
    return one[name] if isinstance(one.get(name), dict) else {}


def known(value):
    return "?" if value is None else str(value)


def number(value):
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15 else None


def since(started, moment):
    """Seconds from the start of the run, or None."""
    started, moment = number(started), number(moment)
    return None if started is None or moment is None else max(0.0, moment - started)


def length(began, ended):
    """A duration in words, or an empty text."""
    lasted = since(began, ended)
    return "" if lasted is None else seconds(lasted)


def seconds(value):
    value = number(value)
    if value is None:
        return "? s"
    return "%.0f ms" % (value * 1000) if value < 0.9995 else "%.1f s" % value

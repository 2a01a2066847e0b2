"""`show OUT`: what a person asks first about a run, on one screen.

Everything shown came out of a sandbox: control characters, escape sequences and
bidirectional marks are replaced before they reach a terminal.
"""
from __future__ import annotations

import os
import sys

from worker import cli
from worker.host.arguments import ODD, Misuse, parse
from worker.host.outcome_directory import NotReadable, read_document, read_result
from worker.session import CLEANUP, OBSERVATIONS

COLOURS = {"grade": "32", "mask": "33", "retry": "35"}
# Format characters that reorder or hide text on a terminal (Unicode 15, categories Cf and Zl, Zp).
HIDDEN = frozenset("\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff")
SHOWN = 12


def plain(value, width: int = 100):
    """`value` as one line of at most `width` characters that a terminal shows as it is."""
    text = value if isinstance(value, str) else str(value)
    clean = "".join("?" if (c < " " or "\x7f" <= c < "\xa0" or c in HIDDEN or "\ud800" <= c <= "\udfff") else c
                    for c in text[: width + 1].replace("\n", " "))
    return clean if len(clean) <= width else clean[: width - 3] + "..."


def coloured(text, colour):
    """`text` in an ANSI colour, on a terminal without NO_COLOR only."""
    if not colour or os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return "\x1b[%sm%s\x1b[0m" % (colour, text)


def main(words):
    try:
        (directory,), _ = parse(words, 1)
        result = read_result(directory)
    except Misuse as error:
        return cli.misuse("show", str(error))
    except NotReadable as error:
        cli.say(str(error))
        return cli.NO_OUTCOME
    try:
        lines = screen(result, _optional(directory, OBSERVATIONS), _optional(directory, CLEANUP))
    except ODD as error:
        cli.say("result.json: is not in its shape (%s: %s)" % (type(error).__name__, plain(error)))
        return cli.NO_OUTCOME
    os.write(1, ("\n".join(lines) + "\n").encode("utf-8", "replace"))
    return 0


def _optional(directory, name):
    try:
        return read_document(directory, name)
    except NotReadable:
        return {}


def screen(result, observations, receipt):
    """The lines of the summary; every part tolerates what is missing."""
    outcome, disposition = result["outcome"], result["disposition"]
    action = str(disposition["action"])
    rows = [("outcome", "%s  %s: %s" % (coloured(plain(action.upper(), 8), COLOURS.get(action, "")),
                                        plain(outcome["kind"], 30), plain(outcome["status"], 12)))]
    rows.append(("because", plain(outcome["message"] or disposition["reason"], 240)))
    rows.append(("fault", "%s; verify the work: %s" % (
        plain(outcome["fault"], 20), "yes" if disposition["verify_allowed"] is True else "no")))
    if disposition["reason"] != outcome["kind"]:
        rows.append(("action by", plain(disposition["reason"], 120)))
    rows += _agent(result) + _model(result) + _tools(observations) + _cleanup(result, receipt)
    rows += _listed("warning", result.get("warnings"), ("code", "detail"))
    rows += _listed("gap", observations.get("gaps"), ("code", "detail"))
    rows.append(("files", "%d, with hashes in result.json" % len(result["files"])))
    return ["%-9s %s" % row for row in rows]


def _agent(result):
    harness = result.get("harness") or {}
    seconds = (result.get("duration_ms") or 0) / 1000
    rows = [("agent", "%s %s, exit %s, %.1f s" % (plain(harness.get("name"), 20), plain(harness.get("version") or "?", 20),
                                                  plain(result.get("return_code"), 8), seconds))]
    if result.get("final_message"):
        rows.append(("said", plain(result["final_message"], 240)))
    return rows


def _model(result):
    counts, usage = result.get("counts") or {}, (result.get("usage") or {}).get("chosen") or {}
    if counts.get("requests") is None:
        return [("model", "no proxy: what it was asked is not known")]
    rows = [("model", "%s requests, %s attempts, %s retries, %s s waited" % tuple(
        plain(counts.get(name, "?"), 12) for name in ("requests", "attempts", "retries", "wait_s")))]
    tokens = ["%s %s" % (plain(usage[name], 12), word) for name, word in (
        ("input_tokens", "in"), ("cached_input_tokens", "of it cached"), ("output_tokens", "out"),
        ("reasoning_output_tokens", "of it reasoning")) if usage.get(name) is not None]
    rows.append(("tokens", "%s (%s, %s)" % (", ".join(tokens), plain(usage.get("source"), 20),
                                            plain(usage.get("completeness"), 20)) if tokens else "unknown"))
    return rows


def _tools(observations):
    calls = [r for r in observations.get("records") or [] if isinstance(r, dict) and r.get("kind") == "tool_call"]
    rows = [("tool", "%-10s %s %s" % (plain(call.get("status"), 10), plain(call.get("tool_name"), 30),
                                      plain(call.get("tool_call_id"), 40))) for call in calls[:SHOWN]]
    return rows + ([("", "and %d more tool calls" % (len(calls) - SHOWN))] if len(calls) > SHOWN else [])


def _cleanup(result, receipt):
    killed = receipt.get("killed") or []
    word = "confirmed" if result.get("cleanup_confirmed") is True else "NOT CONFIRMED: %s" % plain(receipt.get("error"), 100)
    rows = [("cleanup", "%s, %d left-over process%s killed" % (word, len(killed), "" if len(killed) == 1 else "es"))]
    return rows + [("", "killed %s %s" % (plain(p.get("pid"), 10), plain(" ".join(map(str, p.get("argv") or [])), 80)))
                   for p in killed[:SHOWN] if isinstance(p, dict)]


def _listed(title, items, fields):
    items = [item for item in items or [] if isinstance(item, dict)]
    rows = [(title, "  ".join(plain(item.get(field) or "", 90) for field in fields)) for item in items[:SHOWN]]
    return rows + ([("", "and %d more" % (len(items) - SHOWN))] if len(items) > SHOWN else [])

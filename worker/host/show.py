"""`show OUT`: what a person asks first about a run, on one screen: outcome and why, cost, what happened when, what is not known.

Everything shown came out of a sandbox: terminal.py makes it harmless.
"""
from __future__ import annotations

import json
import os

from worker import cli
from worker.host import terminal, timeline
from worker.host.arguments import ODD, Misuse, parse
from worker.host.outcome_directory import NotReadable, open_regular, read_document, read_result
from worker.host.terminal import coloured, plain, wrapped
from worker.report.reading import killed
from worker.session import ATTEMPTS, CLEANUP, OBSERVATIONS

__all__ = ("coloured", "main", "plain", "screen")
LABEL = 10                      # columns of the labels at the left
TIMELINE, SHOWN = 12, 4         # rows of the time line (its first half and its end), of other lists
LINES_OF_TEXT = 3
MOST_ATTEMPTS = 100000


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
        lines = screen(result, _optional(directory, OBSERVATIONS), _optional(directory, CLEANUP), _attempts(directory))
    except ODD as error:
        cli.say("result.json: is not in its shape (%s: %s)" % (type(error).__name__, plain(error)))
        return cli.NO_OUTCOME
    terminal.write("\n".join(lines) + "\n")
    return 0


def _optional(directory, name):
    try:
        return read_document(directory, name)
    except NotReadable:
        return {}


def _attempts(directory):
    """The attempt records that can be read."""
    found = []
    try:
        with os.fdopen(open_regular(directory, ATTEMPTS), "rb") as file:
            for line in file:
                try:
                    found.append(json.loads(line.decode("utf-8", "replace")))
                except (ValueError, RecursionError):
                    continue
                if len(found) >= MOST_ATTEMPTS:
                    break
    except (NotReadable, OSError):
        pass
    return found


def screen(result, observations, receipt, attempts=()):
    """The lines of the summary; every part tolerates what is missing."""
    outcome, disposition = result["outcome"], result["disposition"]
    action, width = str(disposition["action"]), terminal.width() - LABEL
    verdict = plain(action.upper(), 8)
    rows = [("outcome", coloured(verdict, terminal.ACTIONS.get(action, "")) + "  " + plain(
        "%s: %s" % (outcome["kind"], outcome["status"]), width - len(verdict) - 2))]
    rows += _text("because", outcome["message"] or disposition["reason"], width)
    rows.append(("fault", plain("%s; verify the work: %s" % (
        outcome["fault"], "yes" if disposition["verify_allowed"] is True else "no"), width)))
    if disposition["reason"] != outcome["kind"]:
        rows += _text("action by", disposition["reason"], width)
    rows += _agent(result, width) + _model(result, width) + _time(result, observations, attempts, width)
    rows += _cleanup(result, receipt, width)
    rows += _listed("warning", result.get("warnings"), ("code", "detail"), width)
    rows += _listed("gap", observations.get("gaps"), ("code", "detail"), width)
    return ["%-*s%s" % (LABEL, title, text) for title, text in rows + _files(result, width)]


def _text(title, text, width, most=LINES_OF_TEXT):
    lines = wrapped(plain(text, width * most), width, most)
    return [(title if place == 0 else "", line) for place, line in enumerate(lines)]


def _agent(result, width):
    harness = result.get("harness") or {}
    seconds = (result.get("duration_ms") or 0) / 1000
    name = " ".join(str(harness[one]) for one in ("name", "version") if harness.get(one))
    words = "%s, exit %s, %.1f s" % (name or "?", result.get("return_code"), seconds)
    rows = [("agent", plain(words, width))]
    return rows + (_text("said", result["final_message"], width) if result.get("final_message") else [])


def _model(result, width):
    counts, usage = result.get("counts") or {}, (result.get("usage") or {}).get("chosen") or {}
    if counts.get("requests") is None:
        return [("model", "no proxy: what it was asked is not known")]
    rows = [("model", plain("%s requests, %s attempts, %s retries, %s s waited" % tuple(
        counts.get(name, "?") for name in ("requests", "attempts", "retries", "wait_s")), width))]
    tokens = ["%s %s" % (usage[name], word) for name, word in (
        ("input_tokens", "in"), ("cached_input_tokens", "of it cached"), ("output_tokens", "out"),
        ("reasoning_output_tokens", "of it reasoning")) if usage.get(name) is not None]
    words = "%s (%s, %s)" % (", ".join(tokens), usage.get("source"), usage.get("completeness")) if tokens else "unknown"
    return rows + _text("tokens", words, width)


def _time(result, observations, attempts, width):
    """The first half and the end of what happened, with what lies between counted."""
    records = [one for one in observations.get("records") or [] if isinstance(one, dict)]
    found = timeline.rows(result.get("started_at"), attempts, records)
    left = len(found) - TIMELINE
    half = TIMELINE // 2
    chosen = found if left <= 1 else found[:half] + [None] + found[-half:]
    rows = [terminal.row(row, width) if row else "%7s  and %d more" % ("", left) for row in chosen]
    return [("time" if place == 0 else "", row) for place, row in enumerate(rows)]


def _cleanup(result, receipt, width):
    named, total = killed(receipt)
    word = "confirmed" if result.get("cleanup_confirmed") is True else "NOT CONFIRMED: %s" % receipt.get("error")
    words = "%s, %d left-over process%s killed" % (word, total, "" if total == 1 else "es")
    rows = [("cleanup", plain(words, width))]
    for one in named[:SHOWN]:
        argv = one.get("argv") if isinstance(one.get("argv"), list) else []
        rows.append(("", plain("killed %s %s" % (one.get("pid"), " ".join(map(str, argv))), width)))
    return rows + _rest(total, width)


def _listed(title, items, fields, width):
    items = [item for item in items or [] if isinstance(item, dict)]
    texts = ["  ".join(str(item.get(field) or "") for field in fields) for item in items[:SHOWN]]
    return [row for text in texts for row in _text(title, text, width, 2)] + _rest(len(items), width)


def _rest(total, width):
    return [("", plain("and %d more" % (total - SHOWN), width))] if total > SHOWN else []


def _files(result, width):
    """How many, how large, and the largest of them."""
    sizes = {str(name): one.get("size") for name, one in result["files"].items() if isinstance(one, dict)}
    sizes = {name: size for name, size in sizes.items() if isinstance(size, int)}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:3]
    words = ", ".join("%s %s" % (plain(name, 24), _size(sizes[name])) for name in largest)
    total = "%d, %s, with hashes in result.json" % (len(result["files"]), _size(sum(sizes.values())))
    return [("files", plain(total, width))] + ([("", plain("largest: " + words, width))] if words else [])


def _size(count):
    return "%d bytes" % count if count < 10000 else "%.0f KB" % (count / 1e3) if count < 1e6 else "%.1f MB" % (count / 1e6)

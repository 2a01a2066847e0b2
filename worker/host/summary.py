"""One row per outcome, and totals over any number of rows in constant memory.

Every value comes out of a sandbox, so none need have its type: a number that is none counts as unknown, a kind or harness that
no table knows is counted as `other`, and each dictionary and list here is bounded.
"""
from __future__ import annotations

import heapq
import math

from worker.harnesses import TABLE as HARNESSES
from worker.policy import TABLE as KINDS
from worker.policy import exit_code

SCHEMA = "sandbox-worker/summary/1"
TOKENS = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")
COUNTS = ("requests", "attempts", "retries", "wait_s")
COLUMNS = ("directory", "exit_code", "action", "kind", "fault", "verify_allowed", "cleanup_confirmed", "harness", "version",
           "started_at", "duration_s") + COUNTS + TOKENS + (
               "gaps", "warnings", "run_attempt", "invocation_id", "message", "unreadable")
ACTIONS = ("grade", "retry", "mask")
FAULTS = ("agent", "model", "limit", "environment", "worker", "host", "none")
EXTREMES = 20       # how many of the slowest, longest-waiting, most expensive and unreadable are named
MOST_NAMES = 200    # distinct versions and warning codes that are counted apart
LARGEST = 1e15      # no duration or token count is larger; what is, is forged
STEP = 1.1          # the width of a bucket of the durations: quantiles are right to 5 %


def number(value, lowest=0):
    """A finite number within reason, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not lowest <= value <= LARGEST:
        return None  # NaN compares false, too
    return value


def text(value, most=200):
    """A str cut to `most` characters, or None."""
    return value[:most] if isinstance(value, str) else None


def part(value, name):
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def row(directory, result):
    """{column: value or None} of a result document (host/outcome_directory.read_result has looked at its shape)."""
    outcome, disposition, harness = result["outcome"], result["disposition"], part(result, "harness")
    counts, chosen = part(result, "counts"), part(part(result, "usage"), "chosen")
    duration = number(result.get("duration_ms"))
    confirmed = result.get("cleanup_confirmed") is True
    warnings = result.get("warnings")
    codes = [text(one.get("code"), 40) for one in warnings if isinstance(one, dict)] if isinstance(warnings, list) else []
    found = {
        "directory": directory, "action": known(disposition["action"], ACTIONS), "kind": known(outcome["kind"], KINDS),
        "fault": known(outcome["fault"], FAULTS), "verify_allowed": disposition["verify_allowed"] is True,
        "cleanup_confirmed": confirmed, "harness": known(harness.get("name"), HARNESSES),
        "version": text(harness.get("version"), 40), "started_at": number(result.get("started_at")),
        "duration_s": None if duration is None else duration / 1000, "gaps": number(result.get("gaps")),
        "warnings": sorted(set(filter(None, codes)))[:EXTREMES], "run_attempt": number(result.get("run_attempt")),
        "invocation_id": text(result.get("invocation_id"), 100), "message": text(outcome["message"]), "unreadable": None}
    found.update((name, number(counts.get(name))) for name in COUNTS)
    found.update((name, number(chosen.get(name))) for name in TOKENS)
    found["exit_code"] = exit_code({"kind": found["kind"]}, {"action": found["action"]}, confirmed) if (
        found["action"] in ACTIONS) else None
    return found


def unreadable(directory, reason):
    return dict(dict.fromkeys(COLUMNS), directory=directory, unreadable=reason)


def known(value, table):
    return value if isinstance(value, str) and value in table else "other"


class Extremes:
    """The `most` rows with the largest of one number."""

    def __init__(self, column, most=EXTREMES):
        self.column, self.most, self._heap, self._order = column, most, [], 0

    def add(self, row):
        value = row[self.column]
        if value:
            self._order += 1
            entry = (value, -self._order, {name: row[name] for name in ("directory", "action", "kind", self.column)})
            (heapq.heappushpop if len(self._heap) >= self.most else heapq.heappush)(self._heap, entry)

    def list(self):
        return [entry[2] for entry in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


class Spread:
    """Sum, extremes and quantiles of non-negative numbers, from counts in buckets whose width grows."""

    def __init__(self):
        self.count, self.sum, self.least, self.most, self.buckets = 0, 0.0, None, None, {}

    def add(self, value):
        if value is None:
            return
        self.count, self.sum = self.count + 1, self.sum + value
        self.least = value if self.least is None else min(self.least, value)
        self.most = value if self.most is None else max(self.most, value)
        bucket = math.floor(math.log(max(value, 1e-3), STEP))
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def quantile(self, share):
        if not self.count:
            return None
        rest = share * self.count
        for bucket in sorted(self.buckets):
            rest -= self.buckets[bucket]
            if rest <= 0:
                return round(min(self.most, max(self.least, STEP ** (bucket + 0.5))), 3)
        return self.most

    def as_dict(self):
        return {"count": self.count, "sum": round(self.sum, 3), "least": self.least, "p50": self.quantile(0.5),
                "p90": self.quantile(0.9), "p99": self.quantile(0.99), "most": self.most}


class Totals:
    """What `add` was told so far."""

    def __init__(self):
        self.outcomes = self.unreadable = self.not_verifiable = self.unconfirmed = self.with_gaps = self.gaps = 0
        self.actions, self.kinds, self.faults, self.harnesses, self.warnings, self.exit_codes = {}, {}, {}, {}, {}, {}
        self.counts, self.counts_unknown = dict.fromkeys(COUNTS, 0), 0
        self.tokens, self.tokens_unknown = dict.fromkeys(TOKENS, 0), dict.fromkeys(TOKENS, 0)
        self.durations, self.waits = Spread(), Spread()
        self.slowest, self.waiting, self.dearest = Extremes("duration_s"), Extremes("wait_s"), Extremes("total_tokens")
        self.not_read = []

    def add(self, row):
        self.outcomes += 1
        if row["unreadable"]:
            self.unreadable += 1
            if len(self.not_read) < EXTREMES:
                self.not_read.append({name: row[name] for name in ("directory", "unreadable")})
            return
        self.not_verifiable += not row["verify_allowed"]
        self.unconfirmed += not row["cleanup_confirmed"]
        self.gaps += row["gaps"] or 0
        self.with_gaps += bool(row["gaps"])
        count(self.actions, row["action"])
        count(self.faults, row["fault"])
        count(self.exit_codes, str(row["exit_code"]))
        count(self.kinds.setdefault(row["kind"], {}), row["action"])
        count(self.harnesses, " ".join(filter(None, (row["harness"], row["version"]))))
        for code in row["warnings"]:
            count(self.warnings, code)
        for name in COUNTS:
            self.counts[name] += row[name] or 0
        self.counts_unknown += row["requests"] is None
        for name in TOKENS:
            self.tokens[name] += row[name] or 0
            self.tokens_unknown[name] += row[name] is None
        self.durations.add(row["duration_s"])
        self.waits.add(row["wait_s"])
        for extremes in (self.slowest, self.waiting, self.dearest):
            extremes.add(row)

    def as_dict(self):
        """The JSON document. `unknown` beside a sum: of so many readable outcomes the figure is not known."""
        return {
            "schema": SCHEMA, "outcomes": self.outcomes, "unreadable": self.unreadable, "actions": self.actions,
            "exit_codes": self.exit_codes, "verify_not_allowed": self.not_verifiable, "cleanup_unconfirmed": self.unconfirmed,
            "kinds": {kind: {"actions": by, "count": sum(by.values())} for kind, by in by_size(self.kinds)},
            "faults": self.faults, "harnesses": dict(by_size(self.harnesses)), "warnings": dict(by_size(self.warnings)),
            "counts": dict(self.counts, wait_s=round(self.counts["wait_s"], 3), unknown=self.counts_unknown),
            "tokens": {name: {"sum": self.tokens[name], "unknown": self.tokens_unknown[name]} for name in TOKENS},
            "gaps": {"sum": self.gaps, "outcomes": self.with_gaps}, "duration_s": self.durations.as_dict(),
            "wait_s": self.waits.as_dict(), "slowest": self.slowest.list(), "longest_waits": self.waiting.list(),
            "most_tokens": self.dearest.list(), "not_read": self.not_read}


def count(numbers, name):
    """One more of `name`; of too many names the further ones are `other`."""
    name = name if name in numbers or len(numbers) < MOST_NAMES else "other"
    numbers[name] = numbers.get(name, 0) + 1


def by_size(numbers):
    """The pairs, the largest first; a number that is a dict counts with its sum."""
    return sorted(numbers.items(), key=lambda pair: (-(sum(pair[1].values()) if isinstance(pair[1], dict) else pair[1]), pair[0]))

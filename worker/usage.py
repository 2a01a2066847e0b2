"""Token usage from several sources, and the one figure that a run is charged with.  Pure.

Names and rules are DESIGN 9 and 10: input_tokens is all input, cached and cache writes are part of it, reasoning is part of
output; unknown is None, never 0, and never an older total.  The written rule of choice:
  1. the wire, where every model answer that ended properly carried its usage: it alone sees compactions, sub-agents and
     side requests, each once;
  2. else the transcript's last valid cumulative totals, less what was there before the run, unless the counter was reset
     while there is a wire (then the wire, partial);
  3. else the wire, partial;  4. else the events.
Sums of cumulative totals are never made; totals of different threads are added.  A disagreement is a gap that names both
figures and, where it is known, why.
"""

from __future__ import annotations

from worker.gaps import gap

FIELDS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "total_tokens",
)
PARTS = (
    ("cached_input_tokens", "input_tokens"),
    ("cache_write_input_tokens", "input_tokens"),
    ("reasoning_output_tokens", "output_tokens"),
)
COMPARED = ("input_tokens", "output_tokens")
UNKNOWN = dict.fromkeys(FIELDS)


def normalise(raw):
    """Figures in the names above from an object that uses them; None where they are malformed.  Contradictory ones are kept
    and flagged `inconsistent` (C08)."""
    if not isinstance(raw, dict):
        return None
    figures = {name: raw.get(name) for name in FIELDS}
    for value in figures.values():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            return None
    if figures["input_tokens"] is None or figures["output_tokens"] is None:
        return None
    if figures["total_tokens"] is None:
        figures["total_tokens"] = figures["input_tokens"] + figures["output_tokens"]
    if any((figures[part] or 0) > figures[whole] for part, whole in PARTS):
        figures["inconsistent"] = True
    return figures


def add(left, right):
    """Sum of two usages; a figure that one of them does not know is not known."""
    both = {name: None if left[name] is None or right[name] is None else left[name] + right[name] for name in FIELDS}
    return dict(both, inconsistent=True) if left.get("inconsistent") or right.get("inconsistent") else both


def subtract(total, baseline):
    """What was used since the baseline; None where that would be negative in any figure (a reset)."""
    share = {name: None if total[name] is None or baseline[name] is None else total[name] - baseline[name] for name in FIELDS}
    return None if any(value is not None and value < 0 for value in share.values()) else share


def went_down(before, after):
    return any(after[name] < before[name] for name in ("input_tokens", "output_tokens"))


def is_zero(figures):
    return not any(figures[name] for name in FIELDS)


def text(figures):
    """`1000 in (400 cached), 50 out`, for a person."""
    if figures is None:
        return "unknown"
    cached = figures.get("cached_input_tokens")
    return "%s in%s, %s out" % (
        figures["input_tokens"],
        "" if cached is None else " (%d cached)" % cached,
        figures["output_tokens"],
    )


def choose(wire, evidence):
    """(usage object of the result, gaps).

    wire: the transport's summary, or None.  evidence: what a reader's `collect` returned; used are usage_events,
    usage_transcript, threads, terminal and usage_notes {"reset", "invalid", "omitted", "compactions", "partial", "root" (the
    part of the conversation that events tell of), "subagents"}."""
    notes = evidence.get("usage_notes") or {}
    sources = {
        "wire": figures_of(wire and wire.get("usage")),
        "transcript": figures_of(evidence.get("usage_transcript")),
        "events": figures_of(evidence.get("usage_events")),
    }
    source, completeness = decide(sources, wire, notes, evidence.get("terminal") == "success")
    chosen = dict(sources[source] if source else UNKNOWN, source=source, completeness=completeness)
    usage = dict(sources, chosen=chosen, threads=evidence.get("threads") or {})
    return usage, mismatches(sources, wire, notes) + unknowns(chosen, wire, notes)


def figures_of(raw):
    return None if raw is None or raw.get("input_tokens") is None and raw.get("output_tokens") is None else dict(UNKNOWN, **raw)


def decide(sources, wire, notes, succeeded):
    """(source, completeness) by the rule at the head of this file."""
    missing = bool(wire) and bool(wire.get("usage_missing") or (wire.get("main") or {}).get("open"))
    if sources["wire"] and not missing:
        return "wire", "complete"
    if sources["transcript"] and not (notes.get("reset") and sources["wire"]):
        lacking = missing or not succeeded or notes.get("reset") or notes.get("partial")
        return "transcript", "partial" if lacking else "complete"
    if sources["wire"]:
        return "wire", "partial"
    if sources["events"] and not notes.get("invalid"):
        return "events", "partial" if missing or not succeeded or notes.get("subagents") else "complete"
    return None, "unknown"


def mismatches(sources, wire, notes):
    """One gap for each pair of sources that disagree."""
    root = figures_of(notes.get("root")) or sources["transcript"]  # events know the root conversation only
    pairs = (("wire", sources["wire"], "transcript", sources["transcript"]), ("transcript", root, "events", sources["events"]))
    found = []
    for left, one, right, other in pairs:
        if one is None or other is None or all(one[name] == other[name] for name in COMPARED):
            continue
        difference = ", ".join(
            "%+d %s" % (one[name] - other[name], name) for name in COMPARED if one[name] is not None and other[name] is not None
        )
        detail = "%s: %s; %s: %s; difference %s" % (left, text(one), right, text(other), difference)
        why = reasons(wire, notes) if left == "wire" else []
        found.append(gap("usage_mismatch", detail + ("; " + ", ".join(why) if why else "")))
    return found


def reasons(wire, notes):
    """What is known to make the CLI's counter and the wire differ (facts: each seen with a real CLI)."""
    known = (
        (notes.get("compactions"), "there was a compaction, whose own request the counter may leave out"),
        (notes.get("reset"), "the counter was reset"),
        (notes.get("partial"), "a thread's transcript is incomplete"),
        (wire.get("usage_missing"), "the provider omitted usage %s times" % wire.get("usage_missing")),
        ((wire.get("main") or {}).get("failed"), "failed or cut answers reported usage that the CLI does not count"),
        ((wire.get("requests") or 0) > (wire.get("main_requests") or 0), "there were side requests"),
    )
    return [words for holds, words in known if holds]


def unknowns(chosen, wire, notes):
    """Gaps for figures that nobody knows."""
    asked = wire is None or wire.get("requests")
    found = []
    if notes.get("omitted") or (wire and wire.get("usage_missing")):
        found.append(gap("usage_omitted", count=(wire or {}).get("usage_missing") or 1))
    if chosen["completeness"] != "complete" and asked:
        found.append(gap("partial_model_usage_unavailable", "completeness: " + chosen["completeness"]))
    if chosen["source"]:
        for name, code in (("cached_input_tokens", "cached"), ("reasoning_output_tokens", "reasoning")):
            if chosen[name] is None:
                found.append(gap(code + "_token_usage_unavailable"))
    if chosen.get("inconsistent"):
        found.append(gap("usage_inconsistent", text(chosen)))
    return found

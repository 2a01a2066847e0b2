"""Which usage figure a run is charged with, when it is partial or unknown, and what is said where sources disagree."""

from __future__ import annotations

import pytest

from tests.rollouts import figures
from worker import usage


def wire(used, missing=0, **more):
    base = {"usage": used and dict(usage.UNKNOWN, **used), "usage_missing": missing, "requests": 2, "main_requests": 2,
            "main": {"open": None, "failed": 0}}  # fmt: skip
    return dict(base, **more)


def evidence(transcript=None, events=None, terminal="success", **notes):
    return {
        "usage_transcript": transcript and dict(usage.UNKNOWN, **transcript),
        "usage_events": events and dict(usage.UNKNOWN, **events),
        "terminal": terminal,
        "usage_notes": notes,
        "threads": {},
    }


A, B = figures(1000, 50, 400, 20), figures(900, 40, 400, 20)
OPEN = {"open": {"state": "streaming"}, "failed": 0}
CHOICES = {
    # name: (wire, evidence, input tokens, source, completeness)
    "all agree": (wire(A), evidence(A, A), 1000, "wire", "complete"),
    "no wire": (None, evidence(A, A), 1000, "transcript", "complete"),
    "no wire, and killed": (None, evidence(A, terminal=None), 1000, "transcript", "partial"),
    "the wire misses one": (wire(B, 1), evidence(A), 1000, "transcript", "partial"),
    "the wire has an open request": (wire(B, main=OPEN), evidence(A), 1000, "transcript", "partial"),
    "only the wire, with a miss": (wire(B, 1), evidence(), 900, "wire", "partial"),
    "a reset": (wire(A, 1), evidence(B, reset=True), 1000, "wire", "partial"),
    "a reset and no wire": (None, evidence(B, reset=True), 900, "transcript", "partial"),
    "only events": (None, evidence(None, A), 1000, "events", "complete"),
    "only events, with sub-agents": (None, evidence(None, A, subagents=1), 1000, "events", "partial"),
    "only events, and the transcript was malformed": (None, evidence(None, A, invalid=True), None, None, "unknown"),
    "a thread's share is unknown": (None, evidence(A, partial=True), 1000, "transcript", "partial"),
    "nobody knows": (wire(None, 2), evidence(), None, None, "unknown"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choice(name):
    on_wire, said, given, source, completeness = CHOICES[name]
    chosen = usage.choose(on_wire, said)[0]["chosen"]
    assert (chosen["input_tokens"], chosen["source"], chosen["completeness"]) == (given, source, completeness)


def codes(gaps):
    return [gap["code"] for gap in gaps]


def test_a_mismatch_names_both_figures_the_difference_and_the_cause():
    """(C06) The request made for a compaction is not in the CLI's counter."""
    transcript, on_wire = figures(210000, 1200, 155000), figures(408000, 3300, 155000)
    found, gaps = usage.choose(wire(on_wire), evidence(transcript, compactions=1))
    (gap,) = [one for one in gaps if one["code"] == "usage_mismatch"]
    for words in ("wire: 408000 in", "transcript: 210000 in", "+198000 input_tokens", "+2100 output_tokens", "compaction"):
        assert words in gap["detail"]
    assert (found["wire"]["input_tokens"], found["transcript"]["input_tokens"]) == (408000, 210000)
    assert found["chosen"]["input_tokens"] == 408000


CAUSES = [
    ({"reset": True}, {}, "reset"),
    ({}, {"usage_missing": 2}, "omitted usage 2 times"),
    ({}, {"main": {"open": None, "failed": 1}}, "failed or cut"),
    ({}, {"requests": 3}, "side requests"),
    ({"partial": True}, {}, "incomplete"),
]


@pytest.mark.parametrize(("notes", "more", "words"), CAUSES)
def test_causes_of_a_mismatch(notes, more, words):
    gaps = usage.choose(wire(A, **more), evidence(B, **notes))[1]
    assert words in next(gap["detail"] for gap in gaps if gap["code"] == "usage_mismatch")


def test_events_are_compared_with_the_root_conversation():
    """Codex prints the root thread's total; the sub-agents' are in their own files."""
    assert "usage_mismatch" not in codes(usage.choose(None, evidence(A, B, root=dict(usage.UNKNOWN, **B), subagents=1))[1])
    assert "usage_mismatch" in codes(usage.choose(None, evidence(A, B))[1])


def test_what_nobody_says_is_a_gap():
    known = {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}
    assert codes(usage.choose(None, evidence(known))[1]) == [
        "cached_token_usage_unavailable",
        "reasoning_token_usage_unavailable",
    ]
    assert codes(usage.choose(wire(None, 2), evidence())[1]) == ["usage_omitted", "partial_model_usage_unavailable"]
    idle = wire(None, requests=0, main_requests=0)
    assert codes(usage.choose(idle, evidence(terminal=None))[1]) == []  # nothing was asked, so nothing is missing


NORMALISED = {
    "cached is part of input (C08)": (figures(1000, 50, 600), (1000, 600, 50, 1050), False),
    "more cached than input (C08)": (figures(100, 5, 600), (100, 600, 5, 105), True),
    "no total": ({"input_tokens": 3, "output_tokens": 2}, (3, None, 2, 5), False),
    "zero": (figures(0, 0), (0, 0, 0, 0), False),
}


@pytest.mark.parametrize("name", NORMALISED)
def test_normalise(name):
    raw, wanted, inconsistent = NORMALISED[name]
    found = usage.normalise(raw)
    assert tuple(found[key] for key in ("input_tokens", "cached_input_tokens", "output_tokens", "total_tokens")) == wanted
    assert found.get("inconsistent", False) == inconsistent


GOOD = {"input_tokens": 1, "output_tokens": 1}
MALFORMED = [None, 7, "x", [], {}, {"input_tokens": 1}, {"output_tokens": 1}]
MALFORMED += [dict(GOOD, input_tokens=odd) for odd in (None, "1", 1.0, True, -1, [])] + [dict(GOOD, cached_input_tokens={})]


@pytest.mark.parametrize("raw", MALFORMED)
def test_malformed_is_unknown(raw):
    assert usage.normalise(raw) is None


def test_unknown_stays_unknown_in_sums_and_shares():
    known, unknown = usage.normalise(figures(10, 1, 5)), usage.normalise({"input_tokens": 1, "output_tokens": 1})
    assert usage.add(known, unknown)["cached_input_tokens"] is None
    assert usage.add(known, unknown)["input_tokens"] == 11
    assert usage.subtract(known, unknown)["cached_input_tokens"] is None
    assert usage.subtract(unknown, known) is None  # less than before: a reset, not a negative figure
    assert usage.add(known, usage.normalise(figures(1, 1, 5)))["inconsistent"] is True

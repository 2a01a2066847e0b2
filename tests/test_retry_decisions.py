"""Retry, give up or final: every row of both tables, and the orders that matter."""
from __future__ import annotations

import itertools

import pytest

from transport import decisions
from transport.retry import OVER, decide

CASES = [
    ("success", "final", {"status": 200}),
    ("status_408", "retry", {"status": 408, "kind": "model_timeout"}),
    ("status_429", "retry", {"status": 429, "kind": "rate_limited"}),
    ("status_5xx", "retry", {"status": 500, "kind": "server_error"}),
    ("status_5xx", "retry", {"status": 503, "kind": "overloaded"}),
    ("status_cloudflare", "retry", {"status": 524, "kind": "server_error"}),
    ("status_529", "retry", {"status": 529, "kind": "overloaded"}),
    ("status_configured", "retry", {"status": 418, "kind": "unexpected_response", "statuses": (418,)}),
    ("status_final", "final", {"status": 418, "kind": "unexpected_response"}),
    ("status_final", "final", {"status": 501, "kind": "server_error"}),
    ("status_final", "final", {"status": 403, "kind": "unexpected_response"}),
    ("cannot_heal", "final", {"status": 400, "kind": "invalid_request"}),
    ("cannot_heal", "final", {"status": 429, "kind": "quota_exhausted"}),
    ("cannot_heal", "final", {"status": 500, "kind": "context_length"}),
    ("cannot_heal", "final", {"status": 401, "kind": "authentication", "statuses": (401,)}),
    ("body_says_wait", "retry", {"status": 400, "kind": "rate_limited"}),
    ("server_said_no", "final", {"status": 429, "kind": "rate_limited", "refused_by_server": True}),
    ("success", "final", {"status": 200, "refused_by_server": True}),
    ("client_gone", "final", {"status": 429, "kind": "rate_limited", "client_gone": True}),
    ("shutdown", "final", {"status": 429, "kind": "rate_limited", "stopping": True}),
    ("client_has_bytes", "final", {"status": 200, "phase": "body", "failure": "reset", "held": False}),
    ("held_error", "retry", {"status": 200, "kind": "overloaded", "stream_error": True}),
    ("held_error", "retry", {"status": 200, "kind": "server_error", "stream_error": True}),
    ("cannot_heal", "final", {"status": 200, "kind": "refusal", "stream_error": True}),
    ("held_cut", "retry", {"status": 200, "kind": "stream_interrupted", "phase": "body", "failure": "reset"}),
    ("held_truncated", "retry", {"status": 200, "kind": "stream_interrupted", "truncated": True}),
    ("unexpected_response", "final", {"status": 200, "kind": "unexpected_response"}),
    ("not_sent", "retry", {"phase": "connect", "failure": "refused", "kind": "connection"}),
    ("not_sent", "retry", {"phase": "send", "failure": "reset", "kind": "connection"}),
    ("head_cut", "give_up", {"phase": "head", "failure": "eof", "kind": "connection"}),
    ("ambiguous", "retry", {"phase": "send", "failure": "reset", "kind": "connection", "sent": True}),
    ("ambiguous", "retry", {"phase": "head", "failure": "reset", "kind": "connection", "sent": True}),
    ("ambiguous_limit", "give_up", {"phase": "head", "failure": "reset", "sent": True, "ambiguous_so_far": 1}),
    ("ambiguous_limit", "give_up", {"phase": "head", "failure": "timeout", "sent": True, "ambiguous_replays": 0}),
    ("ambiguous", "retry", {"phase": "head", "failure": "timeout", "sent": True, "ambiguous_so_far": 1, "ambiguous_replays": 2}),
    ("certificate_failure", "final", {"phase": "tls", "failure": "certificate", "kind": "tls_failed"}),
    ("name_does_not_exist", "final", {"phase": "resolve", "failure": "name_not_found", "kind": "connection"}),
    ("head_too_large", "final", {"phase": "head", "failure": "head_too_large", "sent": True}),
    ("bad_framing", "final", {"phase": "head", "failure": "bad_framing", "sent": True}),
    ("redirect_refused", "final", {"status": 302, "failure": "redirect_refused", "kind": "unexpected_response"}),
]


@pytest.mark.parametrize("rule, verdict, facts", CASES)
def test_rows(rule, verdict, facts):
    assert decide(facts) == (verdict, rule)


def test_every_row_has_a_case():
    assert {name for name, _, _ in decisions.CAUSES} == {rule for rule, _, _ in CASES}


LIMITED = {"status": 429, "kind": "rate_limited", "wait": 10.0}


@pytest.mark.parametrize("rule, bounds", [
    ("status_429", {"max_wait": 10.0, "budget_left": 10.0, "time_left": 10.0, "attempt": 5}),
    ("max_attempts", {"attempt": 6}),
    ("max_attempts", {"attempt": 1, "max_attempts": 1}),
    ("wait_over_max", {"max_wait": 9.9}),
    ("wait_over_budget", {"budget_left": 9.9}),
    ("wait_over_budget", {"budget_left": -1.0, "wait": 0.0}),
    ("wait_over_deadline", {"time_left": 9.9}),
    ("wait_over_max", {"wait": OVER, "max_wait": 120.0}),
    ("wait_over_budget", {"wait": OVER, "budget_left": 900.0}),
    ("wait_over_deadline", {"wait": OVER, "time_left": 1800.0}),
])
def test_bounds_turn_a_retry_into_giving_up_now(rule, bounds):
    verdict = "retry" if rule == "status_429" else "give_up"
    assert decide(dict(LIMITED, **bounds)) == (verdict, rule)


def test_no_combination_of_facts_raises_or_retries_what_the_client_has_seen():
    values = {"status": (None, 200, 302, 400, 429, 503), "kind": (None, "rate_limited", "refusal", "connection"),
              "phase": (None, "connect", "body"), "failure": (None, "certificate", "reset"), "held": (True, False),
              "sent": (None, True), "wait": (None, 0.0, OVER), "client_gone": (None, True)}
    for combination in itertools.product(*values.values()):
        facts = dict(zip(values, combination))
        verdict, rule = decide(facts)
        assert verdict in ("final", "retry", "give_up") and rule
        if not facts["held"] or facts["client_gone"] or facts["failure"] == "certificate":
            assert verdict == "final"

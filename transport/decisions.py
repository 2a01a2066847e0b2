"""Retry, give up, or final: two literal tables, read from the top. Pure.

`decide(facts)` answers (verdict, rule). "final": the answer (or failure) is passed on and no retry was in question;
"retry": wait and send again; "give_up": a retry was due but a bound forbids it, so the last real answer is passed on now,
without a sleep. `rule` is the row's name and stands in the attempt record.

facts (all optional, plain dict):
  status           HTTP status, None when no head came
  kind             provider_errors.classify of this attempt, None for a success
  phase, failure   of a transport failure: phase as in the attempt record (resolve, connect, tls, send, head, body);
                   failure is its kind: certificate, name_not_found, head_too_large, bad_framing, redirect_refused, ...
  held             True while no byte of this answer has reached the client (False: nothing can be retried any more)
  truncated        True where a 2xx stream ended cleanly without its terminal
  stream_error     True where the error stood inside a 2xx answer
  sent             True when the request had gone out completely and the failure came before a response byte; a failure
                   in phase head without it means that the head had begun: somebody answered, so nothing is sent twice
  ambiguous_so_far ambiguous failures of this request before this one;  ambiguous_replays  how many may be replayed
  refused_by_server x-should-retry: false;  client_gone, stopping
  attempt, max_attempts      attempt counts from 1, per fingerprint
  wait             seconds that wait_for gave;  max_wait, budget_left, time_left  seconds or None for no bound
  statuses         further statuses to retry (from the input document)
"""
from __future__ import annotations

from transport.provider_errors import refuses_retry

RETRIED = (408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529)
_TRANSIENT = ("rate_limited", "overloaded", "server_error", "model_timeout")


def _never(facts: dict, *failures: str) -> bool:
    return facts.get("failure") in failures


def _before_the_head(facts: dict) -> bool:
    return facts.get("phase") is not None and facts.get("status") is None


def _ambiguous_left(facts: dict) -> bool:
    return facts.get("ambiguous_so_far", 0) < facts.get("ambiguous_replays", 1)


CAUSES = (
    ("client_gone", "final", lambda f: f.get("client_gone")),
    ("shutdown", "final", lambda f: f.get("stopping")),
    ("client_has_bytes", "final", lambda f: not f.get("held", True)),
    ("certificate_failure", "final", lambda f: _never(f, "certificate", "no_certificates")),
    ("name_does_not_exist", "final", lambda f: _never(f, "name_not_found")),
    ("head_too_large", "final", lambda f: _never(f, "head_too_large")),
    ("bad_framing", "final", lambda f: _never(f, "bad_framing")),
    ("redirect_refused", "final", lambda f: _never(f, "redirect_refused")),
    ("server_said_no", "final", lambda f: f.get("refused_by_server") and (f.get("status") or 0) >= 400),
    ("cannot_heal", "final", lambda f: refuses_retry(f.get("kind"))),
    ("status_configured", "retry", lambda f: f.get("status") in (f.get("statuses") or ())),
    ("status_408", "retry", lambda f: f.get("status") == 408),
    ("status_429", "retry", lambda f: f.get("status") == 429),
    ("status_5xx", "retry", lambda f: f.get("status") in (500, 502, 503, 504)),
    ("status_cloudflare", "retry", lambda f: f.get("status") in (520, 521, 522, 523, 524)),
    ("status_529", "retry", lambda f: f.get("status") == 529),
    ("body_says_wait", "retry", lambda f: (f.get("status") or 0) >= 400 and f.get("kind") in ("rate_limited", "overloaded")),
    ("held_error", "retry", lambda f: f.get("stream_error") and f.get("kind") in _TRANSIENT),
    ("held_cut", "retry", lambda f: f.get("phase") is not None and f.get("status") is not None),
    ("held_truncated", "retry", lambda f: f.get("truncated")),
    ("not_sent", "retry", lambda f: f.get("phase") in ("resolve", "connect", "tls", "send") and not f.get("sent")),
    ("head_cut", "give_up", lambda f: _before_the_head(f) and not f.get("sent")),
    ("ambiguous", "retry", lambda f: _before_the_head(f) and _ambiguous_left(f)),
    ("ambiguous_limit", "give_up", _before_the_head),
    ("status_final", "final", lambda f: (f.get("status") or 0) >= 400),
    ("unexpected_response", "final", lambda f: f.get("kind") is not None),
    ("success", "final", lambda f: True),
)


def _over(wait: float | None, bound: float | None) -> bool:
    return wait is not None and bound is not None and wait > bound


BOUNDS = (
    ("max_attempts", lambda f: f.get("attempt", 1) >= f.get("max_attempts", 6)),
    ("wait_over_max", lambda f: _over(f.get("wait"), f.get("max_wait"))),
    ("wait_over_budget", lambda f: _over(f.get("wait"), f.get("budget_left"))),
    ("wait_over_deadline", lambda f: _over(f.get("wait"), f.get("time_left"))),
)


def decide(facts: dict) -> tuple:
    """(verdict, rule): see the head of the file."""
    rule, verdict = next((name, verdict) for name, verdict, applies in CAUSES if applies(facts))
    if verdict != "retry":
        return verdict, rule
    bound = next((name for name, exceeded in BOUNDS if exceeded(facts)), None)
    return ("retry", rule) if bound is None else ("give_up", bound)

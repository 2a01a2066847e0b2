"""Delays that stand in an error body: typed fields and five known phrases. Pure.

Fields: google.rpc.RetryInfo's `retryDelay`, a protobuf duration such as "1.660853464s" (google/rpc/error_details.proto);
`retry_after_ms`, `retry_after`, `retry_after_seconds` as plain numbers beside the error or in it or in its `metadata`.
Phrases (first 2,000 characters of the message only; a delay counts when a unit follows, never a bare number):
  "try again in 3.5s" / "1m30s" / "250ms" / "6 minutes" / "2 hours"   OpenAI, Groq
  "retry in 1.66s"                                                   Google
  "retry after 26 seconds", "retry after 2s"                         Azure OpenAI
  "wait 20 seconds before", "wait for 1m30s"                         assorted gateways
A date or a clock time ("try again at 3:40 AM") is no delay. What is unreadable, negative or not finite is None; what is
huge is retry.OVER.
"""
from __future__ import annotations

import re

from transport.error_shapes import innermost
from transport.retry import OVER, parse_number

_LOOKED_AT = 2000
_UNIT = {"ms": 0.001, "milliseconds": 0.001, "millisecond": 0.001, "s": 1, "sec": 1, "secs": 1, "seconds": 1, "second": 1,
         "m": 60, "min": 60, "mins": 60, "minutes": 60, "minute": 60, "h": 3600, "hr": 3600, "hours": 3600, "hour": 3600,
         "d": 86400, "days": 86400, "day": 86400}
_NAMES = "|".join(sorted(_UNIT, key=len, reverse=True))
_PART = r"[0-9]{1,15}(?:\.[0-9]{1,15})? ?(?:" + _NAMES + r")(?![a-z])"
# Bounded on every side: at most four parts ("1d2h3m4s"), no nested repetition.
_PHRASE = re.compile(r"(?:try again|retry|retrying|wait)(?: again)?(?: in| after| for)? (?:about )?"
                     r"((?:" + _PART + r"[ ,]{0,2}){1,4})", re.ASCII | re.IGNORECASE)
_ONE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]+)", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)s\Z", re.ASCII)
_FIELDS = (("retry_after_ms", 0.001), ("retry_after", 1.0), ("retry_after_seconds", 1.0))


def phrase_delay(text: object) -> float | None:
    """Seconds that a sentence asks for, or None."""
    if not isinstance(text, str):
        return None
    found = _PHRASE.search(text[:_LOOKED_AT])
    if found is None:
        return None
    return min(sum(float(number) * _UNIT[unit.lower()] for number, unit in _ONE.findall(found.group(1))), OVER)


def body_delay(body: object) -> float | None:
    """Seconds that a parsed error body asks for: a typed field first, then a phrase in its message."""
    if isinstance(body, list):
        body = body[0] if body else None
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    response = body.get("response")
    if not isinstance(error, dict) and isinstance(response, dict):
        error = response.get("error")
    places = [place for place in (error, isinstance(error, dict) and innermost(error), body) if isinstance(place, dict)]
    for place in places:
        seconds = _typed(place)
        if seconds is not None:
            return seconds
    for text in [place.get("message") for place in places] + [error, body.get("detail")]:
        seconds = phrase_delay(text)
        if seconds is not None:
            return seconds
    return None


def _typed(place: dict) -> float | None:
    details = place.get("details")
    for detail in details[:64] if isinstance(details, list) else ():
        asked = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(asked, dict):  # as some libraries write a protobuf duration
            return _number(asked.get("seconds"), 1.0)
        found = _DURATION.match(asked) if isinstance(asked, str) else None
        if found:
            return min(float(found.group(1)), OVER)
    for fields in (place, place.get("metadata")):
        if not isinstance(fields, dict):
            continue
        for name, scale in _FIELDS:
            seconds = _number(fields.get(name), scale)
            if seconds is not None:
                return seconds
    return None


def _number(value: object, scale: float) -> float | None:
    if isinstance(value, str):
        return parse_number(value, scale)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e300:
        return None
    return OVER if value > OVER else value * scale

"""Retry or not, and how long to wait: two tables and one grammar. Pure: the wall clock and randomness are arguments.

A delay that a server asks for (DESIGN 11), the first source that says something readable:
  1. `retry-after-ms`, in milliseconds (OpenAI's and Azure's header);
  2. `Retry-After` (RFC 9110 section 10.2.3): digits with an optional fraction, or one of the three dates of section
     5.6.7. Dates are UTC whatever TZ says; "-0000", "+0000" and "UTC" are taken for GMT; weekdays are not checked;
  3. a typed delay in the error body: see body_delays.py.
Anything else says nothing: signs, exponents, hex, underscores, lists, parameters, other scripts' digits, nan, inf, an
impossible or past date, ISO 8601, the same header twice with different values. Rate-limit reset headers are never used,
because one name stands for four units in the field (case A07). What no source says is backoff:
  seconds = random() * min(cap, base * 2 ** (attempt - 1))          (full jitter; attempt counts from 1)
An asked time is never shortened: seconds = asked * (1 + random() / 10). `random` is a callable giving [0, 1).
A time beyond any budget (a 400-digit number, the year 9999) is OVER, which is a plain number of seconds like the rest.
"""
from __future__ import annotations

import re

from transport.decisions import BOUNDS, CAUSES, RETRIED, decide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

__all__ = ["BOUNDS", "CAUSES", "OVER", "RETRIED", "asked_delay", "backoff", "decide", "header_values", "parse_date",
           "parse_number", "parse_retry_after", "parse_retry_after_ms", "server_refuses_retry", "wait_for"]

OVER = 10 ** 9  # seconds; 31 years, longer than any max_wait, and safe in every comparison and addition

_NUMBER = re.compile(r"[ \t]*([0-9]+)(\.[0-9]+)?[ \t]*\Z")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = r"(?P<h>[0-9]{2}):(?P<m>[0-9]{2}):(?P<s>[0-9]{2})"
_ZONE = r"(?:GMT|UTC|[+-]0000)"
_DATES = tuple(re.compile(pattern + r"[ \t]*\Z", re.ASCII | re.IGNORECASE) for pattern in (
    r"[ \t]*[a-z]{3}, (?P<d>[0-9]{2}) (?P<mon>[a-z]{3}) (?P<y>[0-9]{4}) " + _CLOCK + " " + _ZONE,   # IMF-fixdate
    r"[ \t]*[a-z]{6,9}, (?P<d>[0-9]{2})-(?P<mon>[a-z]{3})-(?P<y>[0-9]{2}) " + _CLOCK + " " + _ZONE,  # RFC 850
    r"[ \t]*[a-z]{3} (?P<mon>[a-z]{3}) (?P<d>[ 0-9][0-9]) " + _CLOCK + r" (?P<y>[0-9]{4})",           # asctime
))
_LONGEST = 4096  # a header value longer than this is not read at all


def parse_number(value: str, scale: float = 1.0) -> float | None:
    """Seconds of a plain decimal number in units of `scale` seconds; OVER where it is huge; None where it is none."""
    found = _NUMBER.match(value) if isinstance(value, str) and len(value) <= _LONGEST else None
    if found is None:
        return None
    whole = found.group(1).lstrip("0")
    if len(whole) > 15:
        return OVER
    return min(float((whole or "0") + (found.group(2) or "")[:30]) * scale, OVER)


def parse_date(value: str, now_wall: float) -> float | None:
    """Unix seconds of an HTTP date in any of the three layouts, or None. `now_wall` settles two-digit years."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    for layout in _DATES:
        found = layout.match(value)
        if found:
            return _unix_time(found.groupdict(), now_wall)
    return None


def _unix_time(part: dict, now_wall: float) -> float | None:
    if part["mon"].lower() not in _MONTHS:
        return None
    year, month, day = int(part["y"]), _MONTHS.index(part["mon"].lower()) + 1, int(part["d"])
    hour, minute, second = int(part["h"]), int(part["m"]), int(part["s"])
    if len(part["y"]) == 2:  # RFC 9110 5.6.7: the latest such year that is not more than 50 ahead
        latest = 1970 + int(now_wall // 31556952) + 50
        year = latest - (latest - year) % 100
    if not 1 <= day <= _days_in(year, month) or hour > 23 or minute > 59 or second > 60:
        return None
    return ((_days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second


def _days_in(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]


def _days_since_1970(year: int, month: int, day: int) -> int:
    """Proleptic Gregorian day number; years counted from March so that the leap day comes last."""
    year -= month <= 2
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - 719468


def parse_retry_after(value: str | list, now_wall: float) -> float | None:
    """Seconds to wait from one `Retry-After` value or from all of them; OVER; None where it says nothing usable."""
    if isinstance(value, (list, tuple)):
        return _agreed([parse_retry_after(one, now_wall) for one in value])
    seconds = parse_number(value)
    if seconds is not None:
        return seconds
    date = parse_date(value, now_wall)
    return None if date is None or date <= now_wall else min(date - now_wall, OVER)


def parse_retry_after_ms(value: str | list) -> float | None:
    """The same for `retry-after-ms`, in seconds."""
    if isinstance(value, (list, tuple)):
        return _agreed([parse_retry_after_ms(one) for one in value])
    return parse_number(value, 0.001)


def _agreed(readings: list) -> float | None:
    return readings[0] if readings and all(one == readings[0] for one in readings) else None


def header_values(headers: list, name: str) -> list:
    """All values of a header; names compare without case. `headers` is a list of (name, value) of str."""
    return [value for key, value in headers if key.lower() == name]


def asked_delay(headers: list, body_delay: float | None, now_wall: float) -> tuple:
    """(seconds, source) of the first source that says something readable, or (None, "backoff")."""
    for source, seconds in (
        ("retry-after-ms", parse_retry_after_ms(header_values(headers, "retry-after-ms"))),
        ("retry-after", parse_retry_after(header_values(headers, "retry-after"), now_wall)),
        ("body", body_delay),
    ):
        if seconds is not None:
            return seconds, source
    return None, "backoff"


def backoff(attempt: int, base: float, cap: float, random: Callable[[], float]) -> float:
    """Full jitter: random() * min(cap, base * 2 ** (attempt - 1))."""
    return random() * min(cap, base * 2 ** min(max(attempt, 1) - 1, 60))


def wait_for(headers: list, body_delay: float | None, attempt: int, base: float, cap: float, now_wall: float,
             random: Callable[[], float]) -> dict:
    """{"seconds", "source"}: how long to wait before attempt + 1. Sources as in the attempt record (DESIGN 8)."""
    seconds, source = asked_delay(headers, body_delay, now_wall)
    if seconds is None:
        return {"seconds": backoff(attempt, base, cap, random), "source": source}
    return {"seconds": min(seconds * (1 + random() / 10), OVER), "source": source}


def server_refuses_retry(headers: list) -> bool:
    """`x-should-retry: false`, said once or as one of several, is obeyed (case A06)."""
    return any(value.strip().lower() == "false" for value in header_values(headers, "x-should-retry"))

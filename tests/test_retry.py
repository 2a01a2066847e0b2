"""How long to wait: one grammar for what servers ask, never shorter than asked, backoff for all that is no delay."""
from __future__ import annotations

import calendar
import random
import time

import pytest

from transport import body_delays, retry

NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT, the date of RFC 9110's examples


@pytest.mark.parametrize("value, seconds", [
    ("0", 0), ("1", 1), ("1.5", 1.5), (" 2 ", 2), ("\t2\t", 2), ("007", 7), ("0.250", 0.25), ("120", 120),
    ("9" * 400, retry.OVER), ("0" * 400 + "3", 3), ("1." + "1" * 400, 1.1111111111111112), ("9" * 5000, None),
    ("1000000000", retry.OVER), ("999999999", 999999999),
] + [(text, None) for text in (
    "nan", "NaN", "inf", "Infinity", "-1", "-0.5", "-0", "+2", "1e999", "1e3", "1_0", "\u0663", "\uff12", "0x10", "5, 7", "5,5",
    "5;q=1", "", " ", "1.", ".5", "1..5", "1 2", "2s", "2\n", "\n2", "2\r", "2\x00", "\u00a02", "1,5", "two",
)])
def test_seconds(value, seconds):
    assert retry.parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize("value, ahead", [
    ("Sun, 06 Nov 1994 08:49:39 GMT", 2), ("Sunday, 06-Nov-94 08:49:39 GMT", 2), ("Sun Nov  6 08:49:39 1994", 2),
    ("Sun, 06 Nov 1994 08:49:39 -0000", 2), ("Sun, 06 Nov 1994 08:49:39 +0000", 2), ("Sun, 06 Nov 1994 08:49:39 UTC", 2),
    ("sun, 06 nov 1994 08:49:39 gmt", 2), (" Sun, 06 Nov 1994 08:49:39 GMT ", 2), ("Mon, 06 Nov 1994 08:49:39 GMT", 2),
    ("Thu Nov 10 08:49:37 1994", 4 * 86400), ("Thu, 29 Feb 1996 00:00:00 GMT", 41440223), ("Sun, 06 Nov 1994 08:49:60 GMT", 23),
    ("Fri, 31 Dec 9999 23:59:59 GMT", retry.OVER), ("Monday, 01-Jan-40 00:00:00 GMT", retry.OVER),
    # the past, the impossible, the unknown
    ("Sun, 06 Nov 1994 08:49:37 GMT", None), ("Sun, 06 Nov 1994 08:49:36 GMT", None), ("Sunday, 06-Nov-93 08:49:39 GMT", None),
    ("Monday, 01-Jan-60 00:00:00 GMT", None), ("Wed, 31 Feb 2026 07:28:00 GMT", None), ("Thu, 29 Feb 1900 00:00:00 GMT", None),
    ("Wed, 00 Nov 2026 07:28:00 GMT", None), ("Wed, 11 Nov 2026 24:00:00 GMT", None), ("Wed, 11 Nov 2026 07:60:00 GMT", None),
    ("Wed, 11 Nov 2026 07:28:61 GMT", None), ("Wed, 11 Foo 2026 07:28:00 GMT", None), ("Wed, 11 Nov 2026 07:28:00 +0200", None),
    ("Wed, 11 Nov 2026 07:28:00 PST", None), ("Wed, 11 Nov 2026 07:28:00", None), ("2026-09-21T10:00:00Z", None),
    ("Wed, 11 Nov 26 07:28:00 GMT", None), ("Wed, 1 Nov 2026 07:28:00 GMT", None), ("Wed, 11  Nov 2026 07:28:00 GMT", None),
    ("Wed, 11 Nov 2026 07:28:00 GMT x", None), ("Wed, \u0661\u0661 Nov 2026 07:28:00 GMT", None),
    ("Wed, 11 Nov 2026 07:28:00 GMT\n", None), ("Sun Nov  0 08:49:39 1994", None), ("Sun Nov 31 08:49:39 1994", None),
    ("Sun Nov    08:49:39 1994", None), ("Sun, 00 Jan 0000 00:00:00 GMT", None),
])
def test_dates_are_utc_whatever_the_time_zone(value, ahead, monkeypatch):
    for zone in ("America/Los_Angeles", "Asia/Kolkata", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert retry.parse_retry_after(value, NOW) == ahead
    monkeypatch.undo()
    time.tzset()


def test_calendar_arithmetic_agrees_with_the_standard_library():
    rng = random.Random(5)
    for _ in range(3000):
        moment = rng.randrange(0, 32503680000)
        parts = time.gmtime(moment)
        for layout in ("%a, %d %b %Y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"):
            text = time.strftime(layout, parts)
            assert retry.parse_date(text, NOW) == moment == calendar.timegm(parts)


@pytest.mark.parametrize("year, now_year, read", [
    (94, 1994, 1994), (44, 1994, 2044), (45, 1994, 1945), (44, 1995, 2044), (26, 2026, 2026), (76, 2026, 2076),
    (77, 2026, 1977), (0, 2026, 2000), (99, 2026, 1999)])
def test_two_digit_years_are_at_most_50_ahead(year, now_year, read):
    now = calendar.timegm((now_year, 7, 1, 0, 0, 0))
    wanted = calendar.timegm((read, 3, 1, 0, 0, 0))
    assert retry.parse_date("Monday, 01-Mar-%02d 00:00:00 GMT" % year, now) == wanted


HALF = lambda: 0.5
NONE = lambda: 0.0


@pytest.mark.parametrize("headers, body, seconds, source", [
    ([("retry-after-ms", "250"), ("Retry-After", "30")], None, 0.25, "retry-after-ms"),
    ([("Retry-After-Ms", "1500.5")], None, 1.5005, "retry-after-ms"),
    ([("retry-after-ms", "nan"), ("Retry-After", "3")], None, 3, "retry-after"),
    ([("retry-after-ms", "nan")], None, 1.0, "backoff"),
    ([("RETRY-AFTER", "1.5")], 9.0, 1.5, "retry-after"),
    ([], 1.660853464, 1.660853464, "body"),
    ([("Retry-After", "soon")], 4.0, 4.0, "body"),
    ([("Retry-After", "5"), ("retry-after", "5")], None, 5, "retry-after"),
    ([("Retry-After", "5"), ("retry-after", "5.0")], None, 5, "retry-after"),
    ([("Retry-After", "5"), ("retry-after", "6")], None, 1.0, "backoff"),
    ([("Retry-After", "5"), ("retry-after", "soon")], None, 1.0, "backoff"),
    ([("Retry-After", "9" * 400)], None, retry.OVER, "retry-after"),
    ([("x-ratelimit-reset-requests", "6m0s"), ("x-ratelimit-reset-tokens", "120ms"), ("x-ratelimit-reset", "2"),
      ("anthropic-ratelimit-unified-reset", "784111779"), ("anthropic-ratelimit-unified-reset", "784111779000")],
     None, 1.0, "backoff"),
])
def test_sources_in_their_order(headers, body, seconds, source):
    found = retry.wait_for(headers, body, 1, 2.0, 60.0, NOW, HALF if source == "backoff" else NONE)
    assert found == {"seconds": seconds, "source": source}


def test_an_asked_time_is_never_shortened_and_grows_by_a_tenth_at_most():
    rng = random.Random(1)
    for _ in range(500):
        asked = rng.choice((0, 0.25, 1, 1.5, 59.9, 3600))
        wait = retry.wait_for([("Retry-After", str(asked))], None, 1, 1, 60, NOW, rng.random)["seconds"]
        assert asked <= wait <= asked * 1.1
    assert retry.wait_for([("Retry-After", "9" * 30)], None, 1, 1, 60, NOW, lambda: 0.999)["seconds"] == retry.OVER


def test_backoff_is_full_jitter_under_a_doubling_ceiling():
    assert [retry.backoff(n, 1, 60, lambda: 1.0) for n in (1, 2, 3, 4, 7, 8, 1000)] == [1, 2, 4, 8, 60, 60, 60]
    assert retry.backoff(5, 1, 60, lambda: 0.25) == 4
    assert retry.backoff(0, 1, 60, lambda: 1.0) == 1


@pytest.mark.parametrize("values, refused", [(["false"], True), ([" FALSE "], True), (["true"], False), ([], False),
                                             (["0"], False), (["true", "false"], True)])
def test_x_should_retry(values, refused):
    assert retry.server_refuses_retry([("X-Should-Retry", value) for value in values]) is refused


@pytest.mark.parametrize("text, seconds", [
    ("Please try again in 3.5s.", 3.5), ("Please try again in 1m30s.", 90), ("Please try again in 250ms.", 0.25),
    ("Try again in 6 minutes", 360), ("try again in 1h2m3s", 3723), ("Please retry in 1.660853464s.", 1.660853464),
    ("Please retry after 26 seconds.", 26), ("retry after 2s", 2), ("Please wait 20 seconds before", 20),
    ("try again in about 5 minutes", 300), ("Please try again in 1 hour, 5 minutes", 3900), ("TRY AGAIN IN 2 SECONDS", 2),
    ("try again in 999999999999999 days", retry.OVER),
    ("try again at 3:40 AM", None), ("try again in 5", None), ("try again later", None), ("in 5s", None), ("", None),
    ("try again in -5s", None), ("try again in nans", None), ("try again in \u0665s", None), ("try again in 5 stops", None),
    ("x" * 3000 + "try again in 5s", None), (None, None), (5, None), (["try again in 5s"], None),
])
def test_phrases(text, seconds):
    assert body_delays.phrase_delay(text) == seconds


INFO = "type.googleapis.com/google.rpc.RetryInfo"


@pytest.mark.parametrize("body, seconds", [
    ({"error": {"details": [{"@type": INFO, "retryDelay": "38s"}], "message": "try again in 5s"}}, 38),
    ([{"error": {"details": [{"@type": INFO, "retryDelay": "0.250000000s"}]}}], 0.25),
    ({"error": {"details": [{"@type": INFO, "retryDelay": {"seconds": "38", "nanos": 5}}]}}, 38),
    ({"error": {"error": {"message": "try again in 5s"}}}, 5), ({"error": {"message": {"message": "x", "retry_after": 7}}}, 7),
    ({"error": {"details": [{"@type": INFO, "retryDelay": "-3s"}], "message": "x"}}, None),
    ({"error": {"details": [{"@type": INFO, "retryDelay": "3"}, 5, None], "message": "try again in 5s"}}, 5),
    ({"error": {"message": "x", "retry_after": 1.5}}, 1.5), ({"error": {"retry_after_ms": 1500}}, 1.5),
    ({"error": "try again in 2s"}, 2), ({"detail": "try again in 2s"}, 2), ({"message": "try again in 2s"}, 2),
    ({"error": {"metadata": {"retry_after_seconds": 7}}}, 7), ({"retry_after": "4"}, 4),
    ({"type": "response.failed", "response": {"error": {"message": "Please try again in 3.5s."}}}, 3.5),
    ({"error": {"retry_after": float("inf")}}, None), ({"error": {"retry_after": float("nan")}}, None),
    ({"error": {"retry_after": -1}}, None), ({"error": {"retry_after": True}}, None),
    ({"error": {"retry_after": 10 ** 30}}, retry.OVER),
    ({"error": {"resets_in_seconds": 1800}}, None), ({}, None), (None, None), ([], None), ("try again in 2s", None),
])
def test_body_delays(body, seconds):
    assert body_delays.body_delay(body) == seconds


def test_hostile_phrases_take_bounded_time():
    started = time.monotonic()
    for piece in ("try again in ", "1", "1s", "1 s, ", "try again in 1", "wait for about 1h", " "):
        for _ in range(20):
            body_delays.phrase_delay(piece * 4000)
            retry.parse_retry_after(piece * 4000, NOW)
            retry.parse_retry_after((piece * 4000)[:60], NOW)
    assert time.monotonic() - started < 30


def test_random_values_never_raise():
    rng = random.Random(9)
    alphabet = "0123456789.-+ ,:;GMTSunNov\t\n\u0663eExs_"
    for _ in range(20000):
        text = "".join(rng.choice(alphabet) for _ in range(rng.randrange(35)))
        seconds = retry.parse_retry_after(text, NOW)
        assert seconds is None or 0 <= seconds <= retry.OVER

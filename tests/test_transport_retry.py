"""Retries and waits on real sockets: what is retried, how long is waited, and what is passed on at the end.

Cases A01, A03, A04, A06, A07, A08, A09, A11, A12, A39, A53, D15. The grammar of delays has its own table tests.
"""
from __future__ import annotations

import time

import pytest

from tests.proxied import Proxied
from tests.rawserver import RawServer, json_answer

OK = json_answer()
SLOW_DOWN = b'{"error":{"type":"rate_limit_error","message":"slow down"}}'


def refusal(status=b"429 Too Many Requests", extra=b"", body=SLOW_DOWN):
    return json_answer(body, status, extra)


def ask(tmp_path, script, **settings):
    with RawServer(script) as server, Proxied(tmp_path, server.url, **settings) as proxy:
        began = time.monotonic()
        reply = proxy.ask(b"{}")
        took = time.monotonic() - began
    return reply, proxy.records(), took, server  # the last record is written a moment after the last byte


def test_a01_a_fractional_delay_is_waited(tmp_path):
    reply, records, took, _ = ask(tmp_path, [[refusal(extra=b"Retry-After: 1.5\r\n")], [OK]])
    assert reply.status == 200 and reply.body == OK.partition(b"\r\n\r\n")[2]
    assert 1.5 <= took < 15
    first, second = records
    assert first["status"] == 429 and first["retry_after"] == "1.5" and first["decision"] == "retried"
    assert first["wait"]["source"] == "retry-after" and 1.5 <= first["wait"]["seconds"] <= 1.65
    assert second["attempt"] == 2 and second["decision"] == "forwarded" and second["started_at"] - first["ended_at"] >= 1.49


@pytest.mark.parametrize("value", [b"nan", b"inf", b"-1", b"1e999", b"1_0", "٣".encode(), b"0x10", b"5, 7", b"5;q=1", b"", b"+2",
                                   b"Wed, 31 Feb 2026 07:28:00 GMT", b"2026-09-21T10:00:00Z"])
def test_a04_unreadable_delays_fall_back_to_backoff(tmp_path, value):
    reply, records, took, _ = ask(tmp_path, [[refusal(extra=b"Retry-After: " + value + b"\r\n")], [OK]])
    assert reply.status == 200 and took < 10
    assert records[0]["wait"]["source"] == "backoff" and records[0]["retry_after"] == value.decode("latin-1")


@pytest.mark.parametrize("empty", [
    json_answer(b""), b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    json_answer(b" \r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"], ids=["length 0", "no event", "white space", "204"])
@pytest.mark.parametrize("hold", ["answer", "first_event"])
def test_an_answer_without_content_is_a_truncation(tmp_path, empty, hold):
    reply, records, _, _ = ask(tmp_path, [[empty], [OK]], retry={"base": 0.01, "hold": hold})
    assert reply.status == 200 and reply.body == OK.partition(b"\r\n\r\n")[2]
    first, second = records
    assert (first["decision"], first["rule"], first["failure"]) == ("retried", "held_cut", "stream_interrupted")
    assert first["error"]["kind"] == "no_terminal" and second["rule"] == "success"


@pytest.mark.parametrize("value", [b"9" * 400, b"Fri, 31 Dec 9999 23:59:59 GMT", b"3600"])
def test_a_wait_beyond_the_bound_means_giving_up_now(tmp_path, value):
    reply, records, took, server = ask(tmp_path, [[refusal(extra=b"Retry-After: " + value + b"\r\nx-request-id: r9\r\n")]])
    assert (reply.status, reply.body, reply.header(b"x-request-id")) == (429, SLOW_DOWN, b"r9")
    assert reply.header(b"retry-after") == value and took < 10 and server.turns == 1
    assert (records[0]["decision"], records[0]["rule"], records[0]["failure"]) == ("gave_up", "wait_over_max", "rate_limited")


@pytest.mark.parametrize("extra, tries, source", [
    (b"retry-after-ms: 250\r\nRetry-After: 30\r\n", 2, "retry-after-ms"),
    (b"x-should-retry: false\r\nRetry-After: 1\r\n", 1, None),
    (b"retry-after-ms: nan\r\n", 2, "backoff"),
    (b"x-ratelimit-reset-requests: 6m0s\r\n", 2, "backoff"),
    (b"anthropic-ratelimit-unified-reset: 4070908800\r\n", 2, "backoff"),
    (b"anthropic-ratelimit-unified-reset: 4070908800000\r\n", 2, "backoff"),
])
def test_a06_a07_which_header_counts(tmp_path, extra, tries, source):
    reply, records, took, server = ask(tmp_path, [[refusal(extra=extra)], [OK]])
    assert len(records) == tries == len(server.requests) and took < 10
    if tries == 1:
        assert reply.status == 429 and reply.header(b"x-should-retry") == b"false"
    else:
        assert reply.status == 200 and records[0]["wait"]["source"] == source
    name = extra.partition(b":")[0].decode().lower()
    assert name in records[0]["response_headers"]


A08 = (b'{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Please retry in 0.660853464s.","details":'
       b'[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"0.660853464s"}]}}')


def test_a08_a_delay_in_the_body(tmp_path):
    _, records, took, _ = ask(tmp_path, [[refusal(body=A08)], [OK]])
    assert 0.66 <= took and records[0]["wait"]["source"] == "body"
    (tmp_path / "b").mkdir()
    reply, _, _, _ = ask(tmp_path / "b", [[refusal(body=A08)]], retry={"max_attempts": 2})
    assert reply.status == 429 and reply.body == A08 and reply.header(b"content-length") == b"%d" % len(A08)


def test_a09_an_exhausted_account_is_not_retried(tmp_path):
    body = (b'{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,'
            b'"code":"insufficient_quota"}}')
    reply, records, _, server = ask(tmp_path, [[refusal(extra=b"Retry-After: 1\r\n", body=body)], [OK]])
    assert reply.status == 429 and reply.body == body and server.turns == 1
    assert records[0]["failure"] == "quota_exhausted" and records[0]["decision"] == "forwarded"


def test_a11_the_last_real_answer_is_passed_on(tmp_path):
    script = [[refusal(extra=b"Retry-After: 0\r\nx-request-id: req-%d\r\n" % n, body=b'{"error":{"message":"attempt %d"}}' % n)]
              for n in range(1, 9)]
    reply, records, took, server = ask(tmp_path, script, retry={"max_attempts": 4})
    assert reply.status == 429 and reply.header(b"x-request-id") == b"req-4" and b"attempt 4" in reply.body
    assert server.turns == 4 == len(records) and took < 10
    assert [r["decision"] for r in records] == ["retried"] * 3 + ["gave_up"] and records[-1]["rule"] == "max_attempts"
    assert [r["attempt"] for r in records] == [1, 2, 3, 4]


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_a12_every_attempt_has_its_record(tmp_path):
    created, text = b'data: {"type":"response.created"}\n\n', b'data: {"type":"response.output_text.delta","delta":"x"}\n\n'
    reply, records, _, server = ask(tmp_path, [[refusal(extra=b"Retry-After: 0\r\n")],
                                               [STREAM_HEAD, chunk(created), chunk(text), ("sleep", 0.1), "rst"]])
    assert [r["status"] for r in records] == [429, 200] and server.turns == 2
    assert records[1]["error"]["phase"] == "body" and records[1]["failure"] == "stream_interrupted"
    assert records[1]["response_bytes"] == len(created + text) and records[1]["rule"] == "client_has_bytes"
    assert reply.status == 200 and reply.body == created + text and reply.end != "framed"


def test_a_held_stream_that_breaks_is_retried_and_at_last_passed_on_broken(tmp_path):
    created = b'data: {"type":"response.created"}\n\n'
    script = [[STREAM_HEAD, chunk(created), "rst"]]
    reply, records, _, server = ask(tmp_path, script, retry={"max_attempts": 3})
    assert [r["decision"] for r in records] == ["retried", "retried", "gave_up"] and server.turns == 3
    assert reply.status == 200 and reply.body == created and reply.end != "framed"
    (tmp_path / "b").mkdir()
    reply, records, _, _ = ask(tmp_path / "b", script + [[OK]])
    assert reply.status == 200 and reply.end == "framed" and len(records) == 2


def test_a53_no_retry_once_bytes_are_with_the_client(tmp_path):
    reply, records, _, server = ask(tmp_path, [[STREAM_HEAD + chunk(b"data: {}\n\n"), "rst"], [OK]])
    assert server.turns == 1 and reply.wire.count(b"HTTP/1.1") == 0
    assert reply.body == b"data: {}\n\n" and reply.end != "framed" and records[0]["error"]["phase"] == "body"


def test_a39_ambiguous_failures_are_replayed_as_often_as_allowed(tmp_path):
    for replays, sends in ((0, 1), (1, 2)):
        path = tmp_path / str(replays)
        path.mkdir()
        reply, records, _, server = ask(path, [["read", "rst"]], retry={"ambiguous_replays": replays})
        assert len(server.requests) == sends == len(records)
        assert all(r["ambiguous"] and r["error"]["phase"] == "head" and r["sent_at"] for r in records)
        assert reply.status == 502 and reply.header(b"x-should-retry") == b"false" \
            and "reset" in reply.json["error"]["message"].lower()
        assert records[-1]["decision"] == "gave_up" and records[-1]["failure"] == "connection"


def test_d15_recovered_attempts_are_counted(tmp_path):
    reply, records, _, _ = ask(tmp_path, [[refusal(extra=b"Retry-After: 0.2\r\n")], [refusal(extra=b"Retry-After: 0.2\r\n")],
                                          ["read", "rst"], [OK]])
    assert reply.status == 200 and [r["status"] for r in records] == [429, 429, None, 200]


def test_a_refused_connection_is_retried_and_answered(tmp_path):
    with RawServer([[OK]]) as server:
        port = server.port
    with Proxied(tmp_path, "http://127.0.0.1:%d/v1" % port, retry={"max_attempts": 3}) as proxy:
        reply = proxy.ask(b"{}")
        records = proxy.records(3)
        summary = proxy.transport.summary()
    assert reply.status == 502 and [r["error"]["phase"] for r in records] == ["connect"] * 3
    assert records[0]["error"]["kind"] == "refused" and not records[0]["ambiguous"]
    assert summary["main"]["last"]["decision"] == "gave_up" and summary["retries"] == 2


@pytest.mark.parametrize("layout", ["%a %b %e %H:%M:%S %Y", "%A, %d-%b-%y %H:%M:%S GMT", "%a, %d %b %Y %H:%M:%S -0000"])
def test_a03_all_dates_are_utc(tmp_path, monkeypatch, layout):
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        date = time.strftime(layout, time.gmtime(time.time() + 2)).encode()
        reply, records, took, _ = ask(tmp_path, [[refusal(extra=b"Retry-After: " + date + b"\r\n")], [OK]])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert reply.status == 200 and records[0]["wait"]["source"] == "retry-after" and 0.5 < took < 20

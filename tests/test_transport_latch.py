"""A request that comes again: attempts count per fingerprint, hopeless ones are answered at once, an open wait is joined."""
from __future__ import annotations

import time

import pytest

from tests.proxied import Proxied, request
from tests.rawserver import RawServer, json_answer

OK = json_answer()


def refuse(status, body, extra=b""):
    return json_answer(body, status, extra)


BAD_KEY = b'{"error":{"message":"Incorrect API key","type":"invalid_request_error","code":"invalid_api_key"}}'


def test_attempts_are_counted_across_the_clients_repeats(tmp_path):
    with RawServer([[refuse(b"503 No", b'{"error":{"message":"busy"}}')]]) as server, \
            Proxied(tmp_path, server.url, retry={"max_attempts": 3}) as proxy:
        replies = [proxy.ask(b"{}") for _ in range(3)]
        assert server.turns == 3 and {r.status for r in replies} == {503} and len({r.body for r in replies}) == 1
        assert proxy.ask(b'{"other":1}').status == 503 and server.turns == 6
    assert [r["decision"] for r in proxy.records()[:5]] == ["retried", "retried", "gave_up", "latched", "latched"]
    assert proxy.records()[3]["provider_error"]["message"] == "busy"
    assert proxy.records()[3]["failure"] == "overloaded" and proxy.records()[3]["rule"] == "attempts_used_up"


def test_success_resets_the_count(tmp_path):
    busy = [refuse(b"503 No", b'{"error":{"message":"busy"}}')]
    with RawServer([busy, busy, [OK], busy, busy, [OK]]) as server, Proxied(tmp_path, server.url,
        retry={"max_attempts": 3}) as proxy:
        assert [proxy.ask(b"{}").status for _ in range(2)] == [200, 200] and server.turns == 6


@pytest.mark.parametrize("status, body, latched", [
    (b"401 Unauthorized", BAD_KEY, True), (b"400 Bad Request",
        b'{"error":{"message":"bad","type":"invalid_request_error"}}', True),
    (b"403 Forbidden", b"<html>blocked</html>", False), (b"401 Unauthorized", b"no json", False)])
def test_what_cannot_heal_is_answered_at_once(tmp_path, status, body, latched):
    with RawServer([[refuse(status, body)], [OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        first, second = proxy.ask(b"{}"), proxy.ask(b"{}")
        assert first.body == body and server.turns == (1 if latched else 2)
        if latched:
            assert (second.head, second.body) == (first.head, first.body)
            assert proxy.ask(b'{"other":1}').status == 200
    assert [r["decision"] for r in proxy.records()][1] == ("latched" if latched else "forwarded")


def test_an_unpassed_retry_after_is_answered_at_once(tmp_path):
    with RawServer([[refuse(b"429 Slow", b'{"error":{"type":"rate_limit_error"}}', b"Retry-After: 300\r\n")], [OK]]) as server, \
            Proxied(tmp_path, server.url, retry={"max_wait": 1}) as proxy:
        assert [proxy.ask(b"{}").status for _ in range(2)] == [429, 429] and server.turns == 1
    assert proxy.records()[1]["rule"] == "retry_after_not_passed"


def test_a_repeat_joins_the_open_wait(tmp_path):
    slow = refuse(b"429 Slow", b'{"error":{"type":"rate_limit_error"}}', b"Retry-After: 1\r\n")
    with RawServer([[slow], [OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        first = proxy.connect()
        first.send(request())
        proxy.records(1)
        began = time.monotonic()
        first.sock.close()  # leaves while the wait is open
        assert proxy.ask(b"{}").status == 200 and server.turns == 2
        assert 0.5 < time.monotonic() - began < 15


def test_an_abandoned_request_decides_nothing(tmp_path):
    with RawServer([["read", ("hold",)], ["read", ("hold",)], [OK]]) as server, Proxied(tmp_path, server.url,
        retry={"max_attempts": 1}) as proxy:
        for number in (1, 2):
            client = proxy.connect()
            client.send(request())
            while server.turns < number or len(server.requests) < number:
                time.sleep(0.005)
            client.sock.close()
            proxy.records(number)
        assert proxy.ask(b"{}").status == 200
    assert [(r["error"] or {}).get("phase") for r in proxy.records()] == ["client", "client", None]
    assert [r["attempt"] for r in proxy.records()] == [1, 1, 1] and proxy.records()[0]["failure"] is None


CUT = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata: {}"


@pytest.mark.parametrize("steps, status", [(["rst"], None), ([CUT, "rst"], 200)], ids=["no answer", "a broken one"])
def test_a_latched_record_has_the_upstreams_status(tmp_path, steps, status):
    with RawServer([steps]) as server, Proxied(tmp_path, server.url, retry={"max_attempts": 1}) as proxy:
        for _ in range(2):
            proxy.ask(b"{}")
    assert [(r["decision"], r["status"]) for r in proxy.records(2)][1] == ("latched", status)

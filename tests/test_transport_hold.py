"""Holding back: what waits, for how long, and what that makes possible. A14; hold first_event and answer."""
from __future__ import annotations

import threading
import time

import pytest

from tests.proxied import Proxied, request
from tests.rawserver import RawServer, json_answer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CREATED = b'event: response.created\ndata: {"type":"response.created","response":{"id":"r1"}}\n\n'
DELTA = b'data: {"type":"response.output_text.delta","delta":"x"}\n\n'
DONE = (b'data: {"type":"response.completed","response":{"id":"r1","status":"completed","output":[],"usage":'
        b'{"input_tokens":11,"output_tokens":7,"total_tokens":18}}}\n\n')
FAILED = b'data: {"type":"response.failed","response":{"id":"r1","error":{"code":"rate_limit_exceeded","message":"slow"}}}\n\n'
END = b"0\r\n\r\n"
QUICK = {"max_attempts": 3}


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def ask(tmp_path, script, hold="first_event", **settings):
    with RawServer(script) as server, Proxied(tmp_path, server.url, retry=dict(QUICK, hold=hold), **settings) as proxy:
        reply = proxy.ask(b"{}")
    return reply, proxy.records(), server


def test_preamble_waits_for_the_first_content_event(tmp_path):
    go = threading.Event()
    with RawServer([[HEAD + chunk(CREATED), ("wait", go), chunk(DELTA), ("sleep", 0.2), chunk(DONE) + END]]) as server, \
            Proxied(tmp_path, server.url) as proxy, proxy.connect() as client:
        client.send(request())
        client.sock.settimeout(0.2)
        with pytest.raises(OSError):
            client.sock.recv(1)
        client.sock.settimeout(30)
        go.set()
        assert client.until(chunk(DELTA)) and DONE not in client.data  # at once, long before the end
        reply = client.reply()
    assert reply.body == CREATED + DELTA + DONE and reply.end == "framed"


@pytest.mark.parametrize("hold", ["first_event", "answer"])
def test_an_error_before_content_is_retried(tmp_path, hold):
    reply, records, _ = ask(tmp_path, [[HEAD + chunk(CREATED) + chunk(FAILED) + END], [HEAD + chunk(DELTA + DONE) + END]], hold)
    assert reply.body == DELTA + DONE and reply.end == "framed"
    assert records[0]["failure"] == "rate_limited" and records[0]["stream_error"]["code"] == "rate_limit_exceeded"
    assert records[0]["decision"] == "retried"


A14 = [(b'data: {"type": "ping"}\n\ndata: {"type":"error","error":{"type":"rate_limit_error",'
        b'"message":"Concurrency limit exceeded, retry later"}}\n\n'),
       b'data: {"error":{"message":"x","code":429}}\n\n']


@pytest.mark.parametrize("body", A14)
def test_a14_an_error_without_event_line(tmp_path, body):
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + body
    reply, records, server = ask(tmp_path, [[answer, "fin"]])
    assert reply.status == 200 and reply.body == body and server.turns == 3  # given up: passed on unchanged
    assert all(r["failure"] == "rate_limited" for r in records) and records[-1]["rule"] == "max_attempts"


def test_an_error_after_content_is_passed_on_and_recorded(tmp_path):
    reply, records, server = ask(tmp_path, [[HEAD + chunk(DELTA), ("sleep", 0.05), chunk(FAILED) + END]])
    assert reply.body == DELTA + FAILED and reply.end == "framed" and server.turns == 1
    assert records[0]["failure"] == "rate_limited" and records[0]["rule"] == "client_has_bytes"


@pytest.mark.parametrize("first", [
    [HEAD + chunk(CREATED + DELTA), ("sleep", 0.05), "rst"], [HEAD + chunk(CREATED + DELTA), "fin"],
    [HEAD + chunk(CREATED + DELTA) + END], [HEAD + chunk(CREATED + DELTA) + chunk(FAILED) + END]])
def test_hold_answer_retries_whatever_broke(tmp_path, first):
    reply, records, server = ask(tmp_path, [first, [HEAD + chunk(DELTA) + chunk(DONE) + END]], "answer")
    assert reply.body == DELTA + DONE and reply.end == "framed" and [r["decision"] for r in records] == ["retried", "forwarded"]


@pytest.mark.parametrize("after", [["rst"], ["fin"], [("hold",)]])
def test_an_answer_is_complete_with_its_last_event_whatever_the_connection_does_then(tmp_path, after):
    """A server that leaves a stream open, or ends it without its last chunk, has been paid for this answer."""
    script = [[HEAD + chunk(CREATED + DELTA) + chunk(DONE), ("sleep", 0.05), *after]]
    with RawServer(script) as server, Proxied(tmp_path, server.url, retry={"hold": "answer"}) as proxy, proxy.connect() as client:
        client.send(request())
        assert client.until(chunk(DELTA)[-8:]) and client.until(chunk(DONE))
        assert proxy.transport.summary()["main"]["succeeded"] == 1 and not proxy.notified
    (record,) = proxy.records(1)
    assert server.turns == 1 and record["failure"] is None and record["decision"] == "forwarded" and record["error"]


def test_an_answer_that_its_server_broke_off_is_none(tmp_path):
    cancelled = b'data: {"type":"response.cancelled","response":{"status":"cancelled"}}\n\n'
    first = [HEAD + chunk(DELTA + cancelled), ("sleep", 0.05), "rst"]
    reply, records, _ = ask(tmp_path, [first, [HEAD + chunk(DELTA) + chunk(DONE) + END]], "answer")
    assert reply.body == DELTA + DONE and [r["decision"] for r in records] == ["retried", "forwarded"]


@pytest.mark.parametrize("reason, ended_by", [(b"max_output_tokens", "output_limit"), (b"length", "output_limit"), (b"SAFETY", "refusal")])
def test_an_answer_that_ended_at_a_limit_is_one_in_whatever_words(tmp_path, reason, ended_by):
    event = b'data: {"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"%s"}}}\n\n' % reason
    with RawServer([[HEAD + chunk(DELTA + event) + END]]) as server, Proxied(tmp_path, server.url, retry={"hold": "answer"}) as proxy:
        assert proxy.ask(b"{}").body == DELTA + event and server.turns == 1
        assert proxy.transport.summary()["main"]["ended_by"] == ended_by


def test_hold_answer_passes_a_broken_last_attempt_on(tmp_path):
    reply, records, server = ask(tmp_path, [[HEAD + chunk(CREATED + DELTA) + END]], "answer")
    assert reply.status == 200 and reply.body == CREATED + DELTA and reply.end == "fin" and server.turns == 3
    assert records[-1]["decision"] == "gave_up" and records[-1]["error"]["kind"] == "no_terminal"


def test_hold_answer_keeps_a_large_answer_on_disk(tmp_path):
    part = b"data: " + b"y" * 70000 + b"\n\n"
    reply, _, _ = ask(tmp_path, [[HEAD] + [chunk(part)] * 50 + [chunk(DONE) + END]], "answer")
    assert reply.body == part * 50 + DONE and reply.end == "framed"


def test_a_stalled_stream_ends_as_model_timeout(tmp_path):
    reply, records, server = ask(tmp_path, [[HEAD + chunk(CREATED), ("hold",)], [HEAD + chunk(DONE) + END]], idle_timeout=0.2)
    assert reply.body == DONE and records[0]["failure"] == "model_timeout" and records[0]["error"]["kind"] == "idle_timeout"


def test_keep_alives_are_nothing_of_an_answer(tmp_path):
    """A gateway pings by its own clock, also where the model behind it has died. The worker looks at `idle_s` at the deadline."""
    go, first, second = threading.Event(), threading.Event(), threading.Event()
    pings = [b": PROCESSING\n\n", b'event: ping\ndata: {"type": "ping"}\n\n', b"data:\n\n: 1"]
    script = [[HEAD + chunk(DELTA), chunk(pings[0]), ("wait", go), *map(chunk, pings), ("wait", first), chunk(DELTA), ("wait", second),
               "fin"], ["read", ("hold",)]]
    with RawServer(script) as server, Proxied(tmp_path, server.url) as proxy, proxy.connect() as client, proxy.connect() as again:
        said = lambda: proxy.transport.summary()["main"]["open"]  # noqa: E731
        client.send(request())
        assert client.until(chunk(pings[0]))
        before = said()["idle_s"]
        time.sleep(0.1)
        go.set()
        assert client.until(chunk(pings[-1])) and said()["idle_s"] >= before + 0.099
        before = said()["idle_s"]
        first.set()
        while said()["idle_s"] >= before:
            time.sleep(0.01)
        second.set()
        while client.more():
            pass
        again.send(request())  # the CLI's own repeat of what failed: still failed while nobody answers
        while len(server.requests) < 2 or said()["state"] != "sent":
            time.sleep(0.01)
        assert said()["last_record"]["failure"] == "stream_interrupted"


def test_no_first_byte_ends_as_model_timeout(tmp_path):
    reply, records, server = ask(tmp_path, [["read", ("hold",)], [json_answer()]], first_byte_timeout=0.2)
    assert reply.status == 200 and records[0]["error"] == {"phase": "head", "kind": "first_byte_timeout",
                                                           "message": records[0]["error"]["message"]}
    assert records[0]["ambiguous"] is True


def test_the_clients_own_timer_is_forestalled(tmp_path):
    began = time.monotonic()
    reply, records, server = ask(tmp_path, [["read", ("hold",)]], "answer", client_timer=1.0)  # so short: half of it
    assert reply.status == 502 and 0.4 < time.monotonic() - began < 10 and server.turns == 1
    assert records[0]["error"]["kind"] == "client_timer" and records[0]["decision"] == "gave_up"


def test_the_hold_ends_after_five_seconds(tmp_path):
    began = time.monotonic()
    with RawServer([[HEAD + chunk(CREATED), ("hold",)]]) as server, Proxied(tmp_path,
        server.url) as proxy, proxy.connect() as client:
        client.send(request())
        assert client.until(chunk(CREATED)) and 4.9 < time.monotonic() - began < 25
    assert proxy.records()[0]["error"]["phase"] in ("client", "shutdown")

"""Promise: 64 streams at once, requests of any size, heads up to 256 KiB, slow and hostile clients: threads, descriptors and
memory are bounded, and what cannot be served is told so and recorded. Case A47."""
from __future__ import annotations

import hashlib
import json
import os
import resource
import socket
import threading
import time

import pytest

from tests.proxied import Proxied, request
from tests.rawserver import RawServer, json_answer
from transport import reception
from transport.engine import Engine

OK = json_answer()


def test_a47_a_large_request_is_sent_whole(tmp_path):
    data = b'{"model":"m","input":"' + b"A" * (48 << 20) + b'"}'
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        reply = proxy.ask(data)
        (record,) = proxy.records(1)
    assert reply.status == 200 and len(server.requests[0][2]) == len(data)
    assert hashlib.sha256(server.requests[0][2]).hexdigest() == hashlib.sha256(data).hexdigest() == record["request_sha256"]
    assert record["request_bytes"] == len(data) and record["model"] == "m"


def test_a_large_request_is_replayed(tmp_path):
    data = b"{" + b" " * (3 << 20) + b"}"
    with RawServer([["read", json_answer(b"{}", b"503 No", b"Retry-After: 0\r\n")], [OK]]) as server, \
            Proxied(tmp_path, server.url) as proxy:
        assert proxy.ask(data).status == 200
    assert server.requests[0][2] == server.requests[1][2] == data
    assert proxy.body(1, "request") == data


def test_an_early_answer_to_a_large_request(tmp_path):
    """A server may say 413 and close before it has read everything; the answer must arrive (httpcore does the same)."""
    data = b"x" * (32 << 20)
    answer = json_answer(b'{"error":{"message":"too large"}}', b"413 Content Too Large", b"Connection: close\r\n")
    with RawServer([[("read_head",), answer, ("sleep", 0.3), "fin"]]) as server, Proxied(tmp_path, server.url) as proxy:
        reply = proxy.ask(data)
    assert reply.status == 413 and server.turns == 1 and proxy.records()[0]["status"] == 413
BIG = b"x" * (32 << 20)
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"type":"response.completed","response":{"usage":{"input_tokens":1}}}\n\n'


@pytest.mark.parametrize("early", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 102 Processing\r\n\r\n" * 2, STREAM])
def test_an_early_word_that_is_no_error_does_not_end_the_upload(tmp_path, early):
    """RFC 9112 9.5: only an error says that the rest is not wanted. A `100` that nobody asked for, a stream that begins early."""
    rest = (b"" if early is STREAM else STREAM) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(EVENT), EVENT)
    got = []

    def read_the_rest(sock):
        time.sleep(0.2)  # the upload is blocked meanwhile
        while sum(got) < len(BIG) - 65536:
            got.append(len(sock.recv(1 << 20)))

    with RawServer([[("read_head",), early, ("call", read_the_rest), rest, ("hold",)]]) as server, \
            Proxied(tmp_path, server.url) as proxy:
        reply = proxy.ask(BIG)
        (record,) = proxy.records(1)
    assert (reply.status, reply.body, reply.end) == (200, EVENT, "framed")
    assert record["failure"] is None and server.connections == 1


def test_heads_up_to_256_kib_pass(tmp_path):
    headers = ["X-%d: %s" % (number, "y" * 1000) for number in range(250)]
    with RawServer([[json_answer(extra=("\r\n".join(headers) + "\r\n").encode())]]) as server, \
            Proxied(tmp_path, server.url) as proxy:
        reply = proxy.ask(b"{}", headers=headers)
    sent, got = server.requests[0][1].split(b"\r\n"), reply.head.split(b"\r\n")
    assert reply.status == 200 and {line.encode() for line in headers} <= set(sent) & set(got)


def test_empty_lines_without_end_disturb_nobody(tmp_path):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy, proxy.connect() as client:
        client.send(b"\r\n" * 200000 + request())
        assert client.reply().status == 200 and proxy.ask(b"{}").status == 200


def test_when_connections_run_out_the_longest_idle_one_makes_room(tmp_path, monkeypatch):
    monkeypatch.setattr(reception, "MAX_CONNECTIONS", 4)
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        idle = [proxy.connect() for _ in range(4)]
        for client in idle:
            client.send(request())
            assert client.reply().status == 200
            while sum(each.idle_since is not None for each in list(proxy.transport.reception().clients)) < len(idle):
                pass  # a thread is still on its way: to its first request, or back from this answer
        assert proxy.ask(b"1").status == 200
        assert not idle[0].more()
        idle[3].send(request())
        assert idle[3].reply().status == 200


def test_a_thread_that_cannot_be_had_is_a_503_and_a_record(tmp_path, monkeypatch):
    go = threading.Event()
    with RawServer([["read", ("wait", go), OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        busy = proxy.connect()
        busy.send(request())
        while not server.requests or proxy.transport.reception().free:
            pass  # the only handler is at work
        monkeypatch.setattr(proxy.transport, "new_thread",
            lambda target: (_ for _ in ()).throw(RuntimeError("can't start new thread")))
        with proxy.connect() as client:
            reply = client.reply()
        assert reply.status == 503 and reply.header(b"x-should-retry") == b"false"
        go.set()
        assert busy.reply().status == 200
    assert sorted(r["rule"] for r in proxy.records()) == ["no_thread", "success"]


def test_a_descriptor_that_cannot_be_had_is_a_503_and_a_record(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        assert proxy.ask(b"1").status == 200
        while proxy.transport.reception().connections:
            pass  # its descriptor is still on the way back
        client, spare = socket.socket(), []
        try:
            # The limit is on the number, and other tests of this process may hold higher ones.
            highest = max(map(int, os.listdir("/proc/self/fd")))
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 32, hard))
            while True:
                try:
                    spare.append(open("/dev/null"))
                except OSError:
                    break
            client.settimeout(30)
            client.connect(("127.0.0.1", proxy.transport.port))
            answer = client.recv(65536)
        finally:
            for file in spare:
                file.close()
            client.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert answer.startswith(b"HTTP/1.1 503 ") and proxy.ask(b"2").status == 200 and not proxy.transport.dead
    assert [r["rule"] for r in proxy.records()] == ["success", "no_thread", "success"]


def test_sixty_four_streams_at_once(tmp_path):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    event = b"data: " + json.dumps({"type": "response.output_text.delta", "delta": "x" * 100}).encode() + b"\n\n"
    last = b'data: {"type":"response.completed","response":{"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}\n\n'
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(e), e) for e in [event] * 50 + [last]) + b"0\r\n\r\n"
    gate = threading.Event()
    with RawServer([[head + chunks[:1000], ("wait", gate), chunks[1000:]]]) as server, Proxied(tmp_path, server.url) as proxy:
        clients = [proxy.connect() for _ in range(64)]
        for number, client in enumerate(clients):
            client.send(request(b"%d" % number))
        for client in clients:
            assert client.until(event)
        gate.set()
        for client in clients:
            reply = client.reply()
            assert reply.body == event * 50 + last and reply.end == "framed"
            client.sock.close()
    assert len(proxy.records()) == 64 and proxy.transport.summary()["usage"]["total_tokens"] == 128


def no_memory(*_):
    raise MemoryError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_no_memory_in_the_first_threads_leaves_no_client_waiting(tmp_path, monkeypatch):
    """Who accepts says that it is over (the run ends by that); who was to serve does not count as free."""
    with RawServer([[OK], [OK]]) as server:
        (tmp_path / "1").mkdir()
        with Proxied(tmp_path / "1", server.url) as proxy, monkeypatch.context() as short:
            short.setattr(Engine, "prepare", no_memory)
            proxy.transport.warm()
            proxy.transport.threads[1].join(20)
            assert proxy.ask(b"{}").status == 200
        (tmp_path / "2").mkdir()
        with Proxied(tmp_path / "2", server.url) as proxy, monkeypatch.context() as short:
            short.setattr(reception.Reception, "_give", no_memory)
            with proxy.connect():
                proxy.transport.threads[0].join(20)
            assert proxy.transport.dead and len(proxy.notified) == 1

"""Who leaves first: clients that go, clients that only half-close, a run that stops. A52."""
from __future__ import annotations

import os
import socket
import struct
import threading
import time

import pytest

from tests.proxied import TOKEN, Proxied, request
from tests.rawserver import RawServer, json_answer
from transport import departure

OK = json_answer()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DELTA = b'data: {"type":"response.output_text.delta","delta":"x"}\n\n'
CHUNK = b"%x\r\n%s\r\n" % (len(DELTA), DELTA)


def leave(client, how):
    if how == "rst":
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sock.close()


def test_a_client_that_leaves_before_the_answer(tmp_path, monkeypatch):
    for how in ("fin", "rst", "fin, seen in the table"):
        if how.endswith("table"):
            monkeypatch.setattr(departure, "_asked", lambda *ends: None)
        path = tmp_path / how
        path.mkdir()
        with RawServer([["read", ("hold",)]]) as server, Proxied(path, server.url) as proxy:
            client = proxy.connect()
            client.send(request())
            while not server.requests:
                time.sleep(0.005)
            leave(client, how)
            (record,) = proxy.records(1)
        assert record["error"]["phase"] == "client" and record["decision"] == "gave_up" and record["rule"] == "client_left"
        assert record["failure"] is None and record["ended_at"] >= record["sent_at"]


def test_a_client_that_leaves_after_a_failure_says_which(tmp_path):
    busy = json_answer(b'{"error":{"message":"busy"}}', b"503 No")
    with RawServer([[busy], ["read", ("sleep", 0.1), ("hold",)]]) as server, Proxied(tmp_path, server.url) as proxy:
        client = proxy.connect()
        client.send(request())
        while len(server.requests) < 2:
            time.sleep(0.005)
        time.sleep(0.1)
        leave(client, "fin")
        record = proxy.records(2)[1]
    assert record["rule"] == "client_left" and record["error"]["earlier"] == "overloaded" and record["error"]["idle_s"] >= 0.1


def test_a_client_that_leaves_in_the_middle_of_a_stream(tmp_path):
    with RawServer([[HEAD + CHUNK, ("hold",)]]) as server, Proxied(tmp_path, server.url) as proxy:
        client = proxy.connect()
        client.send(request())
        assert client.until(CHUNK)
        leave(client, "fin")
        (record,) = proxy.records(1)
    assert record["error"]["phase"] == "client" and record["status"] == 200 and record["events"] == 1
    assert record["response_bytes"] == len(DELTA) and record["decision"] == "forwarded"


@pytest.mark.parametrize("how", ["fin", "rst", "half-close"])
def test_a_client_that_leaves_before_its_request_is_complete(tmp_path, how):
    """Nothing was sent to the upstream, and there is a record all the same."""
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        client = proxy.connect()
        client.send(request(b"x" * 1000)[:-10])
        if how == "half-close":
            client.sock.shutdown(socket.SHUT_WR)
            assert not client.more()
        else:
            leave(client, how)
        (record,) = proxy.records(1)
        assert proxy.ask(b"{}").status == 200
    assert (record["decision"], record["rule"], record["error"]["phase"]) == ("refused", "client_left", "client")
    assert record["request_bytes"] == 990 and record["sent_at"] is None and len(server.requests) == 1


def test_a_wait_ends_when_the_client_leaves(tmp_path):
    with RawServer([[json_answer(b"{}", b"429 Slow", b"Retry-After: 60\r\n")]]) as server, Proxied(tmp_path, server.url) as proxy:
        client = proxy.connect()
        client.send(request())
        proxy.records(1)
        leave(client, "fin")
        until = time.monotonic() + 10
        while proxy.transport.summary()["main"]["open"] is not None:
            assert time.monotonic() < until
            time.sleep(0.01)
    assert proxy.transport.summary()["main"]["last"]["decision"] == "retried"


@pytest.mark.parametrize("kernel_tells", (True, False))
def test_a_half_closed_client_gets_its_answer(tmp_path, monkeypatch, kernel_tells):
    if not kernel_tells:  # as in gVisor: the table is read
        monkeypatch.setattr(departure, "_asked", lambda *ends: None)
    go = threading.Event()
    with RawServer([["read", ("wait", go), OK]]) as server, Proxied(tmp_path, server.url) as proxy, proxy.connect() as client:
        client.send(request())
        client.sock.shutdown(socket.SHUT_WR)
        while not server.requests:
            time.sleep(0.005)
        time.sleep(0.1)  # not synchronisation: long enough for a mistaken departure to show
        go.set()
        assert client.reply().status == 200
    assert proxy.records()[0]["error"] is None


@pytest.mark.parametrize("seen, gone", [
    ((7, 7, 7), False), ((7, 0), True), ((0,), True), ((-1, 7, 7), False), ((-1, -1, -1), True), ((-1, 7, -1), False), ((None,), False)])
def test_only_a_socket_that_stays_away_is_gone(monkeypatch, seen, gone):
    """/proc/net/tcp is not read in one step: under many connections the line of a living socket may be missing once."""
    looks = iter(seen)
    monkeypatch.setattr(departure, "_LOOKS", (0,) * len(seen))
    monkeypatch.setattr(departure, "peer_inode", lambda sock: next(looks))
    assert departure.closed_by_peer(None) is gone


def test_the_kernel_and_its_table_say_the_same():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        here = listener.accept()[0]
    with here:
        ends = [(socket.inet_aton(host), port) for host, port in (here.getpeername(), here.getsockname())]
        inode, answers = os.fstat(client.fileno()).st_ino, departure._asked(*ends) is not None  # not in gVisor
        for act, seen in ((lambda: None, inode), (lambda: client.shutdown(socket.SHUT_WR), inode), (client.close, 0)):
            act()
            assert departure._listed(*ends) == seen
            assert departure._asked(*ends) == (seen if answers else None)
            assert departure.closed_by_peer(here) is (seen == 0)
        nobody = (ends[0][0], 1)
        assert departure._asked(nobody, ends[1]) is None and departure._listed(nobody, ends[1]) == departure._MISSING


def test_a52_a_stopped_run_ends_every_stream_and_records_it(tmp_path, monkeypatch):
    """Its waits for other threads have no deadline of the wall clock, which Python before 3.10 gives to a lock (bpo-41710)."""
    timed = []
    for kind, name in ((threading.Condition, "wait"), (threading.Thread, "join")):
        method = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda self, timeout=None, method=method: timed.append(timeout) or method(self, timeout))
    with RawServer([[HEAD + CHUNK, ("sleep", 3600)]]) as server, Proxied(tmp_path, server.url) as proxy:
        clients = [proxy.connect() for _ in range(5)]
        for client in clients:
            client.send(request())
            assert client.until(CHUNK)
        waiting = proxy.connect()
        waiting.send(b"POST /v1/resp")
        began = time.monotonic()
        del timed[:]
        proxy.transport.stop(grace=1.0)
        assert set(timed) <= {None, 3600} and time.monotonic() - began < 5  # the scripted server waits for its hour
        assert not clients[0].more()
        for client in clients:
            client.sock.close()
    records = proxy.records()
    assert len(records) == 5 and {r["error"]["phase"] for r in records} == {"shutdown"} \
        and {r["rule"] for r in records} == {"shutdown"}


def test_stop_ends_waits_and_slow_readers(tmp_path):
    big = b"x" * (64 << 20)
    with RawServer([[json_answer(b"{}", b"429 Slow", b"Retry-After: 60\r\n")], [json_answer(big)]]) as server, \
            Proxied(tmp_path, server.url, bodies="none") as proxy:
        first, second = proxy.connect(), proxy.connect()
        first.send(request(b"1"))
        proxy.records(1)
        second.send(request(b"2"))
        assert second.until(b"\r\n\r\n")
        began = time.monotonic()
        proxy.transport.stop(grace=1.0)
        assert time.monotonic() - began < 5
    assert proxy.records()[1]["error"]["phase"] == "shutdown"


def test_stop_ends_an_upload_that_never_pauses(tmp_path):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url, bodies="none") as proxy:
        client, piece = proxy.connect(), b"u" * (1 << 20)
        client.send(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (
            TOKEN.encode(), 1 << 30))

        def upload():
            try:
                while True:
                    client.sock.sendall(piece)
            except OSError:
                pass  # the end that is wanted
        sender = threading.Thread(target=upload, daemon=True)
        sender.start()
        while proxy.transport.reception().connections == 0:
            time.sleep(0.001)
        began = time.monotonic()
        proxy.transport.stop(grace=5.0)
        sender.join(20)
        assert time.monotonic() - began < 10 and not sender.is_alive() and server.requests == []


def test_slow_readers_and_writers_are_served(tmp_path):
    body = b"y" * (8 << 20)
    with RawServer([[json_answer(body)]]) as server, Proxied(tmp_path, server.url) as proxy, proxy.connect() as client:
        for byte in request():
            client.send(bytes([byte]))
        assert client.until(b"\r\n\r\n")
        time.sleep(0.3)  # a reader that pauses while everything behind it is full
        until = time.monotonic() + 10
        while not any(each.slow for each in list(proxy.transport.reception().clients)):
            assert time.monotonic() < until
            time.sleep(0.005)
        assert proxy.transport.summary()["main"]["open"]["idle_s"] == 0  # not the model's silence
        assert client.reply().body == body


def test_nothing_is_left_open(tmp_path):
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        for number in range(20):
            assert proxy.ask(b"%d" % number).status == 200
        idle = [proxy.connect() for _ in range(20)]
    for client in idle:
        client.sock.close()
    until = time.monotonic() + 10
    while len(os.listdir("/proc/self/fd")) > descriptors or threading.active_count() > threads:
        assert time.monotonic() < until, (os.listdir("/proc/self/fd"), threading.enumerate())
        time.sleep(0.01)

"""Limits: requests and tokens at the proxy, threads and descriptors, bytes in evidence; main and auxiliary requests."""
from __future__ import annotations

import json
import os
import resource
import socket
import threading

import pytest

from tests.proxied import KEY, TOKEN, Proxied, request
from tests.rawserver import RawServer, json_answer
from transport import reception

OK = json_answer()
RETRIED_WORDS = ("rate", "quota", "overload", "timeout", "timed out", "try again", "capacity", "unavailable")


def test_the_request_limit_ends_the_conversation(tmp_path):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url, limits={"requests": 3}, main_headers=["session-id"]) as proxy:
        main = [proxy.ask(b"%d" % n, headers=["session-id: s"]) for n in range(5)]
        other = [proxy.ask(b"%d" % n, headers=["session-id: other"]) for n in range(8)]
        summary = proxy.transport.summary()
        assert proxy.transport.final_answer_kind == "request_limit" and proxy.transport.final_answer_at and proxy.notified
    assert [r.status for r in main] == [200] * 3 + [400] * 2 and [r.status for r in other] == [200] * 6 + [400] * 2
    assert summary["limit"] == "request_limit" and summary["refused"] == 4
    message = main[-1].json["error"]["message"].lower()
    assert not [word for word in RETRIED_WORDS if word in message.replace("allowance of model requests", "")], message
    assert main[-1].header(b"x-should-retry") == b"false"


@pytest.mark.parametrize("limits, rule", [({"total_tokens": 10}, "token_limit"), ({"output_tokens": 4}, "token_limit")])
def test_token_limits(tmp_path, limits, rule):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url, limits=limits) as proxy:
        replies = []
        for n in range(3):
            replies.append(proxy.ask(b'{"n":%d}' % n).status)
            proxy.records(n + 1)
    assert replies == [200, 200, 400] and proxy.transport.summary()["limit"] == rule
    assert proxy.transport.summary()["usage"]["total_tokens"] == 10


@pytest.mark.parametrize("api, target, path", [("messages", "/v1/messages", ("error", "type")), ("chat",
    "/v1/chat/completions", ("error", "code")),
                                               ("generate_content", "/v1beta/models/g:generateContent", ("error", "status"))])
def test_a_refusal_speaks_the_callers_dialect(tmp_path, api, target, path):
    with RawServer([["rst"]]) as server, Proxied(tmp_path, "http://127.0.0.1:%d" % server.port, api=api,
        retry={"max_attempts": 1}) as proxy:
        reply = proxy.ask(b"{}", target=target)
    said = reply.json
    for name in path:
        said = said[name]
    assert reply.status == 502 and isinstance(said, str) and reply.header(b"content-type") == b"application/json"


def test_main_is_the_conversation_of_the_first_request(tmp_path):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url, main_headers=["session-id"],
        identity_headers=["thread-id"]) as proxy:
        for headers in ([], ["session-id: a", "thread-id: t1"], ["session-id: b", "thread-id: t2"], ["session-id: a",
            "thread-id: t3"], []):
            assert proxy.ask(b'{"model":"m"}', headers=headers).status == 200
    records = proxy.records()
    # the first request had no header: its model and tools are the mark until the header is seen
    assert [r["main"] for r in records] == [True, True, False, True, False]
    assert records[1]["identity"] == {"thread-id": "t1"} and set(proxy.transport.summary()["threads"]) == {"t1", "t2", "t3"}


def test_without_headers_model_and_tools_are_the_mark(tmp_path):
    bodies = [b'{"model":"m","tools":[{"name":"b"},{"name":"a"}]}', b'{"model":"small"}',
        b'{"model":"m","tools":[{"name":"a"},{"name":"b"}],"x":1}']
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        for body in bodies:
            proxy.ask(body)
    assert [r["main"] for r in proxy.records()] == [True, False, True]


def test_secrets_are_blanked_in_evidence_and_not_on_the_wire(tmp_path):
    """E09: the provider echoes the key; chunks cut it in two."""
    body = b'{"error":{"message":"Authorization: Bearer %s is bad"}}' % KEY.encode()
    cut = body.index(KEY.encode()) + 5
    answer = json_answer(body, b"422 No", b"X-Request-Id: %s\r\n" % KEY.encode())
    at = len(answer) - len(body) + cut
    with RawServer([[answer[:at], ("sleep", 0.05), answer[at:]]]) as server, Proxied(tmp_path,
        server.url + "?key=" + KEY) as proxy:
        reply = proxy.ask(b'{"k":"%s"}' % TOKEN.encode(), target="/v1/responses?key=" + TOKEN)
    assert reply.body == body and server.requests[0][2] == b'{"k":"%s"}' % TOKEN.encode()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes() and TOKEN.encode() not in path.read_bytes(), path
    assert proxy.body(1, "response") == body.replace(KEY.encode(), b"*" * len(KEY))


@pytest.mark.parametrize("mode, kept", [("all", 4), ("errors", 2), ("none", 0)])
def test_which_bodies_are_kept(tmp_path, mode, kept):
    with RawServer([[OK], [json_answer(b"{}", b"404 No")]]) as server, Proxied(tmp_path, server.url, bodies=mode) as proxy:
        proxy.ask(b"1"), proxy.ask(b"2")
    files = proxy.transport.files()
    assert len([name for name in files if name.startswith("bodies/")]) == kept and "model_attempts.jsonl" in files
    assert len(list((tmp_path / "bodies").iterdir()) if mode != "none" else []) == kept
    for name, entry in files.items():
        assert (tmp_path / name).stat().st_size == entry["size"]


def test_the_cap_on_bodies_is_for_all_of_them(tmp_path):
    with RawServer([[json_answer(b"z" * 5000)]]) as server, Proxied(tmp_path, server.url, limits={"body_bytes": 8000}) as proxy:
        assert [proxy.ask(b"%d" % n).status for n in range(3)] == [200] * 3
    assert sum(path.stat().st_size for path in (tmp_path / "bodies").iterdir()) == 8000


def test_when_connections_run_out_the_longest_idle_one_makes_room(tmp_path, monkeypatch):
    monkeypatch.setattr(reception, "MAX_CONNECTIONS", 4)
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        idle = [proxy.connect() for _ in range(4)]
        for client in idle:
            client.send(request())
            assert client.reply().status == 200
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

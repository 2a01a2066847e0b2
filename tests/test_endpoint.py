"""The scripted endpoint keeps its own promises: every answer it builds is one that a strict client reads,
every fault it shows reaches the socket, and its witness log tells both."""
from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import time
from http.client import HTTPConnection, HTTPSConnection, IncompleteRead

import pytest

from tests import endpoint
from tests.endpoint import Endpoint, function_call, message, read_witness

PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages",
         "generate_content": "/v1beta/models/m:streamGenerateContent?alt=sse"}


def ask(e, body=None, path="/v1/responses", method="POST", headers=None):
    connection = HTTPConnection("127.0.0.1", e.port, timeout=20)
    connection.request(method, path, body if isinstance(body, (str, type(None))) else json.dumps(body), headers or {})
    return connection.getresponse()


def raw(e, text=b"POST /v1/responses HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"):
    """-> (all bytes until the end, how it ended)"""
    got = b""
    try:                                # a reset may come before connect() has returned
        with socket.create_connection(("127.0.0.1", e.port), 20) as sock:
            sock.sendall(text)
            while True:
                data = sock.recv(65536)
                if not data:
                    return got, "fin"
                got += data
    except ConnectionError:
        return got, "rst"


def events_of(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize("dialect", sorted(PATHS))
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_model_answers_stream(dialect, framing):
    items = [message("hello"), function_call("exec_command", {"cmd": "ls"})]
    with Endpoint([{dialect: {"items": items, "usage": [100, 40, 10, 3], "framing": framing}}]) as e:
        text = ask(e, {"stream": True, "model": "m"}, PATHS[dialect]).read().decode()
    everything = json.dumps(events_of(text))
    assert "exec_command" in everything and "hel" in everything
    (_, *_), last = events_of(text), events_of(text)[-1]
    counts = {"responses": lambda: last["response"]["usage"]["total_tokens"],
              "chat": lambda: last["usage"]["total_tokens"],
              "messages": lambda: events_of(text)[0]["message"]["usage"]["input_tokens"] + 50,
              "generate_content": lambda: last["usageMetadata"]["totalTokenCount"]}
    assert counts[dialect]() == 110


@pytest.mark.parametrize("dialect", sorted(PATHS))
def test_model_answers_as_documents(dialect):
    with Endpoint([{dialect: {"items": [message("hi")], "usage": "omit", "stream": False}}]) as e:
        document = json.loads(ask(e, {"model": "m"}, PATHS[dialect]).read())
    assert "hi" in json.dumps(document) and "usage" not in document


def test_answers_in_order_then_unplanned():
    with Endpoint([{"status": 429, "headers": {"Retry-After": "1"}, "json": {"error": {"code": "x"}}},
                   {"html": "<html>"}]) as e:
        first, second, third = ask(e, "{}"), ask(e, "{}"), ask(e, "{}")
        assert (first.status, first.getheader("Retry-After")) == (429, "1")
        assert (second.status, second.read()) == (200, b"<html>")
        assert third.status == 500 and e.unplanned == 1


def test_matches_go_first_and_take_no_turn():
    plan = [{"status": 200, "body": "main"},
            {"match": {"body": "title"}, "steps": {"status": 200, "body": "aux"}},
            {"match": {"method": "GET", "path": "/models"}, "steps": {"json": []}}]
    with Endpoint(plan) as e:
        assert ask(e, '{"title"}').read() == b"aux"
        assert ask(e, path="/v1/models", method="GET").read() == b"[]"
        assert ask(e, path="/v1/other", method="GET").status == 404
        assert ask(e, "{}").read() == b"main"


@pytest.mark.parametrize("step, end", [({"close": "rst"}, "rst"), ({"close": "fin"}, "fin")])
def test_a_fault_reaches_the_socket(step, end):
    with Endpoint({"upstream": [{"send": "HTTP/1.1 200 OK\r\n"}, {"send_hex": "41"}, {"sleep": 0.05}, step]}) as e:
        assert raw(e) == (b"HTTP/1.1 200 OK\r\nA", end)
        seen = e.wait_for(lambda r: r and r[0]["answer"])[0]
    assert (seen["answer"]["sent_bytes"], seen["answer"]["ended"]) == (18, end)


@pytest.mark.parametrize("how", ["rst", "fin"])
def test_a_connection_can_die_before_it_is_read(how):
    with Endpoint([{"after_accept": how}, {"status": 200}]) as e:
        assert raw(e)[0] == b""
        assert ask(e, "{}").status == 200


@pytest.mark.parametrize("cut, then", [(3, "fin"), (3, "rst"), ({"bytes": 100}, "fin"), ({"bytes": 100}, "rst")])
def test_a_cut_stream_is_cut(cut, then):
    with Endpoint([{"responses": {"items": [message("x")], "cut_after": cut, "then": then}}]) as e:
        with pytest.raises((IncompleteRead, ConnectionError)):
            ask(e, {"stream": True}).read()
        assert e.wait_for(lambda r: r[0]["answer"])[0]["answer"]["ended"] == then


def test_a_clean_end_without_terminal_event():
    with Endpoint([{"responses": {"items": [message("x")], "cut_after": 3, "then": "end"}}]) as e:
        assert "response.completed" not in ask(e, {"stream": True}).read().decode()


def test_a_gate_in_the_stream_waits():
    with Endpoint([{"responses": {"items": [message("x")], "cut_after": 2, "then": {"gate": "g"}}}]) as e:
        response = ask(e, {"stream": True})
        assert b"response.created" in response.readline()
        e.release("g")
        assert "response.completed" in response.read().decode()


def test_a_stall_ends_when_the_client_leaves():
    with Endpoint([{"stall": True}]) as e:
        sock = socket.create_connection(("127.0.0.1", e.port), 20)
        sock.sendall(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        e.wait_for(1)
        sock.close()
        assert e.wait_for(lambda r: r[0]["answer"])[0]["answer"]["ended"] == "peer_left"


def test_generated_data():
    plan = [{"send_generated": {"head": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "text": "ab", "repeat": 3 << 20,
                                "write": 1 << 16, "tail": "!"}}]
    with Endpoint(plan) as e:
        body = ask(e, "{}").read()
    assert len(body) == (6 << 20) + 1 and body.endswith(b"ab!")


def test_chunked_and_expected_bodies_are_read():
    with Endpoint({"answers": [{"status": 200}], "repeat": "always"}) as e:
        raw(e, b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nbroken\r\n\r\n")
        sock = socket.create_connection(("127.0.0.1", e.port), 20)
        sock.sendall(b"POST /e HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
        assert sock.recv(99).startswith(b"HTTP/1.1 100 ")
        sock.sendall(b"x")
        assert [r["body"] for r in e.wait_for(2)] == ["abcde", "x"]
        sock.close()


def test_a_wrong_plan_is_refused():
    with pytest.raises(ValueError, match="no step"):
        Endpoint([{"sned": "x"}])


def test_command_line(tmp_path):
    plan, witness, info, gates = (tmp_path / n for n in ("plan.json", "witness.jsonl", "info.json", "gates"))
    gates.mkdir()
    plan.write_text(json.dumps([[{"gate": "go"}, {"json": {"ok": True}}]]))
    process = subprocess.Popen([sys.executable, "-I", "-S", endpoint.__file__, "--plan", str(plan), "--witness",
                                str(witness), "--info", str(info), "--gates", str(gates)], stdout=subprocess.PIPE)
    try:
        port = json.loads(process.stdout.readline())["port"]
        assert json.loads(info.read_text())["port"] == port
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        before = time.time()
        connection.request("POST", "/v1/responses", b"{}")
        (gates / "go").write_text("")
        assert connection.getresponse().read() == b'{"ok": true}'
        seen, = read_witness(str(witness))
        assert seen["body_sha256"].startswith("44136fa3") and seen["at"] >= before - 1
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name, trusted", [("server", True), ("other", False), ("expired", False)])
def test_tls(name, trusted):
    folder = os.path.join(os.path.dirname(endpoint.__file__), "tls")
    context = ssl.create_default_context(cafile=os.path.join(folder, "ca.pem"))
    tls = (os.path.join(folder, name + ".pem"), os.path.join(folder, "server.key"))
    with Endpoint([{"status": 200, "body": "hello"}], tls=tls) as e:
        connection = HTTPSConnection("localhost", e.port, timeout=20, context=context)
        try:
            connection.request("POST", "/", b"{}")
            assert trusted and connection.getresponse().read() == b"hello"
        except ssl.SSLCertVerificationError:
            assert not trusted

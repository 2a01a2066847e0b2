"""What a client can know, the worker knows: tokens, figures and limits stand before the end of an answer can be seen."""
from __future__ import annotations

import json
import threading

import pytest

from tests.proxied import TOKEN, Proxied, request
from tests.rawserver import RawServer, json_answer
from tests.test_transport_endings import CHUNK, HEAD, leave
from transport.attempts import fold_attempts
from transport.book import Book
from transport.json_bytes import value_end
from transport.request import Askings, Tools

TERMINAL = (b'data: {"type":"response.completed","response":{"id":"r1","status":"completed","usage":'
            b'{"input_tokens":3,"output_tokens":2,"total_tokens":5}}}\n\n')
FAILED = b'data: {"type":"response.failed","response":{"error":{"code":"server_error","message":"oh"}}}\n\n'
END = b"0\r\n\r\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("together", [True, False])
def test_a_terminal_event_is_settled_before_it_goes_on(tmp_path, together):
    """The upstream keeps the stream open after its last event: the answer is over all the same."""
    go, more = threading.Event(), threading.Event()
    first = [HEAD + CHUNK + chunk(TERMINAL), ("wait", go), END] if together else \
        [HEAD + CHUNK, ("wait", more), chunk(TERMINAL), ("wait", go), END]
    with RawServer([first]) as server, Proxied(tmp_path, server.url, limits={"total_tokens": 5}) as proxy, \
            proxy.connect() as client:
        client.send(request(b"1"))
        assert client.until(CHUNK)
        more.set()
        assert client.until(TERMINAL)
        summary = proxy.transport.summary()
        assert proxy.ask(b"2").status == 400 and len(server.requests) == 1  # the tokens are spent
        assert proxy.records()[0]["rule"] == "token_limit"                  # the first record is still open
        go.set()
        assert client.reply().end == "framed"
        records = proxy.records(2)
    assert summary["usage"]["total_tokens"] == 5 and summary["main"]["open"] is None and summary["main"]["succeeded"] == 1
    assert summary["main"]["last"]["usage"]["total_tokens"] == 5 and summary["main"]["last"]["decision"] == "forwarded"
    after = proxy.transport.summary()
    assert after["usage"]["total_tokens"] == 5 and after["usage_attempts"] == 1 and after["attempts"] == 1
    assert records[0]["terminal"] == "response.completed" and records[0]["error"] is None
    assert fold_attempts(records) == after


def test_the_figures_are_there_with_the_last_byte(tmp_path):
    bodies = [json_answer(), HEAD + CHUNK + chunk(TERMINAL) + END, HEAD.replace(b"Transfer-Encoding: chunked", b"Connection: close")
              + TERMINAL]
    for number, answer in enumerate(bodies):
        folder = tmp_path / str(number)
        folder.mkdir()
        script = [[answer, "fin"]] if number == 2 else [[answer]]
        with RawServer(script) as server, Proxied(folder, server.url) as proxy:
            for count in range(1, 40):
                with proxy.connect() as client:
                    client.send(request(b"%d" % count))
                    assert client.until(b'"total_tokens":5}')
                    summary = proxy.transport.summary()
                    assert summary["usage"]["total_tokens"] == 5 * count and summary["main"]["succeeded"] == count
                    assert summary["main"]["open"] is None and summary["main_requests"] == count


def test_the_last_request_is_the_last_although_its_record_is_written_first(tmp_path, monkeypatch):
    """Who answered the first one does not get to run for a while; a client asks, and ends, without waiting for that."""
    gone = json_answer(b'{"error":{"message":"gone"}}', b"404 No")
    second, write = threading.Event(), Book.write

    def late(book, record):
        assert record["seq"] > 1 or second.wait(20)
        write(book, record)
        second.set()

    monkeypatch.setattr(Book, "write", late)
    with RawServer([[json_answer()], [gone]]) as server, Proxied(tmp_path, server.url) as proxy:
        assert [proxy.ask(b"1").status, proxy.ask(b"2").status] == [200, 404]
        records = proxy.records(2)
        lines = (tmp_path / proxy.path / "model_attempts.jsonl").read_text().splitlines()
    last = proxy.transport.summary()["main"]["last"]
    assert [json.loads(line)["seq"] for line in lines] == [2, 1] and records[0]["ended_at"] < records[1]["ended_at"]
    assert last["status"] == 404 and fold_attempts(map(json.loads, lines))["main"]["last"] == last


def test_a_final_answer_is_announced_before_it_is_given(tmp_path):
    refused = json_answer(b'{"error":{"code":"invalid_api_key","message":"no"}}', b"401 No")
    with RawServer([[refused]]) as server, Proxied(tmp_path, server.url) as proxy:
        for count in range(20):
            assert proxy.ask(b"%d" % count).status == 401
            assert proxy.transport.final_answer_kind == "authentication" and proxy.transport.final_answer_at
            assert proxy.transport.summary()["main"]["failed"] == count + 1
    assert len(proxy.notified) == 20


def test_a_client_that_leaves_at_the_terminal_event_had_its_answer(tmp_path):
    with RawServer([[HEAD + CHUNK + chunk(TERMINAL), ("hold",)]]) as server, Proxied(tmp_path, server.url) as proxy:
        client = proxy.connect()
        client.send(request(b"1"))
        assert client.until(TERMINAL)
        leave(client, "fin")
        (record,) = proxy.records(1)
    assert record["error"]["phase"] == "client" and record["terminal"] and record["decision"] == "forwarded"
    summary = proxy.transport.summary()
    assert (summary["main"]["succeeded"], summary["main"]["failed"], summary["usage_attempts"]) == (1, 0, 1)
    assert fold_attempts([record]) == summary


def test_a_stream_that_breaks_after_its_terminal_event_is_counted_once(tmp_path):
    with RawServer([[HEAD + CHUNK + chunk(TERMINAL), ("sleep", 0.05), "fin"]]) as server, Proxied(tmp_path, server.url) as proxy:
        assert proxy.ask(b"1").end == "fin"
        (record,) = proxy.records(1)
    summary = proxy.transport.summary()
    assert record["failure"] is None and record["error"]["phase"] == "body"  # the client had all of it
    assert (summary["main"]["succeeded"], summary["main"]["failed"], summary["usage"]["total_tokens"]) == (1, 0, 5)
    assert fold_attempts([record]) == summary


def test_the_last_answer_is_the_one_that_ended_last_whichever_was_written_last(tmp_path):
    """The first stream stays open after its last event; its record comes after that of the failure which decides the run."""
    go, refused = threading.Event(), json_answer(b'{"error":{"code":"invalid_api_key","message":"no"}}', b"401 No")
    with RawServer([[HEAD + CHUNK + chunk(TERMINAL), ("wait", go), END], [refused]]) as server, Proxied(tmp_path, server.url) as proxy, \
            proxy.connect() as client:
        client.send(request(b"1"))
        assert client.until(TERMINAL) and proxy.ask(b"2").status == 401
        assert proxy.transport.summary()["main"]["last"]["failure"] == "authentication"
        go.set()
        assert client.reply().end == "framed"
        records = proxy.records(2)
    summary = proxy.transport.summary()
    assert summary["main"]["last"]["failure"] == "authentication" and summary["main"]["succeeded"] == 1
    assert fold_attempts(records[::-1]) == fold_attempts(records) == summary


def test_a_failure_event_in_a_stream_is_settled_too(tmp_path):
    go, more = threading.Event(), threading.Event()
    with RawServer([[HEAD + CHUNK, ("wait", more), chunk(FAILED), ("wait", go), END]]) as server, Proxied(tmp_path, server.url) as proxy, \
            proxy.connect() as client:
        client.send(request(b"1"))
        assert client.until(CHUNK)
        more.set()
        assert client.until(FAILED)
        summary, kind = proxy.transport.summary(), proxy.transport.final_answer_kind
        go.set()
        assert client.reply().end == "framed"
    assert kind == "server_error" and summary["main"]["failed"] == 1 and summary["main"]["last"]["failure"] == "server_error"
    assert len(proxy.notified) == 1 and proxy.transport.summary()["main"]["failed"] == 1


# -- heads and bodies that come again ---------------------------------------------------------------------------------------
HEAD_OF = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n"


@pytest.mark.parametrize("second, status", [
    (b"Content-Length: 2", 200), (b"Content-Length: ", 400), (b"Content-Length: 2\r\nContent-Length: 3", 400),
    (b"Content-Length: 2\r\nTransfer-Encoding: chunked", 400), (b"content-length:2", 200), (b"Content-Length: +2", 400),
    (b"Content-Length: 2\n", 400), (b"X: y", 200)])
def test_a_head_like_the_last_one_is_checked_all_the_same(tmp_path, second, status):
    with RawServer([[json_answer()]]) as server, Proxied(tmp_path, server.url) as proxy:
        for line, wanted in ((b"Content-Length: 4", 200), (second, status), (b"Content-Length: 2", 200)):
            with proxy.connect() as client:
                client.send(HEAD_OF % (TOKEN.encode(), line) + (b"{  }" if line.endswith(b"4") else b"{}"))
                assert client.reply().status == wanted, line
    lengths = [len(body) for _, _, body in server.requests]
    assert lengths[0] == 4 and lengths[-1] == 2


def test_a_remembered_head_does_not_open_for_another_token(tmp_path):
    with RawServer([[json_answer()]]) as server, Proxied(tmp_path, server.url) as proxy:
        for token, status in ((TOKEN, 200), ("x" * len(TOKEN), 401), (TOKEN[:-1], 401), (TOKEN, 200)):
            assert proxy.ask(b"{}", token=token).status == status
    assert len(server.requests) == 2


def test_heads_are_forgotten_before_they_are_many():
    class Plain:
        def head(self, asking):
            return b"", b""

    askings = Askings([], TOKEN, Plain(), None)
    for number in range(1000):
        head = HEAD_OF % (TOKEN.encode(), b"Content-Length: 5\r\nX: %d" % number)
        assert askings.read(head)[1].length == 5 and len(askings._known) <= 64
        assert askings.read(head.replace(b": 5", b": 17"))[1].length == 17


def test_tools_are_known_by_their_bytes(tmp_path):
    tools = json.dumps([{"type": "function", "name": "b", "parameters": {"a": ["]", '"', "\\"]}}, {"name": "a"}])
    other = tools.replace('"a"}', '"c"}')
    texts = ['{"model":"m","tools":%s,"input":[1]}' % tools, '{"model":"m","tools":%s,"input":[1,2]}' % tools,
             '{"tools":%s,"model":"m","input":"tools"}' % tools, '{"model":"m","tools":%s}' % other, '{"model":"m","tools":[]}',
             '{"model":"m"}', '{"model":"other","tools":%s}' % tools, '{"input":{"tools":[]},"model":"m","tools":%s}' % tools,
             '{"input":[{"model":"x"}],"model":"m","tools":%s}' % tools]
    with RawServer([[json_answer()]]) as server, Proxied(tmp_path, server.url) as proxy:
        for text in texts:
            assert proxy.ask(text.encode()).status == 200
    assert [record["main"] for record in proxy.records()] == [True, True, True, False, False, False, False, True, True]


def test_what_was_learned_of_tools_is_what_a_parse_says():
    body = b'{"tools" : [{"name":"x]\\"["}],"b":1}'
    at = body.index(b'"tools"') + 7
    assert body[value_end(body, at) - 1:value_end(body, at)] == b"]" and body[value_end(body, at):] == b',"b":1}'
    for bad in (b'"tools"', b'"tools":', b'"tools":{}', b'"tools":[', b'"tools":["', b'"tools":[["x"]'):
        assert value_end(bad, 7) == -1
    tools = Tools()
    tools.learn(body, ('x]"[',))
    assert tools.names_in(b'{"x":2,"tools" : [{"name":"x]\\"["}],"c":1}') == ('x]"[',)
    assert tools.names_in(b'{"tools" : [{"name":"y"}]}') is None and tools.names_in(b"{}") == ()

"""Framing on real sockets: 1xx, HEAD, Expect, chunked requests, trailers, close-delimited, HTTP/1.0, truncation.

Cases A18, A19, A21, A23, A24, A27, A30, A32, A51.
"""
from __future__ import annotations

import gzip

import pytest

from tests.proxied import TOKEN, Proxied, request
from tests.rawserver import RawServer, header, json_answer

OK = json_answer()
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
DONE = (b'data: {"type":"response.completed","response":{"id":"r1","status":"completed","output":[],"usage":'
        b'{"input_tokens":11,"output_tokens":7,"total_tokens":18}}}')
DELTA = b'data: {"type":"response.output_text.delta","delta":"x"}\n\n'


def exchange(tmp_path, script, data=b"{}", **settings):
    with RawServer([script]) as server, Proxied(tmp_path, server.url, **settings) as proxy:
        reply = proxy.ask(data)
    records = proxy.records()
    return reply, records[-1], proxy, server


def test_a18_a_short_body_stays_short(tmp_path):
    part = b'{"id":"r1","status":"comp'
    reply, record, _, _ = exchange(tmp_path,
        [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4096\r\n\r\n" + part,
                                              "fin"])
    assert reply.header(b"content-length") == b"4096" and reply.body == part and reply.end != "framed"
    assert record["failure"] == "stream_interrupted" and record["error"]["kind"] == "truncated"
    assert "4096" in record["error"]["message"] and "25" in record["error"]["message"] and record["response_bytes"] == len(part)


@pytest.mark.parametrize("last", [b"event: response.completed\n" + DONE, b"event: response.completed\n" + DONE + b"\n"])
def test_a19_the_last_event_needs_no_newline(tmp_path, last):
    reply, record, _, _ = exchange(tmp_path, [SSE + last, "fin"])
    assert reply.body == last and reply.end == "fin"
    assert record["usage"]["input_tokens"] == 11 and record["terminal"] == "response.completed" and record["failure"] is None


def test_a21_bom_comments_and_many_lines(tmp_path):
    body = (b"\xef\xbb\xbf: keepalive\n\nretry: 3000\nid: 7\ndata:{\"type\":\"response.completed\",\n"
            b"data:\"response\":{\"usage\":{\"input_tokens\":4,\"output_tokens\":5}}}\n\n")
    reply, record, _, _ = exchange(tmp_path, [SSE, body[:3], ("sleep", 0.02), body[3:], "fin"])
    assert reply.body == body and record["events"] == 1 and record["usage"]["output_tokens"] == 5


def test_a23_a_character_cut_in_two(tmp_path):
    pieces = [bytes.fromhex(h) for h in ("646174613a207b2264656c7461223a22636166c3", "a920f09fa7", "aa227d0a0a")]
    reply, record, proxy, _ = exchange(tmp_path, [SSE, pieces[0], ("sleep", 0.05), pieces[1], ("sleep", 0.05), pieces[2], "fin"])
    assert reply.body == b"".join(pieces) == proxy.body(1, "response") and record["events"] == 1


def test_a24_an_event_of_four_megabytes(tmp_path):
    event = DONE[:-3] + b',"output_text":"' + b"x" * (4 << 20) + b'"}}\n\n'
    event = event.replace(b'"total_tokens":18,', b'"total_tokens":18},', 1) if b'18,"output' in event else event
    event = (b'data: {"type":"response.completed","response":{"output_text":"' + b"x" * (4 << 20) +
             b'","usage":{"input_tokens":21,"output_tokens":22}}}\n\n')
    script = [SSE] + [event[i:i + 16384] for i in range(0, len(event), 16384)] + ["fin"]
    reply, record, _, _ = exchange(tmp_path, script)
    assert reply.body == event and (record["usage"]["input_tokens"], record["usage"]["output_tokens"]) == (21, 22)


PACKED = gzip.compress(OK.partition(b"\r\n\r\n")[2], mtime=0)


@pytest.mark.parametrize("status, kind, coding, body", [
    (b"200 OK", b"application/json", b"gzip", PACKED), (b"400 Bad Request", b"application/json", b"gzip", PACKED),
    (b"200 OK", b"application/json", b"br", b"\x8b\x02\x80abc\x03"), (b"200 OK", b"text/event-stream", b"gzip",
        gzip.compress(DELTA, mtime=0))])
def test_a27_codings_pass_as_they_are(tmp_path, status, kind, coding, body):
    answer = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n%s" % (status, kind,
        coding, len(body), body)
    reply, record, _, _ = exchange(tmp_path, [answer])
    assert reply.body == body and reply.header(b"content-encoding") == coding and reply.end == "framed"
    assert record["not_decoded"] == coding.decode()
    assert (record["failure"] is None) == (status == b"200 OK")


def test_a30_expect_100_continue(tmp_path):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy, proxy.connect() as client:
        head = request(b"xx", headers=["Expect: 100-continue"])[:-2]
        client.send(head)
        assert client.interim().startswith(b"HTTP/1.1 100 ")
        client.send(b"{}")
        reply = client.reply()
        assert reply.status == 200 and reply.end == "framed"
    assert server.requests[0][2] == b"{}" and header(server.requests[0][1], b"expect") is None


def test_a32_all_methods_pass(tmp_path):
    nope = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 17\r\n\r\n"
    with RawServer([[nope + b"<html>nope</html>"], [nope], [nope + b"<html>nope</html>"]]) as server, \
            Proxied(tmp_path, server.url) as proxy, proxy.connect() as client:
        for method, target in (("GET", "/v1/models?client_version=0.155.0"), ("HEAD", "/"), ("OPTIONS", "/v1/responses")):
            client.send(request(b"", method, target))
            reply = client.reply(method)
            assert reply.status == 404 and reply.end == "framed" and reply.header(b"content-length") == b"17"
    assert [r[1].split(b"\r\n")[0] for r in server.requests] == [
        b"GET /v1/models?client_version=0.155.0 HTTP/1.1", b"HEAD / HTTP/1.1", b"OPTIONS /v1/responses HTTP/1.1"]
    records = proxy.records()
    assert [r["main"] for r in records] == [False] * 3 and proxy.transport.summary()["main"]["last"] is None


A51 = [
    ([b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + DONE + b"\n\n", "fin"], DONE + b"\n\n", "fin", None, None),
    ([SSE + DELTA, "fin"], DELTA, "fin", "stream_interrupted", "no_terminal"),
    ([SSE + DELTA, "rst"], DELTA, "rst", "stream_interrupted", "reset"),
]


@pytest.mark.parametrize("script, body, end, failure, kind", A51)
def test_a51_the_end_of_the_connection_as_the_end(tmp_path, script, body, end, failure, kind):
    reply, record, _, _ = exchange(tmp_path, script)
    assert reply.status == 200 and reply.body == body and reply.end == end and reply.header(b"connection") == b"close"
    assert record["failure"] == failure and (record["error"] or {}).get("kind") == kind


def test_a_chunked_stream_without_its_terminal_is_not_ended_cleanly(tmp_path):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    reply, record, _, _ = exchange(tmp_path, [head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(DELTA), DELTA)])
    assert reply.body == DELTA and reply.end == "fin" and record["error"]["kind"] == "no_terminal"


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"


def test_chunks_extensions_and_trailers_survive(tmp_path):
    wire = b'5;x=y\r\n{"id"\r\n6\r\n:"r1"}\r\n0;last\r\nX-Sum: 1\r\n\r\n'
    for cut in range(0, len(wire), 3):
        path = tmp_path / str(cut)
        path.mkdir()
        reply, record, _, _ = exchange(path, [CHUNKED + wire[:cut], ("sleep", 0.01), wire[cut:]])
        assert reply.wire == wire and reply.body == b'{"id":"r1"}' and reply.end == "framed" \
            and reply.header(b"trailer") == b"X-Sum"
        assert record["response_id"] == "r1" and record["response_bytes"] == 11


def test_an_http10_client_gets_no_chunks(tmp_path):
    with RawServer([[CHUNKED + b'3\r\n{  \r\n1\r\n}\r\n0\r\n\r\n']]) as server, Proxied(tmp_path,
        server.url) as proxy, proxy.connect() as client:
        client.send(b"POST /v1/responses HTTP/1.0\r\nAuthorization: Bearer %s\r\nContent-Length: 2\r\n\r\n{}" % TOKEN.encode())
        reply = client.reply()
    assert reply.header(b"transfer-encoding") is None and reply.body == b"{  }" and reply.end == "fin"


def test_a_chunked_request_with_trailers(tmp_path):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy, proxy.connect() as client:
        client.send(request(b"", headers=["Transfer-Encoding: chunked"]).replace(b"Content-Length: 0\r\n", b""))
        for byte in b"1\r\n{\r\n1;e\r\n}\r\n0\r\nX-T: 1\r\n\r\n" + request(b"[]"):
            client.send(bytes([byte]))
        assert client.reply().status == 200 and client.reply().status == 200
    assert [r[2] for r in server.requests] == [b"{}", b"[]"] and header(server.requests[0][1], b"content-length") == b"2"


def test_interim_answers_are_not_the_answer(tmp_path):
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    reply, record, _, _ = exchange(tmp_path, [early + OK])
    assert reply.status == 200 and reply.end == "framed" and record["status"] == 200


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_answers_without_a_body(tmp_path, status):
    with RawServer([[b"HTTP/1.1 %s\r\nX: 1\r\n\r\n" % status], [OK]]) as server, Proxied(tmp_path, server.url) as proxy, \
            proxy.connect() as client:
        client.send(request(b"", "GET", "/v1/files/x"))
        assert client.reply().head.startswith(b"HTTP/1.1 " + status)
        client.send(request())
        assert client.reply().status == 200
    assert server.connections == 1


def test_pipelined_requests_are_answered_in_order(tmp_path):
    with RawServer([[json_answer(b'{"id":"a"}')], [json_answer(b'{"id":"b"}')]]) as server, Proxied(tmp_path,
        server.url) as proxy, \
            proxy.connect() as client:
        client.send(request(b"1") + request(b"2"))
        assert client.reply().json["id"] == "a" and client.reply().json["id"] == "b"
    assert server.connections == 1 and proxy.records()[1]["reused_connection"] is True

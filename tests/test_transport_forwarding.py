"""Bytes pass unchanged and at once; the key goes to the model endpoint and nowhere else; every exchange has its record."""
from __future__ import annotations

from tests.proxied import Proxied
from tests.rawserver import RawServer, header, json_answer


def test_a_request_and_its_answer_pass_and_are_recorded(tmp_path):
    answer = json_answer(extra=b"X-Request-Id: req-1\r\nX-Odd:  two  words\r\n")
    with RawServer([[answer]]) as server, Proxied(tmp_path, server.url) as proxy:
        reply = proxy.ask(b'{"model":"m1","tools":[]}', headers=["X-Mine: 1", "Accept-Encoding: gzip", "TE: trailers"])
        assert reply.status == 200 and reply.end == "framed"
        assert reply.body == answer.partition(b"\r\n\r\n")[2]
        (record,) = proxy.records(1)
        _, head, body = server.requests[0]
    assert head.startswith(b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % server.port)
    assert header(head, b"authorization") == b"Bearer sk-real-key-SECRET-0001"
    assert header(head, b"accept-encoding") == b"identity" and header(head, b"te") is None and header(head, b"x-mine") == b"1"
    assert body == b'{"model":"m1","tools":[]}'
    assert record["status"] == 200 and record["decision"] == "forwarded" and record["failure"] is None
    assert record["usage"]["total_tokens"] == 5 and record["model"] == "m1" and record["main"] is True
    assert record["response_id"] == "r1" and record["response_headers"]["x-request-id"] == "req-1"
    assert record["started_at"] <= record["sent_at"] <= record["first_byte_at"] <= record["ended_at"]
    assert record["bodies"] == ["bodies/000001.request", "bodies/000001.response"]

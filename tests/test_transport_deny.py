"""Deny by default: whatever is not a request to this run's model is refused, recorded, and reaches nobody. A33, A46, A34."""
from __future__ import annotations

import pytest

from tests.proxied import KEY, TOKEN, Proxied, request
from tests.rawserver import RawServer, header, json_answer
from transport.routes import Route

OK = json_answer()
AUTH = "Authorization: Bearer " + TOKEN + "\r\n"


def raw(line, headers="", body=""):
    return (line + "\r\nHost: x\r\n" + headers + "\r\n" + body).encode()


REFUSED = [
    ("no token", request(token=None), 401, "token"),
    ("wrong token", request(token="x" * 20), 401, "token"),
    ("token as basic", request(token=None, headers=["Authorization: Basic " + TOKEN]), 401, "token"),
    ("CONNECT", raw("CONNECT example.com:443 HTTP/1.1", AUTH), 403, "foreign_target"),
    ("absolute form", raw("POST http://127.0.0.1/v1/responses HTTP/1.1", AUTH + "Content-Length: 0\r\n"), 403, "foreign_target"),
    ("network path", raw("GET //evil.example/v1 HTTP/1.1", AUTH), 403, "foreign_target"),
    ("PUT", raw("PUT /v1/responses HTTP/1.1", AUTH + "Content-Length: 0\r\n"), 403, "method"),
    ("A33 websocket", raw("GET /v1/responses HTTP/1.1",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"), 426, "upgrade"),
    ("A46 length abc", raw("POST /v1/x HTTP/1.1", "Content-Length: abc\r\n", "{}"), 400, "bad_request"),
    ("A46 length -1", raw("POST /v1/x HTTP/1.1", "Content-Length: -1\r\n", "{}"), 400, "bad_request"),
    ("A46 two lengths", raw("POST /v1/x HTTP/1.1", "Content-Length: 2\r\nContent-Length: 4\r\n", "{}xx"), 400, "bad_request"),
    ("A46 length and chunked", raw("POST /v1/x HTTP/1.1", "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        "2\r\n{}\r\n0\r\n\r\n"),
     400, "bad_request"),
    ("a bad chunk", raw("POST /v1/x HTTP/1.1", AUTH + "Transfer-Encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n"), 400,
        "bad_request"),
    ("garbage", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "bad_request"),
    ("space before colon", raw("POST /v1/x HTTP/1.1", "Content-Length : 2\r\n", "{}"), 400, "bad_request"),
    ("no host", b"GET /v1/models HTTP/1.1\r\n" + AUTH.encode() + b"\r\n", 400, "bad_request"),
    ("HTTP/2.0", raw("GET / HTTP/2.0"), 505, "bad_request"),
    ("a head over 256 KiB", raw("GET / HTTP/1.1", "X-Big: " + "x" * 300000 + "\r\n"), 431, "head_too_large"),
    ("a body over the limit", request(headers=["X-Y: 1"], data=b"x" * 2000), 413, "request_too_large"),
]


@pytest.mark.parametrize("name, data, status, rule", REFUSED, ids=[row[0] for row in REFUSED])
def test_refused_recorded_and_not_sent(tmp_path, name, data, status, rule):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url, limits={"request_bytes": 1000}) as proxy:
        with proxy.connect() as client:
            client.send(data)
            reply = client.reply()
            assert reply.status == status and reply.header(b"connection") == b"close"
            assert reply.json["error"]["message"] and not client.more()
        assert proxy.ask(b"{}").status == 200  # the next request is served
    records = proxy.records()
    assert len(server.requests) == 1 and [r["decision"] for r in records] == ["refused", "forwarded"]
    assert records[0]["rule"] == rule and records[0]["status"] == status
    assert proxy.transport.summary()["refused"] == 1 and proxy.transport.summary()["requests"] == 1


A46_UPSTREAM = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}xx",
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
                b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}", b"HTTP/1.1 2x0 OK\r\n\r\n", b"SSH-2.0-OpenSSH\r\n\r\n",
                b"HTTP/1.1 200 OK\r\nX-Big: " + b"x" * 300000 + b"\r\n\r\n"]


@pytest.mark.parametrize("answer", A46_UPSTREAM)
def test_a46_contradictions_of_the_upstream_are_its_failure(tmp_path, answer):
    with RawServer([[answer]]) as server, Proxied(tmp_path, server.url) as proxy:
        reply = proxy.ask(b"{}")
    (record,) = proxy.records()
    assert reply.status == 502 and reply.header(b"x-should-retry") == b"false"
    assert record["failure"] == "unexpected_response" and record["error"]["phase"] == "head" and record["decision"] == "gave_up"


@pytest.mark.parametrize("place, sent", [
    ("bearer", "Authorization: Bearer %s"), ("bearer", "authorization: bearer %s"), ("x-api-key", "X-Api-Key: %s"),
    ("api-key", "api-key: %s"), ("x-goog-api-key", "x-goog-api-key: %s"), ("query", None)])
def test_the_key_stands_where_the_token_stood(tmp_path, place, sent):
    target = "/v1/responses?a=%2F&key=" + TOKEN if sent is None else "/v1/responses?a=%2F"
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        assert proxy.ask(b"{}", target=target, token="", headers=[sent % TOKEN] if sent else []).status == 200
    head = server.requests[0][1]
    assert TOKEN.encode() not in head and head.count(KEY.encode()) == 1
    name = {"bearer": b"authorization", "query": None}.get(place, place.encode())
    if name:
        assert header(head, name) == (b"Bearer " if place == "bearer" else b"") + KEY.encode()
    else:
        assert head.startswith(b"POST /v1/responses?a=%2F&key=" + KEY.encode() + b" ")


@pytest.mark.parametrize("auth, name, value", [("bearer", b"authorization", b"Bearer " + KEY.encode()),
                                               ("x-api-key", b"x-api-key", KEY.encode()), ("none", None, None)])
def test_auth_says_where_the_key_goes(tmp_path, auth, name, value):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url, auth=auth, headers={"X-Team": "blue"}) as proxy:
        proxy.ask(b"{}", token="", headers=["api-key: " + TOKEN, "Authorization: Bearer foreign-key"])
    head = server.requests[0][1]
    assert b"foreign-key" not in head and header(head, b"api-key") is None and header(head, b"x-team") == b"blue"
    assert header(head, name or b"authorization") == value


@pytest.mark.parametrize("target", ["/", "/health", "/v1x", "/v1/../admin", "/v1/%2e%2E/admin", "/v1/a/..%2fadmin", "/v1/..;/admin",
    "/v1/%252e%252e/admin", "/v1/..%3bx/admin"])
def test_other_paths_go_without_the_key(tmp_path, target):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url + "?api-version=7", headers={"X-Team": "blue"}) as proxy:
        assert proxy.ask(b"", "GET", target).status == 200
    head = server.requests[0][1]
    assert head.startswith(("GET %s HTTP/1.1\r\n" % target).encode()) and KEY.encode() not in head and b"blue" not in head
    assert TOKEN.encode() not in head


A34 = [
    ("https://h/v1", "/v1/responses", "https://h/v1/responses"),
    ("https://h/v1/", "/v1/responses?beta=true", "https://h/v1/responses?beta=true"),
    ("https://h/openai?api-version=2025-04-01-preview", "/v1/responses", "https://h/openai/responses?api-version=2025-04-01-preview"),
    ("https://h/openai?api-version=1", "/v1/responses?stream=1", "https://h/openai/responses?api-version=1&stream=1"),
    ("https://h:8443/a%2Fb/v1", "/v1/models/x%2Fy", "https://h:8443/a%2Fb/v1/models/x%2Fy"),
    ("http://[::1]:8080", "/v1/responses", "http://[::1]:8080/v1/responses"),
    ("https://h/openai?api-version=1", "/v1/responses?api-version=9", "https://h/openai/responses?api-version=1"),
    ("https://h", "/v1/models?", "https://h/v1/models?"),
    ("https://h:443/v1", "/v1/models?a=b&key=t&c", "https://h/v1/models?a=b&c"),
]
OTHER_BASES = [
    ("messages", "http://[::1]:8080", "/v1/messages", "http://[::1]:8080/v1/messages"),
    ("messages", "https://h/anthropic/v1", "/v1/messages?beta=true", "https://h/anthropic/v1/messages?beta=true"),
    ("messages", "https://h/v1/", "/v1/messages", "https://h/v1/messages"),
    ("generate_content", "https://h/x", "/v1beta/models/g:generateContent?alt=sse", "https://h/x/v1beta/models/g:generateContent?alt=sse"),
    ("generate_content", "https://h/v1beta", "/v1beta/models/g:generateContent", "https://h/v1beta/models/g:generateContent"),
]


@pytest.mark.parametrize("api, base, target, url", [("responses",) + row for row in A34] + OTHER_BASES)
def test_a34_joining(api, base, target, url):
    route = Route(base, api)
    joined, is_api = route.join(target)
    assert is_api and "%s://%s%s" % (route.scheme, route.authority, joined) == url


@pytest.mark.parametrize("location, same", [
    ("/v1/other", True), ("other", True), ("?q", True), ("https://h/x", True), ("https://h:443/x", True), ("HTTPS://H/x", True),
    ("http://h/x", False), ("https://evil/x", False), ("//evil/x", False), ("https://h:444/", False), ("https://h@evil/", False),
    ("https://evil\\@h/", False), ("/\\evil/x", False), ("javascript:1", False), ("//h/x", True)])
def test_same_origin(location, same):
    assert Route("https://h/v1", "responses").same_origin(location) is same


@pytest.mark.parametrize("location, status, rule", [("/v1/elsewhere", 307, None), ("http://evil.example/v1", 502,
    "redirect_refused")])
def test_redirects(tmp_path, location, status, rule):
    answer = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % location.encode()
    with RawServer([[answer]]) as server, Proxied(tmp_path, server.url) as proxy:
        reply = proxy.ask(b"{}")
    (record,) = proxy.records()
    assert reply.status == status and record["failure"] == "unexpected_response" and server.turns == 1
    assert (record["rule"] == "redirect_refused") == bool(rule)


def test_every_location_counts(tmp_path):
    answer = b"HTTP/1.1 307 T\r\nLocation: /v1/x\r\nLocation: http://evil.example/\r\nContent-Length: 0\r\n\r\n"
    with RawServer([[answer]]) as server, Proxied(tmp_path, server.url) as proxy:
        assert proxy.ask(b"{}").json["error"]["code"] == "redirect_refused"

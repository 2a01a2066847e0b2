"""Promise: what two readers could understand differently is refused at once, on both sides; nothing of it goes further, nobody
waits for it, and the next request is served. Raw bytes at the built bundle's `proxy`. Kinds A18, A46 and their siblings."""
from __future__ import annotations

import contextlib
import threading
import time

import pytest

from tests.proxied import Bundled
from tests.rawserver import ANSWER, RawServer, json_answer

OK = json_answer()
PROMPT = 20.0  # a hang guard: each answer comes in milliseconds, the timers that it must not wait for are 60 s and more


class Upstream(RawServer):
    """Answers the request whose body names a case with that case's steps, all others with OK."""

    def __init__(self, cases):
        RawServer.__init__(self, [["read", ("call", self.act)]])
        self.cases = cases

    def act(self, sock):
        body = self.requests[-1][2]
        for step in self.cases.get(body, [OK]):
            if step == "hold":
                self.closing.wait(60)
            elif step == "fin":
                raise EOFError
            else:
                sock.sendall(step)


@pytest.fixture(scope="module")
def served(dist, tmp_path_factory):
    with Upstream({name.encode(): steps for name, steps in UPSTREAM.items()}) as server:
        proxy = Bundled(dist, tmp_path_factory.mktemp("smuggling"), server.url, "--bodies", "all")
        with proxy:
            yield proxy, server
        assert proxy.said == b""  # no traceback


def head(line="POST /v1/responses HTTP/1.1", *lines):
    return "\r\n".join((line, "Host: x", "Authorization: Bearer TOKEN") + lines + ("", "")).encode("latin-1")


def post(*lines, body=b"{}"):
    return head("POST /v1/responses HTTP/1.1", *lines) + body


def chunked(body):
    return post("Transfer-Encoding: chunked", body=body)


LENGTH = "Content-Length: 2"
REFUSED = {  # what a client sends -> the status
    "folded line": (post("X: a", " b", LENGTH), 400),
    "bare LF everywhere": (post(LENGTH).replace(b"\r\n", b"\n"), 400),
    "bare LF once": (post("X: a\nContent-Length: 7", LENGTH), 400),
    "bare CR in a value": (post("X: a\rb", LENGTH), 400),
    "a head that is TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "NUL in a name": (post("X\0: a", LENGTH), 400),
    "empty name": (post(": a", LENGTH), 400),
    "space before the colon": (post("Content-Length : 2"), 400),
    "coding and length": (post("Transfer-Encoding: chunked", LENGTH, body=b"0\r\n\r\n"), 400),
    "empty coding and length": (post("Transfer-Encoding:", LENGTH), 400),
    "coding identity and length": (post("Transfer-Encoding: identity", LENGTH), 400),
    "coding after vertical tab": (post("Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n"), 400),
    "coding twice": (post("Transfer-Encoding: chunked, chunked", body=b"0\r\n\r\n"), 501),
    "codings on two lines": (post("Transfer-Encoding: chunked", "Transfer-Encoding: identity", body=b"0\r\n\r\n"), 501),
    "coding with a parameter": (post("Transfer-Encoding: chunked;q=1", body=b"0\r\n\r\n"), 501),
    "coding quoted": (post('Transfer-Encoding: "chunked"', body=b"0\r\n\r\n"), 501),
    "coding unknown": (post("Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), 501),
    "coding in HTTP/1.0": (head("POST /v1/x HTTP/1.0", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    "lengths that differ, in a list": (post("Content-Length: 2, 3"), 400),
    "a list with an empty member": (post("Content-Length: 2,"), 400),
    "length +2": (post("Content-Length: +2"), 400),
    "length 0x2": (post("Content-Length: 0x2"), 400),
    "length 1_0": (post("Content-Length: 1_0"), 400),
    "length in other digits": (post("Content-Length: \xb2"), 400),
    "length of 20 digits": (post("Content-Length: 99999999999999999999"), 400),
    "length of 18 digits": (post("Content-Length: 999999999999999999"), 413),
    "chunk -1": (chunked(b"-1\r\n{}\r\n0\r\n\r\n"), 400),
    "chunk +2": (chunked(b"+2\r\n{}\r\n0\r\n\r\n"), 400),
    "chunk 0x2": (chunked(b"0x2\r\n{}\r\n0\r\n\r\n"), 400),
    "chunk of 2^64 + 2": (chunked(b"10000000000000002\r\n{}\r\n0\r\n\r\n"), 400),
    "chunk without a size": (chunked(b"\r\n{}\r\n0\r\n\r\n"), 400),
    "chunk with bare LF": (chunked(b"2\n{}\n0\n\n"), 400),
    "chunk extension with bare LF": (chunked(b"2;\n{}\r\n0\r\n\r\n"), 400),
    "chunk extension without end": (chunked(b"2;" + b"a" * 70000), 400),
    "chunk longer than said": (chunked(b"2\r\n{}}\r\n0\r\n\r\n"), 400),
    "chunk without its line end": (chunked(b"2\r\n{}0\r\n\r\n"), 400),
    "trailer that is none": (chunked(b"2\r\n{}\r\n0\r\nbad\r\n\r\n"), 400),
    "trailer with bare LF": (chunked(b"2\r\n{}\r\n0\r\nA: b\n\n"), 400),
    "trailers over 256 KiB": (chunked(b"2\r\n{}\r\n0\r\nA: " + b"b" * 300000), 431),
    "two spaces": (head("POST  /v1/responses HTTP/1.1", LENGTH), 400),
    "tab in the target": (head("POST /v1/\tresponses HTTP/1.1", LENGTH), 400),
    "fragment in the target": (head("POST /v1/responses#x HTTP/1.1", LENGTH), 400),
    "HTTP/0.9": (b"GET /v1/models\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "asterisk form": (head("OPTIONS * HTTP/1.1"), 403),
    "two hosts": (post("Host: y", LENGTH), 400),
    "a second request that is none": (post(LENGTH) + b"NONE\r\n\r\n", 400),
    "a second request without the token": (post(LENGTH) + b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 401),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_client_is_refused(served, name):
    (proxy, server), (data, status) = served, REFUSED[name]
    before, sent = len(proxy.records()), len(server.requests)
    began = time.monotonic()
    with proxy.connect() as client:
        client.send(data.replace(b"TOKEN", proxy.token.encode()))
        reply = client.reply()
        if name.startswith("a second"):
            assert reply.status == 200
            reply, sent, before = client.reply(), sent + 1, before + 1
        assert reply.status == status and reply.header(b"connection") == b"close" and reply.json["error"]["message"]
        assert not client.more() and time.monotonic() - began < PROMPT
    record = proxy.records(before + 1)[-1]
    assert (record["decision"], record["status"], record["error"]["phase"]) == ("refused", status, "client")
    assert len(server.requests) == sent and proxy.ask(b"{}").status == 200
    proxy.records(before + 2)


H = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
L = b"Content-Length: %d\r\n" % len(ANSWER)
UPSTREAM = {  # what the upstream answers; all of it in phase head
    "bare LF": [(H + L + b"\r\n" + ANSWER).replace(b"\r\n", b"\n"), "hold"],
    "SSH": [b"SSH-2.0-x\r\n", "hold"],
    "SMTP": [b"220 mail ESMTP\r\n", "hold"],
    "a TLS alert": [b"\x15\x03\x01\x00\x02\x02\x46", "hold"],
    "HTTP/2 settings": [b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80", "hold"],
    "HTTP/0.9": [b"<html>hello</html>", "fin"],
    "HTTP/2 in words": [b"HTTP/2 200\r\n" + L + b"\r\n" + ANSWER],
    "status 099": [b"HTTP/1.1 099 x\r\n" + L + b"\r\n" + ANSWER],
    "folded line": [H + b"X: a\r\n b\r\n" + L + b"\r\n" + ANSWER],
    "NUL": [H + b"X: a\0b\r\n" + L + b"\r\n" + ANSWER],
    "space before the colon": [H + b"Content-Length : 5\r\n\r\n" + ANSWER],
    "two lengths": [H + L + b"Content-Length: 1\r\n\r\n" + ANSWER],
    "length and coding": [H + L + b"Transfer-Encoding: identity\r\n\r\n" + ANSWER],
    "coding gzip": [H + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"],
    "coding in HTTP/1.0": [b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
    "an upgrade": [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "hold"],
    "interim answers without end": [b"HTTP/1.1 100 Continue\r\n\r\n" * 40, "hold"],
    "an interim answer with bare LF": [b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\n", "hold"],
}


@pytest.mark.parametrize("name", UPSTREAM)
def test_an_upstream_is_not_understood(served, name):
    proxy, server = served
    before, began = len(proxy.records()), time.monotonic()
    reply = proxy.ask(name.encode())
    assert reply.status == 502 and reply.header(b"x-should-retry") == b"false" and time.monotonic() - began < PROMPT
    (record,) = proxy.records(before + 1)[before:]
    assert (record["failure"], record["decision"], record["rule"]) == ("unexpected_response", "gave_up", "bad_framing")
    assert record["error"]["phase"] == "head" and record["error"]["message"]
    assert proxy.ask(b"{}").status == 200
    proxy.records(before + 2)


@contextlib.contextmanager
def exchange(tmp_path_factory, dist, script, data):
    """The proxy between a script and a client that has sent `data`, TOKEN filled in."""
    with RawServer(script) as server, Bundled(dist, tmp_path_factory.mktemp("one"), server.url) as proxy, \
            proxy.connect() as client:
        client.send(data.replace(b"TOKEN", proxy.token.encode()))
        yield client, proxy, server


@pytest.mark.parametrize("lines", [
    b"Content-Length: %d, %d\r\n" % (len(ANSWER), len(ANSWER)), L + L, L + b"Connection: content-length\r\n",
    b"content-length: 0%d \r\n" % len(ANSWER)])
def test_one_length_goes_on_whatever_says_it(dist, tmp_path_factory, lines):
    """RFC 9110 8.6: a repeated length is one or an error. It stays even where `Connection` names it."""
    twice = post(LENGTH) + post(LENGTH)
    with exchange(tmp_path_factory, dist, [[H + lines + b"\r\n" + ANSWER]], twice) as (client, _, server):
        for _ in range(2):
            reply = client.reply()
            assert (reply.body, reply.end, reply.head.lower().count(b"content-length")) == (ANSWER, "framed", 1)
        assert server.connections == 1


def test_bytes_that_nobody_asked_for_are_no_answer(dist, tmp_path_factory):
    """A second answer behind the first, a moment later, must not become the answer to the next request."""
    late = threading.Event()
    script = [[OK, ("wait", late), json_answer(b'{"id":"forged"}'), ("hold",)], [OK]]
    with exchange(tmp_path_factory, dist, script, post(LENGTH)) as (client, proxy, server):
        assert client.reply().body == ANSWER
        late.set()
        time.sleep(0.05)  # on loopback they have arrived by now; if not, the test passes without having tested
        client.send(post(LENGTH).replace(b"TOKEN", proxy.token.encode()))
        assert client.reply().body == ANSWER and server.connections == 2

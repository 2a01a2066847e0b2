"""The way to the model: reuse and its stale ends, TLS, names, IPv6, Unix sockets, ambient proxies, deadlines."""
from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest

from tests.conftest import elsewhere, lacking
from tests.proxied import KEY, Proxied, request
from tests.rawserver import RawServer, header, json_answer, read_head
from transport import resolver, upstream
from transport.ambient import way_from
from transport.routes import Route

OK = json_answer()


def ask_in_turn(proxy, count):
    """On one connection: the next request is read when the last one is quite done."""
    with proxy.connect() as client:
        for n in range(count):
            client.send(request(b"%d" % n))
            yield client.reply().status


def test_a_kept_connection_is_used_again(tmp_path):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        assert list(ask_in_turn(proxy, 3)) == [200] * 3
        assert server.connections == 1
    assert [r["reused_connection"] for r in proxy.records()] == [False, True, True]


@pytest.mark.parametrize("last", [json_answer(extra=b"Connection: close\r\n"),
                                  b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", OK + b"surplus"])
def test_what_must_not_be_used_again(tmp_path, last):
    with RawServer([[last], [OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        assert list(ask_in_turn(proxy, 2)) == [200, 200] and server.connections == 2


@pytest.mark.parametrize("end", ["fin", "rst"])
def test_a_stale_connection_is_replayed_once_without_counting(tmp_path, end):
    """The server takes the request on the kept connection and closes it: the race that no check before sending can see."""
    with RawServer([[OK], ["read", end], [OK]]) as server, Proxied(tmp_path, server.url, retry={"max_attempts": 1,
        "ambiguous_replays": 0}) as proxy:
        assert list(ask_in_turn(proxy, 2)) == [200, 200]
        assert server.connections == 2
    records = proxy.records()
    assert [r["decision"] for r in records] == ["forwarded", "stale_connection", "forwarded"]
    assert [r["attempt"] for r in records] == [1, 1, 1] and proxy.transport.summary()["retries"] == 0


def test_a_connection_closed_while_idle_is_not_tried(tmp_path):
    with RawServer([[OK, "fin"], [OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        assert proxy.ask(b"1").status == 200
        time.sleep(0.1)
        assert proxy.ask(b"2").status == 200
    assert [r["decision"] for r in proxy.records()] == ["forwarded", "forwarded"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls")
    config = path / "config"
    config.write_text("[req]\ndistinguished_name=d\nx509_extensions=x\nprompt=no\n[d]\nCN=localhost\n[x]\n"
                      "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:true\n")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-days", "2",
                    "-config", str(config), "-keyout", str(path / "key.pem"), "-out", str(path / "cert.pem")],
                   check=True, stderr=subprocess.DEVNULL)
    return path


@pytest.fixture
def tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(certificate / "cert.pem"), str(certificate / "key.pem"))
    return lambda sock: context.wrap_socket(sock, server_side=True)


def test_tls_with_a_ca_file_and_reuse(tmp_path, certificate, tls):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    event = b'data: {"type":"response.completed","response":{"usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
    stream = head + (b"%x\r\n%s\r\n" % (len(event), event)) * 3000 + b"0\r\n\r\n"
    with RawServer([[OK], [stream]], wrap=tls) as server, \
            Proxied(tmp_path, "https://localhost:%d/v1" % server.port, ca_file=str(certificate / "cert.pem")) as proxy:
        assert proxy.ask(b"1").status == 200
        reply = proxy.ask(b'{"x":"' + b"y" * (3 << 20) + b'"}')
        assert reply.body == event * 3000 and reply.end == "framed" and server.connections == 1


JSON_LIST = b'{"data":["%s"]}'


@pytest.mark.parametrize("content, end, whole", [
    (b"%s", "alert", True), (b"%s", "fin", sys.version_info < (3, 10)), (b"%s", "rst", False),  # 3.8 and 3.9 tell no FIN
    (JSON_LIST, "fin", True), (JSON_LIST[:-1], "alert", True), (JSON_LIST[:-1], "rst", False)])
@pytest.mark.parametrize("size", [100, 500000])
def test_without_a_closure_alert_a_body_is_whole_only_if_it_says_so(tmp_path, certificate, tls, size, content, end, whole):
    """RFC 9112 9.8: no length, no chunks. A reset must not pass for an end; what came before it is passed on, all of it."""
    body = content % (b"x" * size)
    steps = {"alert": [("call", lambda sock: sock.unwrap()), "fin"]}.get(end, [("sleep", 0.05), end])
    script = [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body, *steps]
    with RawServer([script], wrap=tls) as server, \
            Proxied(tmp_path, "https://localhost:%d/v1" % server.port, ca_file=str(certificate / "cert.pem")) as proxy:
        reply = proxy.ask(b"", "GET", "/v1/files/x")
        (record,) = proxy.records(1)
    assert reply.body == body and reply.end == ("fin" if whole else "rst")
    assert (record["error"] or {}).get("kind") in ((None,) if whole else ("truncated", "reset"))


def test_ssl_cert_file_counts(tmp_path, certificate, tls, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    with RawServer([[OK]], wrap=tls) as server, Proxied(tmp_path, "https://127.0.0.1:%d" % server.port) as proxy:
        assert proxy.ask(b"1").status == 200


def test_an_unknown_certificate_is_final(tmp_path, tls):
    def wrap(sock):
        try:
            return tls(sock)
        except ssl.SSLError as error:
            raise OSError(str(error))
    with RawServer([[OK]], wrap=wrap) as server, Proxied(tmp_path, "https://127.0.0.1:%d" % server.port) as proxy:
        reply = proxy.ask(b"1")
    (record,) = proxy.records()
    assert reply.status == 502 and record["failure"] == "tls_failed" and record["error"]["phase"] == "tls"
    assert record["error"]["kind"] == "certificate" and record["decision"] == "gave_up" and server.requests == []


@pytest.mark.parametrize("size", [1, 3 << 20])
def test_a_server_that_wants_a_client_certificate_is_final(tmp_path, certificate, size):
    """With TLS 1.3 it says so after the handshake, by an alert that has a number of OpenSSL's and no errno."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(certificate / "cert.pem"), str(certificate / "key.pem"))
    context.load_verify_locations(str(certificate / "cert.pem"))
    context.verify_mode = ssl.CERT_REQUIRED

    def wrap(sock):
        with contextlib.suppress(ssl.SSLError):
            context.wrap_socket(sock, server_side=True)
        raise EOFError
    with RawServer([[OK]], wrap=wrap) as server, \
            Proxied(tmp_path, "https://localhost:%d" % server.port, ca_file=str(certificate / "cert.pem")) as proxy:
        assert proxy.ask(b"x" * size).status == 502
    (record,) = proxy.records()
    assert (record["failure"], record["rule"], record["ambiguous"]) == ("tls_failed", "cannot_heal", False)
    assert record["error"]["phase"] == "tls" and "CERTIFICATE_REQUIRED" in record["error"]["message"]


def test_tls_to_a_plain_server_fails_as_tls(tmp_path):
    with RawServer([[("call", lambda sock: sock.recv(100)), b"HTTP/1.1 400 Bad\r\n\r\n", "fin"]]) as server, \
            Proxied(tmp_path, "https://127.0.0.1:%d" % server.port) as proxy:
        assert proxy.ask(b"1").status == 502
    assert proxy.records()[0]["error"]["phase"] == "tls" and proxy.records()[0]["failure"] == "tls_failed"


def test_a_name_that_does_not_exist_is_final(tmp_path, monkeypatch):
    looked = []

    def nobody(host, *rest):
        if rest[-1] == socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "numeric only")
        looked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(resolver.socket, "getaddrinfo", nobody)
    with Proxied(tmp_path, "http://model.invalid/v1") as proxy:
        assert proxy.ask(b"1").status == 502
    (record,) = proxy.records()
    assert record["error"]["phase"] == "resolve" and record["rule"] == "name_does_not_exist" and looked == ["model.invalid"]


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".invalid"])
def test_what_can_be_no_name_does_not_exist(tmp_path, host):
    with Proxied(tmp_path, "http://%s/v1" % host) as proxy:
        assert proxy.ask(b"1").status == 502
        assert [(r["error"]["phase"], r["failure"], r["rule"]) for r in proxy.records(1)] == [
            ("resolve", "connection", "name_does_not_exist")]


def test_a_resolver_that_is_away_is_asked_three_times_within_an_attempt(tmp_path, monkeypatch):
    looked = []

    def away(host, *rest):
        if rest[-1] == socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "numeric only")
        looked.append(host)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    monkeypatch.setattr(resolver.socket, "getaddrinfo", away)
    monkeypatch.setattr(resolver, "PAUSE", 0.01)
    with Proxied(tmp_path, "http://model.example/v1", retry={"max_attempts": 2}) as proxy:
        assert proxy.ask(b"1").status == 502
    assert [r["error"]["kind"] for r in proxy.records()] == ["try_again"] * 2 and len(looked) == 6


def test_a_look_up_that_hangs_has_a_deadline_and_ends_with_the_client(tmp_path, monkeypatch):
    release = threading.Event()

    def hang(host, *rest):
        if rest[-1] == socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "numeric only")
        release.wait(30)
        raise socket.gaierror(socket.EAI_NONAME, "late")
    monkeypatch.setattr(resolver.socket, "getaddrinfo", hang)
    monkeypatch.setattr(resolver, "RESOLVE_TIMEOUT", 0.2)
    with Proxied(tmp_path, "http://model.example/v1", retry={"max_attempts": 1}) as proxy:
        assert proxy.ask(b"1").status == 502 and proxy.records(1)[0]["error"]["kind"] == "timeout"
        monkeypatch.setattr(resolver, "RESOLVE_TIMEOUT", 30)
        client = proxy.connect()
        client.send(request(b"2"))
        until = time.monotonic() + 5
        while proxy.transport.summary()["main"]["open"] is None and time.monotonic() < until:
            time.sleep(0.005)
        client.sock.close()
        assert proxy.records(2)[1]["error"]["phase"] == "client"
    release.set()


def test_an_address_that_does_not_answer_has_a_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr(upstream, "CONNECT_TIMEOUT", 0.2)
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    stuffing = []
    for _ in range(3):  # the backlog is full: further SYNs are dropped
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(full.getsockname())
        stuffing.append(sock)
    with Proxied(tmp_path, "http://127.0.0.1:%d" % full.getsockname()[1], retry={"max_attempts": 1}) as proxy:
        assert proxy.ask(b"1").status == 502
    assert proxy.records()[0]["error"]["phase"] == "connect" and proxy.records()[0]["error"]["kind"] == "timeout"
    for sock in stuffing + [full]:
        sock.close()


def test_ipv6(tmp_path):
    try:
        server = RawServer([[OK]], socket.AF_INET6, ("::1", 0))
    except OSError:
        lacking("no IPv6 here")
    with server, Proxied(tmp_path, "http://[::1]:%d" % server.port) as proxy:
        assert proxy.ask(b"1").status == 200
    assert header(server.requests[0][1], b"host") == b"[::1]:%d" % server.port


def test_an_ipv6_zone_leads_to_an_interface_and_stays_here(tmp_path):
    try:
        with open("/proc/net/if_inet6") as table:
            link = next(line.split() for line in table if line.startswith("fe80"))
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(link[0]))
        server = RawServer([[OK]], socket.AF_INET6, (address, 0, 0, int(link[1], 16)))
    except (OSError, StopIteration):
        elsewhere("no interface has a link-local address here")
    with server, Proxied(tmp_path, "http://[%s%%25%s]:%d" % (address, link[-1], server.port)) as proxy:
        assert proxy.ask(b"1").status == 200
    assert header(server.requests[0][1], b"host") == b"[%s]:%d" % (address.encode(), server.port)  # RFC 6874 section 3


def test_a_unix_socket(tmp_path):
    path = str(tmp_path / "s")
    with RawServer([[OK]], socket.AF_UNIX, path) as server, Proxied(tmp_path, None, socket=path) as proxy:
        assert proxy.ask(b"1").status == 200
    assert header(server.requests[0][1], b"authorization") == b"Bearer " + KEY.encode()


def test_an_ambient_proxy_only_when_asked(tmp_path, monkeypatch):
    with RawServer([[OK]]) as ambient, RawServer([[OK]]) as server:
        monkeypatch.setenv("http_proxy", "http://user:p%%40ss@127.0.0.1:%d" % ambient.port)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setattr(resolver, "_addresses", lambda host, port, flags=0: [(socket.AF_INET, ("127.0.0.1", port))])
        for number, use in enumerate((False, True)):
            path = tmp_path / str(number)
            path.mkdir()
            with Proxied(path, "http://model.example:%d/v1" % server.port, use_proxy=use) as proxy:
                assert proxy.ask(b"1").status == 200
        assert len(server.requests) == 1 and len(ambient.requests) == 1
    head = ambient.requests[0][1]
    assert head.startswith(b"POST http://model.example:%d/v1/responses HTTP/1.1\r\n" % server.port)
    assert header(head, b"proxy-authorization") == b"Basic dXNlcjpwQHNz"


def test_https_goes_through_a_tunnel(tmp_path, certificate, tls, monkeypatch):
    heads = []

    def tunnel(sock):
        heads.append(read_head(sock)[0])
        sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return tls(sock)
    monkeypatch.setattr(resolver, "_addresses", lambda host, port, flags=0: [(socket.AF_INET, ("127.0.0.1", port))])
    monkeypatch.setattr("transport.ambient._excepted", lambda *rest: False)
    with RawServer([[OK]], wrap=tunnel) as server:
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:%d" % server.port)
        with Proxied(tmp_path, "https://localhost:9/v1", use_proxy=True, ca_file=str(certificate / "cert.pem")) as proxy:
            assert proxy.ask(b"1").status == 200
    assert heads[0].startswith(b"CONNECT localhost:9 HTTP/1.1\r\n") and KEY.encode() not in heads[0]
    assert server.requests[0][1].startswith(b"POST /v1/responses ")


@pytest.mark.parametrize("environ, url, found", [
    ({}, "http://h", None), ({"HTTP_PROXY": "http://p:1"}, "http://h", ("p", 1)), ({"HTTPS_PROXY": "p:2"}, "https://h", ("p", 2)),
    ({"http_proxy": "http://a:1", "HTTP_PROXY": "http://b:1"}, "http://h", ("a", 1)), ({"ALL_PROXY": "http://p"},
        "https://h", ("p", 80)),
    ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "corp.example, .h.org"}, "http://x.h.org", None),
    ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "x, 10.0.0.0/8"}, "http://10.1.2.3:80", None),
    ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8, fd00::/8, a/b, 11.0.0.0/x, 11.0.0.0/33"}, "http://11.1.2.3", ("p", 1)),
    ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "fd00::/8"}, "http://[fd00::1]:8000", None),
    ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "0.0.0.0/0"}, "http://h", ("p", 1)),
    ({"HTTP_PROXY": "http://p:1", "no_proxy": "*"}, "http://h", None), ({"HTTP_PROXY": "http://p:1"},
        "http://127.0.0.1:80", None),
    ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "h:81"}, "http://h:80", ("p", 1)), ({"HTTP_PROXY": "socks5://p"},
        "http://h", None)])
def test_which_ambient_proxy(environ, url, found):
    way = way_from(environ, Route(url, "responses"))
    assert (way and (way.host, way.port)) == found


@pytest.mark.parametrize("user, sent", [("u:p%40ss", b"u:p@ss"), ("u:caf%C3%A9", b"u:caf\xc3\xa9"), ("u:caf\xe9", b"u:caf\xc3\xa9"),
                                        ("u:100%", b"u:100%"), ("u:a%zzb%2", b"u:a%zzb%2"), ("u", b"u"), ("u:" + "x" * 90, b"u:" + b"x" * 90)])
def test_the_credentials_of_an_ambient_proxy(user, sent):
    way = way_from({"HTTP_PROXY": "http://%s@p:1" % user}, Route("http://h", "responses"))
    assert way.headers == [(b"Proxy-Authorization", b"Basic " + base64.b64encode(sent))]

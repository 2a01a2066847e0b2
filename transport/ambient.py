"""The ambient proxy (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) for the way to the model endpoint, only when asked for.

http goes through it in absolute form, https through a CONNECT tunnel (RFC 9110 9.3.6). Lower-case names win, as in curl.
NO_PROXY: comma-separated host suffixes or networks, `*` for all; an entry may have a port. Loopback is never proxied.
"""
from __future__ import annotations

import binascii
import re
import socket

from transport import http1
from transport.errors import UpstreamFailed, from_os_error
from transport.routes import BadAddress, split_url
from transport.waits import POLLIN, POLLOUT, monotonic

TUNNEL_TIMEOUT = 20.0
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")


class Way:
    """A proxy: host, port, and the header that opens it."""

    def __init__(self, host, port, user):
        self.host, self.port = host, port
        self.headers = [(b"Proxy-Authorization", b"Basic " + binascii.b2a_base64(user, newline=False))] if user else []

    def tunnel(self, stream, route, watch):
        """CONNECT through a plain stream; on return the stream leads to the endpoint."""
        name = "[%s]:%d" % (route.host, route.port) if ":" in route.host else "%s:%d" % (route.host, route.port)
        lines = ["CONNECT %s HTTP/1.1" % name, "Host: " + name]
        block = "\r\n".join(lines + ["%s: %s" % (k.decode(), v.decode()) for k, v in self.headers] + ["", ""]).encode()
        until, data = monotonic() + TUNNEL_TIMEOUT, b""
        try:
            while block:
                if not watch.wait(stream.fd, POLLOUT, until):
                    raise UpstreamFailed("connect", "timeout", "the ambient proxy takes no request")
                block = block[stream.send(block):]
            while http1.head_end(data) < 0:
                # One byte at a time: what follows the head belongs to TLS and must stay in the socket.
                if not watch.wait(stream.fd, POLLIN, until):
                    raise UpstreamFailed("connect", "timeout", "the ambient proxy does not answer CONNECT")
                more = stream.recv(1)
                if more == b"":
                    raise UpstreamFailed("connect", "eof", "the ambient proxy closed the connection")
                data += more or b""
            status = http1.parse_response(data).first[1]
        except http1.Malformed as error:
            raise UpstreamFailed("connect", "proxy", "the ambient proxy speaks no HTTP: %s" % error.message)
        except OSError as error:
            raise from_os_error("connect", error)
        if not 200 <= status < 300:
            raise UpstreamFailed("connect", "proxy", "the ambient proxy answered CONNECT with %d" % status)


def way_from(environ, route):
    """The proxy for a route, or None. `environ` is a dict of str."""
    def value(name):
        return environ.get(name.lower()) or environ.get(name.upper()) or ""

    url = value(route.scheme + "_proxy") or value("all_proxy")
    if not url or _excepted(route.host, route.port, value("no_proxy")):
        return None
    url = url if "://" in url else "http://" + url
    try:
        scheme, host, port, _, _ = split_url(url)
    except BadAddress:
        return None
    if scheme != "http":
        return None
    user = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    return Way(host, port, _unescape(user))


def _excepted(host, port, no_proxy):
    if host in ("localhost", "::1") or host.startswith("127."):
        return True
    for entry in no_proxy.replace(" ", ",").split(","):
        entry = entry.strip().lower().strip("[]")
        if "/" in entry and _within(host, entry):
            return True
        name, _, entry_port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
        name = name.lstrip("*").lstrip(".") if name != "*" else name
        if name and (name == "*" or host.lower() == name or host.lower().endswith("." + name)) and entry_port in ("", str(port)):
            return True
    return False


def _within(host, network):
    """Is the host an address in this network ("10.0.0.0/8")? Clients disagree about such entries; most know them."""
    base, _, bits = network.partition("/")
    family, width = (socket.AF_INET6, 128) if ":" in base else (socket.AF_INET, 32)
    try:
        here, there = (int.from_bytes(socket.inet_pton(family, one), "big") for one in (host, base))
        return here >> (width - int(bits)) == there >> (width - int(bits))
    except (OSError, ValueError):
        return False


def _unescape(text):
    """The bytes of a user name and password; a % that escapes nothing stands for itself."""
    return _ESCAPE.sub(lambda found: bytes((int(found.group(1), 16),)), text.encode("utf-8", "surrogateescape"))

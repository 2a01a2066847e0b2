"""The request as it goes to the upstream: head and key. Pure.

The client's headers go on in their order and case, except: hop-by-hop ones, everything that can carry a key (the run's
token must not leave, a foreign key must not slip through), Host, Expect (answered here), Accept-Encoding (`identity` is
asked for: the record has to read the answer), and Content-Length (said anew: a chunked request goes out with its length).
The real key goes where `auth` says, by default where the client put its token, and only to model API paths.
"""
from __future__ import annotations

from transport.http1 import HOP_BY_HOP

KEY_HEADERS = {"bearer": (b"Authorization", b"Bearer "), "x-api-key": (b"x-api-key", b""), "api-key": (b"api-key", b""),
               "x-goog-api-key": (b"x-goog-api-key", b"")}
KEY_NAMES = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key")
DROPPED = HOP_BY_HOP.union(KEY_NAMES, (b"host", b"expect", b"accept-encoding", b"content-length"))
HAS_BODY = ("POST", "PUT", "PATCH")


class Outgoing:
    """Built once per run: `auth`, key and configured headers of the upstream."""

    def __init__(self, route, key, auth, headers, absolute=False, proxy_headers=()):
        self.route, self.key, self.auth, self.absolute = route, key, auth, absolute
        self.extra = [(name.encode("latin-1"), value.encode("utf-8")) for name, value in (headers or {}).items()]
        self.dropped = {True: DROPPED.union(name.lower() for name, _ in self.extra), False: DROPPED}
        self.proxy_headers = list(proxy_headers)

    def head(self, asking):
        """(head for a request without a body, the same up to the number of its Content-Length)."""
        places = () if not self.key or self.auth == "none" else \
            (self.auth,) if self.auth in KEY_HEADERS or self.auth == "query" else asking.token_places
        target, api = self.route.join(asking.target, "key=" + self.key if "query" in places else None)
        if self.absolute:
            target = "http://" + self.route.authority + target
        first = "%s %s HTTP/1.1\r\nHost: %s" % (asking.method, target, self.route.authority)
        pairs = [(b"Accept-Encoding", b"identity")]
        if api:
            pairs += self.extra
            pairs += [(KEY_HEADERS[place][0], KEY_HEADERS[place][1] + self.key.encode())
                      for place in places if place in KEY_HEADERS]
        lines = [first.encode("latin-1"), *asking.head.end_to_end(self.dropped[api])]
        lines += [b"%s: %s" % pair for pair in pairs + self.proxy_headers]
        head = b"\r\n".join(lines)
        bodiless = b"\r\nContent-Length: 0\r\n\r\n" if asking.method in HAS_BODY else b"\r\n\r\n"
        return head + bodiless, head + b"\r\nContent-Length: "

"""The request as it goes to the upstream: head and key. Pure.

The client's headers go on in their order and case, except: hop-by-hop ones, everything that can carry a key (the run's
token must not leave, a foreign key must not slip through), Host, Expect (answered here), Accept-Encoding (`identity` is
asked for: the record has to read the answer), and Content-Length (said anew: a chunked request goes out with its length).
The real key goes where `auth` says, by default where the client put its token, and only to model API paths.
"""
from __future__ import annotations

from transport.http1 import HOP_BY_HOP
from transport.request import AUTH_HEADERS

DROPPED = HOP_BY_HOP.union(AUTH_HEADERS, (b"host", b"expect", b"accept-encoding", b"content-length"))
KEY_HEADERS = {"bearer": (b"Authorization", b"Bearer "), "x-api-key": (b"x-api-key", b""), "api-key": (b"api-key", b""),
               "x-goog-api-key": (b"x-goog-api-key", b"")}
HAS_BODY = ("POST", "PUT", "PATCH")


class Outgoing:
    """Built once per run: `auth`, key and configured headers of the upstream."""

    def __init__(self, route, key, auth, headers, absolute=False, proxy_headers=()):
        self.route, self.key, self.auth, self.absolute = route, key, auth, absolute
        self.extra = [(name.encode("latin-1"), value.encode("utf-8")) for name, value in (headers or {}).items()]
        self.dropped = {True: DROPPED.union(name.lower() for name, _ in self.extra), False: DROPPED}
        self.proxy_headers = list(proxy_headers)

    def head(self, request):
        places = () if not self.key or self.auth == "none" else \
            (self.auth,) if self.auth in KEY_HEADERS or self.auth == "query" else request.token_places
        target, api = self.route.join(request.target, "key=" + self.key if "query" in places else None)
        if self.absolute:
            target = "http://" + self.route.authority + target
        lines = ["%s %s HTTP/1.1\r\nHost: %s" % (request.method, target, self.route.authority)]
        pairs = request.head.end_to_end(self.dropped[api])
        pairs.append((b"Accept-Encoding", b"identity"))
        if api:
            pairs += self.extra
            pairs += [(KEY_HEADERS[place][0], KEY_HEADERS[place][1] + self.key.encode())
                      for place in places if place in KEY_HEADERS]
        if request.size or request.method in HAS_BODY:
            pairs.append((b"Content-Length", b"%d" % request.size))
        pairs += self.proxy_headers
        block = b"".join([b"\r\n%s: %s" % pair for pair in pairs])
        return lines[0].encode("latin-1") + block + b"\r\n\r\n"

"""One request of a client, read to its end: what it asks, for whom, and whether it belongs to the conversation.

`Conversation` tells main from auxiliary (DESIGN 2): the first model request that carries one of the harness's main
headers sets the value; later ones with the same value are main. Without such a header, the model and the tool names of
the first model request are the mark.
"""
from __future__ import annotations

import re

_FIRST_MODEL = re.compile(rb'\s*\{\s*"model"\s*:\s*"([^"\\\x00-\x1f]{1,200})"\s*[,}]')
AUTH_HEADERS = (b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key")


class Request:
    __slots__ = ("id", "head", "method", "target", "path", "dialect", "spool", "size", "sha256", "encoding", "fingerprint",
                 "identity", "user_agent", "main", "model", "tools", "described", "token_places", "first_seq", "got_at")

    def __init__(self, number, head, dialect, identity_headers):
        self.id, self.head, self.dialect = number, head, dialect
        self.method, self.target = head.first[0].decode("ascii"), head.first[1].decode("latin-1")
        self.path = self.target.partition("?")[0]
        self.spool, self.size, self.sha256, self.fingerprint = None, 0, None, None
        self.encoding = _text(head.get(b"content-encoding"))
        self.user_agent = _text(head.get(b"user-agent"))
        self.identity = {}
        for name in identity_headers:
            value = head.get(name)
            if value:
                self.identity[name.decode()] = _text(value)
        self.main, self.model, self.tools, self.described = False, None, (), False
        self.token_places, self.first_seq, self.got_at = (), None, 0.0

    def describe(self, tools=False):
        """Model and (where asked for) tools, from the body. A JSON parse, unless `model` is the first key, as with most."""
        if not self.described and self.spool is not None:
            self.described = True
            from transport.dialects import describe_request
            body = self.spool.head(16 * 1024 * 1024)
            first = None if tools else _FIRST_MODEL.match(body)
            if first:
                self.model = first.group(1).decode("utf-8", "replace")
                return
            said = describe_request(self.dialect, self.path, body)
            self.model, self.tools = said.get("model"), tuple(sorted(said.get("tools") or ()))


def _text(value):
    return value.decode("latin-1") if value is not None else None


class Conversation:
    """Not thread-safe: the caller holds a lock."""

    def __init__(self, main_headers):
        self._headers, self._value, self._shape = main_headers, None, None

    def is_main(self, request):
        if request.dialect is None:
            return False
        for name in self._headers:
            value = request.head.get(name)
            if value:
                self._value = self._value or (name, value)
                break
        if self._value is not None:
            name, value = self._value
            return request.head.get(name) == value
        request.describe(tools=True)
        shape = (request.model, request.tools)
        self._shape = self._shape or shape
        return shape == self._shape


def find_token(head, target, token):
    """Where the run's token stands: names of headers, `bearer` for Authorization, `query`. Empty: not authorised."""
    places, wanted = [], token.encode()
    for name in AUTH_HEADERS:
        for value in head.names.get(name, ()):
            if name == b"authorization":
                scheme, _, value = value.partition(b" ")
                if scheme.lower() != b"bearer":
                    continue
            if value.strip() == wanted:
                places.append("bearer" if name == b"authorization" else name.decode())
    if any(pair == "key=" + token for pair in target.partition("?")[2].split("&")):
        places.append("query")
    return places

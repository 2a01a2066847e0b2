"""One request of a client: what its head says, what it asks, and whether it belongs to the conversation. Pure.

`Asking` is all that follows from a head, worked out once: a CLI's heads differ in nothing but Content-Length, so the check of
every header, the token, the dialect and the head for the upstream are found again under the head without that number.
`Conversation` tells main from auxiliary (DESIGN 2): the first model request that carries one of the harness's main
headers sets the value; later ones with that value in any of these headers are main (a sub-agent may name its parent beside
itself; then its own value is known, too). Without such a header, the model and the tool names of the first model request are
the mark, or of the second, where only that one has tools: the first was a title or a probe.
"""
from __future__ import annotations

import re

from transport import http1
from transport.attempts import Nothing, blank_record
from transport.dialects import describe_request, dialect_of
from transport.json_bytes import value_end
from transport.latch import fingerprint
from transport.outgoing import KEY_NAMES

METHODS = (b"POST", b"GET", b"HEAD", b"OPTIONS")
LOOKED_AT = 16 * 1024 * 1024  # bytes of a body that model and tools are looked for in
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\\x00-\x1f]{1,200})"')
_FIRST_MODEL = re.compile(rb'\s*\{\s*"model"\s*:\s*"([^"\\\x00-\x1f]{1,200})"')
_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,18})(?=\r\n)")
_SESSIONS = 4096         # of one conversation, sub-agents included
_REPEATED = 64           # heads remembered, each of at most
_HEAD_BYTES = 8192


class Asking:
    """What a head says. `refusal`: (rule, detail) where the proxy answers it itself; `onward`: the head for the upstream
    (outgoing.py)."""
    __slots__ = ("head", "method", "target", "path", "dialect", "keep_alive", "http10", "encoding", "user_agent", "identity",
                 "token_places", "refusal", "expects", "onward", "blank")

    def __init__(self, head, identity_headers, token, invocation_id):
        method, target, version = head.first
        self.head, self.method, self.target = head, method.decode("ascii"), target.decode("latin-1")
        self.path = self.target.partition("?")[0]
        self.dialect = dialect_of(self.method, self.path)
        self.keep_alive, self.http10 = head.keeps_alive(), version == b"HTTP/1.0"
        self.encoding, self.user_agent = head.text(b"content-encoding"), head.text(b"user-agent")
        self.identity = {name.decode(): head.text(name) for name in identity_headers if head.get(name)}
        self.token_places = find_token(head, self.target, token)
        self.expects = b"100-continue" in head.listed(b"expect") and not self.http10
        self.refusal = self._refusal(target)
        self.onward = None
        self.blank = blank_record(self, invocation_id)

    def _refusal(self, target):
        """Deny by default. The order of the checks; the framing comes between the last two."""
        head, hosts = self.head, self.head.names.get(b"host", ())
        if head.first[0] == b"CONNECT" or not target.startswith(b"/") or target.startswith(b"//"):
            return "foreign_target", ""
        if head.first[0] not in METHODS:
            return "method", ""
        if b"upgrade" in head.listed(b"connection") and b"websocket" in head.listed(b"upgrade"):
            return "upgrade", ""
        if len(hosts) > 1 or (not hosts and not self.http10):
            return "bad_request", "one Host header"
        return None if self.token_places else ("token", "")


class Unread(Nothing):
    """The Asking of a head that could not be read."""

    def __init__(self, invocation_id):
        self.blank = blank_record(self, invocation_id)


class Askings:
    """Heads -> (Asking, reader of the body). Raises Malformed."""

    def __init__(self, identity_headers, token, outgoing, invocation_id):
        self._facts, self._outgoing, self._known = (identity_headers, token, invocation_id), outgoing, {}

    def read(self, data):
        length = _LENGTH.search(data)
        key = (data[:length.start(1)], data[length.end(1):]) if length else data
        asking = self._known.get(key)
        if asking is not None:
            return asking, http1.Sized(int(length.group(1)) if length else 0)
        head = http1.parse_request(data)
        asking = Asking(head, *self._facts)
        body = None
        if asking.refusal is None or asking.refusal[0] == "token":
            body = http1.request_body(head)
        if asking.refusal is None:
            asking.onward = self._outgoing.head(asking)
            lengths = head.names.get(b"content-length", [])
            if len(data) <= _HEAD_BYTES and b"transfer-encoding" not in head.names and lengths == (
                    [length.group(1)] if length else []):
                if len(self._known) >= _REPEATED:
                    self._known.clear()
                self._known[key] = asking
        return asking, body


class Request:
    """`asking`, then what its body says. `size` is 0 until the body is read; `hashed` comes after that."""
    spool = model = first_seq = _sha256 = _fingerprint = None
    main = described = complete = False  # complete: its body was read to the end
    size, tools = 0, ()

    def __init__(self, number, asking, got_at):
        self.id, self.asking, self.dialect, self.got_at = number, asking, asking.dialect, got_at

    @property
    def sha256(self):
        if self._sha256 is None and self.spool is not None:
            self._sha256 = self.spool.sha256()
        return self._sha256

    @property
    def fingerprint(self):
        if self._fingerprint is None and self.spool is not None:
            self._fingerprint = fingerprint(self.asking.method, self.asking.target, self.sha256)
        return self._fingerprint

    def look(self, tools_known=None):
        """Model and (with `tools_known`, a Tools) tool names, from the body; parsed only where a look at its bytes is not
        enough."""
        if self.described or self.spool is None:
            return
        self.described = True
        body = self.spool.head(LOOKED_AT)
        names = () if tools_known is None else tools_known.names_in(body)
        if names is not None:
            found, count = _FIRST_MODEL.match(body), 1
            if found is None:
                count = body.count(b'"model"')
                found = _MODEL.search(body) if count == 1 else None
            if found is not None:
                self.model, self.tools = found.group(1).decode("utf-8", "replace"), names
                return
            body = body if count else b""  # only the path can name the model
        said = describe_request(self.dialect, self.asking.path, body)
        self.model, self.tools = said["model"], tuple(sorted(said["tools"])) if names is None else names
        if names is None:
            tools_known.learn(body, self.tools)


class Tools:
    """The tools of a conversation stand in every request with the same bytes: these are looked for before anything is parsed.
    Not thread-safe: the caller holds a lock."""

    def __init__(self):
        self._bytes, self._names = None, ()

    def names_in(self, body):
        """Sorted names, or None: they must be parsed."""
        at = body.find(b'"tools"')
        if at < 0:
            return ()
        return self._names if self._bytes is not None and body.startswith(self._bytes, at) else None

    def learn(self, body, names):
        at = body.find(b'"tools"')
        end = value_end(body, at + 7) if at >= 0 else -1
        if end > 0 and tuple(sorted(describe_request(None, "", b"{%s}" % body[at:end])["tools"])) == names:
            self._bytes, self._names = body[at:end], names


class Conversation:
    """Not thread-safe: the caller holds a lock."""

    def __init__(self, main_headers):
        self._headers, self._known, self._shape, self._tools, self._asked = main_headers, set(), None, Tools(), 0

    def is_main(self, request):
        if request.dialect is None:
            return False
        named = {value for value in map(request.asking.head.get, self._headers) if value}
        if self._known or named:
            main = not self._known or not self._known.isdisjoint(named)
            if main and len(self._known) < _SESSIONS:  # a sub-agent names itself beside its parent; its own may name it alone
                self._known |= named
            return main
        request.look(self._tools)
        shape = (request.model, request.tools)
        self._asked += 1
        if self._shape is None or self._asked == 2 and shape[1] and not self._shape[1]:
            self._shape = shape  # a lone first request without tools was a title or a probe: the agent is what has tools
        return shape == self._shape


def find_token(head, target, token):
    """Where the run's token stands: names of headers, `bearer` for Authorization, `query`. Empty: not authorised."""
    places, wanted = [], token.encode()
    for name in KEY_NAMES:
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

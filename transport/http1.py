"""HTTP/1.1 message framing (RFC 9112). Pure: bytes in, values out; no sockets, no clock.

Rules of this file
- Strict on both sides. What two readers could understand differently is refused (`Malformed`), never repaired: two
  lengths, length and chunked, bare CR or LF, folded lines, spaces before the colon (RFC 9112 sections 2.2, 5.1, 6.3;
  RFC 9110 5.5). A proxy that guesses here desynchronises a connection (case A46).
- Heads are parsed from complete heads: the caller reads until CRLF CRLF (`head_end`), at most MAX_HEAD bytes. What can never
  become one (bare LF, a control character, another protocol's greeting) is refused at once: nobody waits for an end that
  does not come.
  256 KiB: nginx takes 32 KiB, Node 16 KiB, hyper 400 KiB; agent CLIs put JSON metadata into headers.
- Header lines keep their bytes and order on the way through; look-ups use the lower-case name.
- A body reader takes bytes as they come (`feed`) and returns the body's bytes in them; `wire` are the bytes to forward
  for them as they are (chunk extensions survive), `tail` the last chunk and the trailers, kept apart so that an answer
  can be left without its end. `done` says that the message has ended, `excess` what came after it.
"""
from __future__ import annotations

import re

MAX_HEAD = 256 * 1024
MAX_CHUNK_LINE = 4096  # chunk-size with extensions; hyper and nginx are of the same order
_TOKEN = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # RFC 9110 5.6.2
_HEX = b"0123456789abcdefABCDEF"
_DIGITS = b"0123456789"
_CONTROLS = bytes(c for c in range(32) if c != 9) + b"\x7f"
_NO_HEAD = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r[^\n]")
_NO_TARGET = re.compile(rb"[\t#]")  # RFC 9112 3.2: white space and fragments; servers disagree about where such a target ends
_HTTP1 = b"HTTP/1."

# RFC 9110 7.6.1, plus the proxy headers of RFC 9112 and the de facto Keep-Alive and Proxy-Connection. `Trailer` is
# end to end (RFC 9110 6.6.2). What `Connection` names comes on top.
# Content-Length is never hop-by-hop, even where `Connection` names it: a message would lose its end.
HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate",
                        b"proxy-authorization", b"te", b"transfer-encoding", b"upgrade"))
_SEEN = {}       # header lines read before -> Field: a CLI and its endpoint say most of them with every message
_STATUS = {}     # the same for status lines
_MANY = 512


class Malformed(Exception):
    """The peer's message cannot be framed. `status` is the answer where the peer is a client."""

    def __init__(self, message, status=400):
        Exception.__init__(self, message)
        self.message, self.status = message, status


class Head:
    """One message head. `first`: the parts of the first line, (method, target, version) or (version, status, reason);
    `fields`: (lower-case name, value, line as it came); `names`: {lower-case name: [values]}."""
    __slots__ = ("first", "fields", "names", "minor")

    def __init__(self, first, version, fields):
        self.first, self.fields, self.minor = first, fields, 1 if version == b"HTTP/1.1" else 0
        self.names = names = {}
        for name, value, _ in fields:
            if name in names:
                names[name].append(value)
            else:
                names[name] = [value]

    def get(self, name):
        """The only or first value of a header, or None."""
        values = self.names.get(name)
        return values[0] if values else None

    def text(self, name):
        values = self.names.get(name)
        return values[0].decode("latin-1") if values else None

    def listed(self, name):
        """The members of a comma-separated header, lower case, over all its lines."""
        values = self.names.get(name)
        if not values:
            return ()
        return [member for member in (part.strip().lower() for part in b",".join(values).split(b",")) if member]

    def keeps_alive(self):
        if b"connection" not in self.names:
            return self.minor == 1
        connection = self.listed(b"connection")
        return b"close" not in connection and (self.minor == 1 or b"keep-alive" in connection)

    def end_to_end(self, also=HOP_BY_HOP):
        """The lines that go on to the other side, without hop-by-hop ones and what `Connection` names. `also`, where given,
        is a set of lower-case names that holds HOP_BY_HOP."""
        named = [name for name in self.listed(b"connection") if name != b"content-length"]
        drop = also.union(named) if named else also
        return [line for name, _, line in self.fields if name not in drop]

    def keep_one(self, name, value):
        """A header that is repeated stays once, with this value."""
        line = name.title() + b": " + value
        self.fields = [field for field in self.fields if field[0] != name] + [(name, value, line)]
        self.names[name] = [value]

    def pairs(self):
        """[(name in lower case, value)] as text: Latin-1 (RFC 9110 5.5)."""
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value, _ in self.fields]


def head_end(data, start=0):
    """Index just after the head's empty line, or -1 while it is not there; bytes before `start` were looked at before. Too
    long a head is Malformed (431), and so is one that cannot be completed."""
    end = data.find(b"\r\n\r\n", start)
    if (end if end >= 0 else len(data)) > MAX_HEAD:
        raise Malformed("the head is longer than %d bytes" % MAX_HEAD, 431)
    if end >= 0:
        return end + 4
    broken = _NO_HEAD.search(data, start)
    if broken:
        raise Malformed("a control character or bare line end in the head: %r" % data[max(0, broken.start() - 20):broken.end()])
    return -1


def response_end(data, start=0):
    """The same for a response, whose first bytes are known."""
    if not data.startswith(_HTTP1) and not _HTTP1.startswith(data):
        raise Malformed("no HTTP/1.1 response: %r" % data[:40])
    return head_end(data, start)


def refuses_request(data):
    """Is what a server says while a request is still being sent an error, so that it does not want the rest? Interim answers
    and good ones do not mean that (RFC 9112 9.5)."""
    while data[9:10] == b"1":
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return False
        data = data[end + 4:]
    return data[9:10] not in (b"", b"1", b"2", b"3")


def _parse_headers(lines):
    return [_SEEN.get(line) or _field(line) for line in lines]


def _field(line):
    name, colon, value = line.partition(b":")
    if not colon or not name or name.translate(None, _TOKEN):
        raise Malformed("a header line that is none: %r" % line[:60])
    field = name.lower(), value.strip(b" \t"), line
    if len(line) <= 256:
        if len(_SEEN) >= _MANY:
            _SEEN.clear()
        _SEEN[line] = field
    return field


def _lines(data):
    """The lines of a complete head. Bare CR or LF, NUL and other controls are refused (RFC 9110 5.5)."""
    lines = data[:-4].split(b"\r\n")
    if len(data.translate(None, _CONTROLS)) != len(data) - 2 * (len(lines) + 1):
        raise Malformed("a control character in the head")
    return lines


def parse_request(data):
    """A complete request head, empty line included -> Head with first = (method, target, version)."""
    lines = _lines(data)
    first = lines[0].split(b" ")
    if len(first) != 3 or not first[0] or not first[1] or first[0].translate(None, _TOKEN):
        raise Malformed("a request line that is none: %r" % lines[0][:60])
    if _NO_TARGET.search(first[1]):
        raise Malformed("a target that is none: %r" % first[1][:60])
    if first[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise Malformed("HTTP/1.1 is spoken here, not %r" % first[2][:20], 505 if first[2][:5] == b"HTTP/" else 400)
    del lines[0]
    return Head(tuple(first), first[2], _parse_headers(lines))


def parse_response(data):
    """A complete response head -> Head with first = (version, status as int, reason)."""
    lines = _lines(data)
    first = _STATUS.get(lines[0]) or _status_line(lines[0])
    del lines[0]
    return Head(first, first[0], _parse_headers(lines))


def _status_line(line):
    version, _, rest = line.partition(b" ")
    code, _, reason = rest.partition(b" ")  # the reason may be empty and its space missing (RFC 9112 section 4)
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or len(code) != 3 or code.translate(None, _DIGITS) or code < b"100":
        raise Malformed("a status line that is none: %r" % line[:60])
    first = version, int(code), reason
    if len(_STATUS) < _MANY and len(line) <= 256:
        _STATUS[line] = first
    return first


def content_length(head):
    """The one Content-Length, or None. Equal repeats become one (RFC 9110 8.6); all else is refused."""
    values = head.names.get(b"content-length")
    if not values:
        return None
    if len(values) == 1 and values[0].isdigit() and len(values[0]) <= 18:
        return int(values[0])
    members = {part.strip(b" \t") for value in values for part in value.split(b",")}
    only = members.pop()
    if members or not only or only.translate(None, _DIGITS) or len(only) > 18:
        raise Malformed("contradictory or unreadable Content-Length")
    head.keep_one(b"content-length", only)
    return int(only)


def request_body(head):
    """How the request's body is framed -> a reader. Called before anything is read or forwarded."""
    length = content_length(head)
    if b"transfer-encoding" in head.names:
        coding = head.listed(b"transfer-encoding")
        if length is not None or head.minor == 0:
            raise Malformed("Transfer-Encoding together with Content-Length or HTTP/1.0")
        if coding != [b"chunked"]:
            raise Malformed("a Transfer-Encoding other than chunked", 501)
        return Chunked()
    return Sized(length or 0)


def response_body(head, method):
    """How the response's body is framed -> a reader (RFC 9112 section 6.3)."""
    status, length = head.first[1], content_length(head)
    coding = b"transfer-encoding" in head.names
    if coding and (length is not None or head.minor == 0 or head.listed(b"transfer-encoding") != [b"chunked"]):
        raise Malformed("contradictory or unknown Transfer-Encoding")
    if method == b"HEAD" or status in (204, 304) or status < 200:
        return Sized(0)
    return Chunked() if coding else UntilClose() if length is None else Sized(length)


class Sized:
    """A body of a known number of bytes."""
    __slots__ = ("length", "left", "done", "excess", "wire")
    framing, tail = "length", b""

    def __init__(self, length):
        self.length = self.left = length
        self.done, self.excess, self.wire = length == 0, b"", b""

    def feed(self, data):
        if len(data) > self.left:
            data, self.excess = data[:self.left], data[self.left:]
        self.left -= len(data)
        self.done = self.left == 0
        self.wire = data
        return data

    def eof(self):
        """The peer closed: is this a proper end?"""
        return self.done


class UntilClose:
    """A body that ends with the connection."""
    __slots__ = ("done", "excess", "wire")
    framing, tail = "close", b""

    def __init__(self):
        self.done, self.excess, self.wire = False, b"", b""

    def feed(self, data):
        self.wire = data
        return data

    def eof(self):
        self.done = True
        return True


class Chunked:
    """The chunked coding (RFC 9112 section 7.1)."""
    __slots__ = ("done", "excess", "trailers", "wire", "tail", "_rest", "_left", "_sizes", "_last")
    framing = "chunked"

    def __init__(self):
        self.done, self.excess, self.trailers, self.wire, self.tail = False, b"", [], b"", b""
        self._rest = b""     # the beginning of a size line, or of the last chunk and the trailers
        self._left = 0       # bytes still to come of a chunk that is cut, its CRLF included
        self._last = 0       # length of the last chunk's size line once it was seen; then come trailers
        self._sizes = {}     # size lines seen: streams repeat a few of them

    def eof(self):
        return self.done

    def feed(self, data):
        out = []
        pos = self._continue_chunk(data, out) if self._left else 0
        if self._rest:
            data, self._rest = self._rest + data, b""
        end = len(data)
        while pos < end and not self._last and not self._left:
            eol = data.find(b"\r\n", pos, pos + MAX_CHUNK_LINE)
            if eol < 0:
                self._rest = data[pos:]
                self._check_rest()
                break
            size = self._sizes.get(data[pos:eol])
            if size is None:
                size = self._new_size(data[pos:eol])
            if size == 0:
                self._last = eol + 2 - pos
                break
            start, after = eol + 2, eol + size + 4
            if after <= end:
                if data[after - 2:after] != b"\r\n":
                    raise Malformed("a chunk longer than its size")
                out.append(data[start:after - 2])
                pos = after
            else:
                self._left = after - start
                self._continue_chunk(data[start:], out)
                pos = end
        self.wire = data if pos == end else data[:pos]
        if self._last and not self.done:
            self._read_trailers(data[pos:])
        return out[0] if len(out) == 1 else b"".join(out)

    def _new_size(self, line):
        if len(self._sizes) > 4096:
            self._sizes.clear()
        size = self._sizes[line] = _chunk_size(line)
        return size

    def _continue_chunk(self, data, out):
        """Take the rest of a cut chunk; returns how much of `data` belonged to it. The last two bytes are its CRLF."""
        taken = min(self._left, len(data))
        body = max(0, min(taken, self._left - 2))
        if body:
            out.append(data[:body] if body < len(data) else data)
        for at in range(body, taken):
            if data[at] != (13 if self._left - at == 2 else 10):
                raise Malformed("a chunk longer than its size")
        self._left -= taken
        return taken

    def _check_rest(self):
        if len(self._rest) >= MAX_CHUNK_LINE:
            raise Malformed("a chunk-size line without end")
        if self._rest.partition(b";")[0].rstrip(b" \t\r").translate(None, _HEX):
            raise Malformed("a chunk size that is none: %r" % self._rest[:20])

    def _read_trailers(self, data):
        """`data` begins with the last chunk's size line."""
        at = self._last
        if data[at:at + 2] == b"\r\n":
            used = at + 2
        else:
            used = head_end(data, at)
            if used < 0:
                self._rest = data
                return
            self.trailers = [(line[:len(name)], value) for name, value, line in _parse_headers(_lines(data[at:used]))]
        self.done, self.tail, self.excess = True, data[:used], data[used:]


def _chunk_size(line):
    size, semicolon, _ = line.partition(b";")
    size = size.rstrip(b" \t") if semicolon else size  # BWS before an extension (RFC 9112 7.1.1)
    if not size or len(size) > 15 or size.translate(None, _HEX) or len(line.translate(None, _CONTROLS)) != len(line):
        raise Malformed("a chunk size that is none: %r" % line[:20])
    return int(size, 16)

"""Connections to the model endpoint: connect, TLS, ambient proxy, Unix socket, reuse; one request out, one head in.

Rules of this file
- Every failure is an UpstreamFailed whose phase says what was being done (resolve, connect, tls, send, head, body).
- A connection is used again only when the last answer was read to its framed end and both sides keep it alive. A reused
  one may have been closed by the server meanwhile: `Link.reused` and `Link.got_byte` let the caller replay once.
- The head and a small body go out in one send. A server may answer before it has read the request: while sending, an error
  (413, 401) stops the sending, interim and good answers do not (RFC 9112 9.5: a `100` nobody asked for, a stream that begins
  early); a failed send is followed by a look for an answer.
- Deadlines: CONNECT_TIMEOUT per address; first byte and idle as configured, none by default.
"""
from __future__ import annotations

import errno
import os
import select
import socket
import threading

from transport import http1
from transport.errors import UpstreamFailed, from_os_error
from transport.resolver import Resolver
from transport.streams import Stream, Tls, nodelay
from transport.waits import POLLIN, POLLOUT, monotonic

CONNECT_TIMEOUT = 10.0      # for the last address; the others get FIRST_TRY, so a dead IPv6 route costs little
FIRST_TRY = 3.0
READ = 65536
MAX_IDLE = 64               # as many as there may be streams at once: a TLS handshake costs more than ten requests
IDLE_FOR = 50.0             # seconds; below the 60 s of common load balancers
ONE_SEND = 128 * 1024       # head and body together in one send up to here
MAX_INTERIM = 32
EARLY = 1024 * 1024         # bytes of an answer taken while the request is still being sent


class Link:
    """One connection. `data` are bytes read and not yet taken; `got_byte` says that this request had one in answer."""
    __slots__ = ("stream", "fd", "data", "reused", "got_byte", "reusable", "since", "sent_all", "_probe")

    def __init__(self, stream):
        self.stream, self.fd, self.data = stream, stream.fd, b""
        self.reused, self.got_byte, self.reusable, self.since, self.sent_all = False, False, True, 0.0, False
        self._probe = select.poll()
        self._probe.register(self.fd, POLLIN)

    def is_stale(self):
        """Readable while idle: closed, or bytes that belong to no request and would be taken for the next one's answer."""
        return bool(self.stream.buffered() or self._probe.poll(0))

    def send(self, head, body, watch):
        """The request; `body` is a Spool. Returns early when the server answers early; `sent_all` tells."""
        self.got_byte = self.sent_all = False
        block = head
        for piece in body.pieces() if body.size else ():
            if len(block) + len(piece) <= ONE_SEND:
                block += piece
                continue
            if not self._send_block(block, watch):
                return
            block = piece
        self.sent_all = self._send_block(block, watch)

    def _send_block(self, block, watch):
        """False when the server does not want the rest."""
        try:
            rest = block[self.stream.send(block):]
            if not rest:
                return True
            rest = memoryview(rest)
            while rest:
                watch.wait(self.fd, POLLIN | POLLOUT if len(self.data) < EARLY else POLLOUT)
                taken = self.stream.send(rest)
                if not taken and len(self.data) < EARLY and self._is_refused():
                    return False
                rest = rest[taken:]
            return True
        except OSError as error:
            self._is_refused()
            if self.data:
                return False
            raise from_os_error("send", error)

    def _is_refused(self):
        """While sending: takes the bytes of an early answer. -> is it an error, or the end, so that the rest is not wanted?"""
        try:
            data = self.stream.recv(READ)
        except OSError:
            return False
        if data is None:
            return False
        self.reusable = False
        self.data += data
        return not data or http1.refuses_request(self.data)

    def take(self):
        """What was read already, and waits for nobody."""
        data, self.data = self.data, b""
        return data

    def read(self, watch, until, on_timeout, eager=True, few=False):
        """The next bytes; b"" at the end. `eager`: bytes are likely there, try before polling; `few`: one TLS record will do."""
        while True:
            if not eager and not self.stream.buffered() and not watch.wait(self.fd, self.stream.events, until):
                raise on_timeout()
            eager = False
            data = self.stream.record(READ) if few else self.stream.recv(READ)
            if data is not None:
                return data

    def read_head(self, watch, timeouts):
        """-> the final response's Head; interim ones (1xx) end here: the answer is ours to forward, they were for us."""
        data, interim, end = b"", 0, -1
        while True:
            while end < 0:
                more = self._more_head(watch, timeouts, data)
                start = max(0, len(data) - 3)
                data = data + more if data else more
                end = http1.response_end(data, start)
            head = http1.parse_response(data[:end])
            data = data[end:]
            if head.first[1] >= 200:
                self.data = data
                return head
            end = http1.response_end(data)
            interim += 1
            if head.first[1] == 101 or interim > MAX_INTERIM:
                raise http1.Malformed("%d where a final answer is due" % head.first[1])

    def _more_head(self, watch, timeouts, data):
        until, on_timeout = timeouts("idle" if data else "first_byte")
        try:
            more = self.take() or self.read(watch, until, on_timeout, few=True)
        except OSError as error:
            raise from_os_error("head", error)
        if not more:
            where = "in the middle of" if data else "before"
            raise UpstreamFailed("head", "eof", "the server closed %s the response head" % where)
        self.got_byte = True
        return more

    def close(self, watch=None):
        if watch is not None:
            watch.forget()
        self.stream.close()


class Upstream:
    """The pool and the ways to connect. `ambient` is an ambient.Way (or None)."""

    def __init__(self, route, unix_socket=None, ca_file=None, way=None):
        self.route, self.unix_socket, self.ca_file, self.way = route, unix_socket, ca_file, way
        self._idle, self._resolver, self._tls, self._tls_lock = [], Resolver(), None, threading.Lock()

    def prepare(self):
        """Build the TLS context before the first request needs it."""
        if self.route.scheme == "https":
            self._context()

    def take(self, watch, fresh=False):
        """A connection for one request: an idle one that still seems alive, else a new one."""
        while not fresh and self._idle:
            try:
                link = self._idle.pop()  # the latest: what is not needed grows old at the other end
            except IndexError:
                break  # another thread took it
            if monotonic() - link.since < IDLE_FOR and not link.is_stale():
                link.reused = True
                return link
            link.close()
        return Link(self._connect(watch))

    def give_back(self, link, watch):
        watch.forget()
        link.since, link.data = monotonic(), b""
        if len(self._idle) < MAX_IDLE:
            self._idle.append(link)
        else:
            link.close()

    def close(self):
        idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    def _connect(self, watch):
        route = self.route
        if self.unix_socket:
            sock = _open(socket.AF_UNIX, self.unix_socket, watch, monotonic() + CONNECT_TIMEOUT)
        elif self.way:
            sock = self._dial(self.way.host, self.way.port, watch)
        else:
            sock = self._dial(route.host, route.port, watch)
        if route.scheme != "https":
            return Stream(sock)
        try:
            if self.way and not self.unix_socket:
                self.way.tunnel(Stream(sock), route, watch)
            return self._context().wrap(sock, route.name, watch)
        except BaseException:
            watch.forget()
            sock.close()
            raise

    def _dial(self, host, port, watch):
        addresses = self._resolver.resolve(host, port, watch)
        failure = None
        for number, (family, address) in enumerate(addresses, 1):
            patience = CONNECT_TIMEOUT if number == len(addresses) else FIRST_TRY
            try:
                return _open(family, address, watch, monotonic() + patience)
            except UpstreamFailed as error:
                failure = error
        raise failure or UpstreamFailed("resolve", "name_not_found", "%s has no address" % host)

    def _context(self):
        with self._tls_lock:
            if self._tls is None:
                try:
                    self._tls = Tls(self.ca_file)
                except (OSError, ImportError, ValueError) as error:
                    raise UpstreamFailed("tls", "setup", "no TLS context: %s" % error, "tls_failed")
            return self._tls


def _open(family, address, watch, until):
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise from_os_error("connect", error)
    try:
        nodelay(sock)
        code = sock.connect_ex(address)
        if code in (errno.EINPROGRESS, errno.EAGAIN):
            if not watch.wait(sock.fileno(), POLLOUT, until):
                raise UpstreamFailed("connect", "timeout", "no connection to %s in time" % (address,))
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise from_os_error("connect", OSError(code, "%s: %s" % (_shown(address), os.strerror(code))))
        return sock
    except BaseException:
        watch.forget()
        sock.close()
        raise


def _shown(address):
    return address if isinstance(address, str) else "%s port %d" % address[:2]

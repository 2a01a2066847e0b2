"""The client's side of a connection: heads and bodies in, answers out. Sockets are non-blocking; threads wait in `Watch`.

- TCP_NODELAY is set, and a head goes out together with the first body bytes: two small writes cost 40 ms each way with
  Nagle and delayed ACKs (facts/performance.md section d).
- A read returns what is there; the deadline counts from the first byte of a head, an idle keep-alive connection waits
  for ever (it costs a thread, and `sandbox_transport` may close the oldest when threads run out).
- `abort` is how a broken answer ends. What was sent must arrive first: a reset throws away what stands in our own send
  queue, so it waits for the queue (SIOCOUTQ, DRAIN seconds at most).
"""
from __future__ import annotations

import fcntl
import re
import socket
import struct

from transport import http1
from transport.errors import ClientLeft, Refused
from transport.waits import POLLIN, POLLOUT, Watch, monotonic

HEAD_TIMEOUT = 60.0   # from a head's first byte to its last; nginx's client_header_timeout
BODY_TIMEOUT = 300.0  # without one byte of a request body
DRAIN = 5.0
SIOCOUTQ = 0x5411     # linux/sockios.h: bytes not yet acknowledged by the peer
READ = 65536
_EMPTY_LINES = re.compile(rb"(?:\r\n)*")


class Client:
    """`face.last_activity` is set by every byte; `idle_since` (monotonic) stands while it waits between two requests, `slow`
    while it does not take what there is for it."""
    __slots__ = ("sock", "fd", "watch", "buffer", "http10", "sent", "face", "idle_since", "slow")

    def __init__(self, sock, stop, face):
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.fd, self.watch, self.face = sock, sock.fileno(), Watch(stop, sock), face
        self.buffer, self.http10, self.sent, self.idle_since, self.slow = b"", False, 0, None, False

    def read_head(self):
        """A complete request head, or None when the client closed between requests."""
        data, until, searched = self.buffer, None, 0
        if not data:
            self.idle_since = monotonic()
        while True:
            if data[:2] == b"\r\n":  # RFC 9112 2.2: empty lines before a request line are skipped
                data, searched = data[_EMPTY_LINES.match(data).end():], 0
            end = http1.head_end(data, searched)
            if end >= 0:
                self.buffer = data[end:]
                self.idle_since = None
                return data[:end]
            searched = max(0, len(data) - 3)
            if data and until is None:
                until = monotonic() + HEAD_TIMEOUT
            more = self._read(until)
            if not more:
                if data.strip(b"\r\n"):
                    raise ClientLeft("the client closed in the middle of a head")
                return None
            data = data + more if data else more

    def read_body(self, body):
        """The next bytes of the request's body (b"" when there are none in what arrived)."""
        data, self.buffer = self.buffer, b""
        if not data:
            data = self._read(monotonic() + BODY_TIMEOUT)
            if not data:
                raise ClientLeft("the client closed in the middle of a body")
        piece = body.feed(data)
        if body.done:
            self.buffer = body.excess
        return piece

    def _read(self, until):
        """Looks before it waits: a client that is quick, or one of many, has sent already, and a poll for it costs more."""
        while True:
            try:
                data = self.sock.recv(READ)
            except BlockingIOError:
                if not self.watch.client_readable(until):
                    raise Refused("slow_request", "no byte in time")
                continue
            except OSError as error:
                raise ClientLeft(error.strerror or "the client reset the connection")
            self.face.last_activity = monotonic()
            return data

    def send(self, data):
        """All of it; a slow reader is waited for."""
        sock, size = self.sock, len(data)
        try:
            done = sock.send(data)
        except BlockingIOError:
            done = 0
        except OSError as error:
            raise ClientLeft(error.strerror)
        if done < size:
            self._send_rest(memoryview(data)[done:])
        self.sent += size
        self.face.last_activity = monotonic()

    def _send_rest(self, rest):
        self.slow = True
        while rest:
            self.watch.wait(self.fd, POLLOUT)
            try:
                rest = rest[self.sock.send(rest):]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ClientLeft(error.strerror)
            self.face.last_activity = monotonic()
        self.slow = False

    def abort(self, reset):
        """End a broken answer: by FIN where the framing shows the break, by RST where the connection's end is the framing."""
        if reset:
            until = monotonic() + DRAIN
            while monotonic() < until and self._unsent():
                self.watch.wait(-1, 0, min(until, monotonic() + 0.01))
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def _unsent(self):
        try:
            return struct.unpack("i", fcntl.ioctl(self.fd, SIOCOUTQ, b"\0\0\0\0"))[0]
        except OSError:
            return 0

    def linger(self):
        """Close after an answer to a request that was not read: reading on for a moment keeps a reset from eating the answer."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
            until, left = monotonic() + 1.0, 4 * 1024 * 1024
            while left > 0 and self.watch.wait(self.fd, POLLIN, until):
                data = self.sock.recv(READ)
                if not data:
                    break
                left -= len(data)
        except OSError:
            pass
        self.sock.close()

"""A connected byte stream to the upstream, plain or TLS, non-blocking, with one vocabulary for both.

`recv(n)` returns bytes, b"" at the end, or None when nothing is there yet; `record(n)` does, but no more than one TLS record of
them; `send(data)` returns how much was taken (0: none yet). `events` is what to poll for after a None (TLS may need to write in
order to read). OSErrors pass through.
"""
from __future__ import annotations

import errno
import socket

from transport.errors import UpstreamFailed, from_os_error
from transport.waits import POLLIN, POLLOUT, monotonic

TLS_TIMEOUT = 20.0
NOT_WELCOME = ("ALERT_CERTIFICATE", "ALERT_BAD_CERTIFICATE", "ALERT_UNSUPPORTED_CERTIFICATE", "ALERT_UNKNOWN_CA",
               "ALERT_ACCESS_DENIED", "ALERT_HANDSHAKE_FAILURE")
BULK = 4096  # bytes: a record of this size is one of many. A look for another that is not there costs 7 us


class Stream:
    __slots__ = ("sock", "fd", "events")
    ragged = False  # True once the stream has ended in a way that does not tell a whole message from a cut one

    def __init__(self, sock):
        self.sock, self.fd, self.events = sock, sock.fileno(), POLLIN

    def recv(self, size):
        try:
            return self.sock.recv(size)
        except BlockingIOError:
            return None

    record = recv

    def send(self, data):
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0

    def buffered(self):
        return False

    def close(self):
        self.sock.close()


class TlsStream(Stream):
    """An end without close_notify is `ragged`: length and chunks tell whether the message was whole, without them nothing does
    (RFC 9112 9.8). Some builds of ssl report a reset in this way; Python 3.8 and 3.9 take a bare FIN for a close_notify.

    TLS gives one record (16 KiB at most) per call. Where records are large, those that have arrived are taken together: what
    comes after a read (a look for events, a send, a write) costs more than the read. A head is read by `record`, one at a time:
    most often the whole answer is in it."""
    __slots__ = ("ragged", "_ssl", "_error", "_ended")

    def __init__(self, sock, ssl):
        Stream.__init__(self, sock)
        self.ragged, self._ssl, self._error, self._ended = False, ssl, None, False

    def record(self, size):
        if self._error is not None:
            raise self._error
        return b"" if self._ended else self._record(size)

    def recv(self, size):
        data = self.record(size)
        if not data or len(data) < BULK:
            return data
        parts, size = [data], size - len(data)
        while size > 0:
            try:
                data = self._record(size)
            except (OSError, UpstreamFailed) as error:  # told by the next call: these bytes came before it
                self._error = error
                break
            if not data:
                self._ended = data is not None  # no byte is left that would make the socket readable
                break
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def _record(self, size):
        try:
            self.events = POLLIN
            return self.sock.recv(size)
        except self._ssl.SSLWantReadError:
            return None
        except self._ssl.SSLWantWriteError:
            self.events = POLLOUT
            return None
        except self._ssl.SSLZeroReturnError:
            return b""
        except self._ssl.SSLEOFError:
            self.ragged = True
            return b""
        except self._ssl.SSLError as error:
            raise _broken(error)

    def send(self, data):
        try:
            return self.sock.send(data)
        except (self._ssl.SSLWantWriteError, self._ssl.SSLWantReadError):
            return 0
        except self._ssl.SSLError as error:
            raise _broken(error)

    def buffered(self):
        return self._ended or self._error is not None or self.sock.pending() > 0


def _broken(error):
    """What an SSLError means after the handshake; its errno is a number of OpenSSL's, and no errno. With TLS 1.3 a server says
    only now that it wants a client certificate, or another one."""
    words = str(error)
    if any(word in words for word in NOT_WELCOME):
        return UpstreamFailed("tls", "alert", error.reason or words, "tls_failed")
    return ConnectionResetError(errno.ECONNRESET, words)


class Tls:
    """The one TLS context of a run, built once (loading a system store takes 20 ms and more)."""

    def __init__(self, ca_file):
        import ssl
        self.ssl, self.ca_file = ssl, ca_file
        self.context = ssl.create_default_context(cafile=ca_file) if ca_file else ssl.create_default_context()
        if hasattr(self.context, "set_alpn_protocols"):
            self.context.set_alpn_protocols(["http/1.1"])

    def has_no_store(self):
        """True in minimal images: no certificate is loaded, and no directory could give one on demand."""
        import os
        paths = self.ssl.get_default_verify_paths()
        found = paths.capath and os.path.isdir(paths.capath) and os.listdir(paths.capath)
        return not self.context.cert_store_stats()["x509_ca"] and not found

    def wrap(self, sock, host, watch):
        """Handshake on a connected socket -> TlsStream. Failures have phase tls."""
        ssl, until = self.ssl, monotonic() + TLS_TIMEOUT
        try:
            wrapped = self.context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False,
                                               suppress_ragged_eofs=False)
        except (ssl.SSLError, ValueError) as error:
            raise UpstreamFailed("tls", "setup", str(error), "tls_failed")
        watch.forget()
        while True:
            try:
                wrapped.do_handshake()
                return TlsStream(wrapped, ssl)
            except ssl.SSLWantReadError:
                events = POLLIN
            except ssl.SSLWantWriteError:
                events = POLLOUT
            except ssl.SSLCertVerificationError as error:
                raise UpstreamFailed("tls", "certificate", self._explain(error), "tls_failed")
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                raise UpstreamFailed("tls", "eof", "the server closed during the handshake")
            except ssl.SSLError as error:  # no common version or cipher, not TLS at all: nothing that heals
                raise UpstreamFailed("tls", "handshake", error.reason or str(error), "tls_failed")
            except OSError as error:
                raise from_os_error("tls", error)
            if not watch.wait(wrapped.fileno(), events, until):
                raise UpstreamFailed("tls", "timeout", "no handshake within %d s" % TLS_TIMEOUT)

    def _explain(self, error):
        message = "%s (code %s)" % (error.verify_message or str(error), error.verify_code)
        if not self.ca_file and self.has_no_store():
            message += "; this image has no CA certificates: give model.ca_file or SSL_CERT_FILE, or install ca-certificates"
        return message


def nodelay(sock):
    sock.setblocking(False)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a peer that vanished: seen in hours, not never

"""A connected byte stream to the upstream, plain or TLS, non-blocking, with one vocabulary for both.

`recv(n)` returns bytes, b"" at the end, or None when nothing is there yet; `send(data)` returns how much was taken (0:
none yet). `events` is what to poll for after a None (TLS may need to write in order to read). OSErrors pass through.
"""
from __future__ import annotations

import socket

from transport.errors import UpstreamFailed, from_os_error
from transport.waits import POLLIN, POLLOUT, monotonic

TLS_TIMEOUT = 20.0


class Stream:
    __slots__ = ("sock", "fd", "events")

    def __init__(self, sock):
        self.sock, self.fd, self.events = sock, sock.fileno(), POLLIN

    def recv(self, size):
        try:
            return self.sock.recv(size)
        except BlockingIOError:
            return None

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
    """A clean close of TLS without close_notify is an end like FIN: HTTP framing tells truncation (RFC 9112 9.8)."""
    __slots__ = ("_ssl",)

    def __init__(self, sock, ssl):
        Stream.__init__(self, sock)
        self._ssl = ssl

    def recv(self, size):
        try:
            self.events = POLLIN
            return self.sock.recv(size)
        except self._ssl.SSLWantReadError:
            return None
        except self._ssl.SSLWantWriteError:
            self.events = POLLOUT
            return None
        except (self._ssl.SSLZeroReturnError, self._ssl.SSLEOFError):
            return b""

    def send(self, data):
        try:
            return self.sock.send(data)
        except (self._ssl.SSLWantWriteError, self._ssl.SSLWantReadError):
            return 0

    def buffered(self):
        return self.sock.pending() > 0


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
            wrapped = self.context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
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

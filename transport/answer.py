"""A response on its way to a client: the head as it goes on, the bytes that are held, and how it ends.

- The status line and the header lines are the upstream's; only hop-by-hop headers are ours. A chunked body keeps its
  chunks, extensions and trailers; for an HTTP/1.0 client it is unchunked and ends with the connection.
- An answer that is not complete is passed on as what it is: length and chunks stay as announced, the last chunk is not
  sent, the connection is closed. A clean end is never manufactured (A18, A53).
"""
from __future__ import annotations

from transport import http1

TOGETHER = 65536  # bytes: head and body in one send up to here


def head_bytes(head, framing, http10, close):
    """`framing` is the response reader's: length, chunked or close."""
    _, status, reason = head.first
    lines = [b"HTTP/1.1 %d %s" % (status, reason), *head.end_to_end()]
    if framing == "chunked" and not http10:
        lines.append(b"Transfer-Encoding: chunked")
    if close:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def ends_connection(framing, http10, keep_alive):
    return not keep_alive or framing == "close" or http10


class Answer:
    """A received response that can be given again. `body` is a Spool of the bytes on the wire without the last chunk,
    which stands in `tail`; `complete` says that the upstream ended it properly."""
    __slots__ = ("head", "framing", "body", "tail", "complete", "status")

    def __init__(self, head, framing, body):
        self.head, self.framing, self.body, self.tail = head, framing, body, b""
        self.complete, self.status = False, head.first[1]

    def deliver(self, client, keep_alive):
        """Send everything. -> may the client's connection go on?"""
        close = ends_connection(self.framing, client.http10, keep_alive) or not self.complete
        block = head_bytes(self.head, self.framing, client.http10, close and self.complete)
        unchunk = http1.Chunked() if self.framing == "chunked" and client.http10 else None
        for piece in self.body.pieces():
            piece = unchunk.feed(piece) if unchunk else piece
            if len(block) + len(piece) > TOGETHER:
                client.send(block)
                block = b""
            block += piece
        if self.complete and not unchunk:
            block += self.tail
        if block:
            client.send(block)
        if not self.complete:
            client.abort(reset=self.framing == "close" or client.http10)
        return not close

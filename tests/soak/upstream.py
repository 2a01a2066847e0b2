"""A model that misbehaves as the request asks it to, and remembers what reached it.

What to do stands in the body: {"soak": {"how": ..., "seed": N, "times": K}}. The answer follows from `how` and `seed` alone
(`answer_bytes`), so that a client can compare what it got. `times`: how often an arrival of this body fails before it goes
well. `witness`: {SHA-256 of a body: arrivals}. In the second half of the soak `how` is "bytes": a mutated answer.
"""
from __future__ import annotations

import collections
import hashlib
import json
import random
import socket
import struct
import threading

from tests.rawserver import read_request

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSING_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
LAST = (b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"r","status":"completed","usage":'
        b'{"input_tokens":2,"output_tokens":1,"total_tokens":3}}}\n\n')
# how -> weight in the first half. Those of GOOD end well, FAILING first fail `times` times and then end well.
GOOD = {"json": 8, "stream": 10, "slow_stream": 6, "interim": 2, "until_close": 2, "large": 1}
FAILING = {"busy": 4, "broken_before": 3}
BROKEN = {"cut": 5, "reset": 4, "no_terminal": 3, "stall": 1, "garbage": 2, "late_error": 3}


def events(rng, count):
    for number in range(count):
        text = "x" * rng.choice((1, 20, 200, 3000))
        yield b'data: {"type":"response.output_text.delta","n":%d,"delta":"%s"}\n\n' % (number, text.encode())


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def body_of(how, seed):
    """The payload of an answer that goes well."""
    rng = random.Random(seed)
    if how in ("json", "interim", "busy", "broken_before"):
        return json.dumps({"id": "r%d" % seed, "object": "response", "status": "completed", "output": ["y" * rng.randrange(5000)],
                           "usage": {"input_tokens": 2, "output_tokens": 1, "total_tokens": 3}}).encode()
    if how == "large":
        return b"".join(events(rng, 3000)) + LAST
    return b"".join(events(rng, rng.randrange(1, 30))) + LAST


def mutated(data, rng):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 8)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            del data[at:at + rng.randrange(1, 60)]
        elif kind == 1:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 20)))
        elif kind == 2:
            data[at:at] = rng.choice((b"\r\n", b"\n", b"\r", b"\r\n\r\n", b":", b"0\r\n\r\n", b"ffffffffffffff\r\n", b"\0", b"HTTP/1.1 ",
                                      b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n"))
        elif kind == 3 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        else:
            data = data[:at]
    return bytes(data)


class Upstream:
    """corpus: whole responses (bytes) that the second half mutates."""

    def __init__(self, corpus):
        self.corpus, self.witness, self.lock = corpus, collections.Counter(), threading.Lock()
        self.trouble, self.closing = [], threading.Event()
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.closing.set()
        self.listener.close()

    def _accept(self):
        while True:
            try:
                sock = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        sock.settimeout(60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while True:
                body = read_request(sock)[1]
                with self.lock:
                    self.witness[hashlib.sha256(body).hexdigest()] += 1
                    arrival = self.witness[hashlib.sha256(body).hexdigest()]
                if not self._answer(sock, body, arrival):
                    return
        except (OSError, EOFError):
            pass  # the proxy closed
        except Exception as error:  # noqa: BLE001 - told by the soak
            self.trouble.append("upstream: %r" % error)
        finally:
            sock.close()

    def _answer(self, sock, body, arrival):
        """-> may the connection go on?"""
        try:
            asked = json.loads(body)["soak"]
        except (ValueError, LookupError, TypeError):
            asked = {"how": "json", "seed": 1, "times": 0}  # a mutated request
        how, rng = asked["how"], random.Random(asked["seed"] + 7 * arrival)
        if how == "bytes":
            sock.sendall(mutated(rng.choice(self.corpus), rng))
            return False
        if how in FAILING and arrival <= asked["times"]:
            if how == "busy":
                sock.sendall(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: 28\r\n\r\n"
                             b'{"error":{"message":"busy"}}' % rng.choice((b"503 No", b"429 Slow", b"500 Oh")))
                return True
            return self._end(sock, rng)
        return getattr(self, "_" + how, self._json)(sock, body_of(how, asked["seed"]), rng)

    def _json(self, sock, payload, rng):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(payload), payload))
        return True

    def _interim(self, sock, payload, rng):
        sock.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * rng.randrange(1, 4))
        return self._json(sock, payload, rng)

    def _stream(self, sock, payload, rng, pause=0.0):
        wire = STREAM_HEAD + b"".join(chunk(part + b"\n\n") for part in payload.split(b"\n\n")[:-1]) + b"0\r\n\r\n"
        while wire:
            size = rng.choice((1, 7, 300, 5000, 65536))
            sock.sendall(wire[:size])
            wire = wire[size:]
            if pause and rng.random() < 0.3:
                self.closing.wait(rng.random() * pause)
        return True

    def _slow_stream(self, sock, payload, rng):
        return self._stream(sock, payload, rng, 0.05)

    def _large(self, sock, payload, rng):
        sock.sendall(STREAM_HEAD + chunk(payload) + b"0\r\n\r\n")
        return True

    def _until_close(self, sock, payload, rng):
        sock.sendall(CLOSING_HEAD + payload)
        return False

    def _cut(self, sock, payload, rng):
        wire = STREAM_HEAD + chunk(payload)
        sock.sendall(wire[:rng.randrange(1, len(wire))])
        return False

    def _reset(self, sock, payload, rng):
        self._cut(sock, payload, rng)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def _no_terminal(self, sock, payload, rng):
        sock.sendall(STREAM_HEAD + chunk(payload[:-len(LAST)]) + b"0\r\n\r\n")
        return True

    def _stall(self, sock, payload, rng):
        sock.sendall((STREAM_HEAD + chunk(payload))[:len(STREAM_HEAD) + rng.randrange(300)])
        self.closing.wait(5)
        return False

    def _late_error(self, sock, payload, rng):
        error = b'event: error\ndata: {"type":"error","code":"server_error","message":"late"}\n\n'
        sock.sendall(STREAM_HEAD + chunk(payload[:-len(LAST)]) + chunk(error) + b"0\r\n\r\n")
        return True

    def _garbage(self, sock, payload, rng):
        sock.sendall(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 400))))
        return False

    def _end(self, sock, rng):
        if rng.random() < 0.5:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

"""The clients of the soak: each asks, reads, stalls or leaves as its seed says, and notes what must be in the records.

first half    requests whose answer is known: a complete answer must be the upstream's to the byte, a broken one a beginning of
              it, and a clean end of a stream is never one that the upstream did not make
second half   random and mutated bytes, on either side; between them requests that must go well
"""
from __future__ import annotations

import collections
import hashlib
import json
import random
import socket
import struct
import threading
import time

from tests.proxied import Raw, request
from tests.soak import upstream
from tests.soak.target import TOKEN

HANG = 60  # seconds; no answer takes longer than some retries and one idle timeout


class Clients:
    def __init__(self, port, seed, streams, seeds):
        self.port, self.seed, self.streams, self.seeds = port, seed, streams, seeds
        self.trouble, self.counts, self.lock = [], collections.Counter(), threading.Lock()
        self.answered = set()  # SHA-256 of bodies that got at least the head of an answer: each has a record
        self.stop_at, self.last = 0.0, {}

    def run(self, act, seconds):
        """`act(rng, number)` again and again in every stream."""
        self.stop_at = time.monotonic() + seconds
        threads = [threading.Thread(target=self._stream, args=(act, n), daemon=True) for n in range(self.streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, self.stop_at - time.monotonic()) + 2 * HANG)
            if thread.is_alive():
                self.trouble.append("a client hangs")

    def _stream(self, act, stream):
        rng, number = random.Random("%s %s %s" % (self.seed, act.__name__, stream)), 0
        while time.monotonic() < self.stop_at and len(self.trouble) < 10:
            number += 1
            try:
                act(rng, stream * 10 ** 7 + number)
            except socket.timeout:
                self.trouble.append("hangs for %d s: %s, stream %d, request %d, last %s" % (
                    HANG, act.__name__, stream, number, self.last.get(stream)))
            except Exception as error:  # noqa: BLE001 - whatever it is, the soak tells it
                self.trouble.append("%s, stream %d, request %d: %r" % (act.__name__, stream, number, error))

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def connect(self):
        raw = Raw(self.port)
        raw.sock.settimeout(HANG)
        return raw

    # -- first half ------------------------------------------------------------------------------------------------------
    def streams_half(self, rng, number):
        with self.connect() as raw:
            for turn in range(rng.choice((1, 1, 3, 8))):
                if not self._exchange(raw, rng, number * 10 + turn):
                    return

    def _exchange(self, raw, rng, seed):
        """-> may the connection go on?"""
        weights = dict(upstream.GOOD, **upstream.FAILING, **upstream.BROKEN)
        how = rng.choices(list(weights), list(weights.values()))[0]
        body = json.dumps({"model": "m", "soak": {"how": how, "seed": seed, "times": rng.randrange(4)}}).encode()
        body += b" " * rng.choice((0, 0, 0, 20000))
        headers = ["session-id: s%d" % (seed % 3), "thread-id: t%d" % (seed % 5)]
        data = request(body, headers=headers, token=TOKEN)
        self.last[seed // 10 ** 8] = how, seed, len(data)
        leaves = rng.random() < 0.15
        if rng.random() < 0.1:
            for at in range(0, len(data), 37 + len(data) // 20):
                raw.send(data[at:at + 37 + len(data) // 20])
                time.sleep(0.001)
        else:
            raw.send(data)
        if leaves:
            return self._leave(raw, rng)
        half_closed = rng.random() < 0.05
        if half_closed:
            raw.sock.shutdown(socket.SHUT_WR)  # no departure
        if not raw.until(b"\r\n\r\n"):
            raise AssertionError("no answer to %s: %r" % (how, raw.data))
        if rng.random() < 0.1:
            time.sleep(rng.random() * 0.2)     # a reader that stalls
        reply = raw.reply()
        self.answered.add(hashlib.sha256(body).hexdigest())
        self._compare(how, seed, reply)
        return reply.end == "framed" and reply.header(b"connection") != b"close" and raw.ended is None and not half_closed

    def _leave(self, raw, rng):
        self.count("left")
        raw.sock.settimeout(0.001 + rng.random() * 0.1)
        try:
            for _ in range(rng.randrange(5)):
                raw.more()
        except socket.timeout:
            pass  # it left while it waited
        if rng.random() < 0.5:
            raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def _compare(self, how, seed, reply):
        whole = upstream.body_of(how, seed)
        if reply.status != 200:
            good = how in upstream.FAILING or how in upstream.BROKEN
            assert good and reply.end == "framed", (how, reply.status, reply.body[:200])
            return self.count("told")
        if how in upstream.BROKEN:
            broken = whole[:-len(upstream.LAST)] if how in ("no_terminal", "late_error") else whole
            assert how == "late_error" or reply.end != "framed", (how, reply.end)
            cut = (broken + b"\r\n").startswith(reply.body)  # a chunk that was cut inside its CRLF ends in CR
            assert how == "late_error" or cut, how
            return self.count("broken")
        assert reply.body == whole, (how, seed, len(whole), len(reply.body), reply.end)
        assert reply.end == ("fin" if how == "until_close" else "framed"), (how, reply.end)
        return self.count("whole")

    # -- second half -----------------------------------------------------------------------------------------------------
    def bytes_half(self, rng, number):
        kind = rng.randrange(4)
        if kind == 0:
            return self._good(number)
        with self.connect() as raw:
            if kind == 1:
                body = json.dumps({"soak": {"how": "bytes", "seed": number, "times": 0}}).encode()
                raw.send(request(body, token=TOKEN, headers=["Connection: close"]))
                while raw.more():
                    pass
                assert raw.data.startswith(b"HTTP/1."), raw.data[:100]
                self.answered.add(hashlib.sha256(body).hexdigest())
                return self.count("bytes from the upstream")
            data = upstream.mutated(rng.choice(self.seeds), rng) if kind == 2 else bytes(
                rng.randrange(256) for _ in range(rng.randrange(1, 3000)))
            raw.send(data)
            raw.sock.shutdown(socket.SHUT_WR)
            while raw.more():
                pass
            assert not raw.data or raw.data.startswith(b"HTTP/1.1 "), raw.data[:100]
            return self.count("bytes from the client")

    def _good(self, number):
        body = json.dumps({"soak": {"how": "json", "seed": number, "times": 0}}).encode()
        with self.connect() as raw:
            raw.send(request(body, token=TOKEN))
            reply = raw.reply()
        assert (reply.status, reply.end, reply.body) == (200, "framed", upstream.body_of("json", number)), reply.head
        self.answered.add(hashlib.sha256(body).hexdigest())
        self.count("whole")

"""A Transport in front of a RawServer, in this process or as the built bundle's `proxy` command, and a raw client. Used by
tests/test_transport_*.py."""
from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time

from transport.sandbox_transport import Transport

TOKEN = "run-token-0123456789"
KEY = "sk-real-key-SECRET-0001"
QUICK = {"max_attempts": 6, "max_wait": 120, "budget": 900, "base": 0.01, "cap": 0.05, "ambiguous_replays": 1,
         "hold": "first_event"}


class Asking:
    """What both have: `port`, `token`, `path`."""

    def connect(self):
        return Raw(self.port)

    def ask(self, data, method="POST", target="/v1/responses", headers=(), token=None):
        """One request on a fresh connection -> Reply. `token`: the right one by default, "" for none."""
        with self.connect() as raw:
            raw.send(request(data, method, target, headers, self.token if token is None else token))
            return raw.reply(method)

    def records(self, wait_for=None):
        """Attempt records so far; `wait_for` many are waited for (they are written a moment after the last byte)."""
        until = time.monotonic() + 20
        while True:
            with open(os.path.join(self.path, "model_attempts.jsonl"), "rb") as file:
                records = sorted(map(json.loads, file.read().rpartition(b"\n")[0].splitlines()), key=lambda record: record["seq"])
            if wait_for is None or len(records) >= wait_for:
                return records
            assert time.monotonic() < until, records
            time.sleep(0.005)

    def body(self, seq, kind):
        with open(os.path.join(self.path, "bodies", "%06d.%s" % (seq, kind)), "rb") as file:
            return file.read()


class Bundled(Asking):
    """`proxy` of the bundle in `dist`, as a process of its own; its directory is made in `folder`."""

    def __init__(self, dist, folder, base_url, *options):
        self.path, key = str(folder / "proxy"), folder / "key"
        key.write_text(KEY)
        command = [sys.executable, "-I", "-S", os.path.join(dist, "sandbox-worker.pyz"), "proxy", "--dir", self.path,
                   "--upstream", base_url, "--key-file", str(key), *map(str, options)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        info = os.path.join(self.path, "info.json")
        while not os.path.exists(info) and self.process.poll() is None:
            os.sched_yield()
        with open(info) as file:
            said = json.load(file)
        self.port, self.token, self.said = said["port"], said["token"], None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.send_signal(signal.SIGTERM)
        self.said = self.process.communicate(timeout=60)[1]


class Proxied(Asking):
    def __init__(self, tmp_path, base_url, **settings):
        self.path = str(tmp_path)
        self.dirfd = os.open(self.path, os.O_RDONLY)
        wall, mono = time.time(), time.monotonic()
        retry = dict(QUICK, **settings.pop("retry", {}))
        self.notified = []
        defaults = {"base_url": base_url, "socket": None, "api": "responses", "name": "m", "key": KEY, "auth": "as_sent",
                    "headers": {}, "query": {}, "ca_file": None, "use_proxy": False, "first_byte_timeout": None,
                    "idle_timeout": None, "limits": {"requests": 2000, "body_bytes": 1 << 30, "request_bytes": 1 << 30},
                    "bodies": "all", "secrets": [KEY.encode()], "invocation_id": "inv", "token": TOKEN, "main_headers": [],
                    "identity_headers": [], "deadline": None, "client_timer": None}
        self.transport = Transport(dict(defaults, retry=retry, dirfd=self.dirfd,
                                        now=lambda: wall + time.monotonic() - mono,
                                        notify=lambda: self.notified.append(1), **settings))
        self.transport.listen()
        self.transport.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.transport.stop()
        os.close(self.dirfd)

    @property
    def port(self):
        return self.transport.port

    @property
    def token(self):
        return self.transport.token


def request(data=b"{}", method="POST", target="/v1/responses", headers=(), token=TOKEN):
    lines = ["%s %s HTTP/1.1" % (method, target), "Host: x"]
    if token:
        lines.append("Authorization: Bearer " + token)
    lines += list(headers)
    if data or method == "POST":
        lines.append("Content-Length: %d" % len(data))
    return "\r\n".join(lines + ["", ""]).encode("latin-1") + data


class Reply:
    """`end`: "framed" (complete by its framing), "fin", "rst" (how an unframed or broken one ended)."""

    def __init__(self, head, body, end, wire):
        self.head, self.body, self.end, self.wire = head, body, end, wire
        self.status = int(head.split(b" ")[1]) if head else None

    def header(self, name):
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.lower() == name.lower():
                return value.strip()
        return None

    @property
    def json(self):
        return json.loads(self.body)


class Raw:
    def __init__(self, port):
        self.sock = socket.socket()
        self.sock.settimeout(30)
        self.sock.connect(("127.0.0.1", port))
        self.data, self.ended = b"", None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.sock.close()

    def send(self, data):
        try:
            self.sock.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            pass  # refused early; the answer may still be there

    def more(self):
        if self.ended:
            return False
        try:
            data = self.sock.recv(65536)
            self.ended = None if data else "fin"
        except (ConnectionResetError, BrokenPipeError):
            data, self.ended = b"", "rst"
        self.data += data
        return bool(data)

    def until(self, mark):
        while mark not in self.data:
            if not self.more():
                return False
        return True

    def interim(self):
        """The next head, consumed."""
        assert self.until(b"\r\n\r\n"), self.data
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        return head

    def reply(self, method="POST"):
        if not self.until(b"\r\n\r\n"):
            return Reply(b"", self.data, self.ended, self.data)
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        reply = Reply(head, b"", None, b"")
        if method == "HEAD" or reply.status in (204, 304):
            return Reply(head, b"", "framed", b"")
        length, coding = reply.header(b"content-length"), reply.header(b"transfer-encoding")
        if coding:
            return self._chunked(head)
        if length is not None:
            while len(self.data) < int(length) and self.more():
                pass
            body, self.data = self.data[:int(length)], self.data[int(length):]
            return Reply(head, body, "framed" if len(body) == int(length) else self.ended, body)
        while self.more():
            pass
        return Reply(head, self.data, self.ended, self.data)

    def _chunked(self, head):
        body, wire = b"", b""

        def take(count):
            nonlocal wire
            while len(self.data) < count and self.more():
                pass
            if len(self.data) < count:
                return None
            part, self.data = self.data[:count], self.data[count:]
            wire += part
            return part

        while True:
            if not self.until(b"\r\n"):
                return Reply(head, body, self.ended, wire + self.data)
            line = take(self.data.index(b"\r\n") + 2)
            size = int(line.split(b";")[0], 16)
            if size == 0:
                while True:
                    if not self.until(b"\r\n"):
                        return Reply(head, body, self.ended, wire + self.data)
                    if take(self.data.index(b"\r\n") + 2) == b"\r\n":
                        return Reply(head, body, "framed", wire)
            part = take(size + 2)
            if part is None:
                return Reply(head, body + self.data, self.ended, wire + self.data)
            body += part[:-2]

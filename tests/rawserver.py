"""A scripted upstream on a raw socket: what it sends is exactly what the script says, and it remembers what it got.

    with RawServer([[...steps of request 1...], [...request 2...]]) as server:
Steps: bytes (sent) · "read" (one whole request) · ("read_head",) · ("sleep", s) · ("wait", threading.Event) · "fin" · "rst"
· ("hold",) until the server closes · ("call", function of the socket). A list of steps per request (whether it comes on
a new connection or a kept one); the last list repeats. Without a leading read step, "read" is put in front.
`requests`: (connection number, head bytes, body bytes); `connections`: how many were accepted; `turns`: lists begun.
"""
from __future__ import annotations

import socket
import struct
import threading


class RawServer:
    def __init__(self, script, family=socket.AF_INET, address=("127.0.0.1", 0), wrap=None):
        self.script, self.wrap = script, wrap
        self.requests, self.connections, self.turns, self.lock = [], 0, 0, threading.Lock()
        self.closing = threading.Event()
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.bind(address)
        self.listener.listen(128)
        self.socks, self.threads = [], []
        self.port = self.listener.getsockname()[1] if family != socket.AF_UNIX else None

    @property
    def url(self):
        return "http://127.0.0.1:%d/v1" % self.port

    def __enter__(self):
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        self.threads.append(thread)
        return self

    def __exit__(self, *exc):
        self.closing.set()
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        for sock in list(self.socks):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in list(self.threads):
            thread.join(10)

    def _accept(self):
        while True:
            try:
                sock = self.listener.accept()[0]
            except OSError:
                return
            number = self.connections
            self.connections += 1
            self.socks.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock, number), daemon=True)
            thread.start()
            self.threads.append(thread)

    def _serve(self, sock, number):
        try:
            if self.wrap:
                sock = self.wrap(sock)
            while True:
                with self.lock:
                    turn, self.turns = self.turns, self.turns + 1
                steps = list(self.script[min(turn, len(self.script) - 1)])
                if not steps or steps[0] not in ("read", ("read_head",), "rst", "fin", ("hold",)) and steps[0][0] != "call":
                    steps.insert(0, "read")
                for step in steps:
                    if not self._step(sock, number, step):
                        return
                if not self.wrap and not sock.recv(1, socket.MSG_PEEK):  # kept alive: the next request takes the next script
                    return
        except (OSError, EOFError):
            pass
        finally:
            sock.close()

    def _step(self, sock, number, step):
        if isinstance(step, bytes):
            sock.sendall(step)
        elif step == "read":
            self.requests.append((number,) + read_request(sock))
        elif step == ("read_head",):
            self.requests.append((number, read_head(sock)[0], b""))
        elif step == "fin":
            sock.close()
            return False
        elif step == "rst":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
            return False
        elif step[0] == "sleep":
            self.closing.wait(step[1])
        elif step[0] == "wait":
            step[1].wait(20)
        elif step[0] == "hold":
            self.closing.wait(60)
        elif step[0] == "call":
            step[1](sock)
        return True


def read_head(sock):
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            raise EOFError(data)
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def header(head, name):
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name.lower():
            return value.strip()
    return None


def read_request(sock):
    head, body = read_head(sock)
    length = int(header(head, b"content-length") or 0)
    parts, got = [body], len(body)
    while got < length:
        more = sock.recv(1 << 20)
        if not more:
            raise EOFError(got)
        parts.append(more)
        got += len(more)
    return head, b"".join(parts)


ANSWER = (b'{"id":"r1","object":"response","status":"completed","output":[],"usage":'
          b'{"input_tokens":3,"output_tokens":2,"total_tokens":5}}')


def json_answer(body=ANSWER, status=b"200 OK", extra=b""):
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s" % (status, extra, len(body), body)

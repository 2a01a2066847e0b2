"""The kind of proxy that a runner gets when it is written with what the standard library offers: http.server and urllib.

A thread per connection, the answer read whole before the first byte goes on, a 429 waited for. Only a peer of the bench.
    python3 reference_proxy.py PORT UPSTREAM_PORT
"""
from __future__ import annotations

import http.server
import sys
import time
import urllib.error
import urllib.request

HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    target = ""

    def relay(self):
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else None
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        for _ in range(6):
            request = urllib.request.Request(self.target + self.path, body, headers, method=self.command)
            try:
                answer = urllib.request.urlopen(request)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                data = answer.read()
            if answer.status != 429:
                break
            time.sleep(float(answer.headers.get("Retry-After") or 1))
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = relay

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 256


if __name__ == "__main__":
    Handler.target = "http://127.0.0.1:" + sys.argv[2]
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

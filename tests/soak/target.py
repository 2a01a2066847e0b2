"""The proxy in a process of its own, so that its memory, descriptors and complaints are its own.

    python3 -m tests.soak.target DIRECTORY UPSTREAM_PORT      writes its port; the end of stdin ends it
"""
from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time

from transport.sandbox_transport import Transport

TOKEN, KEY = "soak-token-0123456789", "sk-soak-KEY-0001"
IDLE_TIMEOUT = 3.0  # seconds; upstreams that stall for longer are given up


def main(directory, port):
    faulthandler.register(signal.SIGUSR1)  # kill -USR1 shows where its threads are
    dirfd, wall, mono = os.open(directory, os.O_RDONLY), time.time(), time.monotonic()
    transport = Transport({
        "base_url": "http://127.0.0.1:%s/v1" % port, "api": "responses", "key": KEY, "auth": "as_sent", "token": TOKEN,
        "retry": {"max_attempts": 3, "max_wait": 1, "budget": 10 ** 9, "base": 0.005, "cap": 0.02}, "limits": {},
        "bodies": "none", "secrets": [KEY.encode()], "dirfd": dirfd, "now": lambda: wall + time.monotonic() - mono,
        "main_headers": ["session-id"], "identity_headers": ["thread-id"], "first_byte_timeout": 4 * IDLE_TIMEOUT,
        "idle_timeout": IDLE_TIMEOUT, "invocation_id": "soak"})
    transport.listen()
    transport.start()
    transport.warm()
    print(transport.port, flush=True)
    sys.stdin.read()
    transport.stop(5.0)
    print(json.dumps(transport.summary()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])

"""The control socket of a session directory. `run` holds run.lock, listens, claims, launches; `stop` tries to claim first:
one of the two finds the claim taken, and when that is `stop`, somebody listens already. Who may ask for what: control.py.
"""
from __future__ import annotations

import os

from worker.session import SOCKET


def abstract_name(dirfd):
    about = os.fstat(dirfd)
    return "\0sandbox-worker/%x/%x" % (about.st_dev, about.st_ino)


def listen(dirfd):
    """Two listening sockets at best: an abstract one, which no agent can unlink, and one in the directory, for other
    network namespaces. Only before threads exist: the working directory changes, as sun_path has but 108 bytes."""
    import socket

    listening, here = [], os.open(".", os.O_PATH | os.O_CLOEXEC)
    for address in (abstract_name(dirfd), SOCKET):
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            os.fchdir(dirfd)
            sock.bind(address)
            sock.listen(8)
            listening.append(sock)
        except OSError:  # the name is taken, a file system without sockets, no such sockets at all: without it, then
            pass
        os.fchdir(here)
    os.close(here)
    return listening

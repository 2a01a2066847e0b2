"""The control socket of a session directory, listening before the directory is claimed.

Order in `run`: hold run.lock, listen, claim (the symlink launch.claim), launch. `stop` tries to claim first; so one
of the two finds the claim taken, and when that is `stop`, somebody listens already. Who may ask: control.py.
"""
from __future__ import annotations

import os

SOCKET = "control.sock"


def abstract_name(dirfd):
    about = os.fstat(dirfd)
    return "\0sandbox-worker/%x/%x" % (about.st_dev, about.st_ino)


def listen(dirfd):
    """Listening sockets, at best two: an abstract one, which no agent can unlink, and one in the directory, which
    other network namespaces reach. Call it before a thread exists (it changes the working directory for a moment)."""
    import socket

    listening = []
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for address in (abstract_name(dirfd), SOCKET):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            os.fchdir(dirfd)  # so a directory's path may be longer than sun_path's 108 bytes
            sock.bind(address)
            sock.listen(8)
            listening.append(sock)
        except OSError:  # the name is taken, or a file system without sockets: the other one remains
            sock.close()
        finally:
            os.fchdir(here)
    os.close(here)
    return listening

"""Names to addresses, with a deadline of its own.

`getaddrinfo` cannot be interrupted and blocks for 10 s and more when a name server has vanished (5 s per server and
try, resolv.conf(5)). So it runs in a helper thread, and the exchange waits on a pipe like on any descriptor: the client
may leave and the run may stop meanwhile. EAI_AGAIN is tried three times within one attempt; a name that does not exist
is final. An IP literal needs no thread.
"""
from __future__ import annotations

import os
import socket
import threading

from transport.errors import UpstreamFailed
from transport.waits import POLLIN, monotonic

RESOLVE_TIMEOUT = 20.0
LOOK_UPS = 3
PAUSE = 0.5
FRESH = 30.0  # seconds that an answer is used again; the shortest TTLs in the field are of this order


class Resolver:
    def __init__(self):
        self._known = {}  # (host, port) -> (until, addresses)

    def resolve(self, host, port, watch):
        """-> [(family, sockaddr)], in the system's order."""
        try:
            return _addresses(host, port, socket.AI_NUMERICHOST)
        except (socket.gaierror, UnicodeError):  # a label of 64 characters, or of none
            pass
        known = self._known.get((host, port))
        if known and known[0] > monotonic():
            return known[1]
        until = monotonic() + RESOLVE_TIMEOUT
        for look_up in range(LOOK_UPS):
            result = _in_thread(host, port, watch, until)
            if isinstance(result, list):
                self._known[(host, port)] = (monotonic() + FRESH, result)
                return result
            if result.errno != socket.EAI_AGAIN:
                break
            if look_up < LOOK_UPS - 1:
                watch.wait(until=min(until, monotonic() + PAUSE))
        again = result.errno == socket.EAI_AGAIN
        raise UpstreamFailed("resolve", "try_again" if again else "name_not_found", "%s: %s" % (host, result.strerror))


def _addresses(host, port, flags=0):
    found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, flags)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _in_thread(host, port, watch, until):
    """-> addresses or the gaierror. The thread owns the pipe's write end and outlives us if it must."""
    reader, writer = os.pipe()
    answer = []

    def look_up():
        try:
            answer.append(_addresses(host, port))
        except socket.gaierror as error:
            answer.append(error)
        except (OSError, UnicodeError) as error:
            answer.append(socket.gaierror(socket.EAI_NONAME, str(error)))
        finally:
            os.close(writer)

    try:
        try:
            threading.Thread(target=look_up, name="resolve", daemon=True).start()
        except RuntimeError as error:
            os.close(writer)
            raise UpstreamFailed("resolve", "no_thread", str(error))
        if not watch.wait(reader, POLLIN, until):
            raise UpstreamFailed("resolve", "timeout", "%s: no answer within %d s" % (host, RESOLVE_TIMEOUT))
    finally:
        watch.forget()
        os.close(reader)
    return answer[0]

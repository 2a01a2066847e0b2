"""Whether a client that sent a FIN has left or only said that it sends no more (RFC 9112 9.6), where it runs on this machine.

A socket that its owner has closed has inode 0. FIN is sent a moment before the inode goes (tcp_close, then sock_orphan), hence
the second and third look. The kernel is asked for the one socket (sock_diag(7), what `ss` uses). Where that does not answer
(gVisor, a filter on system calls) /proc/net/tcp is read: with ten thousand sockets in TIME_WAIT that are hundreds of reads, and
on a busy machine seconds; it is not read in one step either, so a line that is missing once says nothing, one that stays
away does. Without both nobody can say, and a FIN counts as half-close.
"""
from __future__ import annotations

import socket
import struct

from transport.patience import rest

_LOOKS = (0, 0.002, 0.03)   # seconds before each
_MISSING = -1
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1         # linux/netlink.h, linux/sock_diag.h
_ANY = 0xFFFFFFFF                                   # all states; INET_DIAG_NOCOOKIE
_QUESTION = struct.Struct("=IHHII BBBBI 4s16s16sIII")   # nlmsghdr, inet_diag_req_v2 (linux/inet_diag.h)
_ANSWER = struct.Struct("=I H10x 4x48x 4I I")           # length, type; of inet_diag_msg the inode is the last


def closed_by_peer(sock):
    """After a FIN: is the peer's socket on this machine closed (True), or only half-closed or unknown (False)?"""
    missing = 0
    for pause in _LOOKS:
        if pause:
            rest(pause)
        inode = peer_inode(sock)
        if inode is None:
            return False
        if inode == 0:
            return True
        missing += inode == _MISSING
    return missing == len(_LOOKS)


def peer_inode(sock):
    """Inode of the socket at the other end; 0 when it is closed, _MISSING when it is not listed, None when nobody can say."""
    try:
        ends = [(socket.inet_aton(host), port) for host, port in (sock.getpeername()[:2], sock.getsockname()[:2])]
    except (OSError, ValueError):
        return None
    inode = _asked(*ends)
    return _listed(*ends) if inode is None else inode


def _asked(peer, here):
    """The kernel's answer about the connection from `peer` to `here`, each (address, port); None where it gives none."""
    ports = struct.pack("!HH", peer[1], here[1])
    question = _QUESTION.pack(_QUESTION.size, _BY_FAMILY, _REQUEST, 1, 0, socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY,
                              ports, peer[0], here[0], 0, _ANY, _ANY)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.setblocking(False)  # it answers within the send
            kernel.send(question)
            answer = kernel.recv(4096)
    except (OSError, AttributeError):
        return None
    if len(answer) < _ANSWER.size or _ANSWER.unpack_from(answer)[1] != _BY_FAMILY:
        return None  # an error: not found, or not supported
    return _ANSWER.unpack_from(answer)[-1]


def _listed(peer, here):
    ends = [(struct.unpack("=I", address)[0], port) for address, port in (peer, here)]
    wanted = (" %08X:%04X %08X:%04X " % (ends[0] + ends[1])).encode()
    try:
        with open("/proc/net/tcp", "rb") as table:
            for line in table:
                if wanted in line:
                    return int(line.split()[9])
    except (OSError, ValueError, IndexError):
        return None
    return _MISSING

"""What the public face does seldom, kept off the launch path: make room, do without a descriptor, stop. `face`: a Transport."""
from __future__ import annotations

import errno
import os
import socket
import time

WITHOUT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def make_room(face, sock):
    """No thread for a connection: the longest idle one is ended, and its handler takes over. Without one: 503."""
    for idle in list(face.idle_sockets):  # oldest first
        face.idle_sockets.pop(idle, None)
        try:
            return idle.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # closed meanwhile
    with face.ready:
        if sock not in face.queue:
            return None
        face.queue.remove(sock)
        face.connections -= sock is not None
    return face.load().turn_away(sock) if sock is not None else None


def without_descriptor(face, error):
    """accept() failed. False: the listener is dead. With descriptors used up, an idle upstream connection is given up, so
    that the client can be told; the backlog keeps it while even that does not help."""
    if error.errno not in WITHOUT:
        return False
    engine = face.load()
    engine.upstream.close()
    _close(engine.reserve)
    try:
        engine.turn_away(face.listener.accept()[0])
    except OSError:
        time.sleep(0.05)
    try:
        engine.reserve = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        engine.reserve = -1
        time.sleep(0.05)
    return True


def stop(face, grace):
    """End every stream; every open attempt gets its record; close the files. `grace` in seconds."""
    if face.stopping:
        return
    face.stopping, until = True, time.monotonic() + grace
    os.close(face.stop_writer)  # every wait of every thread ends by this
    with face.ready:
        face.ready.notify_all()
        while face.connections > len(face.queue) and time.monotonic() < until:
            face.ready.wait(max(0.0, until - time.monotonic()))
        queued, face.queue = face.queue, []
    for sock in filter(None, queued):
        sock.close()
    for thread in face.first_threads:
        thread.join(max(0.0, until - time.monotonic()))
    if face.engine:
        face.engine.shut_down()
    busy = face.connections > len(queued) or any(thread.is_alive() for thread in face.first_threads)
    for descriptor in (face.bodies_fd, None if busy else face.stop_fd):
        if descriptor is not None:
            os.close(descriptor)
    face.listener.close()
    face.attempts_file.close()


def _close(descriptor):
    if descriptor >= 0:
        os.close(descriptor)

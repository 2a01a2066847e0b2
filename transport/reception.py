"""Accepting connections and handing them to threads; what happens when threads or descriptors run out; the end.

Rules of this file
- One thread per connection (blocking code, ten to a hundred connections; 110 KB each). A thread whose connection has ended
  waits for the next one; SPARE of them are kept.
- At MAX_CONNECTIONS, or when no thread is to be had, the connection that has been idle longest is closed for the new one;
  without one, or without a descriptor, the new one is answered 503. Both are better than a client that waits for ever.
- `stop` closes the write end of a pipe that every poll of every thread watches. Then it waits for them, `grace` at most.
"""
from __future__ import annotations

import errno
import os
import socket
import threading
import time

from transport.engine import ATTEMPTS, Engine
from transport.patience import comes_true, rest

MAX_CONNECTIONS = 512
SPARE = 2
WITHOUT_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Reception:
    def __init__(self, face):
        self.face, self.engine = face, Engine(face.settings, face, self)
        self.ready = threading.Condition()  # guards the queue and the counts
        self.queue, self.connections, self.stopping = [], 0, False
        self.free = 1                       # threads that wait; the first one is on its way here
        self.clients = set()                # connections that are being served
        self.reserve = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)  # given up to accept one more when descriptors end

    def summary(self):
        figures = self.engine.book.figures()
        figures["main"]["open"] = self.engine.open_main()
        return figures

    def files(self):
        return dict(self.engine.bodies.files(), **{ATTEMPTS: self.engine.attempts_file.entry()})

    # -- threads -----------------------------------------------------------------------------------------------------
    def accept(self, poll):
        """Until the run stops or the listener dies. `poll` watches the listener and the stop pipe."""
        self.face.listener.setblocking(False)
        while not self.stopping:
            try:
                poll.poll()
                self._give(self.face.listener.accept()[0])
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if self.stopping or not self._without_descriptor(error):
                    break
        if not self.stopping:
            self.face.dead = True
            self.face.notify()

    def handle(self, counted=False):
        """Connections, one after the other. `counted`: the first thread, which `free` holds already."""
        if counted:
            try:
                self.engine.prepare()
            except BaseException:
                with self.ready:
                    self.free -= 1  # or a connection would wait for this thread
                raise
        while True:
            sock = self._next(counted)
            if sock is None:
                return
            counted = False
            try:
                self.engine.serve(sock)
            finally:
                self._connection_ended()

    def _next(self, counted):
        """A connection, or None: this thread is not needed any more."""
        with self.ready:
            if self.free >= SPARE and not self.queue and not counted:
                return None
            self.free += not counted
            while not self.queue and not self.stopping:
                self.ready.wait()
            self.free -= 1
            return self.queue.pop(0) if self.queue and not self.stopping else None

    def _connection_ended(self):
        with self.ready:
            self.connections -= 1

    def _give(self, sock):
        """To a thread that waits, or to a new one."""
        with self.ready:
            if self.stopping:  # `stop` has closed what was in the queue
                return sock.close()
            self.connections += 1
            self.queue.append(sock)
            crowded = self.connections > MAX_CONNECTIONS
            if self.free >= len(self.queue):
                return self.ready.notify()
        try:
            if crowded:
                raise RuntimeError("%d connections" % MAX_CONNECTIONS)
            self.face.new_thread(self.handle)
        except RuntimeError:  # "can't start new thread"
            self._make_room(sock)

    # -- when something runs out -------------------------------------------------------------------------------------
    def _make_room(self, sock):
        idle = [(client.idle_since, client.fd, client) for client in list(self.clients)]
        for _, _, client in sorted(one for one in idle if one[0] is not None):
            client.idle_since = None
            try:
                return client.sock.shutdown(socket.SHUT_RDWR)  # its thread takes the queue's next
            except OSError:
                continue  # closed meanwhile
        with self.ready:
            if sock not in self.queue:
                return None
            self.queue.remove(sock)
            self.connections -= 1
        return self.engine.turn_away(sock)

    def _without_descriptor(self, error):
        """accept() failed. False: the listener is dead. The reserve and idle upstream connections are given up, so that
        the client can be told; the backlog keeps it while even that does not help."""
        if error.errno not in WITHOUT_DESCRIPTOR:
            return False
        self.engine.upstream.close()
        self._close_reserve()
        try:
            self.engine.turn_away(self.face.listener.accept()[0])
            self.reserve = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            rest(0.05)
        return True

    def _close_reserve(self):
        reserve, self.reserve = self.reserve, -1
        if reserve >= 0:
            os.close(reserve)

    # -- the end -----------------------------------------------------------------------------------------------------
    def stop(self, grace):
        """`grace` in seconds. Safe to call twice."""
        if self.stopping:
            return
        face, until = self.face, time.monotonic() + grace
        self.stopping = True
        os.close(face.stop_writer)
        with self.ready:
            self.ready.notify_all()
        comes_true(lambda: self.connections <= len(self.queue), until)
        with self.ready:
            queued, self.queue = self.queue, []
        for sock in queued:
            sock.close()
        ended = comes_true(lambda: not any(thread.is_alive() for thread in face.threads), until)
        self.engine.shut_down()
        busy = self.connections > len(queued) or not ended
        for descriptor in (face.bodies_fd, None if busy else face.stop_fd):
            if descriptor is not None:
                os.close(descriptor)
        self._close_reserve()
        face.listener.close()
        self.engine.attempts_file.close()

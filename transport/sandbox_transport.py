"""The model proxy's public face: listen, accept, hand over. Everything else is loaded after the agent was launched.

    transport = Transport(settings)      settings: see transport/README.md
    transport.listen()                   before any fork: binds 127.0.0.1:0, opens the evidence files; no thread yet
    transport.start()                    the accepting thread and one handler
    transport.warm()                     after the launch: loads the rest in that handler, before the first request
    transport.summary() / .files()       figures and evidence, at any time
    transport.stop(grace)                ends every stream; every open attempt gets its record; closes the files

Rules of this file
- One thread per connection (blocking code, ten to a hundred connections; facts/performance.md section d), 256 KiB stacks.
  Two threads exist from the start, so that a sandbox whose pids limit is used up by the agent still has its model.
- At MAX_CONNECTIONS, or when no thread is to be had, the connection that has been idle longest is closed for the new
  one; without one, or without a descriptor, the new one is answered 503, which is better than no answer.
- On the launch path: only `os`, `socket`, `threading`, `time`, `binascii` at import.
"""
from __future__ import annotations

import binascii
import os
import socket
import threading
import time

from transport.evidence import EvidenceFile, atomic_write

MAX_CONNECTIONS = 512
SPARE_THREADS = 2
STACK = 256 * 1024
BODIES = "bodies"
ATTEMPTS = "model_attempts.jsonl"


class Transport:
    def __init__(self, settings):
        self.settings = settings
        self.token = settings.get("token") or binascii.hexlify(os.urandom(24)).decode()
        self.last_activity = time.monotonic()
        self.final_answer_at = self.final_answer_kind = None
        self.dead, self.stopping = False, False
        self.port = self.attempts_file = self.bodies_fd = self.listener = self.engine = None
        self.ready = threading.Condition()  # guards what follows
        self.queue, self._free, self.connections, self.idle_sockets, self.first_threads = [], 0, 0, {}, []
        self._engine_lock = threading.Lock()

    def listen(self):
        dirfd = self.settings["dirfd"]
        self.attempts_file = EvidenceFile(dirfd, ATTEMPTS)
        if self.settings.get("bodies") != "none":
            os.mkdir(BODIES, 0o700, dir_fd=dirfd)
            self.bodies_fd = os.open(BODIES, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dirfd)
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(256)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.stop_fd, self.stop_writer = os.pipe()

    @property
    def base_url(self):
        return "http://127.0.0.1:%d%s" % (self.port, "/v1" if self.settings.get("api") in ("responses", "chat") else "")

    def start(self):
        self.first_threads = [self._new_thread(self._accept), self._new_thread(self._handle)]

    def warm(self):
        self._give(None)

    def stop(self, grace=1.0):
        from transport.seldom import stop
        stop(self, grace)

    def summary(self):
        if self.engine is None:
            return fold_attempts(())
        figures = self.engine.book.figures()
        figures["main"]["open"] = self.engine.open_main()
        return figures

    def files(self):
        found = {ATTEMPTS: self.attempts_file.entry()}
        if self.engine is not None:
            found.update(self.engine.bodies.files())
        return found

    def touch(self):
        self.last_activity = time.monotonic()

    def final_answer(self, kind):
        """A main request was finally given up (its kind), or a new one has begun (None)."""
        self.final_answer_kind = kind
        self.final_answer_at = time.monotonic() if kind else None
        if kind:
            self._notify()

    def idle(self, sock, is_idle):
        if is_idle:
            self.idle_sockets[sock] = True
        else:
            self.idle_sockets.pop(sock, None)

    def _notify(self):
        notify = self.settings.get("notify")
        if notify:
            notify()

    def _new_thread(self, target):
        thread, size = threading.Thread(target=target, name="proxy", daemon=True), threading.stack_size(STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(size)
        return thread

    def _accept(self):
        import select
        poll = select.poll()
        poll.register(self.listener, select.POLLIN)
        poll.register(self.stop_fd, 0)
        while not self.stopping:
            try:
                poll.poll()
                self._give(self.listener.accept()[0])
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                from transport.seldom import without_descriptor
                if self.stopping or not without_descriptor(self, error):
                    break
        if not self.stopping:
            self.dead = True
            self._notify()

    def _give(self, sock):
        """Hand a connection (None: only warm up) to a free handler, or to a new one."""
        with self.ready:
            self.connections += sock is not None
            crowded = self.connections > MAX_CONNECTIONS
            self.queue.append(sock)
            if self._free >= len(self.queue):
                self.ready.notify()
                return
        try:
            if crowded:
                raise RuntimeError("%d connections" % MAX_CONNECTIONS)
            self._new_thread(self._handle)
        except RuntimeError:  # "can't start new thread": the longest idle connection ends, its handler takes over
            self.load()
            from transport.seldom import make_room
            make_room(self, sock)

    def _handle(self):
        while True:
            with self.ready:
                self._free += 1
                while not self.queue and not self.stopping:
                    self.ready.wait()
                self._free -= 1
                if self.stopping:
                    return
                sock = self.queue.pop(0)
            try:
                self.load().serve(sock)
            finally:
                with self.ready:
                    self.connections -= sock is not None
                    self.ready.notify_all()
                    if self._free >= SPARE_THREADS and not self.queue:
                        return

    def load(self):
        with self._engine_lock:
            if self.engine is None:
                from transport.engine import Engine
                self.engine = Engine(self.settings, self)
            return self.engine


def fold_attempts(records):
    """The summary of attempt records (dicts), as after a crash."""
    from transport.attempts import fold_attempts as fold
    return fold(records)


def __getattr__(name):
    from transport import evidence
    return getattr(evidence, name)  # Redactor: loaded when first used


__all__ = ["EvidenceFile", "Redactor", "Transport", "atomic_write", "fold_attempts"]

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
V1_APIS = ("responses", "chat")


class Transport:
    def __init__(self, settings):
        self.settings = settings
        self.token = settings.get("token") or binascii.hexlify(os.urandom(24)).decode()
        self.last_activity = time.monotonic()
        self.final_answer_at = self.final_answer_kind = None
        self.dead, self._stopping = False, False
        self.port = self.attempts_file = self.bodies_fd = self._listener = self._engine = None
        self._ready = threading.Condition()  # guards what follows
        self._queue, self._free, self._connections, self._idle = [], 0, 0, {}
        self._engine_lock = threading.Lock()

    # -- life ------------------------------------------------------------------------------------------------------
    def listen(self):
        dirfd = self.settings["dirfd"]
        self.attempts_file = EvidenceFile(dirfd, ATTEMPTS)
        if self.settings.get("bodies") != "none":
            os.mkdir(BODIES, 0o700, dir_fd=dirfd)
            self.bodies_fd = os.open(BODIES, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dirfd)
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(256)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self.stop_fd, self._stop_writer = os.pipe()

    @property
    def base_url(self):
        return "http://127.0.0.1:%d%s" % (self.port, "/v1" if self.settings.get("api") in V1_APIS else "")

    def start(self):
        size = threading.stack_size(STACK)
        self._new_thread(self._accept)
        self._new_thread(self._handle)
        threading.stack_size(size)

    def warm(self):
        self._give(None)

    def stop(self, grace=1.0):
        if self._stopping:
            return
        self._stopping = True
        os.close(self._stop_writer)  # every wait of every thread ends by this
        until = time.monotonic() + grace
        with self._ready:
            self._ready.notify_all()
            while self._connections and time.monotonic() < until:
                self._ready.wait(max(0.0, until - time.monotonic()))
            queued, self._queue = self._queue, []
        for sock in queued:
            if sock is not None:
                sock.close()
        if self._engine:
            self._engine.shut_down()
        self._listener.close()
        self.attempts_file.close()

    # -- what the worker reads ---------------------------------------------------------------------------------------
    def summary(self):
        if self._engine is None:
            return fold_attempts(())
        figures = self._engine.book.figures()
        figures["main"]["open"] = self._engine.open_main()
        return figures

    def files(self):
        found = {ATTEMPTS: self.attempts_file.entry()}
        if self._engine is not None:
            found.update(self._engine.bodies.files())
        return found

    # -- what the handlers tell ----------------------------------------------------------------------------------------
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
            self._idle[sock] = True
        else:
            self._idle.pop(sock, None)

    def _notify(self):
        notify = self.settings.get("notify")
        if notify:
            notify()

    # -- threads -------------------------------------------------------------------------------------------------------
    def _new_thread(self, target):
        threading.Thread(target=target, name="proxy", daemon=True).start()

    def _accept(self):
        import select
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self.stop_fd, 0)
        while not self._stopping:
            try:
                poll.poll()
                self._give(self._listener.accept()[0])
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if self._stopping or not self._load().without_descriptor(error, self._listener):
                    break
        if not self._stopping:
            self.dead = True
            self._notify()

    def _give(self, sock):
        """Hand a connection (None: only warm up) to a free handler, or to a new one."""
        with self._ready:
            self._connections += sock is not None
            crowded = self._connections > MAX_CONNECTIONS
            self._queue.append(sock)
            if self._free >= len(self._queue):
                self._ready.notify()
                return
        try:
            if crowded:
                raise RuntimeError("%d connections" % MAX_CONNECTIONS)
            self._new_thread(self._handle)
        except RuntimeError:  # "can't start new thread": the longest idle connection ends, its handler takes over
            self._load().make_room(self._idle) or self._take_back(sock)

    def _take_back(self, sock):
        with self._ready:
            if sock not in self._queue:
                return
            self._queue.remove(sock)
            self._connections -= sock is not None
        if sock is not None:
            self._load().turn_away(sock)

    def _handle(self):
        while True:
            with self._ready:
                self._free += 1
                while not self._queue and not self._stopping:
                    self._ready.wait()
                self._free -= 1
                if self._stopping:
                    return
                sock = self._queue.pop(0)
            try:
                self._load().serve(sock)
            finally:
                with self._ready:
                    self._connections -= sock is not None
                    self._ready.notify_all()
                    if self._free >= SPARE_THREADS and not self._queue:
                        return

    def _load(self):
        with self._engine_lock:
            if self._engine is None:
                from transport.engine import Engine
                self._engine = Engine(self.settings, self)
            return self._engine


def fold_attempts(records):
    """The summary of attempt records (dicts), as after a crash."""
    from transport.attempts import fold_attempts as fold
    return fold(records)


def __getattr__(name):
    if name == "Redactor":
        from transport.redact import Redactor
        return Redactor
    raise AttributeError(name)


__all__ = ["EvidenceFile", "Redactor", "Transport", "atomic_write", "fold_attempts"]

"""The model proxy's public face. What it does before the agent runs: bind, open the evidence files, have two threads.

    transport = Transport(settings)      settings: see transport/README.md
    transport.listen()                   before any fork: binds 127.0.0.1:0, opens the attempts file; no thread yet
    transport.start(); transport.warm()  the accepting thread and one handler; after the launch: load the rest (LATER) now
    transport.summary() / .files()       figures and evidence, at any time
    transport.stop(grace)                ends every stream; every open attempt gets its record; closes the files

Two threads exist before the launch, so that a sandbox whose thread limit is used up by the agent still has its model.
They load the rest (reception.py, which accepts and hands over) when there is something to do.
"""
from __future__ import annotations

import binascii
import os
import socket
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transport.evidence import EvidenceFile, Redactor, atomic_write
    from transport.recorded import recording

STACK = 256 * 1024  # bytes per thread: the code is not recursive (json_bytes.py refuses deep nesting)
BODIES = "bodies"
ATTEMPTS, LATER = "model_attempts.jsonl", "transport.reception"
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_APPEND  # as evidence.CREATE


class Transport:
    def __init__(self, settings):
        self.settings = settings
        self.token = settings.get("token") or binascii.hexlify(os.urandom(24)).decode()
        self.last_activity = time.monotonic()  # of the last byte on either side
        self.final_answer_at = self.final_answer_kind = self.futile_since = None
        self.dead = False                      # the listener died
        self.port = self.attempts_fd = self.bodies_fd = self.listener = self.stop_fd = None
        self.threads, self._reception = [], None
        self._work, self._loading = threading.Semaphore(0), threading.Lock()

    def listen(self):
        dirfd = self.settings["dirfd"]
        self.attempts_fd = os.open(ATTEMPTS, CREATE, 0o600, dir_fd=dirfd)
        if self.settings.get("bodies") != "none":
            os.mkdir(BODIES, 0o700, dir_fd=dirfd)
            self.bodies_fd = os.open(BODIES, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dirfd)
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(256)
        self.port = self.listener.getsockname()[1]
        self.stop_fd, self.stop_writer = os.pipe()

    @property
    def base_url(self):
        return "http://127.0.0.1:%d%s" % (self.port, "/v1" if self.settings.get("api") in ("responses", "chat") else "")

    def start(self):
        self.threads = [self.new_thread(self._accept), self.new_thread(self._handle)]

    def warm(self):
        self.reception()

    def stop(self, grace=1.0):
        # Where nobody ever came, the rest need not be loaded for the end.
        (self._reception or __import__("transport.unused", fromlist=["unused"]).reception_of(self)).stop(grace)

    def summary(self):
        return self._reception.summary() if self._reception else fold_attempts(())

    def files(self):
        return self.reception().files()

    # What the handlers tell.
    def final_answer(self, kind):
        """A main request was finally given up (its kind), or a new one has begun (None)."""
        self.final_answer_kind = kind
        self.final_answer_at = time.monotonic() if kind else None
        if kind:
            self.notify()

    def notify(self):
        if self.settings.get("notify"):
            self.settings["notify"]()

    # The first two threads, and the door to the rest.
    def new_thread(self, target):
        """RuntimeError where none is to be had."""
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
        try:
            poll.poll()
            self.reception().accept(poll)
        except (MemoryError, RuntimeError, OSError):  # nobody accepts any more; a client would wait for ever
            self.dead = True
            self.notify()

    def _handle(self):
        self._work.acquire()
        self.reception().handle(counted=True)

    def reception(self):
        with self._loading:
            if self._reception is None:
                from transport.reception import Reception
                self._reception = Reception(self)
                self._work.release()  # the handler that waits takes part from now on
            return self._reception


def fold_attempts(records):
    """The summary of attempt records (dicts), as after a crash."""
    from transport.attempts import fold_attempts as fold
    return fold(records)


def __getattr__(name):
    if name not in ("EvidenceFile", "Redactor", "atomic_write", "recording"):  # loaded when somebody asks for one
        raise AttributeError(name)
    module = __import__("transport." + ("recorded" if name == "recording" else "evidence"), fromlist=[name])
    return getattr(module, name)


__all__ = ["EvidenceFile", "Redactor", "Transport", "atomic_write", "fold_attempts", "recording"]

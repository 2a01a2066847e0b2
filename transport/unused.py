"""The end of a proxy that nobody ever asked: the same as Reception's, without its sixty modules."""
from __future__ import annotations

import hashlib
import os
import select
import time

from transport.patience import comes_true

ATTEMPTS = "model_attempts.jsonl"  # as sandbox_transport.ATTEMPTS


def reception_of(face):
    """The Reception, where there is one or a client waits for it; else what stands in for it from now on."""
    if face._reception is None:
        waiting = select.poll()
        waiting.register(face.listener, select.POLLIN)
        if not waiting.poll(0):
            with face._loading:
                face._reception = face._reception or Unused(face)
                face._work.release()
    return face.reception()


class Unused:
    """What the two threads and the worker ask of a Reception."""

    def __init__(self, face):
        self.face, self.stopping = face, False

    def accept(self, poll):
        pass

    def handle(self, counted=False):
        pass

    def summary(self):
        from transport.attempts import fold_attempts

        return fold_attempts(())

    def files(self):
        return {ATTEMPTS: {"size": 0, "sha256": hashlib.sha256().hexdigest()}}

    def stop(self, grace):
        if self.stopping:
            return
        face, self.stopping = self.face, True
        os.close(face.stop_writer)
        comes_true(lambda: not any(thread.is_alive() for thread in face.threads), time.monotonic() + grace)
        face.listener.close()
        for descriptor in (face.bodies_fd, face.attempts_fd, face.stop_fd):
            if descriptor is not None:
                os.close(descriptor)

"""A second thread that writes and hashes behind one that reads.

`write` and the hash release the interpreter's lock, parsing does not: with two cores, the time of the shorter one is saved.  At
most DEPTH pieces are under way, so memory is bounded.  Where no thread can be had (a limit of processes), all is done at once.
"""

from __future__ import annotations

import sys
import threading

DEPTH = 4
SWITCH = 0.0002  # seconds after which a thread that parses lets the other one go on; Python's own 5 ms are several pieces long


class Behind:
    """`put(piece)` has take(piece) called on the other thread, in order; `close` waits for all and raises what `take` raised."""

    def __init__(self, take):
        self.take, self.queue, self.error = take, [], None
        self.room, self.filled = threading.Semaphore(DEPTH), threading.Semaphore(0)
        self.interval = sys.getswitchinterval()
        self.thread: threading.Thread | None = threading.Thread(target=self.run, daemon=True)
        try:
            self.thread.start()
        except RuntimeError:
            self.thread = None
        else:
            sys.setswitchinterval(SWITCH)

    def run(self):
        while True:
            self.filled.acquire()
            piece = self.queue.pop(0)
            if piece is None:
                return
            if self.error is None:
                try:
                    self.take(piece)
                except BaseException as error:
                    self.error = error  # for the thread that closes
            self.room.release()

    def put(self, piece):
        if self.thread is None:
            self.take(piece)
            return
        self.room.acquire()
        self.queue.append(piece)
        self.filled.release()

    def close(self):
        thread, self.thread = self.thread, None
        if thread is not None:
            self.queue.append(None)
            self.filled.release()
            thread.join()
            sys.setswitchinterval(self.interval)
        if self.error is not None:
            raise self.error

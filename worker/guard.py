"""The guard's wait: small, single-threaded, and the last one to leave.

It passes signals on, continues a worker that the agent stopped, serves a worker whose orphans come to PID 1, and when
the worker is gone without an outcome it kills and reaps what is left and lets the caller write one. Loaded in the
guard only, after the fork, so it is not on the launch path.
"""
from __future__ import annotations

import os
import select
import signal

from worker import tree
from worker.supervise import STOP_SIGNALS, exit_status


def guard(link, on_worker_death, finished, cleanup_timeout=10.0, marker=None):
    """Wait for the worker and return the exit code of `run`.

    `finished()` tells whether the outcome is written. If it is not when the worker is gone, everything left is killed
    and reaped, and `on_worker_death({"status", "stopped", "receipt", "finished"})` gives the code: `status` is the
    worker's exit code or minus its signal, `stopped` how often it was continued, `receipt` that of tree.clean_up,
    `finished` is true when the worker was killed between its result and its exit. `marker`: see tree.clean_up.
    """
    poller = select.poll()
    poller.register(link.wakeup.fd, select.POLLIN)
    poller.register(link.fd, select.POLLIN)
    stopped, status = 0, None
    while status is None:
        ready = [fd for fd, _ in poller.poll()]
        for signum in link.wakeup.read() & set(STOP_SIGNALS):
            os.kill(link.peer, signum)
        if link.fd in ready:
            if os.read(link.fd, 4096):
                status = tree.answer(link, cleanup_timeout)
            else:  # the worker is gone or going
                poller.unregister(link.fd)
        for pid, raw in _changed_children():
            if pid == link.peer and os.WIFSTOPPED(raw):
                stopped += 1
                link.send(b"stopped")
                os.kill(pid, signal.SIGCONT)
            elif pid == link.peer:
                status = exit_status(raw)
    if finished() and status >= 0:
        return status
    receipt = tree.clean_up(cleanup_timeout, link.wakeup, marker=marker)
    return on_worker_death({"status": status, "stopped": stopped, "receipt": receipt, "finished": finished()})


def _changed_children():
    """What waitpid has to say, strangers that came to PID 1 included (reaped, not reported)."""
    while True:
        try:
            pid, raw = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, raw

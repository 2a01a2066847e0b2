"""`run`: one agent CLI on one task, told in order.

    fork: guard | worker
    guard:  read the input, take the directory  ->  tell the worker  ->  claim  ->  wait (guarding.py)
    worker: listen  ->  prepare the command  ->  start the agent (starting.py)
            ->  watch it, prove that nothing is left alive, collect, classify, write the result (finish.py)

The guard is this process, the worker its child: what happens to one, the other cleans up and leaves an outcome (DESIGN 12).
"""
from __future__ import annotations

import os

from worker import cli
from worker.supervise import fork_worker


def main(arguments):
    """Run the input document named by the arguments; returns the exit code of DESIGN 5."""
    if len(arguments) != 1:
        return cli.misuse("run", "takes one argument: the input document, or - for one line on stdin")
    try:
        while os.open(os.devnull, os.O_RDWR) <= 2:
            pass  # started without stdin, stdout or stderr: those places stay taken
        complaint_in, complaint_out = os.pipe()
        link = fork_worker()  # two processes from here on
    except OSError as error:
        cli.say("%s (%s)" % (error.filename or "the worker cannot be forked", error.strerror))
        return cli.FAILED
    if not link.is_guard:
        os.close(complaint_in)
        from worker.starting import in_worker  # after the fork: both load what they need, side by side

        os._exit(in_worker(link, complaint_out))
    os.close(complaint_out)
    from worker.guarding import guard_run

    return guard_run(link, complaint_in, arguments[0])

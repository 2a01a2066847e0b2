"""The guard's side of a run: look for exposed keys, wait for the worker, and finish for it where it could not."""
from __future__ import annotations

import os

from worker import cli, exposure, launch
from worker.session import DONE


def guard_run(run):
    """The exit code of the run, whatever becomes of the worker."""
    os.close(run.complaint_out)
    key = launch.real_key(run.job)
    if key:
        found = exposure.places(key.encode(), run.session.fd) if len(key) >= launch.SHORTEST else []
        run.link.send("; ".join(found).encode("utf-8", "replace"))
    from worker.guard import guard  # after the look for the key: the worker waits for that

    os.set_blocking(run.complaint_in, False)
    return guard(run.link, lambda info: after_worker_death(run, info), lambda: last_words(run) == DONE,
                 run.job["cleanup_timeout"])


def last_words(run):
    """What the worker left on the pipe: DONE once the result is written, else why it failed, or nothing. Read once more,
    the same: a result.json alone would prove nothing, for an agent may have written it."""
    try:
        run.words = run.words or os.read(run.complaint_in, 4096)
    except BlockingIOError:
        pass  # a descendant of the launcher's fork still holds the other end
    return run.words


def after_worker_death(run, info):
    """The same ending as the worker's, from what is on disk. info: see guard.guard; gains the worker's last words."""
    from worker import salvage
    from worker.finish import conclude

    info["complaint"] = last_words(run).replace(DONE, b"").decode("utf-8", "replace")
    try:
        return conclude(run, salvage.facts_from_disk(run, info))
    except Exception as error:  # what killed the worker may kill this too: then without the transcript
        cli.say("the evidence could not be read (%s: %s)" % (type(error).__name__, error))
        return conclude(run, salvage.facts_from_disk(run, info), salvage.no_evidence)

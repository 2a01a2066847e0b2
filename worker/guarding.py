"""The guard's side of a run: read the input, take the directory, let the worker go, wait for it, finish for it if need be."""
from __future__ import annotations

import json
import os
import signal

from worker import cli, intake, kernel, launch
from worker.contract import BadInput
from worker.run import Run
from worker.session import DONE, PROMPT
from worker.supervise import LATE, STOP_SIGNALS


def guard_run(link, complaint, source):
    """The exit code of the run, whatever becomes of the worker. complaint: the pipe with the worker's last words."""
    try:
        return lead(link, complaint, source)
    except Exception as error:  # such as a module for which no descriptor is left; the worker, if it is there, stops in order
        cli.say("the guard failed (%s: %s)" % (type(error).__name__, error))
        return cli.FAILED
    finally:
        # Python's own end gives signals their default actions back: one that comes so late would be the exit code.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def lead(link, complaint, source):
    try:
        job, harness = intake.read_job(source, link.wakeup)
        token = os.urandom(16).hex()
        session = intake.take_directory(job, token)
        intake.remove_key(job, session)
        run = Run(job, harness, session, token, link, intake.marker_of(job))
        link.send(intake.for_worker(job, session, token, run.marker))
        answer = {"exposed": exposed_places(run), "files": prompt_entry(job)}
        if link.receive():  # "ready": it listens
            intake.claim(session, run.marker)
            kernel.continue_in(job["timeout"] + LATE)
            link.send(json.dumps(answer).encode())
    except (BadInput, intake.NotUsable, intake.Interrupted) as error:
        link.close()  # the worker ends by that
        os.waitpid(link.peer, 0)
        cli.say(str(error) or "was told to stop before anything was started")
        return {BadInput: cli.BAD_INPUT, intake.NotUsable: cli.NO_DIRECTORY}.get(type(error), cli.RETRY)
    from worker.guard import guard  # after what the worker waits for

    words = Words(complaint)
    return guard(link, lambda info: after_worker_death(run, words, info), lambda: words.read() == DONE, job["cleanup_timeout"],
                 ("%s=%s" % (launch.MARKER, run.marker)).encode())


def exposed_places(run):
    from worker import exposure

    key = launch.real_key(run.job)
    own = (os.getpid(), run.link.peer)
    found = exposure.places(key.encode(), run.session.fd, own) if key and len(key) >= launch.SHORTEST else []
    if run.job["model"] and run.job["model"]["keep_key_file"] and run.job["model"]["api_key_file"] and not run.job["user"]:
        found.append("its file, which was to be kept")
    return "; ".join(found)


def prompt_entry(job):
    """prompt.txt as evidence: an agent that edits it is found out like any other."""
    text = job["prompt"]
    if text is None:
        return {}
    import hashlib  # OpenSSL stands behind it: the worker has its job by now

    return {PROMPT: {"size": len(text), "sha256": hashlib.sha256(text).hexdigest()}}


class Words:
    """What the worker left on the pipe: DONE once the result is written, else why it failed, or nothing. A result.json alone
    would prove nothing, for an agent may have written it."""

    def __init__(self, fd):
        self.fd, self.text = fd, b""
        os.set_blocking(fd, False)

    def read(self):
        try:
            self.text = self.text or os.read(self.fd, 4096)
        except BlockingIOError:
            pass  # somebody still holds the other end
        return self.text


def after_worker_death(run, words, info):
    """The same ending as the worker's, from what is on disk. info: see guard.guard; gains the worker's last words."""
    from worker import salvage
    from worker.conclude import conclude

    info["complaint"] = words.read().replace(DONE, b"").decode("utf-8", "replace")
    try:
        return conclude(run, salvage.facts_from_disk(run, info))
    except Exception as error:  # what killed the worker may kill this too: then without the transcript
        cli.say("the evidence could not be read (%s: %s)" % (type(error).__name__, error))
    try:
        return conclude(run, salvage.facts_from_disk(run, info), salvage.no_evidence)
    except Exception as error:  # no disk, no directory: the exit code says it
        cli.say("no outcome could be written (%s: %s)" % (type(error).__name__, error))
        return cli.FAILED

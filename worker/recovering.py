"""`recover DIR`: after guard and worker were killed, end what is left of the run and make its outcome from what is on disk.

The agent dies with its worker (its death signal), but its descendants may live. They are found by the run's marker in
their environment and killed; that proves nothing, so cleanup stays unconfirmed and the outcome is a worker_error: run it
again in a fresh sandbox. Nothing is signalled that does not carry the marker, which is unguessable, since any file in the
directory may have been written by the agent.
"""
from __future__ import annotations

import fcntl
import json
import os
import time

from worker import cli, contract, harnesses, processes, salvage
from worker import session as names
from worker.conclude import conclude
from worker.control import claim, claimed_by
from worker.host.arguments import Misuse, parse
from worker.host.outcome_directory import NotReadable, read_document
from worker.launch import MARKER
from worker.tree import kill_marked

SLACK = 1.0  # seconds; the launch's uptime is that of its run's start, and starts are counted in ticks
KILLED = "guard and worker were killed before the run ended"


class Remains:
    """The session of a run that nobody leads any more; the same attributes as session.Session."""

    def __init__(self, directory):
        self.path, self.clock = os.path.abspath(directory), names.Clock()
        self.fd, self.real = os.open(self.path, names.DIRECTORY), os.path.realpath(directory)
        self.secrets, self.files, self.open_files, self.before, self.replaced = [], {}, [], {"input.json"}, []

    make_directory = names.Session.make_directory

    def lock(self):
        """Whether nobody holds the run's lock; it is ours then, until this process ends."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self.held = os.open(names.LOCK, flags, 0o600, dir_fd=self.fd)
        try:
            fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Run:
    """What can be known of the run: the attributes of sandbox_runner.Run that its ending reads."""

    def __init__(self, session, launched):
        self.session, self.launch, self.warnings, self.transport, self.agent = session, {}, [], None, None
        self.launch_error, self.unsaid = None, b""
        self.job = input_of(launched)
        self.harness = harnesses.find(launched.get("harness"), None) or harnesses.find("generic", None)
        self.launch["state"] = launched.get("state")
        self.started_at = launched.get("started_at") or session.clock.now()
        session.identity = {name: str(launched.get(name) or "") for name in ("nonce", "invocation_id")}
        self.job["invocation_id"] = session.identity["invocation_id"]
        if os.path.exists(os.path.join(session.path, names.ATTEMPTS)):
            self.job["model"] = self.job["model"] or {}
        session.secrets = [text.encode() for text in self.job["redact"]]


def input_of(launched):
    """The input document, where it still lies where the run read it; else one of defaults."""
    document = {}
    try:
        found = json.loads(contract.read_file(launched.get("input") or "", "input"))  # no FIFO that an agent names is waited for
        document = found if contract.violation(contract.INPUT, found) is None else {}
    except (contract.BadInput, TypeError, ValueError, RecursionError):
        pass
    job = contract.filled(contract.INPUT, document)
    job["prompt"] = None  # prompt.txt is there or not; it is not written again
    return job


def main(words):
    try:
        (directory,), _ = parse(words, 1)
        session = Remains(directory)
    except Misuse as error:
        return cli.misuse("recover", str(error))
    except OSError as error:
        cli.say("%s: %s" % (words[0], error.strerror))
        return cli.NO_OUTCOME
    found = set(os.listdir(session.fd))
    if names.RESULT in found:
        from worker.host import verdict

        return verdict.main([directory])  # recovered already, or never in need of it
    if not found.intersection((names.CLAIM, names.LOCK)):
        cli.say("%s: no run was started here" % directory)
        return cli.NO_OUTCOME
    if not session.lock():
        cli.say("%s: the run is still going on; `stop` ends it" % directory)
        return cli.NO_DIRECTORY
    claim(session.fd)  # where they were killed before they had: nothing was launched, and nothing will be
    return recover(session, directory)


def recover(session, directory):
    try:
        launched = read_document(directory, names.LAUNCH)
    except NotReadable:  # killed before it was written: the claim has the marker, too
        launched = {"marker": str(claimed_by(session.fd)).partition(" ")[2]}
    began = uptime_of(launched)
    if began and isinstance(launched.get("started_at"), float):  # the run's own clock goes on
        session.clock = names.Clock(launched["started_at"], time.monotonic() - (processes.uptime() - began))
    run = Run(session, launched)
    receipt = {"cleanup_confirmed": False, "proof": None, "killed": strays(launched, began), "error": KILLED}
    receipt["killed_count"] = len(receipt["killed"])
    info = {"status": 0, "stopped": 0, "receipt": receipt, "complaint": KILLED}
    try:
        return conclude(run, salvage.facts_from_disk(run, info))
    except Exception as error:  # a transcript that cannot be read: the outcome without it
        cli.say("the evidence could not be read (%s: %s)" % (type(error).__name__, error))
        return conclude(run, salvage.facts_from_disk(run, info), salvage.no_evidence)


def uptime_of(launched):
    """Seconds from boot to the run's start, which no setting of the wall clock changes; 0.0 where nobody says."""
    said = launched.get("uptime")
    return said if isinstance(said, float) and SLACK < said <= processes.uptime() else 0.0


def strays(launched, began):
    """Descendants that outlived everybody, killed now; described as in a receipt. began: see uptime_of."""
    marker = launched.get("marker")
    if not isinstance(marker, str) or "/" not in marker:
        return []
    since = int(max(0.0, began - SLACK) * processes.TICKS)
    return kill_marked(("%s=%s" % (MARKER, marker)).encode("utf-8", "replace"), since)

"""`stop DIR`: the command, and the documents of a run that was stopped before it started."""
from __future__ import annotations

import os
import time

from transport.sandbox_transport import atomic_write
from worker import cli, outcome, policy
from worker import session as names
from worker.control import stop
from worker.documents import strict_json
from worker.host.arguments import Misuse, parse
from worker.result import SCHEMA
from worker.usage import UNKNOWN
from worker.version import BUNDLE, VERSION


def main(words):
    try:
        (directory,), _ = parse(words, 1)
    except Misuse as error:
        return cli.misuse("stop", str(error))
    try:
        os.makedirs(directory, 0o700, exist_ok=True)  # a run may be on its way to a directory that does not exist yet
    except OSError as error:
        cli.say("%s: %s" % (directory, error.strerror))
        return cli.NO_DIRECTORY
    return stop(directory, write_outcome, cli.say)


def write_outcome(dirfd):
    """Receipt and result: nothing was started, so nothing is left."""
    identity = {"nonce": "", "invocation_id": "", "started_at": time.time(), "ended_at": time.time()}
    facts = {"ending": {"cause": "stop", "signals": [], "signal_received": None, "timed_out": False}, "started": False}
    decided = outcome.classify(facts)
    receipt = dict(
        identity, schema="sandbox-worker/cleanup/1", cleanup_confirmed=True, return_code=1, timed_out=True, error=None,
        proof="not_started", signals=[], killed=[])
    result = dict(
        identity, schema=SCHEMA, version=VERSION, bundle=dict(BUNDLE), return_code=1, timed_out=True, cleanup_confirmed=True,
        error=None, hostname=os.uname().nodename, pid=os.getpid(), duration_ms=0, harness={}, final_message=None,
        usage={"wire": None, "events": None, "transcript": None, "threads": {}, "chosen": dict(UNKNOWN, source=None)},
        counts={}, warnings=[], gaps=0, sandbox=None, resources=None, outcome=decided,
        disposition=policy.dispose(decided, True, False, None, 1, None), files={})
    atomic_write(dirfd, names.CLEANUP, strict_json(receipt) + b"\n")
    atomic_write(dirfd, names.RESULT, strict_json(result) + b"\n")

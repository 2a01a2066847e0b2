"""Receipt and result of a run of which there is nothing else to tell: it was never started, or nobody can be asked."""
from __future__ import annotations

import os
import time

from worker import outcome, policy
from worker.documents import strict_json
from worker.result import SCHEMA
from worker.session import CLEANUP, RESULT
from worker.usage import UNKNOWN
from worker.version import BUNDLE, VERSION


def documents(facts, confirmed=True, identity=None, attempt=(1, None)):
    """{file: bytes}, the receipt first.  facts: what outcome.classify looks at; confirmed: whether nothing can be left;
    identity: {"nonce", "invocation_id"}; attempt: the host's count of its runs, and their bound or None."""
    told = {"timed_out": False, "ending": {"cause": None, "signals": [], "signal_received": None, "timed_out": False}}
    decided = outcome.classify(dict(told, **facts))
    stopped = decided["kind"] == "cancelled"
    common = dict(
        {"nonce": "", "invocation_id": ""}, **identity or {}, started_at=time.time(), ended_at=time.time(), return_code=1,
        timed_out=stopped, cleanup_confirmed=confirmed, error=None if stopped else decided["message"])
    receipt = dict(common, schema="sandbox-worker/cleanup/1", proof="not_started" if confirmed else None, signals=[], killed=[],
                   killed_count=0)
    result = dict(
        common, schema=SCHEMA, version=VERSION, bundle=dict(BUNDLE), hostname=os.uname().nodename, pid=os.getpid(),
        duration_ms=0, run_attempt=attempt[0], run_max_attempts=attempt[1], harness={}, final_message=None,
        usage={"wire": None, "events": None, "transcript": None, "threads": {}, "chosen": dict(UNKNOWN, source=None)},
        counts={}, warnings=[], gaps=0, sandbox=None, resources=None, outcome=decided,
        disposition=policy.dispose(decided, confirmed, False, None, *attempt), files={})
    return {CLEANUP: strict_json(receipt) + b"\n", RESULT: strict_json(result) + b"\n"}


STOPPED = {"ending": {"cause": "stop", "signals": [], "signal_received": None, "timed_out": False}, "started": False}


def not_launched(kind, message):
    """Facts of a run whose agent could not be started."""
    return {"launch_error": {"kind": kind, "message": message}, "started": False}

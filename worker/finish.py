"""From the running agent to the written result, told in order.

    announce  ->  watch until it has ended  ->  nothing is left alive (receipt)
        ->  close the proxy  ->  read the transcripts  ->  classify  ->  result

Files are written after every descendant is dead, so that no process of the
agent can touch them, and `result.json` is the last.  Where the worker does not live to do this, the
guard takes `conclude` with facts from the disk (guarding.py).
"""

from __future__ import annotations

import os
import sys
import time

from worker import cli, documents, manifest, observations, outcome, policy, result, session as names
from worker.capture import Capture
from worker.control import listen
from worker.resources import Resources
from worker.tree import clean_up
from worker.seal import seal
from worker.watch import Ending, watch
from transport.sandbox_transport import Redactor, fold_attempts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any
    from worker.sandbox_runner import Run
    from worker.session import Session


def finish(run: "Run") -> int:
    """The worker's second half.  Returns the exit code of DESIGN 5."""
    reader = reader_of(run.harness)
    live = reader.Live()
    resources = Resources()
    capture = open_capture(run, live)
    announce_start(run)
    with listen(run.session) as control:
        ending = Ending() if run.launch_error else watch(run, capture, live, control)
        receipt = clean_up(run.job["cleanup_timeout"])
    capture.close()
    wire = close_transport(run)
    facts = facts_of(run, reader, ending, receipt, wire, live, capture)
    facts["resources"] = resources.measure()
    return conclude(run, reader, facts)


def reader_of(harness: "ModuleType") -> "ModuleType":
    __import__(harness.READER)
    return sys.modules[harness.READER]


def open_capture(run: "Run", live: "Any") -> Capture:
    session, limits = run.session, run.job["limits"]
    return Capture(documents.open_live(session, names.EVENTS), documents.open_live(session, names.STDERR),
                   session.clock.now, live.feed, limits, Redactor(session.secrets))


def announce_start(run: "Run") -> None:
    """launch.json and the first line on stdout: the host knows now that the agent runs (or could not be started)."""
    document = result.launch(run)
    documents.write_json(run.session, names.LAUNCH, document)
    say(dict(run.session.identity, event="launch_failed" if run.launch_error else "started",
             pid=document["pid"], directory=run.session.path))


def say(line: "dict[str, Any]") -> None:
    """One JSON line on stdout; a closed stdout does not stop a run (DESIGN 6)."""
    text = documents.strict_json(line) + b"\n"
    try:
        while text:
            text = text[os.write(1, text):]
    except OSError:
        pass


def close_transport(run: "Run") -> "dict[str, Any] | None":
    if run.transport is None:
        return None
    wire = run.transport.summary()  # before the streams are broken: what is still open decides (DESIGN 9)
    run.transport.stop()
    wire = dict(run.transport.summary(), main=wire["main"]) if wire["main"].get("open") else run.transport.summary()
    run.session.files.update(run.transport.files())
    return wire


def facts_of(run: "Run", reader: "ModuleType", ending: "Ending", receipt: "dict[str, Any]",
             wire: "dict[str, Any] | None", live: "Any", capture: Capture) -> "dict[str, Any]":
    """Everything that the ending is made of, as one dict."""
    return {
        "ending": ending.as_dict(), "receipt": receipt, "wire": wire, "live": live, "capture_gaps": capture.gaps,
        "launch_error": result.launch_error(run),
        "main_status": run.agent.status if run.agent else None, "worker_error": None,
        "output_seen": capture.seen, "ended_at": run.session.clock.now()}


def conclude(run: "Run", reader: "ModuleType", facts: "dict[str, Any]") -> int:
    """Collect, classify, write.  Returns the exit code of DESIGN 5."""
    session, job = run.session, run.job
    documents.free_reserve(session)
    documents.close_live(session)
    tampered = manifest.check_live(session)
    manifest.restore_prompt(session, job["prompt"])
    documents.write_json(session, names.CLEANUP, result.receipt(run, facts))
    evidence = collect(run, reader, facts)
    evidence["gaps"] += facts["capture_gaps"] + manifest.gaps(session, tampered)
    result.choose_usage(evidence, facts)
    decided = outcome.classify(result.outcome_facts(run, evidence, facts))
    disposition = policy.dispose(decided, facts["receipt"]["cleanup_confirmed"], bool(tampered), job["policy"],
                                 job["run_attempt"], job["run_max_attempts"])
    observed = observations.document(run.harness.NAME, evidence, decided, facts)
    documents.write_json(session, names.OBSERVATIONS, observed)
    document = result.document(run, evidence, facts, decided, disposition)
    if job["seal_key"]:
        document = documents.blanked(session, document)  # what is sealed is what will be read
        document["seal"] = seal(document, job["seal_key"].encode())
    sha256 = documents.write_json(session, names.RESULT, document)
    if job["share"]:
        manifest.share(session)
    files = {name: entry["sha256"] for name, entry in document["files"].items()}
    say(dict(session.identity, event="finished", outcome=decided, disposition=disposition,
             files=dict(files, **{names.RESULT: sha256})))
    return policy.exit_code(decided, disposition, facts["receipt"]["cleanup_confirmed"])


def collect(run: "Run", reader: "ModuleType", facts: "dict[str, Any]") -> "dict[str, Any]":
    """The harness's transcript as records and gaps, its files copied to native/.  A failure of ours is a gap, not an end."""
    session = run.session
    native = session.make_directory(names.NATIVE)
    try:
        return reader.collect({
            "state": run.launch.get("state"), "env": run.job["env"], "native_dirfd": native, "dirfd": session.fd,
            "wire": facts["wire"], "live": facts["live"], "started_at": run.started_at, "ended_at": facts["ended_at"],
            "invocation_id": run.job["invocation_id"], "redactor": Redactor(session.secrets),
            "baseline": run.launch.get("baseline")})
    finally:
        os.close(native)

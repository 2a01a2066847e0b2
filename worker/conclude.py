"""From the receipt to the written result, told in order.

    close the proxy  ->  read the transcripts  ->  classify  ->  result

Every descendant is dead by now. `result.json` is the last. Where the worker did not live to do this, the guard takes `conclude`
with facts from the disk (guarding.py), and `recover` does where the guard did not live either.
"""
from __future__ import annotations

import os

from transport.sandbox_transport import Redactor
from worker import documents, manifest, observations, outcome, policy, result, usage
from worker import session as names
from worker.announcing import reader_of, say, write_receipt
from worker.gaps import gap
from worker.resources import disk_is_full
from worker.sandbox_facts import clock_moved, facts
from worker.seal import seal

# What stands in a document because we chose it, and is no secret even where a secret is such a word.
VOCABULARY = frozenset(policy.TABLE).union(outcome.FAULTS.values(), (
    "completed", "failed", "incomplete", "not_run", "grade", "mask", "retry"))


def close_transport(run, before):
    """The wire's summary, with what was open when the run ended: that decides (DESIGN 9), not that we then closed it, nor
    that the agent left it (`before`: what was open) when it was told to stop."""
    if run.transport is None:
        return None
    main = run.transport.summary()["main"]
    run.transport.stop()
    run.session.files.update(run.transport.files())
    wire = run.transport.summary()
    last = wire["main"]["last"]
    if not main.get("open") and before and last and last["request"] == before["request"] and outcome.abandoned(last):
        return dict(wire, main=dict(wire["main"], open=before))
    return dict(wire, main=main) if main.get("open") else wire


def facts_of(run, known, ending, wire, live, capture, resources):
    """Everything that the ending is made of, as one dict. known: what the receipt was made of."""
    used = resources.measure()
    used["kernel"]["disk_full"] = run.session.ran_full or disk_is_full(run.session.open_files, run.session.fd)
    return dict(
        known, ending=ending.as_dict(), wire=wire, live=live, resources=used,
        capture_gaps=[gap(found["code"], found["detail"], None, found["file"], found["offset"], found["count"])
                      for found in capture.gaps],
        launch_error=result.launch_error(run), sandbox=facts(), output_seen=capture.seen,
        ended_at=run.session.clock.now(), clock_moved_s=clock_moved(run.session.clock))


def conclude(run, facts, collect=None):
    """The receipt and the rest, for whoever finishes in the worker's place."""
    write_receipt(run, facts)
    return settle(run, facts, collect)


def settle(run, facts, collect=None, done=None):
    """Collect, classify, write. Returns the exit code of DESIGN 5.

    collect: instead of the harness's own reader; done: called as soon as the result is written.
    """
    session, job = run.session, run.job
    while documents.free_reserve(session):
        pass
    tampered = documents.ensure_directory(session) + manifest.check_live(session)
    manifest.blank_prompt(session)
    evidence = (collect or collect_evidence)(run, facts)
    session.files.update(evidence["native_files"])
    evidence["gaps"] += facts["capture_gaps"] + manifest.gaps(session, tampered)
    choose_usage(evidence, facts)
    known = result.outcome_facts(run, evidence, facts)
    decided = outcome.classify(known)
    evidence["warnings"] = run.warnings + evidence["warnings"] + outcome.warnings(known, decided)
    disposition = policy.dispose(decided, facts["receipt"]["cleanup_confirmed"], bool(tampered), job["policy"],
                                 job["run_attempt"], job["run_max_attempts"])
    facts["started_at"] = run.started_at
    documents.write_pieces(session, names.OBSERVATIONS, observations.chunks(run.harness.NAME, evidence, decided, facts))
    evidence["exports"] = policy.exports(decided, disposition)
    document = result.document(run, evidence, facts, decided, disposition)
    if job["seal_key"]:
        document = documents.blanked(session, document, VOCABULARY)  # what is sealed is what will be read
        document["seal"] = seal(document, job["seal_key"].encode())
    sha256 = documents.write_json(session, names.RESULT, document, VOCABULARY)
    if done:
        done()
    if job["share"]:
        manifest.share(session)
    files = {name: entry["sha256"] for name, entry in document["files"].items()}
    say(run, dict(session.identity, event="finished", outcome=decided, disposition=disposition,
                  files=dict(files, **{names.RESULT: sha256})))
    return policy.exit_code(decided, disposition, facts["receipt"]["cleanup_confirmed"])


def collect_evidence(run, facts):
    """The harness's transcript as records and gaps, its files copied to native/.  A failure of ours is a gap, not an end."""
    session = run.session
    native = documents.fresh_directory(session, names.NATIVE)
    try:
        return reader_of(run.harness).collect({
            "state": run.launch.get("state"), "env": run.job["env"], "native_dirfd": native, "dirfd": session.fd,
            "wire": facts["wire"], "live": facts["live"], "exit": facts["main_status"], "ended_at": facts["ended_at"],
            "started_at": run.started_at + min(0.0, facts["clock_moved_s"]),  # as the CLI's own stamps have it
            "invocation_id": run.job["invocation_id"], "redactor": Redactor(session.secrets),
            "baseline": run.launch.get("baseline")})
    finally:
        os.close(native)


def choose_usage(evidence, facts):
    """Put the chosen usage and the gaps between its sources into the evidence."""
    chosen, found = usage.choose(facts["wire"], evidence)
    evidence["usage"] = chosen
    evidence["gaps"] += found

"""From the running agent to the written result, told in order.

    announce  ->  watch until it has ended  ->  nothing is left alive (receipt)
        ->  close the proxy  ->  read the transcripts  ->  classify  ->  result

Files are written after every descendant is dead, so that no process of the agent can touch them, and `result.json` is
the last. Where the worker does not live to do this, the guard takes `conclude` with facts from the disk (guarding.py).
"""
from __future__ import annotations

import os
import sys

from transport.sandbox_transport import Redactor
from worker import documents, manifest, observations, outcome, output_file, policy, result, stdout
from worker import session as names
from worker.capture import Capture
from worker.control import Control
from worker.gaps import gap
from worker.launch import MARKER
from worker.resources import Resources, disk_is_full
from worker.sandbox_facts import clock_moved, facts
from worker.seal import seal
from worker.tree import clean_up
from worker.watch import Ending, drain, watch


def finish(run):
    """The worker's second half. Returns the exit code of DESIGN 5."""
    live = reader_of(run.harness).Live()
    resources, capture = Resources(run.agent.counters), open_capture(run, live)
    control = Control(run.session.sockets, run.agent.pid, run.job["grace"] + 2 * run.job["cleanup_timeout"])
    announce_start(run)
    if run.transport:
        run.transport.warm()
    ending, output = Ending(), output_file.of(run.agent.stdout, capture, run.job["limits"]["stdout_bytes"])
    if not run.launch_error:
        ending = watch(run.agent, capture, run.job, run.link, run.session.clock.now, run.transport, control, live,
                       run.harness.STOP_SIGNAL, output)
    marker = ("%s=%s" % (MARKER, run.marker)).encode()
    receipt = clean_up(run.job["cleanup_timeout"], run.link.wakeup, run.agent, run.link, marker)
    drain(run.agent, capture, output)
    capture.close()
    wire = close_transport(run, ending.open_request)
    control.close()
    ending.hear(run.link.wakeup)
    return conclude(run, facts_of(run, ending, receipt, wire, live, capture, resources),
                    done=run.done)


def reader_of(harness):
    __import__(harness.READER)
    return sys.modules[harness.READER]


def open_capture(run, live):
    session = run.session
    return Capture(documents.open_live(session, names.EVENTS), documents.open_live(session, names.STDERR),
                   session.clock.now, live.feed, run.job["limits"], Redactor(session.secrets), session.fd)


def announce_start(run):
    """launch.json and the first line on stdout: the host knows now that the agent runs, or could not be started."""
    document = result.launch(run)
    documents.write_json(run.session, names.LAUNCH, document)
    run.unsaid = documents.strict_json(dict(
        run.session.identity, event="launch_failed" if run.launch_error else "started",
        pid=document["pid"], directory=run.session.path)) + b"\n"
    if stdout.takes_at_once(1):  # nobody watches the agent yet: a stdout that is not read must not keep us from it
        say(run)


def say(run, line=None):
    """What was not said yet, and `line`, on stdout; a closed stdout does not stop a run (DESIGN 6)."""
    text, run.unsaid = run.unsaid, b""
    try:
        stdout.put(1, text if line is None else text + documents.strict_json(line) + b"\n")
    except OSError:
        pass


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


def facts_of(run, ending, receipt, wire, live, capture, resources):
    """Everything that the ending is made of, as one dict."""
    used = resources.measure()
    used["kernel"]["disk_full"] = run.session.ran_full or disk_is_full(run.session.open_files, run.session.fd)
    return {
        "ending": ending.as_dict(), "receipt": receipt, "wire": wire, "live": live, "resources": used,
        "capture_gaps": [gap(found["code"], found["detail"], None, found["file"], found["offset"], found["count"])
                         for found in capture.gaps],
        "launch_error": result.launch_error(run), "main_status": run.agent.status, "worker_error": None,
        "sandbox": facts(), "output_seen": capture.seen, "ended_at": run.session.clock.now(),
        "clock_moved_s": clock_moved(run.session.clock)}


def conclude(run, facts, collect=None, done=None):
    """Collect, classify, write. Returns the exit code of DESIGN 5.

    collect: instead of the harness's own reader; done: called as soon as the result is written.
    """
    session, job = run.session, run.job
    gone = documents.ensure_directory(session)
    documents.free_reserve(session)
    tampered = gone + manifest.check_live(session)
    manifest.blank_prompt(session)
    documents.write_json(session, names.CLEANUP, result.receipt(run, facts))
    evidence = (collect or collect_evidence)(run, facts)
    session.files.update(evidence["native_files"])
    evidence["gaps"] += facts["capture_gaps"] + manifest.gaps(session, tampered)
    result.choose_usage(evidence, facts)
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
        document = documents.blanked(session, document)  # what is sealed is what will be read
        document["seal"] = seal(document, job["seal_key"].encode())
    sha256 = documents.write_json(session, names.RESULT, document)
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
            "wire": facts["wire"], "live": facts["live"], "ended_at": facts["ended_at"],
            "started_at": run.started_at + min(0.0, facts["clock_moved_s"]),  # as the CLI's own stamps have it
            "invocation_id": run.job["invocation_id"], "redactor": Redactor(session.secrets),
            "baseline": run.launch.get("baseline")})
    finally:
        os.close(native)

"""From the running agent to the receipt, told in order.

    announce  ->  watch until it has ended  ->  nothing is left alive  ->  the receipt
        ->  close the proxy  ->  the rest of the outcome (conclude.py)

What this file imports is all that the receipt needs; what comes after it is loaded while the agent runs (later.py). Files are
written after every descendant is dead, so that no process of the agent can touch them.
"""
from __future__ import annotations

from transport.sandbox_transport import LATER, Redactor
from worker import documents, output_file
from worker import session as names
from worker.announcing import announce_start, reader_of, write_receipt
from worker.capture import Capture
from worker.control import Control
from worker.later import LateLive, loading
from worker.launch import MARKER
from worker.resources import Resources
from worker.tree import clean_up
from worker.watch import Ending, drain, watch


def finish(run):
    """The worker's second half. Returns the exit code of DESIGN 5."""
    live = LateLive(lambda: reader_of(run.harness).Live())
    resources, capture = Resources(run.agent.counters), open_capture(run, live)
    control = Control(run.session.sockets, run.agent.pid, run.job["grace"] + 2 * run.job["cleanup_timeout"])
    announce_start(run)
    ending, output = Ending(), output_file.of(run.agent.stdout, capture, run.job["limits"]["stdout_bytes"])
    if not run.launch_error:
        ending = watch(run.agent, capture, run.job, run.link, run.session.clock.now, run.transport, control, live,
                       run.harness.STOP_SIGNAL, output, meanwhile(run, live))
    marker = ("%s=%s" % (MARKER, run.marker)).encode()
    receipt = clean_up(run.job["cleanup_timeout"], run.link.wakeup, run.agent, run.link, marker)
    facts = {"ending": ending.as_dict(), "receipt": receipt, "main_status": run.agent.status, "worker_error": None}
    write_receipt(run, facts)
    drain(run.agent, capture, output)
    capture.close()
    from worker.conclude import close_transport, facts_of, settle

    wire = close_transport(run, ending.open_request)
    control.close()
    ending.hear(run.link.wakeup)
    return settle(run, facts_of(run, facts, ending, wire, live.loaded(), capture, resources), done=run.done)


def meanwhile(run, live):
    """What is done step by step when the agent gives nothing to do: what its events, its requests and its end will need."""
    yield from loading(run.harness.READER)
    live.loaded()
    if run.transport:
        yield from loading(LATER)
        run.transport.warm()
    yield from loading("worker.conclude")


def open_capture(run, live):
    session = run.session
    return Capture(documents.open_live(session, names.EVENTS), documents.open_live(session, names.STDERR),
                   session.clock.now, live.feed, run.job["limits"], Redactor(session.secrets), session.fd)

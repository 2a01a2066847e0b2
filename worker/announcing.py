"""What a run says before its outcome: launch.json, the receipt, the lines on stdout; and who reads what its CLI says."""
from __future__ import annotations

import sys

from worker import documents, result, stdout
from worker import session as names


def reader_of(harness):
    __import__(harness.READER)
    return sys.modules[harness.READER]


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


def write_receipt(run, facts):
    """cleanup.json. facts: see result.receipt."""
    documents.ensure_directory(run.session)
    documents.write_json(run.session, names.CLEANUP, result.receipt(run, facts))

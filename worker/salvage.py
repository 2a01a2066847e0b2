"""What a dead worker left on disk, as the facts that the ending is made of.

Used by the guard right after it has killed and reaped what the worker left.
Lines are whole because each was one write; a line that was cut all the same is
cut off, and said (gap `evidence_lost`).
"""
from __future__ import annotations

import errno
import json
import os
import resource
import stat

from transport.sandbox_transport import fold_attempts
from worker import manifest
from worker import session as names
from worker.observations import Records
from worker.sandbox_facts import clock_moved, facts

DESCRIPTORS = 64  # enough for a run with some connections (tests/test_supervise_poor_places.py)
LINES = (names.EVENTS, names.ATTEMPTS)
ENDING = {"cause": "worker_died", "signals": [], "signal_received": None, "main_status": None, "timed_out": False,
          "lingered": False, "late_s": 0.0}


def facts_from_disk(run, info):
    """The facts of finish.conclude.  info: the guard's {"status", "stopped", "receipt", "complaint"}."""
    session = run.session
    gaps = [gap for name in LINES for gap in cut_last_line(session, name)]
    if getattr(run.harness, "STDOUT", "pipe") == "file":
        gaps.append(manifest.gap("evidence_lost", "stdout was a file without a name; what was not read of it is gone", 1))
    register(session)
    live = _live(run, session)
    wire = fold_attempts(lines_of(session, names.ATTEMPTS)) if run.job["model"] else None
    ending = dict(ENDING, worker_stops=info["stopped"])
    return {
        "ending": ending, "receipt": info["receipt"], "wire": wire, "live": live, "capture_gaps": gaps,
        "worker_error": _of_limits(info["complaint"]) or _death(info["status"]), "launch_error": None, "main_status": None,
        "sandbox": facts(), "output_seen": live.events > 0, "ended_at": session.clock.now(),
        "clock_moved_s": clock_moved(session.clock)}


def no_evidence(run, facts):
    """In place of a reader's collect, where that failed: nothing is known but what the other files say."""
    lost = manifest.gap("agent_artifact_unavailable", "reading the transcript failed: %s" % facts["worker_error"], 1)
    return {"records": Records(), "gaps": [lost], "native_files": {}, "final_message": None, "version": None,
            "terminal": None, "error_text": None, "warnings": [], "usage_transcript": None, "usage_events": None,
            "usage_notes": {}, "threads": {}}


def _of_limits(complaint):
    """With what a host can do about it."""
    if "[Errno %d]" % errno.EMFILE not in complaint:
        return complaint
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return "%s; the limit of open files is %d here (ulimit -n), the worker needs %d" % (complaint, most, DESCRIPTORS)


def _death(status):
    return "the worker was killed by signal %d" % -status if status < 0 else "the worker exited with %d" % status


def _live(run, session):
    from worker.announcing import reader_of

    live = reader_of(run.harness).Live()
    for pair in lines_of(session, names.EVENTS):
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], dict):
            live.feed(pair[1])
    return live


def lines_of(session, name):
    """The JSON values of a file of lines; none where it does not exist."""
    try:
        fd = manifest.open_below(session.fd, name)
    except OSError:
        return
    with os.fdopen(fd, "rb") as file:
        for line in file:
            try:
                yield json.loads(line.decode("utf-8"))
            except (ValueError, RecursionError):
                continue


def cut_last_line(session, name):
    """Make the file end with a whole line; the gap says how much that cost."""
    try:
        fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=session.fd)
    except OSError:
        return []
    with os.fdopen(fd, "r+b", buffering=0):
        size = os.fstat(fd).st_size
        if not stat.S_ISREG(os.fstat(fd).st_mode) or not size:
            return []
        end = size
        while end and os.pread(fd, 1, end - 1) != b"\n":
            start = max(0, end - 65536)
            at = os.pread(fd, end - start, start).rfind(b"\n")
            end = start + at + 1 if at >= 0 else start
        if end == size:
            return []
        os.ftruncate(fd, end)
    return [manifest.gap("evidence_lost", "%s: the last line was cut" % name, size - end)]


def register(session):
    """Enter every file of the dead worker into the manifest, as it is found now."""
    for name in manifest.present(session):
        if name.split("/")[0] in names.EVIDENCE and name not in manifest.FOLDERS:
            found = manifest.digest(session.fd, name)
            if found:
                session.files[name] = found

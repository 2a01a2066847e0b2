"""A second look at what failed beside others: on two cores four tests run at a time, and each starts processes of its own.

A few failures of a session with several workers are played again, each in a process with nothing beside it. Those that pass then
are named at the end, as what somebody should look at; they do not fail the session. One that fails alone does, and so do more
than MOST: then it is not the neighbours.
"""
from __future__ import annotations

import subprocess
import sys

MOST = 3


def failed(session):
    """The ids of the tests that failed in a session of several workers, or None where there is nothing to play again."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not session.config.getoption("numprocesses", None) or reporter.stats.get("error"):
        return None
    names = sorted({report.nodeid for report in reporter.stats.get("failed", ())})
    return names if 0 < len(names) <= MOST else None


def pass_alone(session):
    """Whether all that failed pass when played again."""
    names = failed(session)
    if not names:
        return False
    options = [word for word in ("--all", "--harnesses") if session.config.getoption(word.strip("-"))]
    for name in names:
        print("\n=== failed beside others, once more alone: %s" % name, flush=True)
        if subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, name],
                          stdin=subprocess.DEVNULL).returncode:
            return False
    print("\n=== TO BE LOOKED AT: failed beside others, passed alone: %s" % ", ".join(names), flush=True)
    return True

"""`python3 -m tests.conformance`: play the scenarios with the real CLIs and write the tables.

Exit code 0: all that applies is fulfilled, but for limits of the CLIs' own; 1: something is not; 2: it could not be run here
(the reason is printed). The folders of scenarios that are not fulfilled stay under .cache/conformance/runs/ for looking at.

What was found last of each scenario is kept there, too; `--publish` makes of all that is kept the full tables (TABLE.md beside this
file) and the summary in README.md.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from tests.conformance import checks, report, runner, scenarios
from tests.conformance.harnesses import TABLE

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / ".cache" / "conformance"
WIDE = 2                    # scenarios at the same time: more only disturb each other on a small machine
KEEPING = threading.Lock()
BEGIN, END = "<!-- conformance: written by `python3 -m tests.conformance --publish` -->\n", "<!-- conformance: end -->\n"


def arguments(words):
    parser = argparse.ArgumentParser(prog="python3 -m tests.conformance", description="real CLIs against a scripted endpoint")
    parser.add_argument("--harness", nargs="+", action="extend", choices=sorted(TABLE), metavar="NAME",
                        help="of %s; all when absent" % ", ".join(TABLE))
    parser.add_argument("--version", nargs="+", action="extend", help="of the CLI; all tested ones when absent")
    parser.add_argument("--newest", action="store_true", help="of each CLI only the last tested version")
    parser.add_argument("--scenario", nargs="+", action="extend", choices=[make.__name__ for make in scenarios.SCENARIOS],
                        metavar="NAME", help="all when absent")
    parser.add_argument("--quick", action="store_true", help="only %s" % ", ".join(scenarios.QUICK))
    parser.add_argument("--install", action="store_true", help="only install the CLIs")
    parser.add_argument("--jobs", type=int, default=WIDE, help="scenarios at the same time (%(default)s)")
    parser.add_argument("--bundle", help="the sandbox-worker.pyz to test; built from this tree when absent")
    parser.add_argument("--out", type=pathlib.Path, default=OUT, help="folder of conformance.md and .json (%(default)s)")
    parser.add_argument("--publish", action="store_true", help="write TABLE.md and the README's summary from what is kept")
    return parser.parse_args(words)


def programs(asked, pool):
    """[(harness, version, its PATH entries)], installed side by side; OSError with the reason where one cannot be had."""
    wanted = [(harness, version) for harness in TABLE.values() if not asked.harness or harness.name in asked.harness
              for version in harness.versions[-1 if asked.newest else 0:]
              if not asked.version or version in asked.version]
    if not wanted:
        raise OSError("no tested CLI has the version %s" % ", ".join(asked.version))
    places = pool.map(lambda one: one[0].places(one[1]), wanted)
    return [one + (place,) for one, place in zip(wanted, places)]


def built(folder):
    subprocess.run([sys.executable, str(ROOT / "build.py"), "--out", folder], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, "sandbox-worker.pyz")


def one(harness, version, places, scenario, bundle):
    """The row of one scenario, which is kept at once."""
    row = found(harness, version, places, scenario, bundle)
    with KEEPING:
        keep([row])
    return row


def found(harness, version, places, scenario, bundle):
    name = scenario["name"]
    if scenario["plan"] is None:
        return report.same(harness.name, version, scenario, "not applicable", scenario["harness"].not_applicable[name])
    folder = OUT / "runs" / ("%s-%s" % (harness.name, version)) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        played = runner.play(scenario, version, places, bundle, folder)
        row = report.row(harness.name, version, scenario, checks.judge(played))
    except (AssertionError, OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as broken:
        row = report.same(harness.name, version, scenario, "not fulfilled", "%s: %s" % (type(broken).__name__, broken))
    good = report.fulfilled([row])
    if good:
        shutil.rmtree(folder, ignore_errors=True)
    print("%-10s %-16s %-24s %5.1f s  %s" % (harness.name, version, name, time.monotonic() - began,
                                             "fulfilled" if good else "NOT FULFILLED, see %s" % folder), flush=True)
    return row


def stale_limits(rows):
    """Sentences about limits that a whole run did not meet."""
    for (name, version), some in report.by_version(rows).items():
        met = {reason for row in some for cell in row["evidence"].values() for reason in cell["reasons"]}
        for limit in TABLE[name].limits:
            if (limit.versions is None or version in limit.versions) and limit.reason not in met:
                yield "%s %s: the limit %r was not met; is it one?" % (name, version, limit.reason)


def keep(rows):
    """What was found last of each scenario of each CLI."""
    for (name, version), some in report.by_version(rows).items():
        path = OUT / ("kept-%s-%s.json" % (name, version))
        kept = {row["scenario"]: row for row in (json.loads(path.read_text())["rows"] if path.exists() else []) + some}
        order = [make.__name__ for make in scenarios.SCENARIOS]
        path.write_text(report.as_json(sorted(kept.values(), key=lambda row: order.index(row["scenario"]))))


def publish(target=ROOT):
    """TABLE.md and the README's summary from what is kept, in the order of the harnesses' table."""
    rows = []
    for harness in TABLE.values():
        for version in harness.versions:
            path = OUT / ("kept-%s-%s.json" % (harness.name, version))
            rows += json.loads(path.read_text())["rows"] if path.exists() else []
    head = "# Conformance: every kind of evidence, every scenario, every CLI\n\nWritten by `python3 -m tests.conformance --publish`.\n\n"
    (target / "tests" / "conformance" / "TABLE.md").write_text(head + report.as_markdown(rows))
    readme = target / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise OSError("README.md lacks the marks of the summary")
    readme.write_text(before + BEGIN + report.summary(rows) + "\n" + report.total(rows) + "\n" + END + after)


def main(words=None):
    asked = arguments(words)
    OUT.mkdir(parents=True, exist_ok=True)
    if asked.publish:
        publish()
        return 0
    names = set(asked.scenario or ()) | set(scenarios.QUICK if asked.quick else ())
    with concurrent.futures.ThreadPoolExecutor(max(1, asked.jobs)) as pool, tempfile.TemporaryDirectory() as folder:
        try:
            wanted = programs(asked, pool)
        except (OSError, subprocess.SubprocessError) as reason:
            print("conformance: %s" % reason, file=sys.stderr)
            return 2
        if asked.install:
            return 0
        bundle = os.path.abspath(asked.bundle) if asked.bundle else built(folder)
        plays = [(harness, version, places, scenario, bundle) for harness, version, places in wanted
                 for scenario in scenarios.of(harness.at(version)) if not names or scenario["name"] in names]
        rows = list(pool.map(lambda play: one(*play), plays))
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, text in (("conformance.md", report.as_markdown(rows)), ("conformance.json", report.as_json(rows))):
        (asked.out / name).write_text(text)
    doubts = [] if names else list(stale_limits(rows))
    print("\n%s\n%s\nwritten to %s" % (report.as_markdown(rows), "\n".join(doubts), asked.out))
    return 0 if report.fulfilled(rows) and not doubts else 1


if __name__ == "__main__":
    sys.exit(main())

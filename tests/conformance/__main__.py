"""`python3 -m tests.conformance`: play the scenarios with the real CLIs and write the table.

Exit code 0: all that applies is fulfilled; 1: something is not; 2: it could not be run here (the reason is printed).
The folders of scenarios that are not fulfilled stay under .cache/conformance/runs/ for looking at.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import time

from tests import real_cli
from tests.conformance import checks, report, runner, scenarios

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / ".cache" / "conformance"
WIDE = 2                    # scenarios at the same time: more only disturb each other on a small machine
HARNESSES = {"codex": (real_cli.CODEX, real_cli.path)}


def arguments(words):
    parser = argparse.ArgumentParser(prog="python3 -m tests.conformance", description="real CLIs against a scripted endpoint")
    parser.add_argument("--harness", action="append", choices=sorted(HARNESSES), help="all when absent")
    parser.add_argument("--version", action="append", help="of the CLI; all tested ones when absent")
    parser.add_argument("--scenario", action="append", choices=list(scenarios.BY_NAME), metavar="NAME", help="all when absent")
    parser.add_argument("--bundle", help="the sandbox-worker.pyz to test; built from this tree when absent")
    parser.add_argument("--markdown", type=pathlib.Path, default=OUT / "conformance.md")
    parser.add_argument("--json", type=pathlib.Path, default=OUT / "conformance.json")
    return parser.parse_args(words)


def programs(asked):
    """[(harness, version, path of its program)]; OSError with the reason where one cannot be had."""
    found = []
    for harness in asked.harness or sorted(HARNESSES):
        versions, path = HARNESSES[harness]
        found += [(harness, version, path(version)) for version in versions if not asked.version or version in asked.version]
    if not found:
        raise OSError("no tested CLI has the version %s" % ", ".join(asked.version))
    return found


def built():
    subprocess.run([sys.executable, str(ROOT / "build.py"), "--out", str(OUT / "dist")], check=True, stdout=subprocess.DEVNULL)
    return str(OUT / "dist" / "sandbox-worker.pyz")


def one(harness, version, program, scenario, bundle):
    """The row of one scenario."""
    folder = OUT / "runs" / ("%s-%s" % (harness, version)) / scenario["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        played = runner.play(scenario, version, program, bundle, folder)
        row = report.row(harness, version, scenario, checks.judge(played))
    except (AssertionError, OSError, subprocess.SubprocessError, ValueError) as broken:
        row = report.failed(harness, version, scenario, "%s: %s" % (type(broken).__name__, broken))
    good = report.fulfilled([row])
    if good:
        shutil.rmtree(folder, ignore_errors=True)
    print("%-7s %-8s %-24s %4.1f s  %s" % (harness, version, scenario["name"], time.monotonic() - began,
                                           "fulfilled" if good else "NOT FULFILLED, see %s" % folder), flush=True)
    return row


def main(words=None):
    asked = arguments(words)
    try:
        wanted = programs(asked)
    except OSError as reason:
        print("conformance: %s" % reason, file=sys.stderr)
        return 2
    OUT.mkdir(parents=True, exist_ok=True)
    bundle = os.path.abspath(asked.bundle) if asked.bundle else built()
    plays = [(harness, version, program, scenario, bundle) for harness, version, program in wanted
             for scenario in scenarios.SCENARIOS if not asked.scenario or scenario["name"] in asked.scenario]
    with concurrent.futures.ThreadPoolExecutor(WIDE) as pool:
        rows = list(pool.map(lambda play: one(*play), plays))
    for path, text in ((asked.markdown, report.as_markdown(rows)), (asked.json, report.as_json(rows))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print("\n" + report.as_markdown(rows) + "\nwritten to %s and %s" % (asked.markdown, asked.json))
    return 0 if report.fulfilled(rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""`make bench`: python3 -m tests.bench [--quick] [--realtime] [--only NAME ...] [--json FILE] [--markdown FILE]

All budgets, measured beside the programs that they are named after, in one table. NAME: start, end, overhead, rest,
proxy, memory, capture, transcripts. A budget that is missed is marked; the exit code is 0 all the same, because a busy
machine is no defect.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

from tests.bench import evidence, processes, proxies, table
from tests.bench.machine import Hung, Machine, description

GROUPS = dict(processes.GROUPS, **proxies.GROUPS, **evidence.GROUPS)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench", description="all budgets, beside their peers")
    parser.add_argument("--quick", action="store_true", help="about a minute: fewer rounds, smaller floods")
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), default=list(GROUPS), metavar="NAME",
                        help="of: " + ", ".join(GROUPS))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--markdown", metavar="FILE")
    parser.add_argument("--realtime", action="store_true", help="all under SCHED_FIFO (root), where others use the machine")
    args = parser.parse_args(argv)
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))      # inherited by all that is started
    rows, grid = [], None
    with Machine(args.quick) as machine:
        for name in args.only:
            began = time.monotonic()
            try:
                found = GROUPS[name](machine)
            except (Hung, OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
                found = [table.absent(name, "all of it", "failed: %s: %s" % (type(error).__name__, str(error)[:200]))]
            if isinstance(found, tuple):
                found, grid = found
            rows += found
            print("bench: %s took %.0f s" % (name, time.monotonic() - began), file=sys.stderr)
    where = dict(description(), how=", all under SCHED_FIFO" if args.realtime else "")
    text = table.markdown(rows, grid, where)
    whole = {"machine": where, "quick": args.quick, "realtime": args.realtime, "rows": rows, "proxies": grid}
    for path, content in ((args.json, json.dumps(whole, indent=1)), (args.markdown, text)):
        if path:
            with open(path, "w") as file:
                file.write(content)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

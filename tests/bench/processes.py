"""Start, end, rest: what the worker costs before, after and while the agent runs.

start      the bundle's exec to the first instruction of a static C agent, which writes the clock; beside it the whole life of
           `python3 -I -S -c pass`. A fresh copy of the bundle each time; the proxy listens; a key file, so the guard looks.
end        the agent's last act is to write the clock; an inotify watcher in C sees cleanup.json and result.json appear.
overhead   wall time around an agent that sleeps, less the sleeper alone, at lengths that are no multiple of one another.
rest       voluntary context switches of all threads of guard and worker while the agent sleeps.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import time

from tests.bench.machine import CA, ORDINARY, Live, in_turns, median, pss_kb, status, switches, wait_for
from tests.bench.table import absent, row

HTTP = {"base_url": "http://127.0.0.1:9/v1", "name": "m", "api": "responses"}
HTTPS = {"base_url": "https://127.0.0.1:9/v1", "name": "m", "api": "responses", "ca_file": CA}


# -- start -----------------------------------------------------------------------------------------------------------------
def started(machine, uid, python, model):
    """ms from the start of the interpreter to the agent's first instruction."""
    stamp = machine.path("first")
    if uid:                                   # the agent writes beside it
        os.mkdir(stamp)
        os.chown(stamp, uid, uid)
        stamp += "/clock"
    model = dict(model, ca_file=machine.ca) if "ca_file" in model else model
    found = machine.run(uid, python, command=[machine.tool, "now", stamp], **({"model": model} if model else {}))
    shutil.rmtree(found["directory"], ignore_errors=True)
    return (int(wait_for(stamp, 1)) - found["start"]) / 1e6


def start(machine):
    machine.ca = machine.path("ca.pem")       # where an ordinary uid can read it
    shutil.copy(CA, machine.ca)
    os.chmod(machine.ca, 0o644)
    rounds, group = (5 if machine.quick else 21), "start to the agent's first instruction"
    places = [("root" if machine.is_root else "this uid", 0, machine.python)]
    ordinary = machine.ordinary_python()
    if ordinary:
        places.append(("ordinary uid" + ("" if ordinary == machine.python else ", " + ordinary), ORDINARY, ordinary))
    cases, rows = {}, []
    for place, uid, python in places:
        cases[place, "pass"] = lambda u=uid, p=python: machine.timed([p, "-I", "-S", "-c", "pass"], u)["ms"]
        for name, model in (("no model", {}), ("plain http", HTTP), ("https", HTTPS)):
            cases[place, name] = lambda u=uid, p=python, m=model: started(machine, u, p, m)
    found = in_turns(cases, rounds)
    for place, uid, _ in places:
        for name, limit in (("no model", None), ("plain http", 6 if uid else 8), ("https", 8)):
            rows.append(row(group, "%s, %s" % (name, place), median(found[place, name]), "ms",
                            [("python3 -I -S -c pass", median(found[place, "pass"]))], at_most=limit, of="ratio"))
    if not ordinary:
        rows.append(absent(group, "another uid", "not measured: needs root, and a Python that all may run"))
    return rows


# -- end -------------------------------------------------------------------------------------------------------------------
def ended(machine, kind, count, by):
    """ms from the agent's exit to the receipt, and to the result (None for the C reaper)."""
    stamp = machine.path("exit")
    agent = [machine.tool, "leave", stamp, kind, str(count)]
    directory, bundle, source = machine.directory(command=agent, model=HTTP)
    names = ["cleanup.json"] + (["result.json"] if by == "worker" else [])
    watcher = subprocess.Popen([machine.tool, "watch", directory, *names], stdout=subprocess.PIPE, text=True)
    watcher.stdout.readline()
    machine.timed([machine.python, "-I", "-S", bundle, "run", source] if by == "worker" else
                  [machine.tool, "reap", directory, *agent])
    seen = dict(line.split() for line in watcher.communicate(timeout=30)[0].splitlines())
    shutil.rmtree(directory, ignore_errors=True)
    left = int(wait_for(stamp, 1))
    return [(int(seen[name]) - left) / 1e6 for name in names]


def end(machine):
    rounds, group = (3 if machine.quick else 15), "agent's exit to receipt and result"
    shapes = [("detached", 0), ("detached", 500), ("chain", 100), ("at-once", 0)]
    cases = {(by, kind, count): lambda b=by, k=kind, n=count: ended(machine, k, n, b)
             for by in ("worker", "reaper") for kind, count in shapes}
    found = {name: [median(column) for column in zip(*values)] for name, values in in_turns(cases, rounds).items()}
    budgets = (("nothing left", ("detached", 0), {"at_most": 3}),
               ("500 detached descendants", ("detached", 500), {"at_most": 1.6, "of": "ratio"}),
               ("a chain of 100 sessions", ("chain", 100), {"at_most": 15}),
               ("an agent that exits at its first instruction", ("at-once", 0), {}))
    rows = [row(group, "receipt: " + name, found[("worker", *shape)][0], "ms", [("C reaper", found[("reaper", *shape)][0])],
                **limit) for name, shape, limit in budgets]
    rows.append(row(group, "result: nothing left", found["worker", "detached", 0][1], "ms", at_most=20))
    return rows + [evidence_rows(machine, group)]


def evidence_rows(machine, group):
    """Exit to result with a lot of evidence: what stdout's 20 MB add."""
    megabytes = 20

    def took(size):
        stamp = machine.path("flood")
        directory, bundle, source = machine.directory(command=[machine.tool, "flood", stamp, str(size), "600"])
        watcher = subprocess.Popen([machine.tool, "watch", directory, "result.json"], stdout=subprocess.PIPE, text=True)
        watcher.stdout.readline()
        machine.timed([machine.python, "-I", "-S", bundle, "run", source])
        seen = int(watcher.communicate(timeout=30)[0].split()[1])
        shutil.rmtree(directory, ignore_errors=True)
        return (seen - int(wait_for(stamp, 1).split()[1])) / 1e6

    found = in_turns({0: lambda: took(600), 1: lambda: took(megabytes * 1000000)}, 3 if machine.quick else 7)
    return row(group, "result: per MB of evidence (%d MB of stdout)" % megabytes,
               max(0.0, (median(found[1]) - median(found[0])) / megabytes), "ms", at_most=10)


# -- overhead on a sleeper -------------------------------------------------------------------------------------------------
def overhead(machine):
    lengths = (61, 85, 109) if machine.quick else (61, 73, 85, 97, 109)
    wrappers = {"bare": [], "tini": ["tini", "-s", "--"], "dumb-init": ["dumb-init", "--"]}
    cases, missing = {}, []
    for name, words in wrappers.items():
        if words and not shutil.which(words[0]):
            missing.append(name)
            continue
        for length in lengths:
            cases[name, length] = lambda w=words, n=length: machine.timed([*w, machine.tool, "sleep", str(n)])["ms"]
    for length in lengths:
        cases["C reaper", length] = lambda n=length: machine.timed(
            [machine.tool, "reap", machine.scratch, machine.tool, "sleep", str(n)])["ms"]
        cases["worker", length] = lambda n=length: machine.run(command=[machine.tool, "sleep", str(n)], model=HTTP)["ms"]
    found = in_turns(cases, 2 if machine.quick else 4)
    names = list(dict.fromkeys(name for name, _ in cases))
    added = {name: median([value - median(found["bare", length]) for length in lengths for value in found[name, length]])
             for name in names}
    return [row("overhead on a sleeping agent, start and end together", "whole run", added["worker"], "ms",
                [(name, added.get(name)) for name in ("tini", "dumb-init", "C reaper")],
                note="".join("no %s here; " % name for name in missing).rstrip("; "))]


# -- at rest ---------------------------------------------------------------------------------------------------------------
def rest(machine):
    seconds, group = (1.5 if machine.quick else 5), "while the agent sleeps"
    live = Live(machine, model=HTTP)
    try:
        time.sleep(1.0)                       # loading in the background has ended
        before = [switches(pid) for pid in (live.guard, live.worker)]
        time.sleep(seconds)
        after = [switches(pid) for pid in (live.guard, live.worker)]
        pss, hwm = pss_kb(live.guard), status(live.worker, "VmHWM")
    finally:
        live.stop()
    woken = sum(after) - sum(before)
    return [row(group, "wake-ups of worker and guard", woken / seconds, "per s", at_most=0),
            row(group, "worker, VmHWM, plain http, idle", hwm / 1024, "MB", at_most=16),
            row(group, "guard, PSS", pss / 1024, "MB", at_most=6) if pss is not None else
            absent(group, "guard, PSS", "not measured: not readable for this uid")]



GROUPS = {"start": start, "end": end, "overhead": overhead, "rest": rest}

"""Memory under load, capture of stdout, and reading of transcripts.

memory       VmHWM of the worker in a live run, read after its proxy carried what the row says; a new run for each row.
capture      a C agent writes JSON lines as fast as the pipe takes them; MB/s between its first and its last write. Agent and
             reader share one core, for ours and for the reference's way (parse, dump, flush per line).
flood        peak of the largest process of a whole run (wait4), less that of a run whose agent does nothing.
transcripts  a stand-in `codex` leaves a rollout and exits: exit to result, less the same with a rollout of one call. That is
             copying, hashing, reading and writing observations; beside it orjson.loads per line of the same file, warm.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import time

from tests.bench import peers, rollout
from tests.bench.machine import HANG, HERE, in_turns, median, status, wait_for
from tests.bench.proxies import load
from tests.bench.table import absent, row


# -- memory ----------------------------------------------------------------------------------------------------------------
def carried(machine, port, words, scheme="http"):
    """MB of the worker after these loads."""
    one = peers.worker(machine, port, "memory", "all", scheme)
    try:
        for word in words:
            kind, argument = word
            found = load(machine, kind, one.port, one.path, one.token, *argument)
            if "error" in found:
                return None, found["error"]
        time.sleep(0.2)                       # records are written
        return status(one.pid, "VmHWM") / 1024, ""
    finally:
        one.stop()


def memory(machine):
    machine.client_cores = os.sched_getaffinity(0)
    upstream, group, rows = peers.upstream(machine), "memory of the worker (VmHWM)", []
    behind = peers.nginx(machine, upstream.port, "from", "TLS")
    requests, events = ("rate", ("4", "0.3", "16384")), ("bulk", ("events 5000000",))
    quarter, huge = ("bulk", ("large 50 262144",)), ("bulk", ("large 1 16000000",))
    cases = [("plain http, requests and streams", "http", [requests, events], 16),
             ("plain http, events of 256 KiB", "http", [requests, quarter], 16),
             ("plain http, one event of 16 MB", "http", [huge], 16 + 80),
             ("TLS, requests and streams", "https", [requests, events, quarter], 22)]
    try:
        for name, scheme, words, limit in cases:
            if scheme == "https" and not behind:
                rows.append(absent(group, name, "not measured: no nginx for the TLS side"))
                continue
            port = upstream.port if scheme == "http" else behind.port
            value, why = carried(machine, port, words, scheme)
            rows.append(row(group, name, value, "MB", at_most=limit, note=why))
    finally:
        for one in filter(None, (behind, upstream)):
            one.stop()
    return rows


# -- capture ---------------------------------------------------------------------------------------------------------------
def captured(machine, line, megabytes, by):
    """MB/s."""
    stamp = machine.path("flood")
    agent = [machine.tool, "flood", stamp, str(megabytes * 1000000), str(line)]
    directory, bundle, source = machine.directory(command=agent, limits={"stdout_bytes": 1 << 32})
    command = [machine.python, "-I", "-S", bundle, "run", source] if by == "worker" else [
        machine.python, "-I", "-S", os.path.join(HERE, "reference_capture.py"), directory + "/events", *agent]
    core = {sorted(os.sched_getaffinity(0))[-1]}
    subprocess.run(command, stdout=subprocess.DEVNULL, timeout=HANG, preexec_fn=lambda: os.sched_setaffinity(0, core))
    shutil.rmtree(directory, ignore_errors=True)
    start, end = map(int, wait_for(stamp, 1).split())
    return megabytes * 1e9 / (end - start)


def capture(machine):
    megabytes, group, rows = (20 if machine.quick else 100), "capture of stdout", []
    cases = {(by, line): lambda b=by, n=line: captured(machine, n, megabytes if b == "worker" else megabytes // 4, b)
             for by in ("worker", "reference") for line in (600, 8000)}
    found = in_turns(cases, 2 if machine.quick else 4)
    for line, limit in ((600, 2), (8000, None)):
        rows.append(row(group, "%d-byte lines" % line, median(found["worker", line]), "MB/s",
                        [("reference", median(found["reference", line]))], at_least=limit, of="ratio"))
    return rows + floods(machine, group)


def floods(machine, group):
    long_line, flood = (50, 100) if machine.quick else (200, 2048)
    idle = machine.run(command=[machine.tool, "sleep", "300"])["peak_kb"] / 1024
    rows = []
    for name, megabytes, line in (("one line of %d MB" % long_line, long_line, 0), ("a flood of %d MB" % flood, flood, 600)):
        found = machine.run(command=[machine.tool, "flood", machine.path("flood"), str(megabytes * 1000000), str(line)])
        outcome = machine.result(found)["outcome"]["kind"]
        shutil.rmtree(found["directory"], ignore_errors=True)
        rows.append(row(group, name + ": growth of memory", found["peak_kb"] / 1024 - idle, "MB", at_most=8,
                        note="" if outcome == "completed" else "outcome " + outcome))
    return rows


# -- transcripts -----------------------------------------------------------------------------------------------------------
def read_back(machine, transcript):
    """(ms from the CLI's exit to the result, peak MB, tool calls observed)."""
    stamp = machine.path("left")
    directory, bundle, source = machine.directory(harness="codex", command=[machine.codex, "exec", "-"], prompt="do it",
                                                  env={"BENCH_ROLLOUT": transcript, "BENCH_STAMP": stamp})
    watcher = subprocess.Popen([machine.tool, "watch", directory, "result.json"], stdout=subprocess.PIPE, text=True)
    watcher.stdout.readline()
    found = machine.timed([machine.python, "-I", "-S", bundle, "run", source])
    seen = int(watcher.communicate(timeout=HANG)[0].split()[1])
    with open(directory + "/observations.json") as file:
        calls = file.read().count('"tool_call_id"')
    shutil.rmtree(directory, ignore_errors=True)
    return (seen - int(wait_for(stamp, 1))) / 1e6, found["peak_kb"] / 1024, calls


def transcripts(machine):
    machine.codex, megabytes, group = machine.scratch + "/codex", (20 if machine.quick else 200), "transcript to observations"
    shutil.copy(machine.tool, machine.codex)
    files = {name: machine.path("rollout") for name in ("one", "thousand", "large")}
    rollout.write(files["one"], turns=1)
    rollout.write(files["thousand"], turns=1000)
    rollout.write(files["large"], size=megabytes * 1000000)
    python = peers.python_with_orjson()
    cases = {name: lambda p=path: read_back(machine, p) for name, path in files.items()}
    if python:
        cases["orjson"] = lambda: float(subprocess.run([python, os.path.join(HERE, "orjson_loop.py"), files["large"]],
                                                       stdout=subprocess.PIPE, check=True).stdout)
    found = in_turns(cases, 2)
    one, thousand, large = ([median(column) for column in zip(*found[name])] for name in ("one", "thousand", "large"))
    size = os.path.getsize(files["large"]) / 1e6
    speed = size / (large[0] - one[0]) * 1000
    beside = [("orjson", size / median(found["orjson"]))] if python else []
    return [row(group, "%d MB" % size, speed, "MB/s", beside, at_least=0.45, of="ratio",
                note="" if python else "orjson could not be had"),
            row(group, "%d MB: growth of memory against one call" % size, large[1] - one[1], "MB", at_most=8),
            row(group, "1,000 tool calls: exit to result", thousand[0], "ms", at_most=500,
                note="" if thousand[2] >= 1000 else "only %d tool calls observed" % thousand[2])]


GROUPS = {"memory": memory, "capture": capture, "transcripts": transcripts}

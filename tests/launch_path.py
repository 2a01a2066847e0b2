"""What is executed before the agent's first instruction, from a real run of the bundle; `python3 -m tests.launch_path`.

An audit hook (PEP 578), set before the bundle's first line, writes down every import of every process of the run, and
the moments of forks and of the agent's exec. What counts are the bundle's modules in sys.modules of the process that
execs: those that it and its forebears imported before their forks and before the exec, with the physical lines of their
files, worker/__main__.py included. What the guard loads beside that, in its own process, is told apart. The product
needs no hook of its own for this.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

import build
from tests.endpoint import Endpoint

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HOOK = """
import os, sys, time, runpy
log, sys.argv = sys.argv[1], sys.argv[2:]
def hook(event, arguments):
    if event == "import" and arguments[0].split(".")[0] in ("worker", "transport"):
        note("import", arguments[0])
    elif event == "os.exec":
        note("exec", str(arguments[0]))
    elif event == "os.fork":
        note("fork", "")
def note(*words):
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(fd, ("%d %.6f %s\\n" % (os.getpid(), time.monotonic(), " ".join(words))).encode())
    os.close(fd)
sys.addaudithook(hook)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# name -> (harness, api, base path), http. Not here, for they are longer: OpenCode and Kilocode (1242 and 1284 lines where their
# program is an npm wrapper or there is no ripgrep; 1179 and 1221 else).
SCENARIOS = {
    "codex": ("codex", "responses", "/v1"), "claude_code": ("claude_code", "messages", ""), "gemini": ("gemini", "generate_content", ""),
    "qwen": ("qwen", "chat", "/v1"), "mini": ("mini", "chat", "/v1"), "pi": ("pi", "chat", "/v1"), "hermes": ("hermes", "chat", "/v1"),
    "generic": ("generic", "responses", "/v1"),
}


def run(folder, harness, api, path):
    """One run of the bundle with a fake agent -> (lines of the log, stderr)."""
    built = build.build()
    bundle, log, agent = (os.path.join(folder, n) for n in (build.PYZ, "log", "codex"))
    for name, data in ((bundle, built[build.PYZ]), (agent, b"#!/bin/sh\nexit 0\n")):
        with open(name, "wb") as file:
            file.write(data)
    os.chmod(agent, 0o755)
    with Endpoint({"answers": []}) as endpoint:
        job = {"directory": os.path.join(folder, "session"), "harness": harness, "command": [agent, "exec", "--", "-"],
               "prompt": "hello", "timeout": 60, "cwd": folder,
               "model": {"base_url": endpoint.url + path, "api": api, "name": "m", "api_key_file": folder + "/key"}}
        with open(folder + "/key", "w") as file:
            file.write("sk-not-a-real-key")
        with open(folder + "/input.json", "w") as file:
            json.dump(job, file)
        done = subprocess.run([sys.executable, "-I", "-S", "-c", HOOK, log, bundle, "run", folder + "/input.json"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    try:
        with open(log) as file:
            return [line.split(" ", 3) for line in file.read().splitlines()], done.stderr.decode(errors="replace")
    except FileNotFoundError:
        return [], done.stderr.decode(errors="replace")


def measure(scenario):
    """-> ({file: lines} of the launch path, {file: lines} that the guard loads beside it, why neither is known)."""
    with tempfile.TemporaryDirectory() as folder:
        log, errors = run(folder, *SCENARIOS[scenario])
    execs = [float(moment) for _, moment, event, _ in log if event == "exec"]
    if not execs:
        return {}, {}, "the run never came to an exec: %s" % errors.strip()[-400:]
    guard, forked = log[0][0], next(float(moment) for _, moment, event, _ in log if event == "fork")
    path, beside = set(), set()
    for process, moment, event, name in log:
        if event == "import" and float(moment) <= min(execs):
            (beside if process == guard and float(moment) > forked else path).add(name)
    return dict(lines_of(path), **{"worker/__main__.py": build.read("worker/__main__.py").count(b"\n")}), lines_of(beside), None


def lines_of(modules):
    files, counted = build.collect(), {}
    for name in modules:
        base = name.replace(".", "/")
        for path in (base + ".py", base + "/__init__.py"):
            if path in files:
                counted[path] = files[path].count(b"\n")
    return counted


_measured = {}


def measured(scenario):
    if scenario not in _measured:
        _measured[scenario] = measure(scenario)
    return _measured[scenario]


def complaints(limit):
    for scenario in sorted(SCENARIOS):
        counted, _, problem = measured(scenario)
        if problem:
            yield "tests/launch_path.py", 1, "%s: %s" % (scenario, problem)
        elif sum(counted.values()) > limit:
            longest = sorted(counted.items(), key=lambda item: -item[1])
            yield longest[0][0], 1, "%s: the launch path has %d lines, at most %d: %s" % (
                scenario, sum(counted.values()), limit, ", ".join("%s %d" % item for item in longest))


def summary():
    parts = []
    for scenario in sorted(SCENARIOS):
        counted, beside, problem = measured(scenario)
        parts.append("%s %s" % (scenario, "not measured" if problem else "%d lines in %d files (the guard, beside it: %d)"
                                % (sum(counted.values()), len(counted), sum(beside.values()))))
    return "launch path: " + "; ".join(parts)


if __name__ == "__main__":
    for scenario in sorted(SCENARIOS):
        counted, beside, problem = measured(scenario)
        print(scenario, problem or "%d lines" % sum(counted.values()))
        for path, lines in sorted(counted.items(), key=lambda item: -item[1]):
            print("%6d  %s" % (lines, path))
        for path, lines in sorted(beside.items(), key=lambda item: -item[1]):
            print("%6d  %s (guard)" % (lines, path))

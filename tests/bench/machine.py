"""Where the benchmark runs: scratch space, compiled tools, clocks, and how a run of the bundle is started and looked at.

Every time is CLOCK_MONOTONIC in ns, taken by the C tools where a Python process would add its own start to it. The scratch
directory is on a tmpfs where there is one, so that no disk is measured. What is compared runs in turns: `in_turns` shuffles
each round, so that a busy neighbour falls on all alike; medians of the rounds are what the rows show.
"""
from __future__ import annotations

import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.path.join(ROOT, ".cache", "bench")
BUNDLE = os.path.join(ROOT, "dist", "sandbox-worker.pyz")
CA = os.path.join(ROOT, "tests", "tls", "ca.pem")
TOOLS = ("tool", "load", "upstream")
ORDINARY = 12345
HANG = 120.0            # seconds: a guard against a hang, never a measure
KEY = "sk-bench-" + "0123456789abcdef" * 2


class Hung(Exception):
    """What was waited for did not come."""


def median(values):
    return statistics.median(values) if values else None


def in_turns(cases, rounds):
    """{name: call} -> {name: [what the calls returned]}, in shuffled rounds; a first round is not counted."""
    order, chance, found = list(cases), random.Random(7), {name: [] for name in cases}
    for turn in range(rounds + 1):
        chance.shuffle(order)
        for name in order:
            value = cases[name]()
            if turn:
                found[name].append(value)
    return found


def wait_for(path, seconds=HANG):
    """The text of a file that appears whole."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            with open(path) as file:
                return file.read()
        except FileNotFoundError:
            time.sleep(0.002)
    raise Hung(path)


def pin(pid, cores):
    """All threads of a process; threads to come inherit from their maker."""
    for task in os.listdir("/proc/%d/task" % pid):
        try:
            os.sched_setaffinity(int(task), cores)
        except ProcessLookupError:
            continue                                # a thread that has just ended


def status(pid, field):
    """A number of /proc/PID/status, or None."""
    with open("/proc/%d/status" % pid) as file:
        return next((int(line.split()[1]) for line in file if line.startswith(field + ":")), None)


def pss_kb(pid):
    """Proportional set size; None where the process may not be read (an ordinary uid: it is not dumpable)."""
    try:
        with open("/proc/%d/smaps_rollup" % pid) as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    except OSError:
        return None


def switches(pid):
    """Voluntary context switches of all threads: how often one of them went to sleep, so how often one was woken."""
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, task)) as file:
            total += next(int(line.split()[1]) for line in file if line.startswith("voluntary"))
    return total


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(word) for word in file.read().split()]


class Machine:
    """The scratch directory and the tools; `with Machine(quick) as m`. `m.missing` {tool: why} is what could not be had."""

    def __init__(self, quick):
        self.quick, self.missing, self.count = quick, {}, 0
        self.python = sys.executable
        self.is_root = os.getuid() == 0

    def __enter__(self):
        memory = "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None
        self.scratch = tempfile.mkdtemp(prefix="bench-", dir=memory)
        os.chmod(self.scratch, 0o755)
        os.makedirs(CACHE, exist_ok=True)
        subprocess.run([sys.executable, os.path.join(ROOT, "build.py")], check=True, stdout=subprocess.DEVNULL)
        self.compile()
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def compile(self):
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise SystemExit("bench: a C compiler is needed (cc, gcc or clang), on Debian: apt-get install gcc libc6-dev")
        for name in TOOLS:
            source, target = os.path.join(HERE, "native", name + ".c"), os.path.join(CACHE, name)
            if not os.path.exists(target) or os.path.getmtime(target) < os.path.getmtime(source):
                flags = ["-O2", "-o", target, source, "-lpthread"]
                if subprocess.run([compiler, "-static", *flags], stderr=subprocess.DEVNULL).returncode:
                    subprocess.run([compiler, *flags], check=True)      # no static C library here
            public = os.path.join(self.scratch, name)                   # the cache may lie where an ordinary uid cannot go
            shutil.copy(target, public)
            setattr(self, name, public if self.runs_there(public) else target)

    def runs_there(self, program):
        try:
            return subprocess.run([program], stdout=subprocess.DEVNULL).returncode in (1, 2)
        except OSError:
            return False                                                # noexec

    def ordinary_python(self):
        """A Python that another uid can run, or None where this is no root."""
        for python in (self.python, "/usr/bin/python3"):
            stamp = self.path("python")
            command = [python, "-I", "-S", "-c", "pass"]
            if self.is_root and os.path.exists(python) and self.timed(command, ORDINARY, stamp)["status"] == 0:
                return python
        return None

    def path(self, name):
        self.count += 1
        return os.path.join(self.scratch, "%s-%d" % (name, self.count))

    # -- running ---------------------------------------------------------------------------------------------------
    def timed(self, command, uid=0, stamp=None):
        """Runs to the end: start and end (ns), peak resident set of its largest process (KiB), wait status, CPU (us)."""
        stamp = stamp or self.path("time")
        subprocess.run([self.tool, "time", stamp, str(uid), *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=HANG * 2)
        return times(stamp)

    def directory(self, uid=0, **document):
        """A fresh session directory with a copy of the bundle and the input document: (directory, bundle, input)."""
        directory = self.path("run")
        os.mkdir(directory, 0o700)
        bundle, source = os.path.join(directory + ".pyz"), os.path.join(directory, "input.json")
        shutil.copy(BUNDLE, bundle)
        if document.get("model"):
            folder = directory + ".key"                     # the worker removes the key from it
            os.mkdir(folder, 0o700)
            document["model"] = dict(document["model"], api_key_file=folder + "/key")
            with open(folder + "/key", "w") as file:
                file.write(KEY)
            if uid:
                os.chown(folder, uid, uid)
                os.chown(folder + "/key", uid, uid)
        with open(source, "w") as file:
            json.dump(dict({"timeout": 600, "cwd": "/"}, **document), file)
        if uid:
            for path in (directory, source):
                os.chown(path, uid, uid)
        return directory, bundle, source

    def run(self, uid=0, python=None, **document):
        """A whole run, timed as `timed` does; adds its directory."""
        directory, bundle, source = self.directory(uid, **document)
        found = self.timed([python or self.python, "-I", "-S", bundle, "run", source], uid, directory + ".time")
        os.remove(bundle)
        return dict(found, directory=directory)

    def result(self, found):
        with open(os.path.join(found["directory"], "result.json")) as file:
            return json.load(file)


def times(stamp):
    start, end, peak, status_, cpu = map(int, wait_for(stamp).split())
    return {"start": start, "end": end, "peak_kb": peak, "status": status_, "cpu_us": cpu, "ms": (end - start) / 1e6}


class Live:
    """A run whose agent goes on until `stop`: `.guard`, `.worker` (pids), `.url` and `.token` of its proxy.

    Its agent is `tool hold`; the proxy is so the one of the product, in its place, and can be loaded from outside."""

    def __init__(self, machine, **document):
        self.directory, bundle, source = machine.directory(command=[machine.tool, "hold", "HELD"], **document)
        held = self.directory + ".held"
        with open(source) as file:
            text = file.read().replace('"HELD"', json.dumps(held))
        with open(source, "w") as file:
            file.write(text)
        self.process = subprocess.Popen([machine.python, "-I", "-S", bundle, "run", source], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url, self.token = wait_for(held, 30).split()
        self.guard = self.process.pid
        self.worker = children(self.guard)[0]
        self.port = int(self.url.split(":")[2].split("/")[0]) if self.url != "-" else None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(HANG)
        shutil.rmtree(self.directory, ignore_errors=True)


def description():
    """The machine's class: what the numbers depend on, and nothing that says whose it is."""
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / (1 << 20)
    return {"date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count(), "cpu": model, "memory_gib": round(memory),
            "kernel": platform.release().split("-")[0], "python": platform.python_version()}

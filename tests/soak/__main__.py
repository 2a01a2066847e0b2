"""`make soak`: python3 -m tests.soak [--seconds 600] [--seed N] [--streams 64] [--half streams|bytes]

Two halves of `--seconds` each against the proxy in a process of its own (target.py):
1. streams that are cut, stall, lack their end, and clients that leave, half-close, read or write slowly (clients.py);
2. random and mutated bytes from both sides, between requests that must go well.
What must hold: every arrival at the upstream (its witness) has its attempt record, and no record claims an answer that the
upstream did not begin; every answered request has a record; nothing is written to stderr (an exception), nothing hangs; memory
does not grow after the first third of a half; afterwards descriptors and threads are as few as before. Exit code 1 otherwise.
"""
from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from tests.proxied import request
from tests.soak.clients import HANG, Clients
from tests.soak.target import TOKEN
from tests.soak.upstream import Upstream

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GROWTH = 6 * 1024   # KiB of resident memory after the first third; 64 threads come and go, and arenas with them
LEFT_OPEN = 66      # idle upstream connections (64) and what a sample may catch


def corpora():
    """(responses that the upstream mutates, requests that the clients mutate)"""
    folder, responses, requests = os.path.join(ROOT, "tests", "corpus"), [], [request(b'{"model":"m"}', token=TOKEN)]
    for name in sorted(os.listdir(os.path.join(folder, "http1"))):
        if name.endswith(".http"):
            with open(os.path.join(folder, "http1", name), "rb") as file:
                data = file.read()
            (responses if data.startswith(b"HTTP/") else requests).append(data)
    for name in sorted(os.listdir(os.path.join(folder, "responses"))):
        if not name.endswith(".json"):
            with open(os.path.join(folder, "responses", name), "rb") as file:
                data = file.read()
            kind = b"text/event-stream" if name.endswith(".sse") else b"application/json"
            responses.append(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(data), data))
    return responses, requests


class Gauge(threading.Thread):
    """Resident memory, descriptors and threads of a process, four times a second."""

    def __init__(self, pid):
        threading.Thread.__init__(self, daemon=True)
        self.pid, self.samples, self.ended = pid, [], threading.Event()

    def look(self):
        with open("/proc/%d/status" % self.pid) as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["VmRSS"].split()[0]), len(os.listdir("/proc/%d/fd" % self.pid)), int(fields["Threads"])

    def run(self):
        while not self.ended.wait(0.25):
            try:
                self.samples.append(self.look())
            except OSError:
                return

    def growth(self):
        """KiB of the largest sample of the last third over the largest before."""
        third = max(1, len(self.samples) // 3)
        early, late = (max(rss for rss, _, _ in part) for part in (self.samples[:-third], self.samples[-third:]))
        return late - early


def settled(gauge, before):
    """Descriptors and threads once all clients are gone: waits for them, HANG at most."""
    until = time.monotonic() + HANG
    while True:
        rss, descriptors, threads = gauge.look()
        if descriptors <= before[1] + LEFT_OPEN and threads <= before[2] + 2:
            return rss, descriptors, threads, None
        if time.monotonic() > until:
            return rss, descriptors, threads, "%d descriptors and %d threads are left" % (descriptors, threads)
        time.sleep(0.05)


def compare(directory, witness, answered):
    """Complaints: the attempt records beside what the upstream saw and the clients got."""
    sent, begun, known, sequence, complaints = collections.Counter(), collections.Counter(), set(), [], []
    with open(os.path.join(directory, "model_attempts.jsonl"), "rb") as file:
        for line in file:
            record = json.loads(line)
            sequence.append(record["seq"])
            known.add(record["request_sha256"])
            sent[record["request_sha256"]] += record["sent_at"] is not None
            begun[record["request_sha256"]] += record["first_byte_at"] is not None
            if record["rule"] == "handler" or (record["error"] or {}).get("phase") == "handler":
                complaints.append("an exception: %s" % record["error"])
    if sorted(sequence) != list(range(1, len(sequence) + 1)):
        complaints.append("%d records, numbers to %d" % (len(sequence), max(sequence, default=0)))
    lost = sum(max(0, count - sent[sha]) for sha, count in witness.items())
    invented = sum(max(0, count - witness[sha]) for sha, count in begun.items())
    unknown = len(answered - known)
    for count, what in ((lost, "arrivals at the upstream without a record"), (invented, "records of answers that nobody began"),
                        (unknown, "answered requests without a record")):
        if count:
            complaints.append("%d %s" % (count, what))
    return len(sequence), complaints


def half(name, clients, act, gauge, seconds):
    before = gauge.look()
    measured = Gauge(gauge.pid)
    measured.start()
    clients.run(act, seconds)
    measured.ended.set()
    measured.join()
    rss, descriptors, threads, complaint = settled(gauge, before)
    complaints = [complaint] if complaint else []
    if len(measured.samples) > 12 and measured.growth() > GROWTH:
        complaints.append("memory grew by %d KiB in the last third" % measured.growth())
    print("soak: %-8s %s; %d KiB resident (peak %d), %d descriptors, %d threads afterwards" % (
        name, ", ".join("%d %s" % (n, what) for what, n in sorted(clients.counts.items())), rss,
        max(sample[0] for sample in measured.samples), descriptors, threads), flush=True)
    return complaints


HALVES = {"streams": "streams_half", "bytes": "bytes_half"}


def soak(seconds, seed, streams, directory, halves=tuple(HALVES)):
    """-> complaints. `halves` names those to run, one after the other, `seconds` each."""
    responses, requests = corpora()
    upstream = Upstream(responses)
    with open(os.path.join(directory, "stderr"), "wb") as stderr:
        target = subprocess.Popen([sys.executable, "-m", "tests.soak.target", directory, str(upstream.port)], cwd=ROOT,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
    complaints, answered = [], set()
    try:
        port, gauge = int(target.stdout.readline()), Gauge(target.pid)
        for name in halves:
            clients = Clients(port, seed, streams, requests)
            complaints += half(name, clients, getattr(clients, HALVES[name]), gauge, seconds) + clients.trouble
            answered |= clients.answered
        target.stdin.close()
        summary = json.loads(target.stdout.readline())
        if target.wait(HANG):
            complaints.append("the proxy ended with %d" % target.returncode)
        count, found = compare(directory, upstream.witness, answered)
        print("soak: %d records, %d arrivals, %d answered requests; %s" % (
            count, sum(upstream.witness.values()), len(answered),
            ", ".join("%s %s" % (summary[name], name) for name in ("requests", "attempts", "retries", "refused", "recovered"))))
        complaints += found
        with open(os.path.join(directory, "stderr")) as file:
            said = file.read()
        complaints += ["stderr: " + said[:2000]] if said else []
    finally:
        target.kill()
        target.wait()
        upstream.close()
    return complaints + upstream.trouble


def main():
    parser = argparse.ArgumentParser(prog="python3 -m tests.soak", description="the proxy under 64 streams, then under bytes")
    parser.add_argument("--seconds", type=float, default=600, help="of each half")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--half", choices=tuple(HALVES), action="append", help="only this one")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(10 ** 6) if args.seed is None else args.seed
    halves = args.half or tuple(HALVES)
    print("soak: %.0f s of %s, %d streams, seed %d" % (args.seconds, " and of ".join(halves), args.streams, seed), flush=True)
    directory = tempfile.mkdtemp(prefix="soak-")
    complaints = soak(args.seconds, seed, args.streams, directory, halves)
    for complaint in complaints:
        print("soak: FAILED: " + complaint)
    if complaints:
        print("soak: the evidence stays in " + directory)
    else:
        shutil.rmtree(directory)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

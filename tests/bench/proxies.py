"""The proxy beside nginx, HAProxy, mitmdump, Codex's responses-api-proxy and the reference's way, in front of one C upstream.

Client and upstream (C, a thread per connection) have the first core, the proxy the second, so all proxies have one core each;
first they are measured without any proxy, which is the floor. Requests: POST of a 16 KiB
conversation, answer of 4 KiB JSON, kept connections.
added      median latency at one connection with 2 ms between the requests, as an agent's are never back to back, less the
           direct one; what a proxy does after the answer is counted in the requests per second, which are back to back
delay      each event carries the clock of its sending; 1 ms apart; the client subtracts. The first one is the first content event
bulk       one answer as fast as it comes: 230-byte events, 64 to a chunk; or a plain body with Content-Length
CPU        of the proxy's process over all requests of all rounds (utime + stime)
Ours: `records` writes attempt records only (bodies none), `records, bodies` writes every request and answer too.
"""
from __future__ import annotations

import json
import os
import subprocess

from tests.bench import peers
from tests.bench.machine import HANG, in_turns, median, pin
from tests.bench.table import absent, figure, row

OURS, RECORDED, OURS_TLS = "sandbox-worker, records", "sandbox-worker, records, bodies", "sandbox-worker, TLS upstream"
MEASURES = ("latency", "large", "c1", "c8", "c64", "stream", "events", "plain")


def load(machine, *words):
    done = subprocess.run([machine.load, *map(str, words)], stdout=subprocess.PIPE, timeout=HANG,
                          preexec_fn=lambda: os.sched_setaffinity(0, machine.client_cores))
    return json.loads(done.stdout or '{"error": "no output"}')


def measure(machine, proxy, what):
    """One measurement; {} where this proxy cannot do it."""
    seconds, megabytes = (0.1, 10) if machine.quick else (0.4, 50)
    if what in ("latency", "large"):
        size = 16384 if what == "latency" else 400000
        found = load(machine, "rate", proxy.port, proxy.path, proxy.token, 1, seconds, size, 2000)
    elif what in ("c1", "c8", "c64"):
        before = proxy.cpu_seconds()
        found = load(machine, "rate", proxy.port, proxy.path, proxy.token, what[1:], seconds, 16384)
        if "error" not in found:
            proxy.cpu += proxy.cpu_seconds() - before
            proxy.sent += found["sent"]
    elif what == "stream":
        found = load(machine, "stream", proxy.port, proxy.path, proxy.token, "stream %d 1000" % (seconds * 1000))
    elif what == "events":
        found = load(machine, "bulk", proxy.port, proxy.path, proxy.token, "events %d" % (megabytes * 1000000))
    else:
        found = load(machine, "bulk", proxy.port, "/v1/plain/%d" % (megabytes * 1000000), proxy.token, "plain")
    return found


def proxy(machine):
    cores = sorted(os.sched_getaffinity(0))
    machine.client_cores = {cores[0]}
    running, notes = [], []
    try:
        running.append(peers.upstream(machine))
        behind_tls = start_all(machine, running[0].port, running, notes)
        for one in running:
            pin(one.pid, machine.client_cores if one is running[0] or one is behind_tls else {cores[-1]})
        compared = [one for one in running if one is not behind_tls]
        cases = {(one.name, what): lambda p=one, w=what: measure(machine, p, w) for one in compared for what in MEASURES
                 if "TLS" not in one.name or what in ("latency", "c1", "c64", "events")}
        found = in_turns(cases, 2 if machine.quick else 5)
        figures = {one.name: figures_of(one, found) for one in compared}
    finally:
        for one in reversed(running):
            one.stop()
    return rows(figures) + [absent("proxy", name, why) for name, why in notes], grid(figures)


def start_all(machine, target, running, notes):
    """Appends every proxy that can be had; returns the nginx that makes the upstream a TLS one."""
    behind = peers.nginx(machine, target, "from", "TLS in front of the upstream")
    makers = [lambda: peers.worker(machine, target, OURS, "none"), lambda: peers.worker(machine, target, RECORDED, "all"),
              lambda: peers.nginx(machine, target), lambda: peers.haproxy(machine, target),
              lambda: peers.codex_proxy(machine, target), lambda: peers.mitmdump(machine, target),
              lambda: peers.reference(machine, target)]
    names = [OURS, RECORDED, "nginx", "HAProxy", "Codex responses-api-proxy", "mitmdump", "reference"]
    if behind:
        running.append(behind)
        makers += [lambda: peers.worker(machine, behind.port, OURS_TLS, "none", "https"),
                   lambda: peers.nginx(machine, behind.port, "to", "nginx, TLS upstream")]
        names += [OURS_TLS, "nginx, TLS upstream"]
    for name, make in zip(names, makers):
        try:
            made = make()
        except (peers.Hung, OSError, IndexError) as error:
            made = None
            notes.append((name, "not measured: it did not start (%s)" % type(error).__name__))
        else:
            if made is None:
                notes.append((name, "not measured: could not be had here"))
        if made:
            running.append(made)
    return behind


def figures_of(one, found):
    def over_rounds(what, field):
        values = [value[field] for value in found.get((one.name, what), ()) if field in value]
        return median(values)

    return {"p50_us": over_rounds("latency", "p50_us"), "large_us": over_rounds("large", "p50_us"),
            "c1": over_rounds("c1", "per_s"), "c8": over_rounds("c8", "per_s"),
            "c64": over_rounds("c64", "per_s"), "first_us": over_rounds("stream", "first_us"),
            "delay_us": over_rounds("stream", "p50_us"), "delay99_us": over_rounds("stream", "p99_us"),
            "events": over_rounds("events", "mb_per_s"), "plain": over_rounds("plain", "mb_per_s"),
            "cpu_us": one.cpu / one.sent * 1e6 if one.sent else None, "peak_mb": one.peak_mb(), "ready_ms": one.ready_ms}


def rows(figures):
    ours, recorded, direct = figures.get(OURS), figures.get(RECORDED), figures["direct"]
    nginx, secure, nginx_tls = (figures.get(name, {}) for name in ("nginx", OURS_TLS, "nginx, TLS upstream"))
    if not ours:
        return []
    others = [("nginx", "nginx"), ("HAProxy", "HAProxy"), ("Codex's", "Codex responses-api-proxy"), ("mitmdump", "mitmdump"),
              ("reference", "reference's way (http.server, urllib)")]

    def beside(field, base=0.0, scale=1.0):
        return [(short, (figures[name][field] - base) * scale) for short, name in others
                if name in figures and figures[name][field] is not None]

    added = (ours["p50_us"] or 0) - direct["p50_us"]
    late = [one["delay_us"] - direct["delay_us"] for one in (ours, recorded or ours)]
    both = [one["first_us"] - direct["first_us"] for one in (ours, recorded or ours)]
    made = [row("proxy", "added latency, one connection", added, "us", beside("p50_us", direct["p50_us"]), at_most=3, of="ratio"),
            row("proxy", "added latency, one connection, request of 400 KB", ours["large_us"] - direct["large_us"], "us",
                beside("large_us", direct["large_us"])),
            row("proxy", "requests per second, 1 connection", ours["c1"], "", beside("c1")),
            row("proxy", "requests per second, 8 connections", ours["c8"], "", beside("c8")),
            row("proxy", "requests per second, 64 connections", ours["c64"], "", beside("c64"), at_least=0.3, of="ratio"),
            row("proxy", "first content event, added delay", max(both) / 1000, "ms",
                beside("first_us", direct["first_us"], 1e-3), at_most=1),
            row("proxy", "each event, added delay", max(late) / 1000, "ms",
                beside("delay_us", direct["delay_us"], 1e-3), at_most=1),
            row("proxy", "CPU per request", ours["cpu_us"], "us", beside("cpu_us")),
            row("proxy", "start to ready", ours["ready_ms"], "ms", beside("ready_ms"))]
    if recorded:
        made[5:5] = [
            row("proxy", "requests per second, 64 connections, bodies recorded", recorded["c64"], "", beside("c64")),
            row("proxy", "stream of 230-byte events, bodies recorded", recorded["events"], "MB/s",
                beside("events"), at_least=100),
            row("proxy", "plain body, bodies recorded", recorded["plain"], "MB/s", beside("plain"), at_least=0.5, of="ratio")]
    if secure and nginx_tls:
        made += [row("proxy", "latency through a TLS upstream, less direct", secure["p50_us"] - direct["p50_us"], "us",
                     [("nginx", nginx_tls["p50_us"] - direct["p50_us"])], at_most=3, of="ratio"),
                 row("proxy", "requests per second, TLS upstream, 64 connections", secure["c64"], "",
                     [("nginx", nginx_tls["c64"])], at_least=0.3, of="ratio"),
                 row("proxy", "stream of 230-byte events, TLS upstream", secure["events"], "MB/s",
                     [("nginx", nginx_tls["events"])])]
    return made if nginx else made + [absent("proxy", "nginx", "not here: the ratios are to the next peer")]


COLUMNS = (("p50 us", "p50_us"), ("400 KB us", "large_us"), ("req/s c1", "c1"), ("c8", "c8"), ("c64", "c64"),
           ("CPU us/req", "cpu_us"), ("first event us", "first_us"), ("event p50 us", "delay_us"), ("p99 us", "delay99_us"),
           ("events MB/s", "events"), ("plain MB/s", "plain"), ("VmHWM MB", "peak_mb"), ("ready ms", "ready_ms"))


def grid(figures):
    return {"head": ["proxy"] + [title for title, _ in COLUMNS],
            "rows": [[name] + [figure(values[field]) for _, field in COLUMNS] for name, values in figures.items()]}


GROUPS = {"proxy": proxy}

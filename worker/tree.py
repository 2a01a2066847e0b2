"""The end of every descendant, and the proof.

Level by level: whoever is our child is written down and killed; its own children become ours when it dies (we are
their subreaper, or PID 1), and so on until waitpid says ECHILD. From the second level on, whole trees are killed at once
where the kernel has pidfds, which hold a process while it is looked at; they are met again, dead, on the next level.
Between the levels we wait for SIGCHLD, never for a timer; the only clock is the deadline. Nothing here
forks or starts a thread: it must work at a pids limit.

The proof, in the receipt's `proof`:
- "echild"        a subreaper since before the launch (or PID 1) that has no child has no descendant
- "pid1_kill_all" the guard is PID 1 and found nothing but this worker; where kill(-1) was needed, it stands here too
- null            neither; `error` says why, and strays found by the run's marker are killed, which proves nothing
"""
from __future__ import annotations

import json
import os
import select
import signal
import time

from worker import kernel, processes
from worker.supervise import exit_status

NAMED = 4096  # entries of `killed`; the rest is counted
DEEP = 1 if hasattr(os, "pidfd_open") else 1 << 30  # level from which whole trees are killed at once (Python 3.9)
AGED = 200  # of them with age and state: /proc/PID/stat costs as much as the kill and the rest together
BATCH = 64  # killed at once: while they die on another core, the next ones are written down
DYING = 5.0  # seconds; one that hangs in the kernel does not die before that lets it go
RUSH = 256  # levels after which killing comes before writing down: something forks as fast as we read


def clean_up(deadline_s, wakeup, agent=None, link=None, marker=None):
    """Kill and reap every descendant, in `deadline_s` seconds at most.

    `agent`: the supervise.Agent, for its status and session; `link`: the worker's link to its guard; `marker`: the
    variable that the agent's environment had, as b"NAME=value". Returns {"cleanup_confirmed", "proof", "killed":
    [{"pid", "argv", "age_s", "state", "escaped"}], "killed_count", "error"}. `escaped`: "setsid", "new_process_group",
    "reparented" (it outlived its parent in the agent's own group) or "none".
    """
    hunt = Hunt(time.monotonic() + deadline_s, wakeup, agent)
    gone = hunt.run()
    if link is not None and link.peer == os.getppid():
        os.kill(link.peer, signal.SIGCONT)  # the agent may have stopped our guard; a parent's number is its own
    proof, error = None, hunt.error
    if gone and (processes.is_subreaper() or os.getpid() == 1):
        proof = hunt.proof
    elif gone and link is not None and link.peer == 1:
        proof, error = _ask_guard(link, hunt)
    elif gone:
        error = "this kernel knows no subreapers, so orphans may be left" if kernel.HAVE_CTYPES else \
            "this Python has no ctypes, so orphans may be left"
    if proof is None and marker:
        strays = kill_marked(marker)
        hunt.count += len(strays)
        hunt.killed += strays[:NAMED]
    return {"cleanup_confirmed": proof is not None, "proof": proof, "killed": hunt.killed,
            "killed_count": hunt.count, "error": error}


class Hunt:
    """One cleanup. `spare` is the one child that stays alive (the worker, when the guard hunts for it)."""

    def __init__(self, end, wakeup, agent=None, spare=0):
        self.end, self.wakeup, self.agent, self.spare, self.spare_status = end, wakeup, agent, spare, None
        self.session = agent.pid if agent else None
        self.poller = select.poll()
        self.poller.register(wakeup.fd, select.POLLIN)
        self.killed: list = []
        self.count = self.level = self.dead = 0  # killed; rounds so far; reaped since the last look
        self.now, self.blind = 0.0, False
        self.proof, self.error = "echild", None
        self.sent: set = set()  # killed, not yet reaped
        self.named: set = set()  # killed and written down before they were our children

    def run(self):
        """True when there is no child left (but `spare`)."""
        sources = (lambda: [processes.children_by_file()], lambda: [processes.children_by_scan()], self.swept)
        source = 0
        while self.reap():
            self.blind = source == 2
            if self.dead < len(self.sent):  # who dies leaves us children; look again when half of a level is gone
                if not self.wait():
                    return False
                continue
            fresh, self.dead, self.now = False, 0, processes.uptime()
            for pids in sources[source]():
                left = [pid for pid in pids if pid not in self.sent and pid != self.spare]
                for first in range(0, len(left), BATCH):
                    fresh = self.kill(left[first:first + BATCH]) or fresh
            self.level += fresh
            if fresh:
                source = 0
            elif self.sent:
                if not self.wait():
                    return False
            elif source < 2:
                source += 1  # somebody is left whom this way did not show
            elif self.spare:
                return True  # a whole sweep found nobody: who is our child stays so until we reap it
            elif not self.wait():
                return False
        return True

    def reap(self):
        """Collect the dead; False when the kernel says that there are no children."""
        while True:
            try:
                pid, raw = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.sent.discard(pid)
            self.dead += 1
            if pid == self.spare:
                self.spare, self.spare_status = 0, exit_status(raw)
            elif self.is_main(pid):
                self.agent.status = exit_status(raw)

    def is_main(self, pid):
        return self.agent is not None and self.agent.status is None and pid == self.agent.pid

    def wait(self):
        """For the next death. False at the deadline."""
        left = self.end - time.monotonic()
        if left > 0 and self.poller.poll(left * 1000):
            self.wakeup.read()
            return True
        self.error = "not all processes ended in time: %s" % (
            ", ".join(str(pid) for pid in sorted(self.sent)[:20]) or "one whose number cannot be seen")
        return False

    def kill(self, pids):
        """Write down, then kill: nothing of them can be read afterwards. True when there was anybody.
        The kernel is asked about each: whatever else /proc may say, a stranger is never signalled."""
        pids = [pid for pid in pids if processes.is_child(pid)]
        if self.level >= RUSH:
            self.strike(pids)
        self.name(pid for pid in pids if pid not in self.named and not self.is_main(pid))
        found = processes.descendants(pids) if DEEP <= self.level < RUSH else []
        below = [(pid, started) for pid, started in found if pid not in self.named]
        self.name(pid for pid, _ in below)
        self.strike(pids)
        for pid, started in below:
            _signal_if(pid, started)
        self.named = self.named.difference(pids).union(pid for pid, _ in below)
        return bool(pids)

    def name(self, pids):
        for pid in pids:
            self.count += 1
            if self.count <= NAMED:
                entry = processes.describe(pid, self.now if self.count <= AGED else None)
                entry["escaped"] = self.escape(pid)
                self.killed.append(entry)

    def strike(self, pids):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError as problem:  # EPERM: it has become another user
                self.error = "process %d: %s" % (pid, problem.strerror)
        self.sent.update(pids)

    def escape(self, pid):
        if self.session is None:
            return None
        try:
            if os.getsid(pid) != self.session:
                return "setsid"
            if os.getpgid(pid) != self.session:
                return "new_process_group"
        except OSError:  # gone, or a zombie in gVisor
            return None
        return None if self.blind else "none" if self.level else "reparented"

    def swept(self):
        """Without /proc. Each one's death is waited for at once, so that its children are met on the same way up."""
        for pid in processes.children_by_sweep(self.session or 2):
            if time.monotonic() > self.end:
                return
            if not pid:
                if not self.reap():
                    return
            elif pid != self.spare and pid not in self.sent:
                yield [pid]
                while self.reap() and pid in self.sent and self.wait():
                    pass


def _ask_guard(link, hunt):
    """Orphans went to PID 1, which is our guard: it kills them and tells."""
    link.send(b"kill")
    answer = b""
    while not answer.endswith(b"\n"):
        piece = os.read(link.fd, 65536)
        if not piece:
            return None, "the guard is gone"
        answer = (answer + piece).replace(b"stopped\n", b"")
    told = json.loads(answer)
    hunt.killed += told["killed"]
    hunt.count += told["count"]
    return ("pid1_kill_all", None) if told["gone"] else (None, told["error"])


def answer(link, deadline_s):
    """The guard's side of `_ask_guard`; returns the worker's exit status if it died meanwhile, else None."""
    hunt = Hunt(time.monotonic() + deadline_s, link.wakeup, spare=link.peer)
    gone = hunt.run()
    told = {"gone": gone, "killed": hunt.killed, "count": hunt.count, "error": hunt.error}
    link.send(json.dumps(told).encode())
    return hunt.spare_status


def kill_marked(marker, since_ticks=0):
    """Kill whoever has the run's marker in its environment and started after `since_ticks`; returns descriptions, when they
    are dead: giving memory back takes a while, and until then others see them as they were.

    They are not our children, so a number might be given anew at any time: a pidfd holds the process while it is looked
    at again (Python 3.9 on Linux 5.3; else the look comes right before the signal).
    """
    killed: dict = {}
    for _ in range(RUSH):
        found = {(pid, processes.start_ticks(pid)) for pid in processes.marked(marker)} - set(killed)
        for pid, started in found:
            if started is not None and started >= since_ticks:
                entry = dict(processes.describe(pid, processes.uptime()), escaped="reparented")
                if _signal_if(pid, started, marker):
                    killed[pid, started] = entry
        if not found:
            break
    until = time.monotonic() + DYING
    while any(processes.start_ticks(pid) == started and processes.has_marker(pid, marker) for pid, started in killed):
        if time.monotonic() > until:
            break
        select.select((), (), (), 0.001)
    return list(killed.values())


def _signal_if(pid, started, marker=None):
    """SIGKILL to the process of that number and start; without a marker to look for only through a pidfd."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        handle = None
    try:
        if started != processes.start_ticks(pid) or marker and not processes.has_marker(pid, marker):
            return False
        if handle is not None:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        elif marker:
            os.kill(pid, signal.SIGKILL)
        return bool(handle is not None or marker)
    except OSError:  # gone, or not ours to signal
        return False
    finally:
        if handle is not None:
            os.close(handle)

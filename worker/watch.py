"""From the agent's first instruction to its last: one poll set, no timer but real deadlines.

What wakes us: signals (a child's death among them), the agent's two pipes, `stop` on the control socket, the end of
the guard, the end of stdin when the host asked for that, and the proxy, which pokes the same pipe that signals use.
Where stdout is a file (output_file.py) nothing tells that it grew: it is read before each decision that needs it, and
after each `linger` without a byte on the wire, so that a CLI that has said its last word and stays is ended like others.

What stops a run: SIGTERM, SIGINT, SIGHUP; and what would end it without an outcome: SIGQUIT (the stop signal of many images),
SIGUSR1, SIGUSR2 and SIGXCPU, by which batch systems tell that a job's time is over (Slurm --signal, LSF, SGE).

How it ends. A cause asks the agent to stop: first the harness's own signal to the main process, after `grace` SIGKILL.
Descendants are tree.py's business. Before each signal we look whether the main process has ended by itself, so the
label says what happened and not what the clock said (D14): `timed_out` is true when our stop after the deadline ended
the main process, not when it finished first, nor when it still came to its own successful end.
"""
from __future__ import annotations

import fcntl
import os
import select
import signal
import time

from worker.output_file import written_at
from worker.supervise import STOP_SIGNALS, exit_status

READ = 256 << 10
DRAIN, F_SETPIPE_SZ = 1 << 20, 1031  # what our pipes hold: all that the main process can have left in one
LIMITS = ("request_limit", "token_limit")
FOREVER_MS = 1 << 30


class Ending:
    """How the run ended.

    cause: exit, timeout, stop (asked on the control socket), signal (to the worker, or its guard is gone), owner_gone
    (stdin closed), linger, limit (linger after one of our limits answered), proxy_dead. signals: [{"signal": name,
    "at": unix}] sent to the agent. main_status: exit code, minus the signal, or None (never seen to end). worker_stops: how
    often the guard continued a stopped worker; guard_gone: it died before us; late_s: how long after the deadline we were
    awake again, where it passed; open_request: the main request that was open when we began to stop the agent, or None.
    """

    __slots__ = ("cause", "signals", "signal_received", "main_status", "timed_out", "lingered", "worker_stops",
                 "late_s", "ended_at", "guard_gone",
                 "open_request")

    def __init__(self):
        self.signals: list = []
        self.cause, self.signal_received, self.main_status = "exit", None, None
        self.timed_out = self.lingered = self.guard_gone = False
        self.worker_stops, self.late_s, self.ended_at, self.open_request = 0, 0.0, None, None

    def as_dict(self):
        return {name: getattr(self, name) for name in self.__slots__}

    def hear(self, wakeup):
        """A stop signal that came when the agent had just ended by itself: who ends all processes of a job at once (Slurm's
        scancel) may reach the agent first. outcome.py says when that counts."""
        wakeup.read()
        if self.cause == "exit":
            self.signal_received = next((signum for signum in STOP_SIGNALS if signum in wakeup.seen), None)


def watch(agent, capture, job, link, now, transport=None, control=None, live=None, stop_signal=signal.SIGTERM, output=None,
          meanwhile=None):
    """Wait for the end of the agent's main process and reap it; the pipes are drained meanwhile.

    job: `timeout`, `grace`, `linger`, `watch_stdin`, `cleanup_timeout`; transport: `last_activity`, `final_answer_at`,
    `final_answer_kind`, `futile_since`, `dead`, with `link.wakeup.poke` as its `notify`; control: control.Control; live:
    `terminal`; output: the OutputFile where the agent's stdout is one; meanwhile: an iterator, taken on whenever there is
    nothing to do.
    """
    watcher = _Watch(agent, capture, job, link, now, transport, control, live, stop_signal, output, meanwhile)
    watcher.run()
    return watcher.ending


def drain(agent, capture, output=None):
    """After the cleanup: what descendants left in the pipes, or in the file. Closes them."""
    if output:
        output.close()
        agent.stdout = -1
    for fd, feed in ((agent.stdout, capture.stdout), (agent.stderr, capture.stderr)):
        if fd >= 0:
            _empty(fd, feed)
            os.close(fd)
    agent.stdout = agent.stderr = -1


def _empty(fd, feed):
    left = DRAIN
    while left > 0:  # bounded: a descendant may go on writing
        try:
            data = os.read(fd, min(READ, left))
        except BlockingIOError:
            return
        if not data:
            return
        left -= len(data)
        feed(data)


class _Watch:
    def __init__(self, agent, capture, job, link, now, transport, control, live, stop_signal, output, meanwhile):
        self.agent, self.capture, self.job, self.link, self.now = agent, capture, job, link, now
        self.transport, self.control, self.live, self.stop_signal = transport, control, live, stop_signal
        self.output, self.looked_at, self.meanwhile = output, agent.started, meanwhile
        self.ending = Ending()
        self.deadline = agent.started + job["timeout"]
        self.last_event = agent.started
        self.kill_at: float | None = None
        self.give_up_at: float | None = None
        self.finished_first = False  # its terminal event came before our signal
        self.poller = select.poll()
        self.sources: dict = {}
        self.add(link.wakeup.fd, self.on_signals)
        for fd, handler in ((agent.stdout, self.on_stdout), (agent.stderr, self.on_stderr))[bool(output):]:
            self.add(fd, handler)
            try:
                fcntl.fcntl(fd, F_SETPIPE_SZ, DRAIN)
            except OSError:  # over the user's pipe limit, or gVisor
                pass
        self.add(link.fd, self.on_guard)
        if control:
            for fd in control.fds():
                self.add(fd, self.on_control)
        if job.get("watch_stdin"):
            self.add(0, self.on_stdin)

    def add(self, fd, handler):
        self.sources[fd] = handler
        self.poller.register(fd, select.POLLIN)

    def remove(self, fd):
        del self.sources[fd]
        self.poller.unregister(fd)

    def run(self):
        self.see_how_late()
        self.on_signals(self.link.wakeup.fd)  # it may have ended before we came here
        while self.agent.status is None:
            ready = self.poller.poll(self.timeout_ms() if self.meanwhile is None else 0)
            if not ready and self.meanwhile is not None and next(self.meanwhile, "over") == "over":
                self.meanwhile = None
            self.see_how_late()
            for fd, _ in ready:
                if fd in self.sources:
                    self.sources[fd](fd)
            if self.agent.status is None and not self.check_clock():
                break
        for fd, feed in ((self.agent.stdout, self.capture.stdout), (self.agent.stderr, self.capture.stderr)):
            if fd in self.sources:
                _empty(fd, feed)
        if self.link.fd in dict(self.poller.poll(0)):
            self.on_guard(self.link.fd)  # it tells of a stop before it continues us
        self.conclude()

    # -- what wakes us
    def on_signals(self, fd):
        received = self.link.wakeup.read()
        self.reap()
        for signum in STOP_SIGNALS:
            if signum in received:
                self.stop("signal", signum)
        if self.transport and self.transport.dead:
            self.stop("proxy_dead")

    def reap(self):
        """The main process, and orphans as they die."""
        while True:
            try:
                pid, raw = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.agent.pid and self.agent.status is None:
                self.agent.status, self.ending.ended_at = exit_status(raw), self.now()

    def on_stdout(self, fd):
        if self.pump(fd, self.capture.stdout):
            self.last_event = time.monotonic()

    def on_stderr(self, fd):
        self.pump(fd, self.capture.stderr)

    def pump(self, fd, feed):
        try:
            data = os.read(fd, READ)
        except BlockingIOError:
            return False
        if data:
            feed(data)
        else:
            self.remove(fd)
        return bool(data)

    def on_guard(self, fd):
        told = os.read(fd, 4096)
        self.ending.worker_stops += told.count(b"stopped")
        if not told:
            self.remove(fd)
            self.ending.guard_gone = True
            self.stop("signal", signal.SIGTERM)

    def on_control(self, fd):
        opened, closed, asked = self.control.handle(fd)
        for new in opened:
            self.add(new, self.on_control)
        for old in closed:
            self.remove(old)
        if asked:
            self.stop("stop")

    def on_stdin(self, fd):
        try:
            more = os.read(0, 65536)
        except OSError:
            more = b""
        if not more:
            self.remove(0)
            self.stop("owner_gone")

    def look(self):
        """Read the output file, where stdout is one; what was written before counts from when it was written."""
        if self.output:
            before, self.looked_at = self.looked_at, time.monotonic()
            if self.output.read():
                self.last_event = written_at(time.time() - self.output.changed, self.looked_at, before)

    # -- the clock
    def see_how_late(self):
        if self.kill_at is None:
            self.ending.late_s = max(0.0, round(time.monotonic() - self.deadline, 3))

    def next_due(self):
        if self.give_up_at is not None:
            return self.give_up_at
        if self.kill_at is not None:
            return self.kill_at
        silence = self.silent_until()
        return self.deadline if silence is None else min(self.deadline, silence)

    def timeout_ms(self):
        return min(max(0.0, self.next_due() - time.monotonic()) * 1000, FOREVER_MS)

    def silent_until(self):
        """When a CLI that has nothing left to do, or whose requests are all given up, but does not leave, is stopped."""
        transport = self.transport
        given_up = transport.final_answer_at if transport else None
        over = given_up is not None or bool(self.live and self.live.terminal)
        if not over and not self.output:
            return None
        if given_up is not None and transport.futile_since is not None:
            return transport.futile_since + self.job["linger"]
        activity = (transport.last_activity or 0.0) if transport else 0.0
        return max(self.last_event, activity, given_up or 0.0, 0.0 if over else self.looked_at) + self.job["linger"]

    def check_clock(self):
        """False when even SIGKILL did not end the main process (it hangs in the kernel)."""
        if time.monotonic() < self.next_due():
            return True
        self.reap()
        if self.agent.status is not None:
            return True
        if self.give_up_at is not None:
            return False
        if self.kill_at is None:
            self.look()
            if time.monotonic() < self.next_due():
                return True
        if self.kill_at is not None:
            self.give_up_at = time.monotonic() + self.job["cleanup_timeout"]
            self.send(signal.SIGKILL)
        elif time.monotonic() >= self.deadline:
            self.stop("timeout")
        else:
            self.ending.lingered = True
            limited = self.transport and self.transport.final_answer_kind in LIMITS
            self.stop("limit" if limited else "linger")
        return True

    # -- the stop
    def stop(self, cause, signum=None):
        """Ask the main process to end. The first cause counts."""
        if self.kill_at is not None or self.agent.status is not None:
            return
        self.look()
        self.reap()
        if self.agent.status is not None:
            return
        self.ending.cause, self.ending.signal_received = cause, signum
        self.finished_first = bool(self.live and self.live.terminal)
        self.kill_at = time.monotonic() + self.job["grace"]
        if self.transport:  # at the signal the agent leaves its requests, and then nothing tells how long they were silent
            self.ending.open_request = self.transport.summary()["main"]["open"]
        self.send(self.stop_signal)

    def send(self, signum):
        """Our own child, not reaped: the number is still its."""
        self.ending.signals.append({"signal": signal.Signals(signum).name, "at": self.now()})
        os.kill(self.agent.pid, signum)

    def conclude(self):
        ending, status = self.ending, self.agent.status
        ending.main_status = status
        if ending.cause != "timeout":
            return
        self.look()
        sent = [-signal.Signals[entry["signal"]].value for entry in ending.signals]
        own_end = status is not None and status not in sent and (
            self.finished_first or bool(self.live and self.live.terminal == "success"))
        ending.timed_out = not own_end
        if own_end:
            ending.cause = "exit"

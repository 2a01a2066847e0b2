"""Being there while a run goes on: attached to its stdout, or looking at its directory from time to time.

A run does not depend on us. When the connection, the engine's patience or this process ends, it goes on (or stops, with
`--on-lost stop`: it watches its stdin), and whoever has --via and --dir, or --out, finds it again.
"""
from __future__ import annotations

import json
import os
import select
import signal
import time

from worker import cli
from worker.host.arguments import ODD
from worker.host.channel import LOOK, Channel, Lost, NoPython, Refused, complain, on_terminal
from worker.host.show import plain
from worker.host.staging import staged
from worker.host.status import line as progress_line
from worker.session import Clock
from worker.supervise import STOP_SIGNALS

LOST = 3  # our own word to sandboxctl: the connection is gone, the run may go on; `wait` for it
REFUSED = (cli.USAGE, cli.BAD_INPUT, cli.MASK, cli.NO_DIRECTORY)  # without a line on stdout: nothing was started
PATIENCE = 600.0  # s without any contact before a sandbox is given up
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)  # s between tries to reach it
LATE = 10.0  # s that a launch may be on its way
now = Clock().now  # unix seconds; a wall clock that is set meanwhile ends no run


class Interrupted(Exception):
    """args: the signal."""


class Signals:
    """Ctrl-C and its like: an exception where a step can end at once, else a list that a loop looks at."""

    def __init__(self):
        self.came, self.held, self.deaf = [], False, False
        self.wake, self.poke = os.pipe()
        os.set_blocking(self.poke, False)
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:  # nohup has it ignored
                signal.signal(signum, self.arrive)

    def listen(self):
        """What came since the bundle's first lines (worker/__main__.py) comes now."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def arrive(self, signum, frame):
        if self.deaf:
            return
        self.came.append(signum)
        if not self.held or len(self.came) > 2:
            raise Interrupted(signum)
        try:
            os.write(self.poke, b"x")
        except OSError:
            pass

    def take(self):
        """The first signal that nobody has answered yet, or None."""
        if self.came:
            os.read(self.wake, 4096)
            return self.came.pop(0)
        return None


class Screen:
    """One progress line on a terminal, or with --progress a line whenever it changes."""

    def __init__(self, given):
        self.terminal = on_terminal()
        self.wanted, self.last = self.terminal or "--progress" in given, ""

    def show(self, look):
        try:
            text = plain(progress_line(look), 140) if look else self.last
        except ODD:  # it came out of a sandbox
            return
        if self.wanted and text != self.last:
            self.last = text
            os.write(2, (("\r\x1b[K%s" if self.terminal else "%s\n") % text).encode("utf-8", "replace"))

    def end(self):
        if self.wanted and self.terminal and self.last:
            os.write(2, b"\r\x1b[K")
        self.last = ""


class Follower:
    """`status --follow` on a connection of its own, for the progress line; it may fail, nothing depends on it."""

    def __init__(self, handle):
        self.channel = None
        try:
            self.channel = Channel(handle["via"], handle["python"])
            self.channel.become_command(staged(self.channel, handle), "status", handle["dir"], "--follow", "--json")
        except (Lost, NoPython, Refused):
            self.close()

    def look(self):
        """The last line that has come, as a dict, or None."""
        found = None
        while self.channel:
            try:
                self.channel.reader.more(0)
                line = self.channel.reader.taken()
            except Lost:
                self.close()
                break
            if line is None:
                break
            found = parsed(line) or found
        return found

    def close(self):
        if self.channel:
            self.channel.close()
        self.channel = None


def parsed(line):
    try:
        found = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def attach(handle, line, signals):
    """Start the run on this connection and stay to its end. 0: it is over; LOST; else nothing was started, DESIGN 5."""
    signals.held = True
    screen, lines, follower = Screen(handle.given), [], None
    with Channel(handle["via"], handle["python"]) as channel:
        path = staged(channel, handle)
        handle.update(launched_at=now())
        channel.become_command(path, "run", "-")
        channel.attached = True
        try:
            channel.send(line)
            while not (lines and event(lines[-1], handle) == "finished"):
                if not take_line(channel, lines, signals):
                    break
                answer_signals(handle, signals)
                if over(handle):
                    raise Lost("the run is over its time")
                if screen.wanted and lines:
                    follower = follower or Follower(handle)
                    screen.show(follower.look() or {})
        except Lost as lost:
            cli.say("the connection is lost: %s" % lost)
            return LOST if lines else ended(channel, handle, lines)  # one that was refused does not read to the end
        finally:
            screen.end()
            if follower:
                follower.close()
        return ended(channel, handle, lines)


def take_line(channel, lines, signals):
    """Wait a moment for something to happen; False when the connection has ended."""
    reader = channel.reader
    select.select([reader.fd, channel.errors.fd] if not channel.errors.ended else [reader.fd], [], [], LOOK)
    channel.read_errors()
    reader.more(0)
    line = reader.taken()
    if line is not None:
        lines[1:] = [line] if lines else []
        lines[:1] = lines[:1] or [line]
    return line is not None or not reader.ended


def event(line, handle):
    """Which event of our run the line tells, or None."""
    found = parsed(line)
    return found.get("event") if found and found.get("nonce") == handle["nonce"] else None


def ended(channel, handle, lines):
    code = channel.end()
    complain(channel.said.decode("utf-8", "replace"))
    if lines and event(lines[-1], handle) == "finished":
        handle.printed(lines)
        handle.update(finished=True)
        return 0
    if not lines and code in REFUSED:
        handle.update(launched_at=None)
        return code
    cli.say("the connection ended before the run did (exit code %s); looking for it" % code)
    return LOST


def answer_signals(handle, signals):
    """Ctrl-C or SIGTERM stops the run, or leaves it alone with --on-interrupt continue; SIGHUP is a lost terminal."""
    signum = signals.take()
    if signum is None:
        return
    option = "--on-lost" if signum == signal.SIGHUP else "--on-interrupt"
    wish = handle.given.get(option) or ("continue" if signum == signal.SIGHUP else "stop")
    if wish == "continue":
        raise Interrupted(signum)
    cli.say("stopping the run; once more to leave it to itself")
    stop(handle)


def stop(handle):
    """Ask the run to end, and wait for its receipt; the exit code of `stop`, or 70 where nobody could be asked."""
    until = now() + patience(handle)
    for pause in PAUSES:
        try:
            with Channel(handle["via"], handle["python"]) as channel:
                channel.become_command(staged(channel, handle), "stop", handle["dir"])
                handle.update(stopped=True)
                channel.drain(max(1.0, until - now()))
                code = channel.end()
                complain(channel.said.decode("utf-8", "replace"))
                return code if code in (0, cli.NO_OUTCOME, cli.NO_DIRECTORY) else cli.FAILED
        except (Lost, NoPython) as problem:
            cli.say("the sandbox cannot be reached: %s" % problem)
            if now() > until:
                break
            time.sleep(pause)
    return cli.FAILED


def launch(handle, line):
    """Start the run so that it outlives this connection. 0 when it runs; LOST: it may; else nothing was started, DESIGN 5."""
    with Channel(handle["via"], handle["python"]) as channel:
        path = staged(channel, handle)
        handle.update(launched_at=now())
        try:
            found = channel.ask("launch", argv=[path, "run", "-"], stdin=line.decode())
        except Lost as lost:
            cli.say("the connection is lost: %s" % lost)
            return LOST
    if event(str(found.get("line")).encode("utf-8", "replace"), handle):
        return 0
    complain(str(found.get("stderr", "")))
    if found.get("code") not in REFUSED:
        cli.say("what came back does not say whether the run was started; `wait` looks for it")
        return LOST
    handle.update(launched_at=None)
    return found["code"]


def wait(handle, signals):
    """Until the run has ended, however often the connection does. 0: it has; 66: there is none; 70: it was given up."""
    signals.held = True
    screen, since, tries, told = Screen(handle.given), now(), 0, False
    began, contact = since, since
    while True:
        try:
            found = follow(handle, signals, screen)
            contact, tries = now(), 0
            state = str(found.get("state"))
            if state == "ended":
                return 0
            if state.startswith("gone"):
                return recover(handle)
            if state == "no run here" and now() > began + LATE:
                cli.say("%s: there is no run" % handle["dir"])
                return cli.NO_OUTCOME
        except Refused as refused:
            cli.say(refused.args[0])
            return refused.args[1]
        except (Lost, NoPython) as problem:
            if not told:
                cli.say("the sandbox cannot be reached, trying again: %s" % problem)
            told = True
            if now() > contact + patience(handle):
                cli.say("the sandbox is given up: %s" % problem)
                return cli.FAILED
        finally:
            screen.end()
        if over(handle):
            cli.say("the run is over its time and does not end")
            return stop(handle)
        answer_signals(handle, signals)
        select.select([signals.wake], [], [], PAUSES[min(tries, len(PAUSES) - 1)])
        tries += 1


def over(handle):
    """Whether the run should have ended by its own deadline long ago."""
    return bool(handle["launched_at"]) and now() > handle["launched_at"] + (handle["limit"] or 1e12)


def patience(handle):
    return handle.given.get("--patience", PATIENCE)


def follow(handle, signals, screen):
    """The last status that one connection gave."""
    found = {}
    with Channel(handle["via"], handle["python"]) as channel:
        channel.become_command(staged(channel, handle), "status", handle["dir"], "--follow", "--json")
        while not channel.reader.ended:
            line = channel.reader.taken()
            if line is not None:
                found = parsed(line) or found
                screen.show(found)
            elif not channel.reader.more(LOOK):
                answer_signals(handle, signals)
                channel.read_errors()
                if over(handle):
                    break
        if not found:
            raise Lost(channel.why("it says nothing"))
    return found


def recover(handle):
    """Guard and worker were killed: end what is left, make the outcome of what is on disk."""
    with Channel(handle["via"], handle["python"]) as channel:
        channel.become_command(staged(channel, handle), "recover", handle["dir"])
        channel.drain(patience(handle))
        channel.end()
        complain(channel.said.decode("utf-8", "replace"))
    return 0

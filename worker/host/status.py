"""`status DIR [--follow] [--json]`: how far a run is.  Reads the files that the run writes; disturbs nothing.

With --follow each attempt and each tool that the agent's output tells of is a line of its own when it has ended, and on a
terminal the line with the state of things is drawn anew below them; without one it is printed once, at the end.
Each line of the live files is read once: `Progress` remembers how far it came,
so following a run of hours costs no more than its own growth.
"""
from __future__ import annotations

import fcntl
import json
import os
import time

from worker import cli
from worker.documents import strict_json
from worker.host import terminal, timeline
from worker.host.arguments import ODD, Misuse, parse
from worker.host.outcome_directory import NotReadable, open_regular, read_document
from worker.host.terminal import coloured, plain
from worker.processes import uptime
from worker.session import ATTEMPTS, EVENTS, LAUNCH, LOCK, RESULT

INTERVAL = 1.0  # seconds between two looks with --follow


class Lines:
    """The complete lines that were added to a growing file since the last look."""

    def __init__(self, directory, name):
        self.directory, self.name, self.offset = directory, name, 0

    def new(self):
        try:
            fd = open_regular(self.directory, self.name)
        except NotReadable:
            return []
        with os.fdopen(fd, "rb") as file:
            file.seek(self.offset)
            text = file.read(64 << 20)
        whole = text[: text.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [found for found in map(_parsed, whole.split(b"\n")) if found is not None]


def _parsed(line):
    try:
        return json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None


class Progress:
    """The numbers of one run so far."""

    def __init__(self, directory):
        self.directory = directory
        self.attempts, self.events = Lines(directory, ATTEMPTS), Lines(directory, EVENTS)
        self.requests, self.news, self.started = set(), [], None
        self.numbers = {
            "attempts": 0, "retries": 0, "wait_s": 0.0, "input_tokens": 0, "output_tokens": 0, "events": 0, "last": None}

    def look(self):
        """{"state", "elapsed_s", "remaining_s", counts...}; state is starting, running or the action of the outcome."""
        for record in self.attempts.new():
            if isinstance(record, dict):
                self._count(record)
                self.news.append((record, None))
        for pair in self.events.new():
            self.numbers["events"] += 1
            last = _last(pair)
            self.numbers["last"] = last or self.numbers["last"]
            if last and _is_tool(pair):
                self.news.append((pair, last.replace("item.completed ", "", 1)))
        return dict(self.numbers, requests=len(self.requests), **self._times())

    def _count(self, record):
        numbers, usage = self.numbers, record.get("usage") or {}
        self.requests.add(str(record.get("request")))
        numbers["attempts"] += 1
        numbers["retries"] += record.get("decision") == "retried"
        if record.get("decision") == "retried":  # one that gave up names a wait that it did not wait
            numbers["wait_s"] = round(numbers["wait_s"] + float((record.get("wait") or {}).get("seconds") or 0), 3)
        for name in ("input_tokens", "output_tokens"):
            numbers[name] += int(usage.get(name) or 0)

    def locked(self):
        """Whether guard or worker of a run lives: they hold its lock."""
        try:
            fd = os.open(os.path.join(self.directory, LOCK), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except OSError:
            return True
        finally:
            os.close(fd)

    def _times(self):
        launch, result = _read(self.directory, LAUNCH), _read(self.directory, RESULT)
        if result:
            action = (result.get("disposition") or {}).get("action")
            return {"state": "ended", "action": action, "kind": (result.get("outcome") or {}).get("kind"),
                    "elapsed_s": round((result.get("duration_ms") or 0) / 1000, 1), "remaining_s": 0}
        alive = self.locked()
        if not launch:
            return {"state": "starting" if alive else "no run here", "elapsed_s": None, "remaining_s": None}
        if not alive:
            return {"state": "gone without an outcome; run `recover`", "elapsed_s": None, "remaining_s": None}
        self.started = launch.get("started_at")
        elapsed = max(0.0, uptime() - float(launch.get("uptime") or 0))  # the wall clock may have been set
        return {"state": "running", "elapsed_s": round(elapsed, 1),
                "remaining_s": round(max(0.0, float(launch.get("timeout") or 0) - elapsed), 1)}


def _read(directory, name):
    try:
        return read_document(directory, name)
    except NotReadable:
        return {}


def _last(pair):
    """A few words about an event: its type and the tool or command in it."""
    event = pair[1] if isinstance(pair, list) and len(pair) == 2 else None
    if not isinstance(event, dict):
        return None
    item = event["item"] if isinstance(event.get("item"), dict) else event
    words = [event.get("type"), item.get("command") or item.get("tool") or item.get("name") or item.get("text")]
    return plain(" ".join(word for word in words if isinstance(word, str)), 60) or None


def _is_tool(pair):
    """Whether an event is the end of a tool's item, as Codex and those that imitate it print it."""
    event = pair[1]
    item = event.get("item")
    return event.get("type") == "item.completed" and isinstance(item, dict) and item.get("type") not in (
        "agent_message", "reasoning", "error")


def line(look, width=140):
    """One progress line of at most `width` columns; what is least needed stands last."""
    head = look["state"] if look["state"] != "ended" else "ended: %s (%s)" % (look["action"], look["kind"])
    if look["elapsed_s"] is None:
        return plain(head, width)
    left = "" if look["state"] == "ended" else " (%ss left)" % look["remaining_s"]
    return plain("%s  %ss%s  %d requests, %d retries, %gs waited  %d in %d out  %s" % (
        head, look["elapsed_s"], left, look["requests"], look["retries"], look["wait_s"],
        look["input_tokens"], look["output_tokens"], look["last"] or ""), width)


def news(progress, width):
    """What ended since the last look, a line each."""
    began = progress.started if progress.started is not None else _read(progress.directory, LAUNCH).get("started_at")
    found, progress.news = progress.news, []
    rows = [timeline.attempt_row(began, what) if last is None else (timeline.since(began, what[0]), "tool", last, "")
            for what, last in found]
    return [terminal.row(row, width) for row in sorted(rows, key=lambda row: row[0] or 0)]


def main(words):
    try:
        (directory,), given = parse(words, 1, (), ("--follow", "--json"))
    except Misuse as error:
        return cli.misuse("status", str(error))
    if not os.path.isdir(directory):
        cli.say("%s: there is no such directory" % directory)
        return cli.NO_OUTCOME
    return follow(Progress(directory), "--json" in given, "--follow" in given)


def follow(progress, as_json, on):
    """Look once, or until the run has ended."""
    redraw = on and not as_json and terminal.is_terminal()
    while True:
        try:
            look = progress.look()
            width = terminal.width() - 1    # a full line would move the cursor on
            lines = news(progress, width) if on and not as_json else []
        except ODD as error:
            cli.say("%s: its files are not in their shape (%s)" % (progress.directory, type(error).__name__))
            return cli.NO_OUTCOME
        goes_on = on and look["state"] in ("starting", "running")
        text = strict_json(look).decode() if as_json else line(look, width)
        if not as_json and look["state"] == "ended":
            text = coloured(text, terminal.ACTIONS.get(str(look["action"]), ""))
        if redraw:
            text = "\r\x1b[K" + "".join(one + "\n" for one in lines) + text + ("" if goes_on else "\n")
        else:
            text = "".join(one + "\n" for one in lines + ([text] if as_json or not goes_on else []))
        if not terminal.write(text) or not goes_on:
            return 0
        time.sleep(INTERVAL)

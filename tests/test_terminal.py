"""Promise: what people read on a terminal fits it, is coloured only there, and nothing of the sandbox moves, hides or reorders it."""
from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

import pytest

from tests import agents, runs
from tests.endpoint import Endpoint, message
from worker.host import show, terminal, timeline

SGR = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "\x1b[2J\x1b]0;title\x07\u202eevil\u2066\u061c\u200b\u00ad\u3164\U000e0041\x9b31m\r\be" + "\u0301" * 500 + "\u6f22" * 200


def on_terminal(bundle, words, columns=80, during=None, **environ):
    """What the command writes on a terminal of that width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    settings = termios.tcgetattr(slave)
    settings[1] &= ~termios.OPOST           # a newline stays one
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    child = subprocess.Popen([sys.executable, "-I", "-S", bundle, *map(str, words)], stdin=slave, stdout=slave, stderr=slave,
                             env=dict(dict(os.environ, TERM="xterm-256color"), **environ))
    os.close(slave)
    seen, until = b"", time.monotonic() + runs.HANG
    while time.monotonic() < until:
        if not select.select([master], [], [], 1)[0]:
            continue
        try:
            piece = os.read(master, 65536)
        except OSError:                     # EIO: the other side is closed
            break
        seen += piece
        if during and during(seen):
            during = None
    os.close(master)
    child.wait(timeout=runs.HANG)
    return seen.decode("utf-8"), child.returncode


@pytest.fixture
def hostile(bundle, tmp_path):
    """A run whose agent, command line, answers and events all try to take over the terminal."""
    name = tmp_path / ("tool " + "\x1b[31m\u202e")
    name.write_text("#!/bin/sh\nexec %s \"$@\"\n" % sys.executable)
    name.chmod(0o755)
    plan = {"default": {"status": 400, "json": {"error": {"message": HOSTILE, "type": "invalid_request_error"}}}}
    event = {"type": "item.completed", "item": {"type": "command_execution", "command": HOSTILE}}
    source = agents.ASK + "say(**%r); ask(); import subprocess; subprocess.Popen(['sleep', '987'], start_new_session=True); " % event
    with Endpoint(plan) as endpoint:
        return runs.run(bundle, tmp_path, command=[str(name), "-c", source + "sys.exit(1)"],
                        model={"base_url": endpoint.url + "/v1", "api": "responses"})


@pytest.mark.parametrize("columns", [80, 60, 200])
@pytest.mark.parametrize("words", [["show"], ["status"], ["status", "--follow"]])
def test_it_fits_is_coloured_and_harmless(bundle, hostile, words, columns):
    text, code = on_terminal(bundle, [*words, hostile.directory], columns)
    assert code == 0 and "\x1b[33m" in text and ("evil" in text or words == ["status"])  # mask is yellow
    bare = SGR.sub("", text).replace("\r\x1b[K", "")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\u061c\u00ad\u3164"
                         "\U000e0000-\U000e0fff]", bare)
    assert max(map(terminal.columns, bare.split("\n"))) <= min(columns, 100)


def test_no_colour_where_none_is_wanted(bundle, hostile):
    for environ in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b[" not in on_terminal(bundle, ["show", hostile.directory], **environ)[0].replace("\r\x1b[K", "")
    code, out, said = runs.command(["show", hostile.directory], bundle=bundle)
    assert (code, said) == (0, "") and "\x1b" not in out and max(map(terminal.columns, out.split("\n"))) <= 80
    code, out, said = runs.command(["status", hostile.directory, "--follow"], bundle=bundle)
    assert (code, said) == (0, "") and "\x1b" not in out and "\r" not in out


def test_show_answers_the_first_questions(bundle, tmp_path):
    plan = [{"status": 429, "headers": {"Retry-After": "0"}, "json": {"error": {"message": "slow"}}},
            {"responses": {"items": [message("42")], "usage": [10, 2, 3, 1]}}, {"status": 404, "json": {"error": {"message": "gone"}}}]
    with Endpoint(plan) as endpoint:
        done = runs.run(bundle, tmp_path, command=agents.python("ask(); ask(); say(type='x'); sys.exit(1)"),
                        model={"base_url": endpoint.url + "/v1", "api": "responses"})
    out = runs.command(["show", done.directory], bundle=bundle)[1]
    lines = dict(line.split(None, 1) for line in out.split("\n") if line[:1].strip())
    assert lines["outcome"] == "MASK  model_not_found: failed" and lines["because"] == "Model not found: gone"
    assert "2 requests, 3 attempts, 1 retries" in lines["model"] and lines["tokens"].startswith("10 in, 2 of it cached, 3 out")
    times = [line for line in out.split("\n") if re.search(r"\d s  call \d", line)]
    assert [re.search(r"call (\d) +(\d+)", line).groups() for line in times] == [("1", "429"), ("1", "200"), ("2", "404")]
    assert "rate_limited  waits" in times[0] and "10 in, 3 out" in times[1] and "model_not_found" in times[2]
    assert "agent_artifact_unavailable" in lines["gap"] and "with hashes in result.json" in lines["files"]
    assert len(out.split("\n")) <= 24


def test_a_long_run_fits_on_a_screen():
    result = {"outcome": {"kind": "k", "status": "s", "message": "word " * 500, "fault": "f"}, "started_at": 0, "files": {},
              "disposition": {"action": "grade", "reason": "r", "verify_allowed": True}, "final_message": "said " * 500,
              "warnings": [{"code": "w", "detail": "x"}] * 100, "cleanup_confirmed": True, "counts": {"requests": 1}}
    attempts = [{"seq": n, "request": n, "started_at": n, "ended_at": n + .5, "status": 200} for n in range(1000)]
    gaps = [{"code": "g", "detail": "y" * 500}] * 100
    lines = show.screen(result, {"records": [], "gaps": gaps}, {"killed": [{"pid": 1, "argv": ["x"]}] * 100, "killed_count": 9000}, attempts)
    assert len(lines) < 50 and max(map(len, lines)) <= 80
    assert any("9000 left-over" in line for line in lines) and any("and 8996 more" in line for line in lines)
    assert any("and 988 more" in line for line in lines) and any("999.00 s" in line for line in lines)


def test_a_run_is_followed_while_it_goes_on(bundle, tmp_path):
    """On a terminal: each attempt and tool when it has ended, and one line that is drawn anew."""
    plan = {"default": {"responses": {"items": [message("42")], "usage": [10, 2, 3, 1]}}}
    go = tmp_path / "go"
    os.mkfifo(str(go))
    source = "ask(); say(type='item.completed', item={'type': 'command_execution', 'command': 'ls'}); open(%r).read(); ask()" % str(go)
    with Endpoint(plan) as endpoint:
        process, directory = runs.start(bundle, tmp_path, command=agents.python(source),
                                        model={"base_url": endpoint.url + "/v1", "api": "responses"})
        assert json.loads(process.stdout.readline())["event"] == "started"

        def during(seen):
            if b"call 1" in seen and b"ls" in seen:
                with open(str(go), "w"):
                    pass
                return True
            return False

        text, code = on_terminal(bundle, ["status", directory, "--follow"], during=during)
        runs.finish(process, directory)
    assert code == 0 and "running" in text and "ended: grade (completed)" in SGR.sub("", text)
    lines = [one.split("\r\x1b[K")[-1] for one in SGR.sub("", text).split("\n")]
    assert [re.search(r"call \d|tool", one).group() for one in lines if re.search(r" s  (call|tool)", one)] == ["call 1", "tool", "call 2"]
    drawn = SGR.sub("", text).replace("\n", "\r\x1b[K").split("\r\x1b[K")
    assert max(map(len, drawn)) < 80


@pytest.mark.parametrize("odd", [None, True, -1, 1e308, "x", [], {}])
def test_rows_of_odd_records(odd):
    for name in ("started_at", "ended_at", "status", "wait", "usage", "failure", "decision", "request", "error_type", "tool_name"):
        row = timeline.attempt_row(odd, {"decision": "retried", name: odd})
        assert terminal.columns(SGR.sub("", terminal.row(row, 80))) <= 80
        terminal.row(timeline.tool_row(0, {name: odd, "kind": "tool_call"}), 80)
    timeline.rows(odd, [odd, {}], [{"kind": "tool_call", "started_at": odd}, {"kind": "context_compaction"}])


@pytest.mark.parametrize("text, width, wanted", [
    ("abc", 3, "abc"), ("abcdefg", 6, "abc..."), ("\u6f22\u5b57\u6f22", 6, "\u6f22\u5b57\u6f22"), ("\u6f22\u5b57\u6f22\u5b57", 6, "\u6f22..."),
    ("e" + "\u0301" * 9, 5, "e\u0301\u0301"), ("a\nb\x00", 9, "a b?"), (None, 9, "None"), ("\ud83d", 9, "?")])
def test_plain(text, width, wanted):
    assert terminal.plain(text, width) == wanted

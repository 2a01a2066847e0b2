"""Promise: a CLI that drops its output on a pipe gets a file as stdout; nothing of it is lost, no bound and no ending differs.

The harness that asks for a file is Gemini's; a script in its place does here what is rare with the real one.
"""
from __future__ import annotations

import json
import os
import signal
import sys

import pytest

from tests import runs
from tests.endpoint import Endpoint
from worker.output_file import OutputFile, written_at

SUCCESS = {"type": "result", "status": "success"}
SAY = """import json, os, stat, sys, time
def say(**event):
    os.write(1, json.dumps(event).encode() + b"\\n")
"""


@pytest.fixture
def play(bundle, tmp_path):
    """A run of harness `gemini` whose program is the Python text `code`."""
    def started(code, **document):
        program = tmp_path / "bin" / "gemini"
        program.parent.mkdir()
        program.write_text("#!%s -ISu\n%s%s" % (sys.executable, SAY, code))
        program.chmod(0o755)
        path = "%s:%s" % (program.parent, os.environ["PATH"])
        return runs.start(bundle, tmp_path, harness="gemini", cwd="/", env={"PATH": path}, prompt="x", **document)

    return started


def finished(play, code, **document):
    return runs.finish(*play(code, **document))


def test_stdout_is_a_file_without_a_name(play):
    done = finished(play, "about = os.fstat(1)\nsay(regular=stat.S_ISREG(about.st_mode), links=about.st_nlink, mode=about.st_mode & 0o777,"
                          " others=[n for n in os.listdir('/proc/self/fd') if int(n) > 2 and os.path.exists('/proc/self/fd/' + n)])\n"
                          "open('/dev/stdout', 'a').write('{\"again\": 1}\\n')\nsay(**%r)" % SUCCESS)
    assert done.events == [{"regular": True, "links": 0, "mode": 0o600, "others": []}, {"again": 1}, SUCCESS]
    assert done.outcome["kind"] == "completed"
    gap = done.gaps()["event_times_unavailable"]
    assert (gap["file"], gap["count"]) == ("events.jsonl", 1)
    assert not [name for name in os.listdir(done.directory) if name.startswith(".stdout")] and "foreign_files" not in done.gaps()


def test_an_agent_that_prints_nothing_has_no_gap(play):
    done = finished(play, "sys.exit(3)")
    assert "event_times_unavailable" not in done.gaps() and done.result["return_code"] == 3


def test_what_a_descendant_wrote_last_is_there(play):
    done = finished(play, "if os.fork():\n    time.sleep(600)\nfor n in range(100000): say(n=n)\nos.kill(os.getppid(), 9)\nsay(n=n + 1)\ntime.sleep(600)")
    assert [event["n"] for event in done.events] == list(range(100001)) or done.events[-1]["n"] >= 99999


@pytest.mark.parametrize("size, most", [(50 << 20, 1 << 20), (1 << 40, 64 << 10)], ids=["a flood", "a sparse terabyte"])
def test_an_output_over_the_limit_keeps_head_and_tail(play, size, most):
    fill = "os.ftruncate(1, %d)" % size if size > 1 << 30 else "for n in range(%d): os.write(1, b'x' * 999 + b'\\n')" % (size // 1000)
    done = finished(play, "say(first=1)\n%s\nos.write(1, b'\\n')\nsay(**%r)" % (fill, SUCCESS), limits={"stdout_bytes": most})
    assert done.events[0] == {"first": 1} and done.events[-1] == SUCCESS and done.outcome["kind"] == "completed"
    assert os.path.getsize(done.path("events.jsonl")) <= most + 200
    gaps = [gap for gap in done.observations["gaps"] if gap["code"] == "output_dropped"]
    assert gaps and all(gap["file"] == "events.jsonl" for gap in gaps)


def test_an_agent_that_empties_its_own_stdout(play):
    """What stood there before may be lost with it, what comes after it is not."""
    done = finished(play, "say(before=1)\nos.ftruncate(1, 0)\nsay(**%r)" % SUCCESS)
    assert done.events == [SUCCESS] and done.outcome["kind"] == "completed"


class Sink:
    """A capture that keeps what it is given."""

    def __init__(self):
        self.text, self.gaps, self.events = b"", [], self
        self.partial, self.size = self, 0

    def stdout(self, data):
        self.text += data
        self.size = int(not data.endswith(b"\n"))        # of the incomplete line, as far as anybody asks


def test_each_look_reads_what_is_new(tmp_path):
    path, sink = tmp_path / "file", Sink()
    path.write_bytes(b"")
    output = OutputFile(os.open(str(path), os.O_RDONLY), sink, 100)
    assert output.read() is False
    for text, seen in ((b"one\n", b"one\n"), (b"one\ntwo", b"one\ntwo"), (b"new\n", b"one\ntwo\nnew\n")):
        path.write_bytes(text)
        assert output.read() is True and sink.text == seen and not sink.gaps
    path.write_bytes(b"new\n" + b"a" * 50 + b"-" * 1000 + b"b" * 49 + b"\n")
    assert output.read() and sink.text == b"one\ntwo\nnew\n" + b"a" * 50 + b"\n" + b"b" * 49 + b"\n"
    assert [gap["detail"].split()[0] for gap in sink.gaps] == ["1000"]


@pytest.mark.parametrize("age, at", [(0.0, 50.0), (7.0, 43.0), (20.0, 30.0), (20.1, 50.0), (86400.0, 50.0), (-0.1, 50.0)])
def test_a_file_time_that_cannot_be_makes_nobody_silent(age, at):
    assert written_at(age, 50.0, 30.0) == at


# -- a CLI that does not leave -------------------------------------------------------------------------------------------------


def test_one_that_has_said_its_last_word_is_ended_by_linger(play):
    """No event wakes anybody: it is looked for after `linger` without a byte on the wire."""
    done = finished(play, "say(**%r)\ntime.sleep(600)" % SUCCESS, linger=1, timeout=100)
    assert (done.outcome["kind"], done.warnings()) == ("completed", ["nonzero_exit", "empty_output", "lingered"])
    assert done.receipt["signals"][0]["signal"] == "SIGTERM" and done.result["duration_ms"] < 60000


def test_one_that_works_in_silence_is_left_alone(play):
    """Several lingers long, then its own end."""
    done = finished(play, "say(type='init', session_id='s')\ntime.sleep(4)\nsay(**%r)" % SUCCESS, linger=1, timeout=100)
    assert (done.outcome["kind"], done.receipt["signals"]) == ("completed", [])


def test_one_that_ignores_a_final_failure_is_ended_by_the_wire(play, tmp_path):
    """The proxy has given up; that it said nothing since is known by the proxy alone."""
    (tmp_path / "key").write_text("sk-not-a-real-key")
    code = """
import urllib.request
url = os.environ["GOOGLE_GEMINI_BASE_URL"] + "/v1beta/models/m:streamGenerateContent?alt=sse"
head = {"x-goog-api-key": os.environ["GEMINI_API_KEY"], "content-type": "application/json"}
name, value = os.environ["GEMINI_CLI_CUSTOM_HEADERS"].split(": ")
try: urllib.request.urlopen(urllib.request.Request(url, b'{"contents": []}', dict(head, **{name: value})))
except OSError: pass
time.sleep(600)
"""
    with Endpoint([{"status": 400, "json": {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "bad"}}}]) as endpoint:
        done = finished(play, code.replace("-ISu", "-u"), linger=1, timeout=100, model={
            "base_url": endpoint.url, "api": "generate_content", "name": "m", "api_key_file": str(tmp_path / "key")})
    assert (done.outcome["kind"], done.outcome["http_status"]) == ("invalid_request", 400)
    assert done.receipt["signals"][0]["signal"] == "SIGTERM" and done.result["duration_ms"] < 60000


@pytest.mark.parametrize("last, kind", [(SUCCESS, "completed"), ({"type": "init", "session_id": "s"}, "wall_timeout")],
                         ids=["done", "not done"])
def test_at_the_deadline_its_last_word_counts(play, last, kind):
    done = finished(play, "import signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(0))\nsay(**%r)\ntime.sleep(600)" % last,
                    linger=50, timeout=3)
    assert done.outcome["kind"] == kind and done.receipt["timed_out"] == (kind == "wall_timeout")


def test_a_worker_that_dies_takes_the_file_along(play):
    """The guard says so."""
    process, directory = play("say(**%r)\ntime.sleep(600)" % SUCCESS)
    assert json.loads(process.stdout.readline())["event"] == "started"
    with open(str(directory / "launch.json")) as file:
        launched = json.load(file)
    os.kill(launched["pid"], signal.SIGKILL)
    done = runs.finish(process, directory)
    assert done.outcome["kind"] == "worker_error"
    assert "file without a name" in done.gaps()["evidence_lost"]["detail"]

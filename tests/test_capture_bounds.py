"""Floods and endless lines: bounded memory, bounded files, the newest kept, what was dropped said."""
from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from tests import runs
from tests.test_capture_lines import DONE, captured, values

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOISE = b'{"type":"noise","p":"' + b"x" * 200 + b'"}\n'


def test_an_endless_line_costs_its_head_and_a_gap(tmp_path):
    """B10."""
    data, seen, capture = captured(tmp_path, [b"A" * (1 << 20)] * 30 + [b"\n" + DONE + b"\n"])
    assert values(data)[0] == "A" * 65536 and len(seen) == 1
    assert [(gap["code"], gap["count"]) for gap in capture.gaps] == [("line_oversized", 1)]
    assert str(30 << 20) in capture.gaps[0]["detail"]


def test_a_large_object_is_kept_whole(tmp_path):
    """B09."""
    line = b'{"t":"' + b"x" * 8_000_000 + b'"}'
    data, seen, capture = captured(tmp_path, [line[i:i + 65536] for i in range(0, len(line), 65536)] + [b"\n" + DONE + b"\n"])
    assert len(seen[0]["t"]) == 8_000_000 and len(seen) == 2 and capture.gaps == []
    assert values(data) == seen
    assert sorted(os.listdir(tmp_path)) == ["events.jsonl", "stderr.log"]


def test_the_file_keeps_head_and_tail_within_its_cap(tmp_path):
    """B11."""
    pieces = [b'{"type":"first"}\n'] + [NOISE * 100] * 200 + [DONE + b"\n"]
    data, seen, capture = captured(tmp_path, pieces, limits={"stdout_bytes": 1 << 20})
    kept = values(data)
    assert len(data) <= 1 << 20 and len(data) > 1 << 19
    assert kept[0] == {"type": "first"} and kept[-1]["type"] == "turn.completed"
    assert len(seen) == 20002  # the reader sees every event, whatever the file keeps
    gap, = capture.gaps
    assert gap["code"] == "output_dropped" and gap["count"] == 20002 - len(kept) and gap["file"] == "events.jsonl"


def test_a_cap_smaller_than_a_line(tmp_path):
    data, _, capture = captured(tmp_path, [NOISE * 3, DONE + b"\n"], limits={"stdout_bytes": 64})
    assert len(data) <= 64 and sum(gap["count"] for gap in capture.gaps) >= 3


def test_stderr_is_kept_as_written_head_and_tail(tmp_path):
    dirfd = os.open(tmp_path, os.O_RDONLY)
    from transport.sandbox_transport import EvidenceFile, Redactor
    from worker.capture import Capture
    capture = Capture(EvidenceFile(dirfd, "e"), EvidenceFile(dirfd, "s"), lambda: 0.0, lambda event: None,
                      {"stdout_bytes": 1000, "stderr_bytes": 1000}, Redactor([b"sk-0123456789"]), dirfd)
    capture.stderr(b"begin \x00\xff sk-01")
    capture.stderr(b"23456789 ")
    for _ in range(100):
        capture.stderr(b"noise " * 20)
    capture.stderr(b"the end")
    capture.close()
    text = (tmp_path / "s").read_bytes()
    assert text.startswith(b"begin \x00\xff ************* noise") and text.endswith(b"noise the end") and len(text) <= 1000
    assert [gap["code"] for gap in capture.gaps] == ["output_dropped"]


class Full:
    """An EvidenceFile on a disk with room for a few small writes."""
    size, lost_bytes, error = 0, 0, None

    def __init__(self, room):
        self.room, self.data = room, b""

    def write(self, data):
        if len(data) > self.room:
            self.lost_bytes += len(data)
            self.error = OSError(errno.ENOSPC, "No space left on device")
            return
        self.room -= len(data)
        self.data += data
        self.size = len(self.data)


def test_a_full_disk_takes_the_lines_that_fit(tmp_path):
    from transport.sandbox_transport import Redactor
    from worker.capture import Capture
    events = Full(600)
    capture = Capture(events, Full(100), lambda: 0.0, lambda event: None,
                      {"stdout_bytes": 1 << 20, "stderr_bytes": 1 << 20}, Redactor([]))
    capture.stdout(NOISE * 10)
    capture.stdout(b'{"type":"end"}\n')
    capture.close()
    lines = events.data.splitlines()
    assert len(lines) == 3 and lines[-1].endswith(b'{"type":"end"}]')
    gap, = capture.gaps
    assert gap["code"] == "evidence_lost" and "No space left" in gap["detail"]


PROBE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from worker.capture import Capture
from transport.sandbox_transport import EvidenceFile, Redactor
def peak():
    return int([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1])
dirfd = os.open(sys.argv[2], os.O_RDONLY)
capture = Capture(EvidenceFile(dirfd, "e"), EvidenceFile(dirfd, "s"), lambda: 0.0, lambda event: None,
                  {"stdout_bytes": 16 << 20, "stderr_bytes": 1 << 20}, Redactor([b"sk-0123456789"]), dirfd)
noise = b'{"type":"noise","p":"' + b"x" * 200 + b'"}\\n'
capture.stdout(noise * 1000); capture.stderr(b"x")
before = peak()
for _ in range(int(sys.argv[4])):
    getattr(capture, sys.argv[3])({"line": b"A" * 262144, "flood": noise * 1100}[sys.argv[5]])
capture.close()
print(peak() - before)
"""


@pytest.mark.parametrize("stream,count,what", [("stdout", 800, "line"), ("stdout", 300, "flood"), ("stderr", 800, "line")])
def test_memory_does_not_grow_with_what_is_written(tmp_path, stream, count, what):
    done = subprocess.run([sys.executable, "-I", "-S", "-c", PROBE, ROOT, str(tmp_path), stream, str(count), what],
                          check=True, stdout=subprocess.PIPE, timeout=runs.HANG)
    assert int(done.stdout) <= 8 << 10


@pytest.mark.parametrize("line", [b'{"a":1' + b" " * (2 << 20) + b"x", b"\x1b[" * (1 << 20), b'{"a":1}' + b"\x1b]" * (1 << 20),
                                  b'{"a":"' + b"\\" * (2 << 20), b'{"a":' + b"[{" * (1 << 20), b" " * (2 << 20),
                                  b'{"a":' + b"[" * (1 << 20) + b"]" * (1 << 20) + b"}"],
                         ids=["spaces after", "csi", "osc", "backslashes", "brackets", "spaces", "balanced"])
def test_no_line_takes_quadratic_time(tmp_path, line):
    """2 MiB each; a quadratic look at one of them would take hours."""
    data, _, capture = captured(tmp_path, [line, b"\n" + DONE + b"\n"])
    assert values(data)[-1]["type"] == "turn.completed"

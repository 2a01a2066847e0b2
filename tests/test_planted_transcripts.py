"""Promise: whatever an agent plants where its harness looks for transcripts, nothing outside is read, nothing blocks, bounds hold,
and a gap says so; on the built bundle, for every harness."""
from __future__ import annotations

import os
import sys

import pytest

from tests import runs
from tests.conftest import CI, lacking

# harness: (name of its program, a transcript's place below the session directory)
PLACES = {
    "codex": ("codex", "state/codex/sessions/2026/11/30/rollout-2026-11-30T10-00-00-01970000-0000-7000-8000-000000000001.jsonl"),
    "claude_code": ("claude", "state/claude/projects/-task/01970000-0000-4000-8000-000000000001.jsonl"),
    "gemini": ("gemini", "state/gemini/.gemini/tmp/task/chats/session-2026-11-30T05-29-1ca6c677.jsonl"),
    "qwen": ("qwen", "state/qwen/projects/-task/chats/6b6de047-d4b9-4341-b0d9-07b74a7a4ca3.jsonl"),
    "opencode": ("opencode", "state/opencode/data/opencode/opencode.db"),
    "kilocode": ("kilo", "state/kilo/data/kilo/kilo.db"),
    "pi": ("pi", "state/pi/sessions/2026-11-30T05-21-08-281Z_01a22ae6-56b9-7e98-b333-551aaac1718e.jsonl"),
    "hermes": ("hermes", "state/hermes/state.db"),
    "mini": ("mini", "state/mini/trajectory.json"),
}
SECRET = "outside-secret-8472"
PLANTS = {
    "FIFO": "os.mkfifo(path)",
    "symlink": "os.symlink(outside, path)",
    "symlinked folder": "os.rmdir(os.path.dirname(path)); os.symlink(os.path.dirname(outside), os.path.dirname(path))",
    "hard link": "os.link(outside, path)",
    "directory": "os.mkdir(path)",
    "socket": "import socket; os.chdir(os.path.dirname(path)); socket.socket(socket.AF_UNIX).bind(os.path.basename(path)[:100])",
    "device": "os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))",       # /dev/zero
    "garbage": "open(path, 'wb').write(bytes(range(256)) * 4000)",
    "unreadable": "open(path, 'w').write('x'); os.chmod(path, 0)",
}
NOT_REGULAR = ("FIFO", "symlink", "hard link", "socket", "device")
GAPS = {"transcript_not_regular", "agent_artifact_unavailable", "transcript_limit", "agent_artifact_record_unparseable",
        "transcript_not_utf8", "transcript_truncated", "transcript_damaged", "transcript_line_too_long", "transcript_unrelated"}


def planted(bundle, tmp_path, harness, source, **more):
    """A run whose agent does `source` with `path` (where a transcript belongs) and `outside` (a file that is not its own)."""
    program, place = PLACES[harness]
    (tmp_path / "out").mkdir()
    outside = tmp_path / "out" / os.path.basename(place)
    outside.write_text(SECRET)
    agent = tmp_path / program
    agent.write_text("#!%s\nimport os, sys\npath, outside = %r, %r\nos.makedirs(os.path.dirname(path), exist_ok=True)\n%s\n" % (
        sys.executable, str(tmp_path / "run" / place), str(outside), source))
    agent.chmod(0o755)
    return runs.run(bundle, tmp_path, harness=harness, command=[str(agent)], prompt="x", timeout=60, **more)


def unharmed(done):
    """Nothing from outside in the evidence, a complete record, and a gap."""
    assert done.code == 0 and done.result["cleanup_confirmed"], done.stderr
    assert "Traceback" not in done.stderr
    assert all(SECRET.encode() not in content for name, content in done.everything().items() if name != "input.json")
    assert GAPS & set(done.gaps()), sorted(done.gaps())
    assert done.observations["records"][0]["kind"] == "sandbox"


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("harness", PLACES)
def test_planted(bundle, tmp_path, harness, plant):
    if plant == "device" and os.geteuid():
        lacking("only root can make a device")
    done = planted(bundle, tmp_path, harness, PLANTS[plant])
    unharmed(done)
    if plant in NOT_REGULAR:
        assert "transcript_not_regular" in done.gaps(), sorted(done.gaps())      # it was looked for there


MANY = """
folder, name = os.path.split(path)
for number in range(50000):
    os.close(os.open(os.path.join(folder, "%05d-%s" % (number, name)), os.O_CREAT | os.O_WRONLY))
    if number < 3000: os.close(os.open(path.replace("000000000001", "%012d" % (number + 10)), os.O_CREAT | os.O_WRONLY))
"""


@pytest.mark.slow
@pytest.mark.parametrize("harness", ["codex", "claude_code", "pi"])
def test_fifty_thousand_small_files(bundle, tmp_path, harness):
    done = planted(bundle, tmp_path, harness, MANY)
    unharmed(done)
    assert "transcript_limit" in done.gaps() and len(done.result["files"]) < 600


SPARSE = "import os; fd = os.open(path, os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 10 << 30); os.pwrite(fd, b'{', 0)"


@pytest.mark.slow
@pytest.mark.parametrize("harness", ["codex", "mini", "opencode"][:1 if CI else 3])  # CI has twenty minutes for everything
def test_a_sparse_file_of_ten_gigabytes(bundle, tmp_path, harness):
    done = planted(bundle, tmp_path, harness, SPARSE)
    assert {"transcript_limit", "agent_artifact_record_unparseable", "transcript_line_too_long"} & set(done.gaps())
    assert done.code == 0 and sum(one["size"] for one in done.result["files"].values()) <= (1 << 30) + (16 << 20)


DEEP = """
os.chdir(os.path.dirname(path))
for _ in range(300):
    os.mkdir("d"); os.chdir("d")
"""


@pytest.mark.slow
@pytest.mark.parametrize("harness", ["codex", "gemini", "qwen"])
def test_three_hundred_folders_in_each_other(bundle, tmp_path, harness):
    unharmed(planted(bundle, tmp_path, harness, DEEP))

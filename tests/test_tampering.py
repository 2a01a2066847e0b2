"""Promise: an agent that edits, replaces, removes or plants evidence does not get away with it: said, and never graded (D17)."""
from __future__ import annotations

import json
import os
import types

import pytest

from tests import agents, runs
from worker import documents

# name, what the agent does in the session directory (shell; $D is the directory), the files that must be named
TRICKS = [
    ("edits events in place", "printf x >> $D/events.jsonl", "events.jsonl"),
    ("replaces events", "rm $D/events.jsonl; echo forged > $D/events.jsonl", "events.jsonl"),
    ("removes events", "rm $D/events.jsonl", "events.jsonl"),
    ("symlinks events away", "mv $D/events.jsonl $D/x; ln -s x $D/events.jsonl", "events.jsonl"),
    ("FIFO for stderr", "rm $D/stderr.log; mkfifo $D/stderr.log", "stderr.log"),
    ("directory for stderr", "rm $D/stderr.log; mkdir $D/stderr.log", "stderr.log"),
    ("edits launch.json", "while ! [ -s $D/launch.json ]; do :; done; echo x >> $D/launch.json", "launch.json"),
]
EVENTS = [{"type": "item.completed", "item": {"type": "agent_message", "text": "42"}}, agents.DONE]
SAY = "; ".join("echo '%s'" % json.dumps(event) for event in EVENTS)


@pytest.mark.parametrize("trick,named", [row[1:] for row in TRICKS], ids=[row[0] for row in TRICKS])
def test_changed_evidence_is_said_and_never_graded(bundle, tmp_path, trick, named):
    done = runs.run(bundle, tmp_path, command=agents.shell("D=%s; %s; %s" % (tmp_path / "run", SAY, trick)))
    assert done.gaps()["evidence_tampered"]["detail"] == named
    assert done.action == "mask" and done.result["disposition"]["verify_allowed"] is False and done.code == 69
    assert runs.command(["verify", done.directory], bundle=bundle)[0] == 0
    if named == "events.jsonl" and "edits" not in trick and "printf" not in trick:
        assert done.events == EVENTS  # written again from the writer's own descriptor


PLANTED = {
    "files of the end": "for n in cleanup.json observations.json result.json; do echo '{\"forged\": 1}' > $D/$n; done",
    "symlinks for them": "for n in cleanup.json observations.json result.json; do ln -s /etc/passwd $D/$n; done",
    "directories for them": "for n in cleanup.json observations.json result.json; do mkdir -p $D/$n/x; done",
    "FIFOs for them": "for n in cleanup.json observations.json result.json; do mkfifo $D/$n; done",
    "native as a symlink": "ln -s /etc $D/native",
    "native with files": "mkdir $D/native; echo x > $D/native/rollout.jsonl",
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_what_an_agent_plants_is_replaced(bundle, tmp_path, plant):
    before = os.stat("/etc/passwd").st_mtime
    done = runs.run(bundle, tmp_path, command=agents.shell("D=%s; %s; %s" % (tmp_path / "run", plant, SAY)))
    assert done.outcome["kind"] == "completed" and done.code == 0, done.stderr
    assert "forged" not in done.result and os.stat("/etc/passwd").st_mtime == before
    for name in ("cleanup.json", "observations.json", "result.json"):
        assert os.path.isfile(done.path(name)) and not os.path.islink(done.path(name))
    assert os.path.isdir(done.path("native")) and not os.path.islink(done.path("native"))
    assert runs.command(["verify", done.directory], bundle=bundle)[0] == 0


def test_a_background_writer_that_forges_the_result_is_dead_before_it_is_written(bundle, tmp_path):
    forge = "setsid sh -c 'while :; do echo forged > %s/result.json; ln -sf /etc/passwd %s/cleanup.json; done' & %s" % (
        tmp_path / "run", tmp_path / "run", SAY)
    done = runs.run(bundle, tmp_path, command=agents.shell(forge), nonce="mine")
    assert done.result["nonce"] == "mine" and done.outcome["kind"] == "completed"
    assert done.receipt["cleanup_confirmed"] and len(done.receipt["killed"]) >= 1


def test_a_directory_that_the_agent_has_closed_is_written_all_the_same(tmp_path):
    """`chmod -R a-w .` is nothing that a root worker would notice. Where no path leads to it any more, it is still held open."""
    (tmp_path / "run").mkdir()
    fd = os.open(tmp_path / "run", os.O_RDONLY)
    session = types.SimpleNamespace(fd=fd, real=str(tmp_path / "run"), replaced=[])
    os.chmod(tmp_path / "run", 0o500)
    assert documents.ensure_directory(session) == [] and os.stat(tmp_path / "run").st_mode & 0o777 == 0o700
    os.rename(tmp_path / "run", tmp_path / "moved")
    (tmp_path / "file").touch()
    session.real = str(tmp_path / "file" / "run")
    assert documents.ensure_directory(session) == ["the session directory"] and session.fd == fd
    os.rmdir(tmp_path / "moved")
    with pytest.raises(OSError):
        documents.ensure_directory(session)
    os.close(fd)


def test_strange_files_are_named_and_not_listed(bundle, tmp_path):
    done = runs.run(bundle, tmp_path, command=agents.shell("echo x > %s/strange.txt; %s" % (tmp_path / "run", SAY)))
    assert "strange.txt" in done.gaps()["foreign_files"]["detail"] and "strange.txt" not in done.result["files"]
    assert done.code == 0

"""What an agent may plant where transcripts are looked for: nothing outside is read, nothing blocks, bounds hold, gaps say so."""

from __future__ import annotations

import json
import os
import resource
import socket
import threading

import pytest

from tests.conftest import lacking
from tests.rollouts import DAY, THREAD, Home, announced, as_bytes, call, codes, exited, invocations, message, meta, output
from worker.harnesses import codex_sessions, transcript_files
from worker.harnesses.reading import Items
from worker.observations import Records

NAME = "rollout-2026-11-30T10-00-00-%s.jsonl" % THREAD
SECRET = b"root:x:0:0 outside"


def symlink(home, outside):
    os.symlink(outside, home.file(NAME))


def dangling(home, outside):
    os.symlink(outside + ".gone", home.file(NAME))


def fifo(home, outside):
    os.mkfifo(home.file(NAME))


def directory(home, outside):
    os.mkdir(home.file(NAME))


def hard_link(home, outside):
    os.link(outside, home.file(NAME))


def a_socket(home, outside):
    here = os.getcwd()
    os.chdir(os.path.dirname(home.file(NAME)))
    try:
        socket.socket(socket.AF_UNIX).bind(NAME)
    finally:
        os.chdir(here)


def linked_day(home, outside):
    elsewhere = os.path.join(os.path.dirname(outside), "elsewhere")
    os.mkdir(elsewhere)
    os.link(outside, os.path.join(elsewhere, NAME))
    os.rmdir(os.path.join(home.path, DAY))
    os.symlink(elsewhere, os.path.join(home.path, DAY))


def linked_sessions(home, outside):
    os.rename(os.path.join(home.path, "sessions"), os.path.join(os.path.dirname(outside), "moved"))
    os.symlink(os.path.join(os.path.dirname(outside), "moved"), os.path.join(home.path, "sessions"))


def linked_home(home, outside):
    home.write([meta(), message("planted")])
    os.rename(home.path, home.path + " real")
    os.symlink(home.path + " real", home.path)


def no_permission(home, outside):
    os.chmod(os.path.join(home.path, "sessions"), 0o000)


PLANTED = [symlink, dangling, fifo, directory, hard_link, a_socket, linked_day, linked_sessions, linked_home]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted(plant, tmp_path):
    home = Home(tmp_path)
    outside = str(tmp_path / "outside")
    with open(outside, "wb") as file:
        file.write(as_bytes(meta()) + b"\n" + as_bytes(message("outside")) + b"\n" + SECRET)
    plant(home, outside)
    result = []
    worker = threading.Thread(target=lambda: result.append(home.collect([announced()])), daemon=True)
    worker.start()
    worker.join(60)  # a hang guard: a FIFO opened for reading would block for ever
    assert result, "collect hangs"
    evidence = result[0]
    assert not invocations(evidence)[0]["conversation"]
    assert codes(evidence["gaps"]), "nothing is said about it"
    for name in os.listdir(os.path.join(home.session, "native")):
        with open(os.path.join(home.session, "native", name), "rb") as file:
            assert SECRET not in file.read()


def test_a_device(tmp_path):
    home = Home(tmp_path)
    try:
        os.mknod(home.file(NAME), 0o020666, os.makedev(1, 5))  # /dev/zero has no end
    except OSError as error:
        lacking("no device nodes here: %s" % error)
    assert "transcript_not_regular" in codes(home.collect([announced()])["gaps"])


def test_many_files_and_entries(tmp_path, monkeypatch):
    monkeypatch.setattr(transcript_files, "MOST_FILES", 20)
    monkeypatch.setattr(transcript_files, "MOST_ENTRIES", 200)
    home = Home(tmp_path)
    for number in range(400):
        with open(home.file("rollout-2026-11-30T09-00-00-%012d.jsonl" % number), "wb"):
            pass
    home.write([meta(), message("mine")])
    evidence = home.collect([announced()])
    assert "transcript_limit" in codes(evidence["gaps"])
    assert len(evidence["native_files"]) <= 1


def test_a_deep_tree(tmp_path):
    home = Home(tmp_path)
    deep = os.path.join(home.path, DAY, "a", "b", "c")
    os.makedirs(deep)
    with open(os.path.join(deep, NAME), "wb") as file:
        file.write(as_bytes(meta()) + b"\n")
    assert codes(home.collect([announced()])["gaps"]) == ["agent_artifact_unavailable"]


def test_a_sparse_file_of_a_terabyte(tmp_path, monkeypatch):
    monkeypatch.setattr(transcript_files, "MOST_BYTES", 8 << 20)
    home = Home(tmp_path)
    path = home.write([meta(), message("mine")])
    os.truncate(path, 1 << 40)
    evidence = home.collect([announced()])
    assert len(invocations(evidence)[0]["conversation"]) == 1
    assert "transcript_limit" in codes(evidence["gaps"])
    assert evidence["native_files"]["native/" + NAME]["size"] == 8 << 20


def test_names_that_are_no_rollouts_are_left_alone(tmp_path):
    home = Home(tmp_path)
    for name in ("rollout-.jsonl", "../x.jsonl".replace("/", "_"), "rollout-x.jsonl\n", "ROLLOUT-x.jsonl", "rollout-x.json"):
        with open(home.file(name), "wb") as file:
            file.write(as_bytes(meta()))
    assert not [name for name in os.listdir(os.path.dirname(home.file(""))) if codex_sessions.ROLLOUT.match(name)]


def test_secrets_are_blanked_in_the_copy_and_in_the_conversation(tmp_path):
    from transport.sandbox_transport import Redactor

    home, key = Home(tmp_path), "sk-secret-of-thirty-two-characters"
    home.write([meta(), call("a"), output("a", exited(0, "KEY=" + key)), message(key)])
    evidence = home.collect([announced()], redactor=Redactor([key.encode()]))
    assert key not in json.dumps(evidence["plain"]) and "*" * len(key) in json.dumps(evidence["plain"])
    with open(os.path.join(home.session, "native", NAME), "rb") as file:
        assert key.encode() not in file.read()


def test_records_spill_and_come_back(tmp_path):
    dirfd = os.open(str(tmp_path), os.O_RDONLY)
    records = Records(dirfd)
    for number in range(5000):
        records.append({"kind": "tool_call", "tool_call_id": "c%d\ud83d" % number})
    assert len(records) == 5000 and records.kinds == {"tool_call": 5000}
    assert [one["tool_call_id"] for one in records] == [one["tool_call_id"] for one in records]
    assert [one["tool_call_id"][:-1] for one in records][:2] == ["c0", "c1"]
    assert os.listdir(str(tmp_path)) == []  # unlinked: nothing to plant into, nothing to leave behind
    os.close(dirfd)


@pytest.mark.parametrize("make", [Records, Items], ids=["records", "conversation"])
def test_a_disk_that_is_full_in_the_middle_loses_and_repeats_nothing(tmp_path, make):
    """A limit on the size of files stands for it: the write that does not fit is taken in part, then refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    dirfd = os.open(str(tmp_path), os.O_RDONLY)
    kept = make(dirfd)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500000, hard))
    try:
        for number in range(4000):
            kept.append({"kind": "tool_call", "tool_call_id": "c%d" % number, "words": "w" * 1000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for _ in range(2):
        assert [one["tool_call_id"] for one in kept] == ["c%d" % number for number in range(4000)]
    os.close(dirfd)


def test_records_stay_in_memory_where_there_is_no_room(tmp_path):
    missing = os.open(str(tmp_path), os.O_RDONLY)
    os.close(missing)
    records = Records(missing)
    for number in range(2500):
        records.append({"kind": "tool_call", "tool_call_id": number})
    assert [one["tool_call_id"] for one in records] == list(range(2500))

"""Which rollout is the run's, how its history is read, compressed ones, and where stdout tells something else.

Names in brackets are public failure cases; beside each its siblings.
"""

from __future__ import annotations

import gzip
import json

import pytest

from tests.rollouts import (
    DAY,
    END,
    THREAD,
    Home,
    announced,
    call,
    charged,
    codes,
    event,
    exited,
    figures,
    invocations,
    message,
    meta,
    output,
    read,
    tokens,
    tools,
)

# -- history --------------------------------------------------------------------------------------------------------------


def test_paginated_history_without_model_items(tmp_path):
    """(C21) Display items are turned into model items, and a gap says so."""
    items = [
        {"type": "UserMessage", "content": [{"type": "text", "text": "do it"}]},
        {"type": "AgentMessage", "content": [{"type": "Text", "text": "done"}]},
    ]
    evidence = read(tmp_path, [meta(history_mode="paginated")] + [event("item_completed", item=item) for item in items])
    conversation = invocations(evidence)[0]["conversation"]
    assert [(one["role"], one["content"][0]["text"]) for one in conversation] == [("user", "do it"), ("assistant", "done")]
    assert codes(evidence["gaps"]) == ["history_from_events"]
    assert evidence["final_message"] == "done"


def test_a_history_mode_of_the_future(tmp_path):
    evidence = read(tmp_path, [meta(history_mode="holographic")])
    assert codes(evidence["gaps"]) == ["agent_artifact_unavailable", "unsupported_history_mode"]


def test_an_aborted_turn_and_its_error(tmp_path):
    evidence = read(tmp_path, [meta(), event("task_started"), message("x"), event("turn_aborted", 2, reason="interrupted")])
    root = invocations(evidence)[0]
    assert (root["status"], root["error_type"], evidence["terminal"]) == ("incomplete", "turn_interrupted", None)


def test_the_turn_error_of_0171(tmp_path):
    end = event("task_complete", 2, last_agent_message=None, error={"message": "boom", "codex_error_info": "other"})
    evidence = read(tmp_path, [meta(), event("task_started"), message("x"), end])
    assert (evidence["terminal"], evidence["error_text"]) == ("failure", "boom")


# -- which file -----------------------------------------------------------------------------------------------------------

OTHER = "01970000-0000-7000-8000-00000000000b"


def test_the_announced_thread_is_read_whatever_is_newer(tmp_path):
    """(C23) Identity, not age."""
    home = Home(tmp_path)
    home.write([meta(), message("mine")])
    home.write([meta(OTHER), message("not mine")], OTHER)
    evidence = home.collect([announced()])
    assert invocations(evidence)[0]["conversation"][0]["content"][0]["text"] == "mine"
    assert codes(evidence["gaps"]) == ["transcript_unrelated"]
    assert list(evidence["native_files"]) == ["native/rollout-2026-11-30T10-00-00-%s.jsonl" % THREAD]


def test_several_and_no_announcement(tmp_path):
    home = Home(tmp_path)
    home.write([meta(), message("one")])
    home.write([meta(OTHER), message("two")], OTHER)
    evidence = home.collect()
    assert codes(evidence["gaps"]) == ["transcript_ambiguous"]
    assert not invocations(evidence)[0]["conversation"] and charged(evidence) == (None, None, None)


def test_one_new_file_and_no_announcement(tmp_path):
    home = Home(tmp_path)
    home.write([meta(), message("old")])
    home.write([meta(OTHER), message("new")], OTHER)
    evidence = home.collect(baseline={DAY + "/rollout-2026-11-30T10-00-00-%s.jsonl" % THREAD: 10})
    assert invocations(evidence)[0]["conversation"][0]["content"][0]["text"] == "new"


def test_the_thread_header_tells_where_stdout_does_not(tmp_path):
    home = Home(tmp_path)
    home.write([meta(), message("mine")])
    home.write([meta(OTHER), message("not mine")], OTHER)
    home.attempts([{"seq": 1, "request": "q1", "main": True, "identity": {"thread-id": THREAD}, "response_id": "r1"}])
    evidence = home.collect(wire={"requests": 1})
    assert invocations(evidence)[0]["conversation"][0]["content"][0]["text"] == "mine"
    assert [one["attempts"] for one in invocations(evidence)[0]["model_calls"]] == [[1]]


@pytest.mark.parametrize("lines", [[], [b"garbage"]], ids=["empty", "garbage"])
def test_the_file_name_tells_where_the_first_record_does_not(lines, tmp_path):
    home = Home(tmp_path)
    home.write(lines + [message("mine")])
    assert len(invocations(home.collect([announced()]))[0]["conversation"]) == 1


def test_two_files_of_the_same_thread(tmp_path):
    home = Home(tmp_path)
    home.write([meta(), message("one")])
    home.write([meta(), message("two")], name="rollout-2026-11-30T10-00-01-%s.jsonl" % OTHER)
    assert codes(home.collect([announced()])["gaps"]) == ["transcript_ambiguous"]


def test_no_file_at_all(tmp_path):
    home = Home(tmp_path)
    evidence = home.collect([announced()])
    assert codes(evidence["gaps"]) == ["agent_artifact_unavailable"]
    assert len(invocations(evidence)) == 1


def test_the_state_directory_is_the_one_that_env_named(tmp_path, monkeypatch):
    """(C33) A blank in the path; the decoy under HOME is not looked at."""
    decoy = Home(tmp_path / "decoy")
    decoy.write([meta(OTHER), message("decoy")], OTHER)
    monkeypatch.setenv("HOME", decoy.path)
    home = Home(tmp_path)
    assert " " in home.path
    home.write([meta(), message("mine")])
    assert codes(home.collect([announced()])["gaps"]) == []


# -- compressed -----------------------------------------------------------------------------------------------------------


def test_gzip(tmp_path):
    home = Home(tmp_path)
    path = home.write([meta(), call("a"), output("a", exited(0)), tokens(figures(10, 1)), END])
    with open(path, "rb") as file:
        data = file.read()
    with open(path + ".gz", "wb") as file:
        file.write(gzip.compress(data[:100]) + gzip.compress(data[100:]))
    (tmp_path / path).unlink()
    evidence = home.collect([announced()])
    assert charged(evidence) == (10, 0, 1) and len(tools(evidence)) == 1
    with open(home.session + "/native/" + path.rsplit("/", 1)[1], "rb") as file:
        assert file.read() == data


def test_a_damaged_gzip_is_read_as_far_as_it_goes(tmp_path):
    home = Home(tmp_path)
    name = "rollout-2026-11-30T10-00-00-%s.jsonl.gz" % THREAD
    data = b"".join(json.dumps(one).encode() + b"\n" for one in [meta()] + [message("m%d" % n) for n in range(5000)])
    with open(home.file(name), "wb") as file:
        file.write(gzip.compress(data)[:-2000])
    evidence = home.collect([announced()])
    assert len(invocations(evidence)[0]["conversation"]) > 100
    assert "transcript_damaged" in codes(evidence["gaps"])


def test_zstd_is_kept_and_a_gap_says_that_it_was_not_read(tmp_path):
    home = Home(tmp_path)
    name = "rollout-2026-11-30T10-00-00-%s.jsonl.zst" % THREAD
    with open(home.file(name), "wb") as file:
        file.write(b"\x28\xb5\x2f\xfd" + b"x" * 100)
    evidence = home.collect([announced()])
    assert "transcript_compressed" in codes(evidence["gaps"])
    assert list(evidence["native_files"]) == ["native/" + name]


# -- stdout and rollout ---------------------------------------------------------------------------------------------------


def test_stdout_lost_the_end_of_a_call(tmp_path):
    """0.144.4 may end the turn before it prints item.completed; the rollout has it."""
    started = {"type": "item.started", "item": {"id": "item_1", "type": "command_execution"}}
    evidence = read(
        tmp_path,
        [meta(), call("a"), output("a", exited(0)), message("done"), END],
        [
            announced(),
            started,
            {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
            {"type": "turn.completed", "usage": None},
        ],
    )
    assert tools(evidence) == [["a", "exec_command", "completed", None]]
    assert codes(evidence["gaps"]) == ["event_transcript_difference"]


def test_another_final_message(tmp_path):
    evidence = read(
        tmp_path,
        [meta(), message("one"), END],
        [
            announced(),
            {"type": "item.completed", "item": {"type": "agent_message", "text": "two"}},
            {"type": "turn.completed", "usage": None},
        ],
    )
    assert codes(evidence["gaps"]) == ["event_transcript_difference"]

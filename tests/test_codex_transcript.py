"""What is said about a rollout that is odd: usage, tool calls, cut and unreadable records, other threads' files.

The names in brackets are public failure cases (resumed threads, repeated counters, lone surrogates, ...), each given to
`collect` as files on disk, and their siblings.
"""
from __future__ import annotations

import gzip
import json

import pytest

from tests.rollouts import (
    DAY,
    THREAD,
    Home,
    announced,
    call,
    codes,
    event,
    exited,
    figures,
    invocations,
    message,
    meta,
    output,
    record,
    tokens,
    tools,
)
from worker import usage

CHILD = "01970000-0000-7000-8000-0000000000c2"


def read(folder, lines, stdout=(announced(),), tail=b"", **run):
    home = Home(folder)
    home.write(lines, tail=tail)
    return home.collect(stdout, **run)


def charged(evidence, wire=None):
    chosen = usage.choose(wire, evidence)[0]["chosen"]
    return tuple(chosen[name] for name in ("input_tokens", "cached_input_tokens", "output_tokens"))


# -- usage ----------------------------------------------------------------------------------------------------------------

END = event("task_complete", 9, last_agent_message="done")
USAGE = {
    # name: (records after session_meta, the figures charged, gap codes of the transcript)
    "the same total again and again (C02)": (
        [tokens(figures(1000, 100))] * 3 + [tokens(figures(3000, 300, 900), figures(2000, 200, 900)), END], (3000, 900, 300), []),
    "killed before any event (C10)": ([tokens(figures(4000, 300, 1000))], (4000, 1000, 300), []),
    "nothing was counted": ([message("hi")], (None, None, None), []),
    "null, then a total": ([event("token_count", info=None), tokens(figures(10, 1)), END], (10, 0, 1), []),
    "a total, then null": ([tokens(figures(10, 1)), event("token_count", info=None), END], (10, 0, 1), []),
    "null after null": ([event("token_count", info=None)] * 2 + [END], (None, None, None), []),
    "a malformed last total": ([tokens(figures(10, 1)), tokens(dict(figures(20, 2), input_tokens="20")), END],
                               (None, None, None), ["usage_invalid"]),
    "a malformed total, then a good one": ([tokens(dict(figures(10, 1), output_tokens=-1)), tokens(figures(20, 2)), END], (20, 0, 2), []),
    "a boolean": ([tokens(dict(figures(10, 1), cached_input_tokens=True)), END], (None, None, None), ["usage_invalid"]),
    "info of another type": ([tokens(figures(10, 1)), event("token_count", info=[1]), END], (None, None, None), ["usage_invalid"]),
    "no total_token_usage": ([tokens(figures(10, 1)), event("token_count", info={}), END], (None, None, None), ["usage_invalid"]),
    "the counter goes down (C07)": (
        [tokens(figures(5000, 400)), record("compacted", {"message": "summary"}), tokens(figures(1200, 30)),
         tokens(figures(1500, 60)), END], (1500, 0, 60), ["usage_counter_reset"]),
    "a record per response (0.171)": (
        [record("token_usage_record", {"response_id": "r1", "usage": figures(7, 1), "thread_token_usage": figures(7, 1)}),
         record("token_usage_record", {"response_id": "r2", "usage": figures(8, 1), "thread_token_usage": figures(15, 2)})],
        (15, 0, 2), []),
    "cached is more than input (C08)": ([tokens(figures(100, 5, 600)), END], (100, 600, 5), []),
}


@pytest.mark.parametrize("name", USAGE)
def test_usage(name, tmp_path):
    records, wanted, gaps = USAGE[name]
    evidence = read(tmp_path, [meta(), message("hi")] + records)
    assert charged(evidence) == wanted
    assert codes(evidence["gaps"]) == gaps


def test_usage_of_a_killed_run_is_partial_and_says_where_it_is_from(tmp_path):
    evidence = read(tmp_path, [meta(), tokens(figures(4000, 300, 1000))], [announced(), {"type": "turn.started"}])
    chosen = usage.choose(None, evidence)[0]["chosen"]
    assert (chosen["source"], chosen["completeness"]) == ("transcript", "partial")


def test_zeros_on_stdout_are_not_believed(tmp_path):
    """0.144.4 prints zeros where the provider sent nothing; only the transcript's null tells."""
    zeros = {"type": "turn.completed", "usage": dict.fromkeys(usage.FIELDS[:2] + usage.FIELDS[3:5], 0)}
    evidence = read(tmp_path, [meta(), message("hi"), event("token_count", info=None), END], [announced(), zeros])
    assert charged(evidence) == (None, None, None)
    assert "usage_omitted" in codes(usage.choose(None, evidence)[1])


def test_after_a_reset_the_wire_is_charged(tmp_path):
    evidence = read(tmp_path, [meta(), tokens(figures(5000, 400)), tokens(figures(1500, 60)), END])
    wire = {"usage": dict(figures(6500, 460), cache_write_input_tokens=None), "usage_missing": 1, "requests": 3, "main_requests": 3}
    chosen, gaps = usage.choose(wire, evidence)
    assert (chosen["chosen"]["source"], chosen["chosen"]["input_tokens"]) == ("wire", 6500)
    assert "usage_mismatch" in codes(gaps)


RESUMED = [meta(), call("old"), output("old", exited(0)), tokens(figures(1000, 60, 700))]
NEW = [call("new", second=30), output("new", exited(0), 31), tokens(figures(1800, 125, 1400), second=32)]


def test_a_resumed_thread_is_charged_its_share(tmp_path):
    """(C03) The baseline is what the file held before the run."""
    home = Home(tmp_path)
    path = home.write(RESUMED)
    with open(path, "rb") as file:
        size = len(file.read())
    home.write(RESUMED + NEW)
    evidence = home.collect([announced()], baseline={path[len(home.path) + 1:]: size})
    assert charged(evidence) == (800, 700, 65)
    assert evidence["threads"][THREAD]["thread_total"]["input_tokens"] == 1800
    assert [one[0] for one in tools(evidence)] == ["new"]  # the old call is history
    assert len(invocations(evidence)[0]["conversation"]) == 4


def test_a_resumed_thread_without_a_baseline(tmp_path):
    evidence = read(tmp_path, RESUMED + NEW, baseline=None, started_at=1789900000.0)  # 2026-09-20T10:26:40Z
    assert charged(evidence) == (None, None, None)
    assert evidence["threads"][THREAD]["thread_total"]["input_tokens"] == 1800
    assert "usage_baseline_unavailable" in codes(evidence["gaps"])


def test_a_fork_whose_origin_is_missing(tmp_path):
    base = {"thread_id": CHILD, "end_byte_offset": 100}
    evidence = read(tmp_path, [meta(forked_from_id=CHILD, history_base=base), tokens(figures(50, 5)), END])
    assert charged(evidence) == (None, None, None)
    assert codes(evidence["gaps"]) == ["agent_artifact_unavailable", "history_elsewhere", "usage_baseline_unavailable"]


# -- sub-agents -----------------------------------------------------------------------------------------------------------


def test_sub_agents_have_their_own_files(tmp_path):
    """(C05) Two invocations, linked; both are charged; the child is found by its parent alone."""
    home = Home(tmp_path)
    home.write([meta(), call("call_s", "spawn_agent"), output("call_s", json.dumps({"agent_id": CHILD})), tokens(figures(400, 40))])
    spawn = {"subagent": {"thread_spawn": {"depth": 1}}}
    home.write([meta(CHILD, parent_thread_id=THREAD, thread_source="subagent", source=spawn), tokens(figures(900, 70, 100))], CHILD)
    evidence = home.collect([announced()])
    assert charged(evidence) == (1300, 100, 110)
    assert {thread: one["input_tokens"] for thread, one in evidence["threads"].items()} == {THREAD: 400, CHILD: 900}
    child = invocations(evidence)[1]
    assert (child["invocation_id"], child["parent_invocation_id"], child["spawned_by_tool_call_id"]) == (CHILD, "inv", "call_s")


def test_a_grandchild_belongs_to_its_parent(tmp_path):
    home, grandchild = Home(tmp_path), "01970000-0000-7000-8000-0000000000c3"
    home.write([meta(), message("x")])
    home.write([meta(CHILD, parent_thread_id=THREAD), message("x")], CHILD)
    home.write([meta(grandchild, parent_thread_id=CHILD), message("x")], grandchild)
    evidence = home.collect([announced()])
    assert [one["parent_invocation_id"] for one in invocations(evidence)] == [None, "inv", CHILD]
    assert codes(evidence["gaps"]) == ["subagent_spawn_unlinked"]


def test_a_spawned_agent_without_a_file(tmp_path):
    evidence = read(tmp_path, [meta(), call("s", "spawn_agent"), output("s", json.dumps({"agent_id": CHILD})), message("x")])
    assert codes(evidence["gaps"]) == ["subagent_transcript_unavailable"]


# -- tool calls -----------------------------------------------------------------------------------------------------------

TOOLS = {
    "outputs in another order (C13)": (
        [call("a"), call("b"), call("c"), output("c", exited(3)), output("a", exited(0), 3), output("b", exited(1), 4)],
        [["a", "completed", None], ["b", "failed", "exit_code_1"], ["c", "failed", "exit_code_3"]], []),
    "orphan, duplicate id, early output (C14)": (
        [output("x", exited(0)), call("d", second=2), call("d", second=3), output("d", exited(0), 4), output("late", exited(0), 5),
         call("late", second=6)],
        [["d", "unknown", None], ["d", "unknown", None], ["late", "completed", None]],
        ["tool_call_duplicate", "tool_outcome_unavailable", "tool_output_early", "tool_output_orphan"]),
    "an id used again after its output": (
        [call("d"), output("d", exited(0)), call("d", second=3), output("d", exited(1), 4)],
        [["d", "completed", None], ["d", "failed", "exit_code_1"]], ["tool_call_duplicate"]),
    "two outputs": ([call("a"), output("a", exited(0)), output("a", exited(1), 3)], [["a", "completed", None]], ["tool_output_duplicate"]),
    "no output": ([call("a")], [["a", "incomplete", None]], []),
    "an output that does not tell": ([call("a", "view"), output("a", "whatever")], [["a", "unknown", None]], ["tool_outcome_unavailable"]),
    "text that looks like a result, inside the output": (
        [call("a"), output("a", exited(2, "Process exited with code 0"))], [["a", "failed", "exit_code_2"]], []),
    "a call without an id": ([record("response_item", {"type": "function_call", "name": "x", "arguments": "{}"}, 1)],
                             [["synthetic", "incomplete", None]], ["tool_call_synthetic_id"]),
    "an output without an id": ([record("response_item", {"type": "function_call_output", "output": "x"})], [], ["tool_output_orphan"]),
    "a custom tool": ([record("response_item", {"type": "custom_tool_call", "call_id": "p", "name": "apply_patch", "input": "x"}, 1),
                       event("patch_apply_end", 2, call_id="p", success=True),
                       record("response_item", {"type": "custom_tool_call_output", "call_id": "p", "output": "Success."}, 2)],
                      [["p", "completed", None]], []),
    "a web search": ([record("response_item", {"type": "web_search_call", "id": "ws", "status": "completed", "action": {}}, 1)],
                     [["ws", "completed", None]], []),
    "the executor's record after an abort": (
        [call("a"), output("a", "aborted by user after 0.8s"),
         event("item_completed", 3, item={"type": "CommandExecution", "id": "a", "status": "failed", "exit_code": -1})],
        [["a", "cancelled", "aborted"]], []),
    "the executor's record without an output": (
        [call("a"), event("item_completed", 3, item={"type": "CommandExecution", "id": "a", "status": "completed", "exit_code": 0})],
        [["a", "completed", None]], []),
    "ends before it begins": ([call("a", second=5), output("a", exited(0), 3)], [["a", "completed", None]], ["tool_time_reversed"]),
    "success given as a flag": ([call("a"), record("response_item", {
        "type": "function_call_output", "call_id": "a", "output": {"content": "x", "success": False}}, 2)],
        [["a", "failed", "tool_error"]], []),
}


@pytest.mark.parametrize("name", TOOLS)
def test_tool_calls(name, tmp_path):
    records, wanted, gaps = TOOLS[name]
    evidence = read(tmp_path, [meta(), message("hi")] + records)
    found = [["synthetic" if "@" in identity else identity, status, error] for identity, _, status, error in tools(evidence)]
    assert found == wanted
    assert codes(evidence["gaps"]) == gaps
    for one in evidence["plain"]:
        if one["kind"] == "tool_call" and one["completed_at"] is not None:
            assert one["completed_at"] >= one["started_at"] and one["duration_ms"] >= 0


def test_many_calls_are_handed_out_in_order_and_in_constant_memory(tmp_path):
    lines = [meta()]
    for number in range(9000):
        lines += [call("c%d" % number), output("c%d" % number, exited(number % 2))]
    evidence = read(tmp_path, lines)
    assert [one[0] for one in tools(evidence)] == ["c%d" % number for number in range(9000)]
    assert len(evidence["records"]._kept) < 9000
    assert not codes(evidence["gaps"])


# -- records --------------------------------------------------------------------------------------------------------------


def test_a_cut_last_line(tmp_path):
    """(C16) Three records count; the gap has the offset of the fourth."""
    lines = [meta(), tokens(figures(10, 1)), message("hello")]
    tail = b'{"timestamp":"2026-09-20T10:00:03.000Z","type":"event_msg","payload":{"type":"token_co'
    evidence = read(tmp_path, lines, tail=tail)
    assert charged(evidence) == (10, 0, 1)
    (gap,) = [one for one in evidence["gaps"] if one["code"] == "transcript_truncated"]
    assert gap["offset"] == sum(len(json.dumps(line)) + 1 for line in lines)


ODD = {
    "5000 digits (C27)": b'{"timestamp":"2026-09-20T10:00:01.000Z","type":"event_msg","payload":{"type":"x","n":' + b"7" * 5000 + b"}}",
    "NaN (C27)": b'{"timestamp":"2026-09-20T10:00:01.000Z","type":"event_msg","payload":{"type":"x","n":NaN}}',
    "Infinity": b'{"timestamp":"2026-09-20T10:00:01.000Z","type":"event_msg","payload":{"type":"x","n":-Infinity}}',
    "deep nesting (C27)": b"[" * 100000,
    "deep nesting in a payload": b'{"timestamp":"2026-09-20T10:00:01.000Z","type":"event_msg","payload":' + b'{"a":' * 100000,
    "no object": b"[1,2]",
    "text": b"panic: something",
    "two values": b"{}{}",
    "a payload that is no object": b'{"timestamp":"2026-09-20T10:00:01.000Z","type":"event_msg","payload":7}',
    "no payload": b'{"timestamp":"2026-09-20T10:00:01.000Z","type":"response_item"}',
    "bytes that are no text": b"\xff\xfe\x00{",
}


@pytest.mark.parametrize("name", ODD)
def test_an_unreadable_record_costs_only_itself(name, tmp_path):
    evidence = read(tmp_path, [meta(), ODD[name], message("still here"), tokens(figures(10, 1)), END])
    assert charged(evidence) == (10, 0, 1)
    assert len(invocations(evidence)[0]["conversation"]) == 1
    if name != "5000 digits (C27)":  # a Python without the limit reads them
        (gap,) = [one for one in evidence["gaps"] if one["code"] == "agent_artifact_record_unparseable"]
        assert gap["offset"] == len(json.dumps(meta())) + 1


def test_lone_surrogates(tmp_path):
    """(C25) Half an emoji becomes U+FFFD; the document is UTF-8."""
    line = b'{"timestamp":"2026-09-20T10:00:01.000Z","type":"response_item","payload":{"type":"function_call_output","call_id":"a","output":"cut \\ud83d"}}'
    whole = line.replace(b"cut \\ud83d", b"whole \\ud83d\\ude00")
    evidence = read(tmp_path, [meta(), call("a"), line, call("b"), whole.replace(b'"a"', b'"b"')])
    texts = [item["output"] for item in invocations(evidence)[0]["conversation"] if item["type"] == "function_call_output"]
    assert texts == ["cut \ufffd", "whole \U0001f600"]


def test_bytes_that_are_no_utf8(tmp_path):
    line = json.dumps(message("x")).encode().replace(b'"x"', b'"\xff"')
    evidence = read(tmp_path, [meta(), line])
    assert invocations(evidence)[0]["conversation"][0]["content"][0]["text"] == "\ufffd"
    assert codes(evidence["gaps"]) == ["transcript_not_utf8"]


def test_unknown_types_are_one_gap_each_with_a_count(tmp_path):
    new = [record("quantum_state", {}), event("brand_new"), event("brand_new"), record("response_item", {"type": "telepathy"}),
           event("item_completed", item={"type": "Dream"})]
    evidence = read(tmp_path, [meta(), message("hi")] + new)
    found = {one["detail"]: one["count"] for one in evidence["gaps"] if one["code"] == "unknown_record_type"}
    assert found == {"quantum_state": 1, "event_msg/brand_new": 2, "response_item/telepathy": 1, "item_completed/Dream": 1}


def test_types_that_are_no_text(tmp_path):
    evidence = read(tmp_path, [meta(), message("hi"), record(7, {}), record(["x"], {}), event({"a": 1}), record("response_item", {"type": []})])
    assert {"unknown_record_type"} == set(codes(evidence["gaps"]))


def test_records_without_a_stamp_or_in_another_layout(tmp_path):
    evidence = read(tmp_path, [meta(), {"payload": message("a")["payload"], "type": "response_item", "timestamp": 5},
                               {"type": "response_item", "payload": message("b")["payload"]}])
    assert [item["content"][0]["text"] for item in invocations(evidence)[0]["conversation"]] == ["a", "b"]


def test_a_line_that_is_too_long(tmp_path, monkeypatch):
    from worker.harnesses import transcript_files

    monkeypatch.setattr(transcript_files, "LONGEST_LINE", 1000)
    evidence = read(tmp_path, [meta(), message("x" * 5000), message("short"), message("y" * 5000)])
    assert len(invocations(evidence)[0]["conversation"]) == 1
    assert [one["code"] for one in evidence["gaps"]].count("transcript_line_too_long") == 2


# -- history --------------------------------------------------------------------------------------------------------------


def test_paginated_history_without_model_items(tmp_path):
    """(C21) Display items are turned into model items, and a gap says so."""
    items = [{"type": "UserMessage", "content": [{"type": "text", "text": "do it"}]},
             {"type": "AgentMessage", "content": [{"type": "Text", "text": "done"}]}]
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
    evidence = read(tmp_path, [meta(), call("a"), output("a", exited(0)), message("done"), END],
                    [announced(), started, {"type": "item.completed", "item": {"type": "agent_message", "text": "done"}},
                     {"type": "turn.completed", "usage": None}])
    assert tools(evidence) == [["a", "exec_command", "completed", None]]
    assert codes(evidence["gaps"]) == ["event_transcript_difference"]


def test_another_final_message(tmp_path):
    evidence = read(tmp_path, [meta(), message("one"), END],
                    [announced(), {"type": "item.completed", "item": {"type": "agent_message", "text": "two"}},
                     {"type": "turn.completed", "usage": None}])
    assert codes(evidence["gaps"]) == ["event_transcript_difference"]

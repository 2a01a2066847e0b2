"""Tool calls and records of a rollout that are odd: joined by native id, read as far as they can be, every loss a gap.

Names in brackets are public failure cases; beside each its siblings.
"""

from __future__ import annotations

import json

import pytest

from tests.rollouts import (
    END,
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
    record,
    tokens,
    tools,
)

# -- tool calls -----------------------------------------------------------------------------------------------------------

TOOLS = {
    "outputs in another order (C13)": (
        [call("a"), call("b"), call("c"), output("c", exited(3)), output("a", exited(0), 3), output("b", exited(1), 4)],
        [["a", "completed", None], ["b", "failed", "exit_code_1"], ["c", "failed", "exit_code_3"]],
        [],
    ),
    "orphan, duplicate id, early output (C14)": (
        [
            output("x", exited(0)),
            call("d", second=2),
            call("d", second=3),
            output("d", exited(0), 4),
            output("late", exited(0), 5),
            call("late", second=6),
        ],
        [["d", "unknown", None], ["d", "unknown", None], ["late", "completed", None]],
        ["tool_call_duplicate", "tool_outcome_unavailable", "tool_output_early", "tool_output_orphan"],
    ),
    "an id used again after its output": (
        [call("d"), output("d", exited(0)), call("d", second=3), output("d", exited(1), 4)],
        [["d", "completed", None], ["d", "failed", "exit_code_1"]],
        ["tool_call_duplicate"],
    ),
    "two outputs": (
        [call("a"), output("a", exited(0)), output("a", exited(1), 3)],
        [["a", "completed", None]],
        ["tool_output_duplicate"],
    ),
    "no output": ([call("a")], [["a", "incomplete", None]], []),
    "an output that does not tell": (
        [call("a", "view"), output("a", "whatever")],
        [["a", "unknown", None]],
        ["tool_outcome_unavailable"],
    ),
    "text that looks like a result, inside the output": (
        [call("a"), output("a", exited(2, "Process exited with code 0"))],
        [["a", "failed", "exit_code_2"]],
        [],
    ),
    "a call without an id": (
        [record("response_item", {"type": "function_call", "name": "x", "arguments": "{}"}, 1)],
        [["synthetic", "incomplete", None]],
        ["tool_call_synthetic_id"],
    ),
    "an output without an id": (
        [record("response_item", {"type": "function_call_output", "output": "x"})],
        [],
        ["tool_output_orphan"],
    ),
    "a custom tool": (
        [
            record("response_item", {"type": "custom_tool_call", "call_id": "p", "name": "apply_patch", "input": "x"}, 1),
            event("patch_apply_end", 2, call_id="p", success=True),
            record("response_item", {"type": "custom_tool_call_output", "call_id": "p", "output": "Success."}, 2),
        ],
        [["p", "completed", None]],
        [],
    ),
    "a web search": (
        [record("response_item", {"type": "web_search_call", "id": "ws", "status": "completed", "action": {}}, 1)],
        [["ws", "completed", None]],
        [],
    ),
    "the executor's record after an abort": (
        [
            call("a"),
            output("a", "aborted by user after 0.8s"),
            event("item_completed", 3, item={"type": "CommandExecution", "id": "a", "status": "failed", "exit_code": -1}),
        ],
        [["a", "cancelled", "aborted"]],
        [],
    ),
    "the executor's record without an output": (
        [
            call("a"),
            event("item_completed", 3, item={"type": "CommandExecution", "id": "a", "status": "completed", "exit_code": 0}),
        ],
        [["a", "completed", None]],
        [],
    ),
    "ends before it begins": (
        [call("a", second=5), output("a", exited(0), 3)],
        [["a", "completed", None]],
        ["tool_time_reversed"],
    ),
    "success given as a flag": (
        [
            call("a"),
            record(
                "response_item", {"type": "function_call_output", "call_id": "a", "output": {"content": "x", "success": False}}, 2
            ),
        ],
        [["a", "failed", "tool_error"]],
        [],
    ),
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
    "5000 digits (C27)": b'{"timestamp":"2026-09-20T10:00:01.000Z","type":"event_msg","payload":{"type":"x","n":'
    + b"7" * 5000
    + b"}}",
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
    line = json.dumps(output("a", "cut \ud83d")).encode()
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
    new = [
        record("quantum_state", {}),
        event("brand_new"),
        event("brand_new"),
        record("response_item", {"type": "telepathy"}),
        event("item_completed", item={"type": "Dream"}),
    ]
    evidence = read(tmp_path, [meta(), message("hi")] + new)
    found = {one["detail"]: one["count"] for one in evidence["gaps"] if one["code"] == "unknown_record_type"}
    assert found == {"quantum_state": 1, "event_msg/brand_new": 2, "response_item/telepathy": 1, "item_completed/Dream": 1}


def test_types_that_are_no_text(tmp_path):
    evidence = read(
        tmp_path,
        [meta(), message("hi"), record(7, {}), record(["x"], {}), event({"a": 1}), record("response_item", {"type": []})],
    )
    assert {"unknown_record_type"} == set(codes(evidence["gaps"]))


def test_records_without_a_stamp_or_in_another_layout(tmp_path):
    evidence = read(
        tmp_path,
        [
            meta(),
            {"payload": message("a")["payload"], "type": "response_item", "timestamp": 5},
            {"type": "response_item", "payload": message("b")["payload"]},
        ],
    )
    assert [item["content"][0]["text"] for item in invocations(evidence)[0]["conversation"]] == ["a", "b"]


def test_a_line_that_is_too_long(tmp_path, monkeypatch):
    from worker.harnesses import transcript_files

    monkeypatch.setattr(transcript_files, "LONGEST_LINE", 1000)
    evidence = read(tmp_path, [meta(), message("x" * 5000), message("short"), message("y" * 5000)])
    assert len(invocations(evidence)[0]["conversation"]) == 1
    assert [one["code"] for one in evidence["gaps"]].count("transcript_line_too_long") == 2

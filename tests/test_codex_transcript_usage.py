"""What a run is charged by its rollouts: repeated, malformed, missing, falling counters; resumed and forked threads.

Names in brackets are public failure cases; beside each its siblings.
"""

from __future__ import annotations

import json

import pytest

from tests.rollouts import (
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
    record,
    tokens,
    tools,
)
from worker import usage

FULL = dict(figures(0, 0), total_tokens=258400)  # 0.171.0, HTTP 400 context_length_exceeded
CHILD = "01970000-0000-7000-8000-0000000000c2"


# -- usage ----------------------------------------------------------------------------------------------------------------

USAGE = {
    # name: (records after session_meta, the figures charged, gap codes of the transcript)
    "the same total again and again (C02)": (
        [tokens(figures(1000, 100))] * 3 + [tokens(figures(3000, 300, 900), figures(2000, 200, 900)), END],
        (3000, 900, 300),
        [],
    ),
    "killed before any event (C10)": ([tokens(figures(4000, 300, 1000))], (4000, 1000, 300), []),
    "a full context, which is no spending": ([tokens(figures(1000, 50, 400)), tokens(FULL), END], (1000, 400, 50), []),
    "a full context at once": ([tokens(FULL), END], (None, None, None), []),
    "counted anew after a full context": (
        [tokens(figures(1000, 50)), tokens(FULL), tokens(figures(2000, 60)), END],
        (2000, 0, 60),
        ["usage_counter_reset"],
    ),
    "nothing was counted": ([message("hi")], (None, None, None), []),
    "null, then a total": ([event("token_count", info=None), tokens(figures(10, 1)), END], (10, 0, 1), []),
    "a total, then null": ([tokens(figures(10, 1)), event("token_count", info=None), END], (10, 0, 1), []),
    "null after null": ([event("token_count", info=None)] * 2 + [END], (None, None, None), []),
    "a malformed last total": (
        [tokens(figures(10, 1)), tokens(dict(figures(20, 2), input_tokens="20")), END],
        (None, None, None),
        ["usage_invalid"],
    ),
    "a malformed total, then a good one": (
        [tokens(dict(figures(10, 1), output_tokens=-1)), tokens(figures(20, 2)), END],
        (20, 0, 2),
        [],
    ),
    "a boolean": ([tokens(dict(figures(10, 1), cached_input_tokens=True)), END], (None, None, None), ["usage_invalid"]),
    "info of another type": (
        [tokens(figures(10, 1)), event("token_count", info=[1]), END],
        (None, None, None),
        ["usage_invalid"],
    ),
    "no total_token_usage": ([tokens(figures(10, 1)), event("token_count", info={}), END], (None, None, None), ["usage_invalid"]),
    "the counter goes down (C07)": (
        [
            tokens(figures(5000, 400)),
            record("compacted", {"message": "summary"}),
            tokens(figures(1200, 30)),
            tokens(figures(1500, 60)),
            END,
        ],
        (1500, 0, 60),
        ["usage_counter_reset"],
    ),
    "a record per response (0.171)": (
        [
            record("token_usage_record", {"response_id": "r1", "usage": figures(7, 1), "thread_token_usage": figures(7, 1)}),
            record("token_usage_record", {"response_id": "r2", "usage": figures(8, 1), "thread_token_usage": figures(15, 2)}),
        ],
        (15, 0, 2),
        [],
    ),
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
    wire = {
        "usage": dict(figures(6500, 460), cache_write_input_tokens=None),
        "usage_missing": 1,
        "requests": 3,
        "main_requests": 3,
    }
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
    evidence = home.collect([announced()], baseline={path[len(home.path) + 1 :]: size})
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
    home.write(
        [meta(), call("call_s", "spawn_agent"), output("call_s", json.dumps({"agent_id": CHILD})), tokens(figures(400, 40))]
    )
    spawn = {"subagent": {"thread_spawn": {"depth": 1}}}
    home.write(
        [meta(CHILD, parent_thread_id=THREAD, thread_source="subagent", source=spawn), tokens(figures(900, 70, 100))], CHILD
    )
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

"""The observation document: the reference's fields, model calls joined to attempts with one owner each, little memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest

from tests.rollouts import (
    END,
    THREAD,
    Home,
    announced,
    call,
    codes,
    exited,
    figures,
    invocations,
    message,
    meta,
    output,
    record,
    tokens,
)
from worker import observations, outcome
from worker.gaps import GAPS, MOST, Gaps

CHILD = "01970000-0000-7000-8000-0000000000c2"
COMPLETED = outcome.classify({"main_status": 0, "live": {"terminal": "success"}})
# Field names of the reference contract; what is not there is ours (attempts, turn_id, request_kind of a model call).
FIELDS = {
    "agent_invocation": "kind invocation_id parent_invocation_id spawned_by_tool_call_id status duration_ms error_type "
                        "model_calls conversation",
    "tool_call": "kind invocation_id tool_call_id tool_name started_at completed_at duration_ms timing_source status error_type",
    "context_compaction": "kind invocation_id observed_at trigger tokens_before tokens_after outcome summary first_kept_item_id "
                          "before_model_call model_calls after_model_call",
    "sandbox": "kind role outcome exit_code wall_time_s cpu_time_s peak_memory_mib error_type",
}  # fmt: skip


def attempt(seq, request, thread, response=None, number=1, **more):
    turn = json.dumps({"turn_id": "t1", "request_kind": more.pop("kind", "turn"), "parent_thread_id": more.pop("parent", None)})
    identity = {} if thread is None else {"thread-id": thread, "x-codex-turn-metadata": turn}
    return dict(
        {"seq": seq, "request": request, "attempt": number, "main": True, "dialect": "responses", "identity": identity,
         "response_id": response}, **more
    )


def written(evidence, decided=COMPLETED, facts=None):
    return json.loads(b"".join(observations.chunks("codex", evidence, decided, facts or {})).decode("utf-8"))


def whole(folder):
    """A run with everything: tools, a sub-agent, a compaction, retries, a side request."""
    home = Home(folder)
    home.write(
        [
            meta(),
            message("go", "user"),
            call("s", "spawn_agent"),
            output("s", json.dumps({"agent_id": CHILD})),
            record("token_usage_record", {"response_id": "r1", "thread_token_usage": figures(10, 1)}),
            record("compacted", {"message": "short"}, 3),
            tokens(figures(20, 2)),
            message("done", second=8),
            END,
        ]
    )
    home.write([meta(CHILD, parent_thread_id=THREAD), call("c"), output("c", exited(3)), message("child")], CHILD)
    home.attempts(
        [
            attempt(1, 1, THREAD),
            attempt(2, 1, THREAD, "r1", 2),
            attempt(3, 2, CHILD, "rc", parent=THREAD),
            attempt(4, 3, THREAD, "rk", kind="compaction"),
            attempt(5, 4, None, main=False),
            attempt(6, 5, THREAD, "r2"),
        ]
    )
    return home.collect([announced()], wire={"requests": 5})


def test_fields(tmp_path):
    document = written(whole(tmp_path), facts={"main_status": 0, "started_at": 5.0, "ended_at": 7.5})
    assert {one["kind"] for one in document["records"]} == set(FIELDS)
    for one in document["records"]:
        assert sorted(one) == sorted(FIELDS[one["kind"]].split())
    for one in document["gaps"]:
        assert sorted(one) == ["code", "count", "detail", "file", "invocation_id", "offset"] and one["code"] in GAPS
    assert len({one["invocation_id"] for one in document["records"] if one["kind"] == "agent_invocation"}) == 2


def test_model_calls_are_requests_with_their_attempts(tmp_path):
    """Each attempt has one owner; a retry stays with its request."""
    root, child = invocations(whole(tmp_path))
    assert [(one["model_call_id"], one["response_id"], one["attempts"]) for one in root["model_calls"]] == [
        ("1", "r1", [1, 2]), ("3", "rk", [4]), ("5", "r2", [6])]  # fmt: skip
    assert [(one["model_call_id"], one["attempts"]) for one in child["model_calls"]] == [("2", [3])]
    assert root["model_calls"][1]["request_kind"] == "compaction"
    owned = [seq for one in (root, child) for request in one["model_calls"] for seq in request["attempts"]]
    assert sorted(owned) == [1, 2, 3, 4, 6]


def test_a_compaction_names_its_own_calls_and_its_neighbours(tmp_path):
    (compaction,) = [one for one in whole(tmp_path)["plain"] if one["kind"] == "context_compaction"]
    assert [one["model_call_id"] for one in compaction["model_calls"]] == ["3"]
    assert compaction["before_model_call"]["model_call_id"] == "1"
    assert compaction["after_model_call"]["model_call_id"] == "5"


def test_attempts_of_nobody_and_responses_without_an_attempt(tmp_path):
    home = Home(tmp_path)
    used = {"response_id": "r9", "thread_token_usage": figures(10, 1)}
    home.write([meta(), message("x"), record("token_usage_record", used)])
    home.attempts([attempt(1, 1, None, "r1"), attempt(2, 2, CHILD, "r2"), attempt(3, 3, None, dialect=None)])  # 3: a probe
    found = home.collect([announced()], wire={"requests": 2})
    assert codes(found["gaps"]) == ["model_call_ownership_unavailable", "model_call_reference_unmatched"]
    assert next(one["detail"] for one in found["gaps"] if one["code"] == "model_call_ownership_unavailable") == "2 attempts"


def test_the_clis_own_repeats_of_a_request_belong_to_its_model_call(tmp_path):
    """Until it is answered; the same bytes asked after that are another call."""
    home, cut = Home(tmp_path), {"fingerprint": "f", "failure": "stream_interrupted"}
    home.write([meta(), message("x"), END])
    home.attempts([
        attempt(1, 1, THREAD, **cut), attempt(2, 2, THREAD, number=2, **cut), attempt(3, 3, THREAD, "r1", 3, fingerprint="f"),
        attempt(4, 4, THREAD, "r2", fingerprint="f"), attempt(5, 5, THREAD, "r3", fingerprint="g")])  # fmt: skip
    (root,) = invocations(home.collect([announced()], wire={"requests": 5}))
    assert [(one["model_call_id"], one["response_id"], one["attempts"]) for one in root["model_calls"]] == [
        ("1", "r1", [1, 2, 3]), ("4", "r2", [4]), ("5", "r3", [5])]  # fmt: skip


@pytest.mark.parametrize("most", [1000, 2])
def test_a_record_that_was_written_late_stands_where_its_request_does(tmp_path, monkeypatch, most):
    """A client that has its answer may ask the same again, and fail, before the first record is on disk."""
    monkeypatch.setattr(observations, "MOST_EARLY", most)
    home, failed = Home(tmp_path), {"fingerprint": "f", "failure": "server_error"}
    home.write([meta(), message("x"), END])
    home.attempts([attempt(2, 2, THREAD, **failed), attempt(1, 1, THREAD, "r1", fingerprint="f"),
                   attempt(3, 2, THREAD, "r2", 2, fingerprint="f"), attempt(5, 4, THREAD, "r4"), attempt(6, 5, THREAD, "r5"),
                   attempt(4, 3, THREAD, "r3"), attempt(8, 6, THREAD, "r6")])  # fmt: skip
    (root,) = invocations(home.collect([announced()], wire={"requests": 6}))
    assert [one["attempts"] for one in root["model_calls"]] == [[1], [2, 3], [4], [5], [6], [8]]


def test_a_response_id_that_two_requests_carried(tmp_path):
    home = Home(tmp_path)
    home.write([meta(), message("x"), record("token_usage_record", {"response_id": "r1", "thread_token_usage": figures(10, 1)})])
    home.attempts([attempt(1, 1, THREAD, "r1"), attempt(2, 2, THREAD, "r1")])
    assert codes(home.collect([announced()], wire={"requests": 2})["gaps"]) == ["model_call_reference_ambiguous"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "garbage",
        "[]",
        "7",
        '{"identity": 5}',
        '{"identity": {"thread-id": ["x"]}}',
        '{"identity": {"x-codex-turn-metadata": "{"}}',
        '{"request": {"a": 1}, "identity": {"thread-id": "%s"}}' % THREAD,
    ],
)
def test_odd_attempt_lines(line, tmp_path):
    home = Home(tmp_path)
    home.write([meta(), message("x")])
    with open(os.path.join(home.session, "model_attempts.jsonl"), "w") as file:
        file.write(line + "\n" + json.dumps(attempt(1, 1, THREAD, "r1")) + "\n")
    found = home.collect([announced()], wire={"requests": 1})
    assert invocations(found)[0]["model_calls"][-1]["attempts"] == [1]


STATUS = [("completed", "completed"), ("failed", "failed"), ("incomplete", "incomplete"), ("not_run", "unknown")]


@pytest.mark.parametrize(("status", "shown"), STATUS)
def test_the_outcome_gives_the_root_its_status(status, shown, tmp_path):
    decided = {"status": status, "kind": "x", "message": "why"}
    document = written(whole(tmp_path), decided)
    assert [one["status"] for one in document["records"] if one["kind"] == "agent_invocation"][0] == shown
    assert ("harness_not_run" in {one["code"] for one in document["gaps"]}) == (status == "not_run")


SANDBOX = [("completed", "completed"), ("wall_timeout", "timeout"), ("out_of_memory", "oom"), ("cancelled", "cancelled"),
           ("worker_error", "sandbox_error"), ("agent_crash", "failed")]  # fmt: skip


@pytest.mark.parametrize(("kind", "shown"), SANDBOX)
def test_the_sandbox_record(kind, shown):
    found = observations.sandbox(
        {"kind": kind, "status": "failed"},
        {"main_status": 3, "started_at": 9.0, "ended_at": 8.0, "resources": {"cpu_time_s": 1.5, "peak_memory_mib": 7.0}},
    )
    assert (found["outcome"], found["exit_code"], found["wall_time_s"]) == (shown, 3, 0.0)
    assert (found["cpu_time_s"], found["peak_memory_mib"]) == (1.5, 7.0)


def test_gaps_are_merged_counted_and_bounded():
    gaps = Gaps()
    for number in range(MOST + 100):
        gaps.add("unknown_record_type", "x", key="x")
        gaps.add("agent_artifact_record_unparseable", "y", file="f", offset=number)
    found = gaps.list()
    assert found[0]["count"] == MOST + 100 and len(found) == MOST + 1
    assert found[-1] == {
        "code": "gaps_truncated",
        "invocation_id": None,
        "detail": None,
        "file": None,
        "offset": None,
        "count": 101,
    }
    with pytest.raises(KeyError):
        gaps.add("no_such_code")


CHILD_PROCESS = """
import json, os, resource, sys
sys.path.insert(0, %r)
from tests.rollouts import Home, announced
from worker import observations
home = Home.__new__(Home)
home.path, home.session = sys.argv[1], sys.argv[2]
from worker.harnesses import codex_rollout
live = codex_rollout.Live(); live.feed(announced())
dirfd = os.open(home.session, os.O_RDONLY); native = os.open(home.session + "/native", os.O_RDONLY)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
evidence = codex_rollout.collect({"state": home.path, "dirfd": dirfd, "native_dirfd": native, "live": live, "wire": None,
    "invocation_id": "inv", "started_at": None, "baseline": {}, "redactor": None})
decided = {"status": "completed", "kind": "completed", "message": ""}
size = sum(len(piece) for piece in observations.chunks("codex", evidence, decided, {}))
print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, size, len(evidence["records"])]))
"""


def test_memory_does_not_grow_with_the_transcript(tmp_path):
    """25 MB of rollout, 12,000 calls: the growth is that of buffers and of the window, not of the file."""
    home, root = Home(tmp_path), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(home.write([meta()]), "ab") as file:
        for number in range(12000):
            pair = (call("c%d" % number), output("c%d" % number, exited(0, "x" * 1800)))
            file.write(b"".join(json.dumps(one).encode() + b"\n" for one in pair))
    done = subprocess.run(
        [sys.executable, "-c", CHILD_PROCESS % root, home.path, home.session], stdout=subprocess.PIPE, check=True, timeout=300
    )
    grown, size, records = json.loads(done.stdout)
    assert records == 12001 and size > 24e6
    assert grown < 40000, "%d KiB" % grown  # of it 4096 records of the window, 2000 before they spill, 2 MiB of buffers
    assert resource.getpagesize() > 0

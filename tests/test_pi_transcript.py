"""Session files that the real Pi 0.80.2 and 1.6.0 wrote, and what a hostile agent could make of them."""
from __future__ import annotations

import json
import os

import pytest

from tests import harness_corpus as corpus
from worker.harnesses import pi_events, pi_reader

CASES = corpus.cases("pi")


@pytest.mark.parametrize("name", CASES)
def test_a_real_run(name, tmp_path):
    case = corpus.Case("pi", name, tmp_path)
    found = corpus.seen(*case.collect())
    assert found == {key: case.expected[key] for key in found}


def session_file(case):
    (name,) = os.listdir(case.state)
    return os.path.join(case.state, name)


def test_the_exit_code_of_a_tool_stands_on_stdout_only(tmp_path):
    """1.6.0: without stdout the last line of the text tells, and without that a failure is a failure."""
    case = corpus.Case("pi", "1.6.0-tool7", tmp_path)
    case.stdout = [event for event in case.stdout if event.get("type") == "session"]
    found = corpus.seen(*case.collect())
    assert found["tools"][0][2:] == ["failed", "exit_code_7"]


def test_no_file_before_the_first_answer(tmp_path):
    """0.80.2 killed in its first model call leaves nothing: a gap, and the calls are still the root's."""
    case = corpus.Case("pi", "0.80.2-stop", tmp_path)
    os.unlink(session_file(case))
    found = corpus.seen(*case.collect())
    assert (found["gaps"], found["tools"], found["usage"]) == (["agent_artifact_unavailable"], [], None)
    assert found["agents"] == [[None, None, "unknown", 1]]


def test_a_session_of_somebody_else_is_left_alone(tmp_path):
    case = corpus.Case("pi", "1.6.0-success", tmp_path)
    os.rename(session_file(case), os.path.join(case.state, "2026-01-01_somebody-else.jsonl"))
    found = corpus.seen(*case.collect())
    assert found["gaps"].count("transcript_unrelated") == 1 and found["native"] == []


def test_nothing_is_read_through_a_symlink(tmp_path):
    case = corpus.Case("pi", "1.6.0-success", tmp_path)
    corpus.hostile(case, tmp_path)
    evidence, _ = case.collect()
    found = corpus.seen(evidence, evidence["live"] if "live" in evidence else pi_events.Live())
    assert found["native"] == [] and "transcript_not_regular" in found["gaps"] and found["tools"] == []


def test_a_cut_last_line_costs_only_itself(tmp_path):
    case = corpus.Case("pi", "1.6.0-success", tmp_path)
    path = session_file(case)
    data = open(path, "rb").read()
    for cut in range(len(data) - 400, len(data), 37):
        folder = tmp_path / str(cut)
        folder.mkdir()
        case = corpus.Case("pi", "1.6.0-success", folder)
        with open(session_file(case), "wb") as file:
            file.write(data[:cut])
        found = corpus.seen(*case.collect())
        assert len(found["tools"]) == 2
        assert set(found["gaps"]) <= {"transcript_truncated", "model_call_reference_unmatched"}


def test_live_survives_anything():
    live = pi_events.Live()
    for event in corpus.WORST:
        live.feed(event)
    assert live.terminal is None


def test_a_retry_takes_the_ending_back():
    """agent_end with willRetry, a retry or a compaction after it: not the end (A2)."""
    failed = {"type": "message_end", "message": {"role": "assistant", "stopReason": "error", "errorMessage": "429 slow down"}}
    live = pi_events.Live()
    for event, terminal in (
        (failed, None), ({"type": "agent_end", "willRetry": True}, None), (failed, None), ({"type": "agent_end"}, "failure"),
        ({"type": "compaction_start"}, None),
    ):
        live.feed(event)
        assert live.terminal == terminal


def test_any_record_may_be_anything(tmp_path):
    """One value after the other is turned into something else: a gap at most, and never an error of ours."""
    case = corpus.Case("pi", "1.6.0-tool7", tmp_path)
    records = corpus.lines(session_file(case))
    path = session_file(case)
    broken = [mutant for record in records for mutant in corpus.mutants(record)]
    with open(path, "w") as file:
        file.writelines(json.dumps(one) + "\n" for one in records + broken)
    evidence, _ = case.collect()
    assert len(evidence["gaps"]) > 10
    live = pi_events.Live()
    for event in case.stdout:
        for mutant in corpus.mutants(event):
            live.feed(mutant)


USAGES = [
    ({"input": 901, "output": 11, "cacheRead": 100, "cacheWrite": 0, "totalTokens": 1012}, (1001, 100, 11, None)),
    ({"input": 901, "output": 11, "cacheRead": 100, "cacheWrite": 0, "totalTokens": 1012, "reasoning": 3}, (1001, 100, 11, 3)),
    ({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}, None),
    ({"input": -1, "output": 0, "cacheRead": 0, "cacheWrite": 0}, None),
    ({"input": "1"}, None),
    (None, None),
]


@pytest.mark.parametrize("raw, wanted", USAGES, ids=[json.dumps(raw) for raw, _ in USAGES])
def test_zero_usage_is_unknown_usage(raw, wanted):
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
    found = pi_reader.figures_of({"usage": raw})
    assert (found and tuple(found[name] for name in names)) == wanted


@pytest.mark.parametrize("text, wanted", [
    ("out\n\n\nCommand exited with code 7", ("failed", "exit_code_7")),
    ("Command timed out after 2 seconds", ("timeout", "timeout")),
    ("Command aborted", ("cancelled", "aborted")),
    ("Tool nosuch not found", ("failed", "tool_error")),
    ("Command exited with code 7\nand more", ("failed", "tool_error")),
])
def test_what_the_text_of_a_failed_tool_tells(text, wanted):
    assert pi_reader.result_of({"isError": True}, text, None) == wanted
    assert pi_reader.result_of({"isError": False}, text, None) == ("completed", None)
    assert pi_reader.result_of({"isError": True}, text, 3) == ("failed", "exit_code_3")

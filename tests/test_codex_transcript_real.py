"""Rollouts that the real Codex 0.144.4 and 0.171.0 wrote (tests/corpus/rollouts, one directory per run) are read whole."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tests.rollouts import CORPUS, DAY, Home, codes, invocations, tools
from worker import observations, outcome, usage

RUNS = sorted(os.listdir(CORPUS))


def load(name, folder):
    """(Home with the run's rollouts, its stdout events, the expectation)."""
    home, source = Home(folder), os.path.join(CORPUS, name)
    for file in sorted(os.listdir(source)):
        if file.startswith("rollout-"):
            shutil.copy(os.path.join(source, file), home.file(file))
    with open(os.path.join(source, "stdout.jsonl"), encoding="utf-8") as stdout, open(
        os.path.join(source, "expect.json")
    ) as wanted:
        return home, [json.loads(line) for line in stdout], json.load(wanted)


def collected(name, folder):
    home, stdout, wanted = load(name, folder)
    sizes = {DAY + "/" + file: size for file, size in wanted["sizes_before"].items()}
    return home.collect(stdout, baseline=sizes), wanted


@pytest.mark.parametrize("name", RUNS)
def test_a_real_run(name, tmp_path):
    evidence, wanted = collected(name, tmp_path)
    root, *others = invocations(evidence)
    chosen, mismatches = usage.choose(None, evidence)
    assert sorted(tools(evidence)) == sorted(wanted["tools"])
    assert evidence["version"] == wanted["version"]
    assert (evidence["final_message"], evidence["terminal"]) == (wanted["final"], wanted["terminal"])
    assert evidence["error_text"] == wanted["error"]
    assert len(root["conversation"]) == wanted["items"]
    assert root["status"] == wanted["status"]
    assert [one["spawned_by_tool_call_id"] for one in others] == wanted["spawned_by"]
    assert all(one["parent_invocation_id"] == "inv" for one in others)
    assert sum(one["kind"] == "context_compaction" for one in evidence["plain"]) == wanted["compactions"]
    assert codes(evidence["gaps"] + mismatches) == sorted(wanted["gaps"])
    figures = {key: chosen["chosen"][key] for key in wanted["usage"]} if wanted["usage"] else chosen["chosen"]["source"]
    assert figures == wanted["usage"]
    totals = [one["thread_total"] for one in evidence["threads"].values() if "thread_total" in one]
    assert [{key: one[key] for key in wanted["thread_total"]} for one in totals] == (
        [wanted["thread_total"]] if wanted["thread_total"] else []
    )


@pytest.mark.parametrize("name", RUNS)
def test_the_document_is_strict_json(name, tmp_path):
    evidence, wanted = collected(name, tmp_path)
    decided = outcome.classify({"main_status": 0, "live": {"terminal": evidence["terminal"]}, "output_seen": True})
    document = json.loads(b"".join(observations.chunks("codex", evidence, decided, {"main_status": 0})).decode("utf-8"))
    assert document["source"] == "codex"
    assert [one["kind"] for one in document["records"]].count("tool_call") == len(wanted["tools"])
    assert document["records"][0]["kind"] == "sandbox"
    assert {gap["code"] for gap in document["gaps"]} <= set(observations.GAPS)


@pytest.mark.parametrize("name", ["0.144.4-tools", "0.171.0-tools", "0.171.0-sigint"])
def test_cut_anywhere(name, tmp_path):
    """Killed in the middle of any write: everything before the cut counts, and the cut is one gap with its offset."""
    whole, _ = collected(name, tmp_path / "whole")
    home, stdout, _ = load(name, tmp_path / "cut")
    path, data = next(
        (one, open(one, "rb").read()) for one in [home.file(file) for file in os.listdir(os.path.join(home.path, DAY))]
    )
    for cut in list(range(1, len(data), 97)) + [len(data) - 1]:
        with open(path, "wb") as file:
            file.write(data[:cut])
        evidence = Home.collect(home, stdout)
        for file in os.listdir(os.path.join(home.session, "native")):
            os.unlink(os.path.join(home.session, "native", file))
        start = data.rfind(b"\n", 0, cut) + 1
        truncated = [gap for gap in evidence["gaps"] if gap["code"] == "transcript_truncated"]
        complete = data[start:cut].startswith(b"{") and _is_json(data[start:cut])
        assert [gap["offset"] for gap in truncated] == ([] if start == cut or complete else [start]), cut
        known = {identity: name for identity, name, _, _ in tools(whole)}
        assert all(known[identity] == name for identity, name, _, _ in tools(evidence))


ODD = (None, True, -7, 1.5, "x", [], [None], {}, {"type": 3})


def mutated(value):
    """The value with one part of it replaced by each odd thing in turn."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            for odd in mutated(value[key]):
                copy = dict(value) if isinstance(value, dict) else list(value)
                copy[key] = odd
                yield copy
    yield from ODD


@pytest.mark.parametrize("name", ["0.144.4-tools", "0.144.4-mcp", "0.171.0-subagent", "0.171.0-fork", "0.171.0-compact"])
def test_any_part_of_any_record_may_be_anything(name, tmp_path):
    """No exception, strict JSON, no figure below zero."""
    home, stdout, _ = load(name, tmp_path)
    file = sorted(os.listdir(os.path.join(home.path, DAY)))[-1]
    with open(home.file(file), encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    odd = [variant for one in records for variant in mutated(one)]
    for start in range(0, len(odd), 2000):
        folder = Home(tmp_path / str(start))
        folder.write([records[0]] + odd[start : start + 2000] + records, name=file)
        evidence = folder.collect(stdout)
        decided = outcome.classify({"main_status": 0, "output_seen": True})
        json.loads(b"".join(observations.chunks("codex", evidence, decided, {})).decode("utf-8"))
        for figure in usage.choose(None, evidence)[0]["chosen"].values():
            assert not isinstance(figure, int) or figure >= 0


def _is_json(data):
    try:
        json.loads(data.decode("utf-8", "replace"))
    except ValueError:
        return False
    return True

"""tests/corpus/HARNESS/CASE: what a real CLI left (stdout.jsonl, state/), and expect.json, what a reader must make of it.

Each case is a scripted run of our own, shortened: no system prompts, no tool schemas. `read` collects a case as a run without
a proxy would; `mutate_and_cut` feeds a reader damaged copies.
"""
from __future__ import annotations

import json
import os
import shutil

from worker import observations, outcome, usage

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
ALWAYS = {"no_wire", "model_call_join_key_unavailable"}
ODD = (None, True, -7, 1.5, "x", [], [None], {}, {"type": 3})


def cases(harness):
    return sorted(name for name in os.listdir(os.path.join(ROOT, harness)))


def load(harness, case, folder):
    """(state directory, stdout events, expectation)."""
    source, state = os.path.join(ROOT, harness, case), os.path.join(str(folder), "state")
    if not os.path.isdir(state):
        shutil.copytree(os.path.join(source, "state"), state)
    with open(os.path.join(source, "stdout.jsonl"), encoding="utf-8") as stdout, open(
            os.path.join(source, "expect.json"), encoding="utf-8") as wanted:
        return state, [json.loads(line) for line in stdout], json.load(wanted)


def collect(reader, state, events, session, **run):
    """The evidence of a run that left this; session: a new directory."""
    live = reader.Live()
    for event in events:
        live.feed(event)
    os.makedirs(os.path.join(session, "native"))
    dirfd, native = os.open(session, os.O_RDONLY), os.open(os.path.join(session, "native"), os.O_RDONLY)
    given = {"state": state, "dirfd": dirfd, "native_dirfd": native, "live": live, "wire": None, "invocation_id": "inv",
             "started_at": None, "ended_at": None, "baseline": {}, "redactor": None, "env": {}}
    try:
        evidence = reader.collect(dict(given, **run))
        evidence["live"] = live
        evidence["plain"] = [dict(one, conversation=list(one["conversation"])) if "conversation" in one else one
                             for one in evidence["records"]]
        decided = outcome.classify({"main_status": 0, "output_seen": True, "live": {"terminal": live.terminal}})
        json.loads(b"".join(observations.chunks("x", evidence, decided, {"main_status": 0})).decode("utf-8"))
    finally:
        os.close(native)
        os.close(dirfd)
    return evidence


def summary(evidence):
    """What expect.json holds."""
    chosen = usage.choose(None, evidence)[0]["chosen"]
    invocations = [one for one in evidence["plain"] if one["kind"] == "agent_invocation"]
    return {
        "tools": [[one["tool_call_id"], one["tool_name"], one["status"], one["error_type"]]
                  for one in evidence["plain"] if one["kind"] == "tool_call"],
        "invocations": [[one["spawned_by_tool_call_id"], one["status"], len(one["conversation"])] for one in invocations],
        "live": evidence["live"].terminal, "transcript": evidence["terminal"], "final_message": evidence["final_message"],
        "error_text": evidence["error_text"], "version": evidence["version"], "source": chosen["source"],
        "usage": [chosen[name] for name in ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")],
        "gaps": sorted({one["code"] for one in evidence["gaps"]} - ALWAYS),
    }


def check(reader, harness, case, folder):
    state, stdout, wanted = load(harness, case, folder)
    assert summary(collect(reader, state, stdout, os.path.join(str(folder), "session"))) == wanted


def files(state):
    return [os.path.join(top, name) for top, _, names in os.walk(state) for name in names]


def cut_everywhere(reader, harness, case, folder, step=211):
    """Killed in the middle of any write: nothing is raised, and no tool call appears that the whole does not have."""
    state, stdout, wanted = load(harness, case, folder)
    path = max(files(state), key=os.path.getsize)
    with open(path, "rb") as file:
        data = file.read()
    for cut in list(range(0, len(data), max(step, len(data) // 60))) + [len(data) - 1]:
        with open(path, "wb") as file:
            file.write(data[:cut])
        evidence = collect(reader, state, stdout, os.path.join(str(folder), "session-%d" % cut))
        known = {one[0]: one[1] for one in wanted["tools"]}
        assert all(known.get(one[0]) == one[1] for one in summary(evidence)["tools"] if "@" not in one[0]), cut


def odd_everywhere(reader, harness, case, folder):
    """Any part of any record may be anything: no exception, strict JSON, no figure below zero."""
    state, stdout, _ = load(harness, case, folder)
    for number, path in enumerate(files(state)):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        records = [json.loads(line) for line in text.splitlines()] if path.endswith(".jsonl") else [json.loads(text)]
        variants = [odd for one in records for odd in mutated(one)]
        batches = [variants[at:at + 1500] for at in range(0, len(variants), 1500)] if path.endswith(".jsonl") else [
            [one] for one in variants[::7]]
        for at, batch in enumerate(batches):
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(one) + "\n" for one in (named(batch) + records if path.endswith(".jsonl") else batch))
            evidence = collect(reader, state, stdout, os.path.join(str(folder), "odd-%d-%d" % (number, at)))
            figures = usage.choose(None, evidence)[0]["chosen"].values()
            assert all(not isinstance(one, int) or one >= 0 for one in figures)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    live = reader.Live()
    for event in stdout:
        for odd in mutated(event):
            live.feed(odd)


def named(records):
    """Each with a `uuid` of its own: one that was seen before is left out by the readers."""
    return [dict(one, uuid="u%d" % at) if isinstance(one, dict) and isinstance(one.get("uuid"), str) else one
            for at, one in enumerate(records)]


def mutated(value):
    """The value with one part of it replaced by each odd thing in turn."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            for odd in mutated(value[key]):
                copy = dict(value) if isinstance(value, dict) else list(value)
                copy[key] = odd
                yield copy
    yield from ODD

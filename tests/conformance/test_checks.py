"""The checks themselves: a true record passes, and each falsification of it is found by the check that it concerns.

One run of each scenario below with the real CLI; every case works on a copy of what it left.
"""
from __future__ import annotations

import json
import shutil

import pytest

from tests import real_cli, runs
from tests.conformance import checks, report, runner, scenarios
from tests.conformance.harnesses.codex import HARNESS as CODEX

pytestmark = pytest.mark.real_cli
VERSION = real_cli.CODEX[0]


@pytest.fixture(scope="module")
def played(dist, tmp_path_factory):
    """{scenario: Played}, each made when it is first asked for."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = runner.play(scenarios.BY_NAME[name], VERSION, CODEX.places(VERSION), dist + "/sandbox-worker.pyz",
                                     tmp_path_factory.mktemp(name) / "run")
        return made[name]
    return get


class Copy:
    """What a run left, to be falsified: JSON documents by name, and files."""

    def __init__(self, directory):
        self.directory = directory

    def edit(self, name, change):
        path = self.directory / name
        lines = name.endswith(".jsonl")
        value = [json.loads(line) for line in path.read_text().splitlines()] if lines else json.loads(path.read_text())
        replaced = change(value)
        value = value if replaced is None else replaced
        path.write_text("".join(json.dumps(line) + "\n" for line in value) if lines else json.dumps(value))


def attempts(change):
    return lambda copy: copy.edit("model_attempts.jsonl", change)


def result(change):
    return lambda copy: copy.edit("result.json", change)


def records(kind, change):
    """Change the list of all records of this kind, given as a list to work on; a returned list replaces it."""
    def edit(document):
        mine = [record for record in document["records"] if record["kind"] == kind]
        rest = [record for record in document["records"] if record["kind"] != kind]
        replaced = change(mine)
        document["records"] = (replaced if isinstance(replaced, list) else mine) + rest
    return lambda copy: copy.edit("observations.json", edit)


def bytes_of(name, change):
    def edit(copy):
        path = copy.directory / name
        path.write_bytes(change(path.read_bytes()))
    return edit


def put(target, *path):
    """put(record, "usage", "input_tokens", 7): sets the last name to the last value."""
    for name in path[:-2]:
        target = target[name]
    target[path[-2]] = path[-1]


INVOCATION, CALL = "agent_invocation", "tool_call"
FALSE = [
    ("call status", "retry_429", attempts(lambda a: put(a, 1, "status", 503))),
    ("call status", "retry_429", attempts(lambda a: put(a, 0, "failure", None))),
    ("call status", "retry_429", attempts(lambda a: put(a, 0, "decision", "gave_up"))),
    ("call status", "retry_429", attempts(lambda a: a[1:])),
    ("call status", "retry_429", attempts(lambda a: a + [dict(a[-1], seq=9)])),
    ("call status", "retry_429", attempts(lambda a: put(a, 2, "request_sha256", "0" * 64))),
    ("call status", "retry_429", attempts(lambda a: put(a, 2, "ended_at", 1.0))),
    ("call status", "stream_cut_first_event", attempts(lambda a: put(a, 1, "error", None))),
    ("tokens", "retry_429", attempts(lambda a: put(a, 2, "usage", "output_tokens", 51))),
    ("tokens", "retry_429", attempts(lambda a: put(a, 0, "usage", dict(a[2]["usage"])))),
    ("tokens", "retry_429", result(lambda r: put(r, "usage", "chosen", "total_tokens", 1))),
    ("tokens", "retry_429", result(lambda r: put(r, "usage", "chosen", "completeness", "partial"))),
    ("tokens", "retry_429", result(lambda r: put(r, "usage", "transcript", None))),
    ("tokens", "usage_omitted", result(lambda r: put(r, "usage", "chosen", "input_tokens", 0))),
    ("tokens", "usage_omitted", lambda c: c.edit("observations.json", lambda o: put(o, "gaps", []))),
    ("steps", "retry_429", records(INVOCATION, lambda i: put(i, 0, "model_calls", 0, "response_id", "resp_9"))),
    ("steps", "retry_429", records(INVOCATION, lambda i: put(i, 0, "model_calls", i[0]["model_calls"][1:]))),
    ("steps", "retry_429", records(INVOCATION, lambda i: put(i, 0, "model_calls", i[0]["model_calls"][::-1]))),
    ("history", "retry_429", records(INVOCATION, lambda i: i[0]["conversation"].pop())),
    ("history", "retry_429", records(INVOCATION, lambda i: put(i, 0, "conversation", i[0]["conversation"][::-1]))),
    ("outcome", "retry_429", result(lambda r: put(r, "final_message", "All good."))),
    ("tools", "tool_failure", records(CALL, lambda t: put(t, 0, "status", "completed"))),
    ("tools", "tool_failure", records(CALL, lambda t: put(t, 0, "tool_call_id", "call_x"))),
    ("tools", "tool_failure", records(CALL, lambda t: t + [dict(t[0], tool_call_id="call_x")])),
    ("tools", "tool_failure", records(CALL, lambda t: put(t, 0, "completed_at", None))),
    ("tools", "tool_failure", records(CALL, lambda t: put(t, 0, "started_at", 1.0))),
    ("outcome", "error_after_tool", result(lambda r: put(r, "outcome", "kind", "server_error"))),
    ("outcome", "error_after_tool", result(lambda r: put(r, "outcome", "http_status", None))),
    ("outcome", "error_after_tool", result(lambda r: put(r, "disposition", "action", "grade"))),
    ("outcome", "error_after_tool", result(lambda r: put(r, "outcome", "evidence", "seq", 1))),
    ("outcome", "error_after_tool", result(lambda r: put(r, "exports", "gym", "mask_sample", False))),
    ("outcome", "detached_child", lambda c: c.edit("cleanup.json", lambda r: put(r, "killed", []))),
    ("outcome", "detached_child", lambda c: c.edit("cleanup.json", lambda r: put(r, "proof", None))),
    ("payloads", "retry_429", bytes_of("bodies/000001.response", lambda data: data[:-1] + b"!")),
    ("payloads", "retry_429", bytes_of("bodies/000001.request", lambda data: data[:-1] + b"!")),
    ("payloads", "retry_429", attempts(lambda a: put(a, 1, "response_bytes", 0))),
    ("payloads", "retry_429", bytes_of("stderr.log", lambda data: data + runner.KEY.encode())),
    ("payloads", "model_timeout", attempts(lambda a: put(a, 1, "bodies", ["bodies/000001.request", "bodies/000001.response"]))),
    ("ownership", "retry_429", attempts(lambda a: put(a, 0, "invocation_id", "run-other"))),
    ("ownership", "retry_429", records(INVOCATION, lambda i: i[0]["model_calls"][0]["attempts"].pop())),
    ("ownership", "retry_429", records(INVOCATION, lambda i: i[0]["model_calls"][0]["attempts"].append(4))),
    ("ownership", "sub_agent", records(INVOCATION, lambda i: put(i, 1, "spawned_by_tool_call_id", None))),
    ("ownership", "sub_agent", records(INVOCATION, lambda i: [dict(i[0], model_calls=i[0]["model_calls"] + i[1]["model_calls"]),
                                                             dict(i[1], model_calls=[])])),
    ("attempts per step", "retry_429", records(INVOCATION, lambda i: put(i, 0, "model_calls", 0, "attempts", [3, 1, 2]))),
    ("attempts per step", "retry_429", attempts(lambda a: put(a, 1, "attempt", 1))),
    ("attempts per step", "retry_429", attempts(lambda a: put(a, 0, "wait", "seconds", 0.1))),
    ("attempts per step", "retry_429", attempts(lambda a: put(a, 0, "wait", "seconds", 20.0))),
    ("attempts per step", "retry_429", result(lambda r: put(r, "counts", "retries", 0))),
]


@pytest.mark.parametrize("name", sorted({case[1] for case in FALSE}))
def test_a_true_record_passes(played, name):
    judged = checks.judge(played(name))
    assert {evidence: cell for evidence, cell in judged.items() if cell["state"] == "not fulfilled"} == {}


@pytest.mark.parametrize("number", range(len(FALSE)))
def test_a_falsified_record_is_found(played, tmp_path, number):
    evidence, name, falsify = FALSE[number]
    true = played(name)
    shutil.copytree(true.done.directory, tmp_path / "copy", symlinks=True, ignore=shutil.ignore_patterns("control.sock", "state"))
    falsify(Copy(tmp_path / "copy"))
    done = runs.Done(tmp_path / "copy", true.done.code, b"", b"")
    done.key_removed, done.work = true.done.key_removed, true.done.work
    copy = runner.Played(true.scenario, true.version, done, true.witness, true.commands)
    assert checks.judge(copy)[evidence]["state"] == "not fulfilled"


def test_the_table_says_what_was_judged():
    judged = {name: {"state": "fulfilled", "reasons": []} for name in report.EVIDENCE}
    judged["tools"] = {"state": "not applicable", "reasons": ["no tool"]}
    judged["steps"] = {"state": "not fulfilled", "reasons": ["one\nlacks"]}
    rows = [report.row("codex", "1.0", {"name": "x", "says": "y"}, judged)]
    text = report.as_markdown(rows)
    assert "| `x` | yes | yes | **no** | yes | n/a | yes | yes | yes | yes |" in text
    assert "- not fulfilled, steps, in `x`: one lacks" in text and "- not applicable, tools, in `x`: no tool" in text
    assert "7 fulfilled, 0 limited, 1 not fulfilled, 1 not applicable." in text and not report.fulfilled(rows)
    document = json.loads(report.as_json(rows))
    assert document["counts"]["fulfilled"] == 7 and document["rows"][0]["evidence"]["steps"]["reasons"] == ["one\nlacks"]

"""Databases that the real OpenCode and Kilocode wrote, and what a hostile agent could make of them."""
from __future__ import annotations

import json
import os
import sqlite3

import pytest

from tests import harness_corpus as corpus
from worker.harnesses import opencode_events, opencode_reader, sqlite_copy

CASES = [(harness, name) for harness in ("opencode", "kilocode") for name in corpus.cases(harness)]
SUCCESS = ("opencode", "1.18.33-success")


def statement(case, *statements):
    """Change the case's database; it is then one plain file."""
    connection = sqlite3.connect(os.path.join(case.state, "opencode.db"), isolation_level=None)
    connection.execute("PRAGMA journal_mode=DELETE")
    for each in statements:
        connection.execute(*each) if isinstance(each, tuple) else connection.execute(each)
    connection.close()


@pytest.mark.parametrize("harness, name", CASES)
def test_a_real_run(harness, name, tmp_path):
    case = corpus.Case(harness, name, tmp_path)
    found = corpus.seen(*case.collect())
    assert found == {key: case.expected[key] for key in found}


def test_all_may_stand_in_the_log(tmp_path):
    """A killed CLI leaves a main file without tables: the log beside it is replayed in the copy, the original stays as it was."""
    case = corpus.Case(*SUCCESS, tmp_path)
    before = {name: os.path.getsize(os.path.join(case.state, name)) for name in os.listdir(case.state)}
    assert before["opencode.db"] <= 4096 < before["opencode.db-wal"]
    evidence, _ = case.collect()
    assert {name: os.path.getsize(os.path.join(case.state, name)) for name in os.listdir(case.state)} == before
    kept = sqlite3.connect(os.path.join(case.session, "native", "opencode.db"))
    assert kept.execute("SELECT count(*) FROM session").fetchone() == (1,)
    assert sorted(evidence["native_files"]) == ["native/opencode.db"] == ["native/" + n for n in os.listdir(case.session + "/native")]


def test_nothing_is_read_through_a_symlink(tmp_path):
    case = corpus.Case(*SUCCESS, tmp_path)
    corpus.hostile(case, tmp_path)
    found = corpus.seen(*case.collect())
    assert found["native"] == [] and found["tools"] == []
    assert {"transcript_not_regular", "agent_artifact_unavailable"} <= set(found["gaps"])


def test_without_sqlite_the_files_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_copy, "sqlite3", None)
    case = corpus.Case(*SUCCESS, tmp_path)
    found = corpus.seen(*case.collect())
    assert found["native"] == ["native/opencode.db", "native/opencode.db-wal"] and found["gaps"] == ["transcript_unreadable"]
    assert found["agents"] == [[None, None, "unknown", 3]]


@pytest.mark.parametrize("at", [0, 16, 100, 9000])
def test_a_damaged_database_is_a_gap(at, tmp_path):
    case = corpus.Case(*SUCCESS, tmp_path)
    statement(case)
    with open(os.path.join(case.state, "opencode.db"), "r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 3000)
    found = corpus.seen(*case.collect())
    assert found["gaps"] and found["native"] == ["native/opencode.db"]


def test_a_view_in_a_table_s_place_is_not_asked(tmp_path):
    """It could count for ever."""
    case = corpus.Case(*SUCCESS, tmp_path)
    statement(case, "DROP TABLE session", "CREATE VIEW session AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) "
              "SELECT n AS id, NULL AS parent_id, 1 AS version, 1 AS time_created FROM c")
    assert "agent_artifact_unavailable" in corpus.seen(*case.collect())["gaps"]


def test_sessions_of_others_are_left_alone(tmp_path):
    case = corpus.Case(*SUCCESS, tmp_path)
    statement(case, "INSERT INTO session (id, version, time_created) VALUES ('ses_other', '1', 5)")
    found = corpus.seen(*case.collect())
    assert found["gaps"] == ["transcript_unrelated"] and len(found["agents"]) == 1


def test_a_sub_agent_is_an_invocation_of_its_own(tmp_path):
    """Its session stands below the root's, and the task call that started it names it."""
    case = corpus.Case(*SUCCESS, tmp_path)
    root = case.stdout[0]["sessionID"]
    task = {"type": "tool", "callID": "call_task", "tool": "task", "state": {
        "status": "completed", "input": {}, "output": "It is 42.", "metadata": {"sessionId": "ses_child"}}}
    step = {"type": "step-finish", "reason": "stop", "tokens": {
        "total": 57, "input": 40, "output": 5, "reasoning": 2, "cache": {"read": 10, "write": 0}}}
    add = "INSERT INTO %s VALUES (%s)"
    statement(
        case, ("INSERT INTO session (id, parent_id, version, time_created) VALUES ('ses_child', ?, '1.18.33', 9)", (root,)),
        ("INSERT INTO part (id, message_id, data) SELECT 'prt_zz', id, ? FROM message ORDER BY id DESC LIMIT 1", (json.dumps(task),)),
        (add % ("message (id, session_id, time_created, data)", "?, ?, ?, ?"),
         ("msg_child", "ses_child", 9, json.dumps({"role": "assistant", "finish": "stop"}))),
        (add % ("part (id, message_id, data)", "?, ?, ?"), ("prt_child", "msg_child", json.dumps(step))))
    case.attempts.append({"seq": 9, "request": 9, "attempt": 1, "main": False, "identity": {"x-session-id": "ses_child"}})
    evidence, live = case.collect()
    found = corpus.seen(evidence, live)
    assert found["agents"][1] == ["inv", "call_task", "completed", 1] and found["gaps"] == []
    assert evidence["threads"]["ses_child"]["input_tokens"] == 50 and found["usage"][0] == 3250


def test_a_call_that_cannot_be_carried_out_has_the_name_that_the_model_gave_it(tmp_path):
    case = corpus.Case(*SUCCESS, tmp_path)
    part = {"type": "tool", "callID": "call_odd", "tool": "invalid", "state": {"status": "completed", "input": {"tool": "no_such"}}}
    statement(case, ("INSERT INTO part (id, message_id, data) SELECT 'prt_zz', id, ? FROM message ORDER BY id DESC LIMIT 1",
                     (json.dumps(part),)))
    evidence, _ = case.collect()
    found = [one for one in evidence["records"] if one.get("tool_call_id") == "call_odd"]
    assert [(one["tool_name"], one["status"], one["error_type"]) for one in found] == [("no_such", "failed", "invalid_arguments")]


def test_any_row_may_be_anything(tmp_path):
    case = corpus.Case("opencode", "1.18.33-tool7", tmp_path)
    connection = sqlite3.connect(os.path.join(case.state, "opencode.db"), isolation_level=None)
    number = 0
    for table in ("message", "part"):
        columns = [row[1] for row in connection.execute("PRAGMA table_info(%s)" % table)]
        for row in connection.execute("SELECT * FROM " + table).fetchall():
            one = dict(zip(columns, row))
            for mutant in list(corpus.mutants(json.loads(one["data"])))[:400]:
                number += 1
                values = dict(one, id="%s%06d" % (one["id"], number), data=json.dumps(mutant))
                connection.execute("INSERT INTO %s (%s) VALUES (%s)" % (
                    table, ", ".join(values), ", ".join("?" * len(values))), list(values.values()))
    connection.close()
    evidence, _ = case.collect()
    assert "agent_artifact_record_unparseable" in {gap["code"] for gap in evidence["gaps"]}
    live = opencode_events.Live()
    for event in list(case.stdout) + list(corpus.WORST):
        for mutant in corpus.mutants(event):
            live.feed(mutant)


# -- stdout -----------------------------------------------------------------------------------------

def event(kind, **part):
    return {"type": kind, "sessionID": "ses_1", "part": dict({"id": "prt_%s" % len(str(part))}, **part)}


ENDINGS = [
    ("stop", "success"), ("tool-calls", None), ("length", "failure"), ("content-filter", "failure"), ("unknown", "failure"),
    ("other", "failure"),
]


@pytest.mark.parametrize("reason, terminal", ENDINGS)
def test_the_last_step_tells_the_end(reason, terminal):
    """Exit code 0 does not: a cut answer (unknown, Kilocode: other), a limit and an empty one have it, too."""
    live = opencode_events.Live()
    live.feed(event("text", text="Hello."))
    live.feed(event("step_finish", reason=reason))
    assert (live.terminal, live.final_message) == (terminal, "Hello." if terminal == "success" else None)
    live.feed({"type": "error", "error": "run ended without an assistant message"})        # Kilocode: a bare string
    assert (live.terminal, live.final_message) == ("failure", None)


def test_a_part_counts_once():
    live = opencode_events.Live()
    for _ in range(2):                                                                     # Kilocode 7.4.15 printed all twice
        live.feed(event("tool_use", tool="bash", state={}))
    assert live.tools == {"bash": 1}


RESULTS = [
    ("bash", {"status": "completed", "metadata": {"exit": 0}}, ("completed", None)),
    ("bash", {"status": "completed", "metadata": {"exit": 7}}, ("failed", "exit_code_7")),
    ("bash", {"status": "completed", "metadata": {"exit": None}, "output": opencode_reader.CUT_OFF + " 5 ms"}, ("timeout",) * 2),
    ("bash", {"status": "completed", "metadata": {"exit": None}, "output": ""}, ("unknown", None)),
    ("read", {"status": "completed", "metadata": {}}, ("completed", None)),
    ("invalid", {"status": "completed"}, ("failed", "invalid_arguments")),
    ("glob", {"status": "error", "error": "ripgrep execution failed"}, ("failed", "tool_error")),
    ("bash", {"status": "error", "error": "Tool execution aborted"}, ("cancelled", "aborted")),
    ("bash", {"status": "running"}, ("incomplete", None)),
    ("bash", {"status": "pending"}, ("incomplete", None)),
]


@pytest.mark.parametrize("name, state, wanted", RESULTS)
def test_the_status_of_a_tool(name, state, wanted):
    assert opencode_reader.result_of(name, state) == wanted


USAGES = [  # input leaves out what was cached, output what was reasoning; no total: the provider sent none
    ({"total": 120, "input": 70, "output": 15, "reasoning": 5, "cache": {"read": 30, "write": 0}}, (100, 30, 20, 5, 120)),
    ({"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}, None),
    ({"total": 0, "input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}, (0, 0, 0, 0, 0)),
    ({"total": 1, "input": -1, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}, None),
    ({"total": 1}, None), (None, None), (3, None),
]


@pytest.mark.parametrize("tokens, wanted", USAGES)
def test_usage_of_a_step(tokens, wanted):
    found = opencode_reader.figures_of(tokens)
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")
    assert (found and tuple(found[name] for name in names)) == wanted

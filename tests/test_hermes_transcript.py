"""What the real Hermes 0.19.0 left in HERMES_HOME, and what a hostile agent could make of it."""
from __future__ import annotations

import json
import os
import sqlite3

import pytest

from tests import harness_corpus as corpus
from worker.contract import BadInput
from worker.harnesses import hermes, hermes_reader


@pytest.mark.parametrize("name", corpus.cases("hermes"))
def test_a_real_run(name, tmp_path):
    case = corpus.Case("hermes", name, tmp_path)
    found = corpus.seen(*case.collect())
    assert found == {key: case.expected[key] for key in found}


def rows(case, *statements):
    connection = sqlite3.connect(os.path.join(case.state, "state.db"), isolation_level=None)
    for each in statements:
        connection.execute(*each)
    connection.close()


def usage_file(case, **fields):
    path = os.path.join(case.state, "usage.json")
    with open(path) as file:
        found = json.load(file)
    with open(path, "w") as file:
        json.dump(dict(found, **fields), file)


def test_a_compaction_tells_nothing_twice(tmp_path):
    """Real: the messages stay, marked; behind them stands the new context, copies around the summary, written in one go."""
    case = corpus.Case("hermes", "0.19.0-tool7", tmp_path)
    before = corpus.seen(*case.collect())
    case = corpus.Case("hermes", "0.19.0-tool7", tmp_path / "again")
    columns = "session_id, role, content, tool_call_id, tool_calls, tool_name, finish_reason"
    add = "INSERT INTO messages (id, timestamp, %s) SELECT max(id) + 1, %s FROM messages GROUP BY session_id"
    copies = ("INSERT INTO messages (id, timestamp, %s) SELECT id + top, latest + 10 + id * 0.000001, %s FROM messages,"
              " (SELECT max(id) AS top, max(timestamp) AS latest FROM messages)")
    summary = "max(timestamp) + 0.000001, session_id, 'user', '[CONTEXT COMPACTION - REFERENCE ONLY] What was done.'"
    short = "session_id, role, content"
    rows(case, (copies % (columns, columns),), (add % (short, summary),),
         (add % (short, "max(timestamp) + 1, session_id, 'assistant', 'Done.'"),))
    evidence, live = case.collect()
    found = corpus.seen(evidence, live)
    assert (found["tools"], found["gaps"], found["final"]) == (before["tools"], before["gaps"], "Done.")
    made, = [record for record in evidence["plain"] if record["kind"] == "context_compaction"]
    assert made["summary"].endswith("What was done.")


ENDS = [
    ({"completed": True, "failed": False}, "success"), ({"completed": False, "failed": False}, "failure"),
    ({"completed": False, "failed": True}, "failure"), ({"completed": True, "failed": True}, "failure"),
    ({"completed": None, "failed": 0}, "failure"),
]


@pytest.mark.parametrize("fields, terminal", ENDS)
def test_the_usage_file_tells_the_end(fields, terminal, tmp_path):
    case = corpus.Case("hermes", "0.19.0-success", tmp_path)
    usage_file(case, **fields)
    assert corpus.seen(*case.collect())["terminal"] == terminal


def test_no_usage_file_no_end(tmp_path):
    """SIGTERM and SIGKILL leave none."""
    case = corpus.Case("hermes", "0.19.0-success", tmp_path)
    os.unlink(os.path.join(case.state, "usage.json"))
    found = corpus.seen(*case.collect())
    assert (found["terminal"], found["final"], found["agents"][0][2]) == (None, None, "incomplete")


def test_an_empty_answer_is_completed_and_has_a_warning(tmp_path):
    """`completed` is true, the exit code 0, the database says (empty)."""
    case = corpus.Case("hermes", "0.19.0-success", tmp_path)
    rows(case, ("UPDATE messages SET content = '(empty)' WHERE content = 'All done.'",))
    found = corpus.seen(*case.collect())
    assert (found["terminal"], found["final"], found["warnings"]) == ("success", None, [])


def test_a_compressed_session_goes_on_and_a_sub_agent_is_another(tmp_path):
    case = corpus.Case("hermes", "0.19.0-success", tmp_path)
    rows(case, ("UPDATE sessions SET end_reason = 'compression'",),
         (("INSERT INTO sessions (id, parent_session_id, started_at, end_reason, input_tokens, output_tokens, cache_read_tokens, "
          "cache_write_tokens, reasoning_tokens) SELECT 'rest', id, started_at + 1, 'agent_close', 10, 1, 0, 0, 0 FROM sessions"),),
         (("INSERT INTO sessions (id, parent_session_id, started_at, end_reason, input_tokens, output_tokens, cache_read_tokens, "
          "cache_write_tokens, reasoning_tokens) VALUES ('child', 'rest', 9999999999, 'agent_close', 5, 1, 0, 0, 0)"),),
         ("INSERT INTO messages (id, session_id, role, content, timestamp) VALUES (900, 'rest', 'assistant', 'The end.', 9e9)",))
    evidence, live = case.collect()
    found = corpus.seen(evidence, live)
    assert found["compactions"] == 1 and found["final"] == "The end." and len(found["agents"]) == 2
    assert found["agents"][1][:3] == ["inv", None, "completed"] and "subagent_spawn_unlinked" in found["gaps"]
    assert found["usage"][0] == 3215


def test_nothing_is_read_through_a_symlink(tmp_path):
    case = corpus.Case("hermes", "0.19.0-success", tmp_path)
    corpus.hostile(case, tmp_path)
    found = corpus.seen(*case.collect())
    assert found["native"] == [] and found["tools"] == [] and found["terminal"] is None


def test_any_row_may_be_anything(tmp_path):
    case = corpus.Case("hermes", "0.19.0-tool7", tmp_path)
    connection = sqlite3.connect(os.path.join(case.state, "state.db"), isolation_level=None)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(messages)")]
    number = 1000
    for row in connection.execute("SELECT * FROM messages").fetchall():
        one = dict(zip(columns, row))
        calls = [dict(one, tool_calls=json.dumps(each)) for each in corpus.mutants(json.loads(one["tool_calls"] or "[]"))]
        plain = [each for each in corpus.mutants(one) if isinstance(each, dict) and len(each) == len(columns)]
        for mutant in plain + calls:
            number += 1
            values = [value if isinstance(value, (int, float, type(None))) else str(value).encode("utf-8", "replace").decode()
                      for value in dict(mutant, id=number, session_id=one["session_id"]).values()]
            connection.execute("INSERT INTO messages VALUES (%s)" % ", ".join("?" * len(columns)), values)
    connection.execute("UPDATE messages SET content = x'ff00fe' WHERE id % 7 = 0")
    connection.close()
    evidence, _ = case.collect()
    assert "agent_artifact_record_unparseable" in {gap["code"] for gap in evidence["gaps"]}


@pytest.mark.parametrize("place", ["usage.json", "sessions/request_dump_x.json"])
def test_any_document_may_be_anything(place, tmp_path):
    for number, mutant in enumerate([None, [], 3, {"error": 1}, {"error": {"message": []}}, {"session_id": []}, {"session_id": 3},
                                     {"completed": "yes"}, {"failure": {}}]):
        folder = tmp_path / str(number)
        folder.mkdir()
        case = corpus.Case("hermes", "0.19.0-success", folder)
        os.makedirs(os.path.join(case.state, "sessions"), exist_ok=True)
        with open(os.path.join(case.state, place), "w") as file:
            json.dump(mutant, file)
        case.collect()


RESULTS = [
    ('{"output": "x", "exit_code": 0, "error": null}', ("completed", None)),
    ('{"output": "x", "exit_code": 7, "error": null}', ("failed", "exit_code_7")),
    ('{"output": "[Command timed out after 2s]", "exit_code": 124, "error": null}', ("timeout", "timeout")),
    ('{"output": "x", "exit_code": 124, "error": null}', ("failed", "exit_code_124")),
    ('{"output": "", "exit_code": -1, "error": "Foreground command uses setsid"}', ("failed", "refused")),
    ('{"success": false, "error": "no such file"}', ("failed", "tool_error")),
    ('{"content": "1|hello"}', ("completed", None)),
    ("Unknown tool: nosuch", ("failed", "tool_error")),
    ("some words", (None, None)), ("{cut", (None, None)), ("", (None, None)),
]


@pytest.mark.parametrize("text, wanted", RESULTS)
def test_what_a_tool_s_result_tells(text, wanted):
    assert hermes_reader.result_of(text) == wanted


def test_an_answer_that_looks_like_an_event_is_none():
    live = hermes_reader.Live()
    for event in corpus.WORST + ({"type": "result", "is_error": False, "result": "done"}, {"type": "turn.completed"}):
        live.feed(event)
    assert (live.terminal, live.final_message) == (None, None)


# -- the command ------------------------------------------------------------------------------------

def job(tmp_path, prompt, **more):
    return dict({"command": None, "env": {"PATH": "/nowhere"}, "cwd": str(tmp_path), "prompt": prompt, "timeout": 60.0,
                 "model": {"name": "m", "api": "chat"}}, **more)


def test_the_prompt_is_one_word_whatever_it_begins_with(tmp_path):
    launch = hermes.prepare(job(tmp_path, b"-x \xff"), "http://127.0.0.1:1/v1", "token", str(tmp_path))
    assert launch["prompt_in_argv"] and os.fsencode(launch["argv"][-1]) == b"--oneshot=-x \xff"
    assert "token" not in " ".join(launch["argv"])


@pytest.mark.parametrize("prompt", [b"x" * (hermes.MOST_PROMPT + 1), b"a\0b"])
def test_a_prompt_that_no_argument_can_hold(prompt, tmp_path):
    with pytest.raises(BadInput, match="^prompt: "):
        hermes.prepare(job(tmp_path, prompt), None, "token", str(tmp_path))
    hermes.check(job(tmp_path, b"x" * hermes.MOST_PROMPT))


def test_a_given_command_keeps_its_words(tmp_path):
    words = ["hermes", "chat", "-q", "do it"]
    assert hermes.prepare(job(tmp_path, None, command=words), None, "t", str(tmp_path))["argv"] == words
    launch = hermes.prepare(job(tmp_path, b"do", command=["hermes", "-t", "file"]), None, "t", str(tmp_path))
    assert launch["argv"][0] == "hermes" and launch["argv"][3:] == ["-t", "file", "--oneshot=do"]
    assert launch["given_argv"] == ["hermes", "-t", "file"]

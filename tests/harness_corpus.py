"""Transcripts that real CLIs wrote (tests/corpus/HARNESS/NAME/), put back on disk and read as after a run.

A case is a directory: `stdout.jsonl` (what the CLI printed), `attempts.jsonl` (what the proxy recorded), `expect.json` (what must
be known), and the CLI's own state: `state/` as it was, where a database stands as `NAME.db.jsonl`, one row a line, and is made
again here, in write-ahead mode with everything still in its log, as a killed CLI leaves it.
"""
from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
ROWS = ".db.jsonl"


def cases(harness):
    return sorted(os.listdir(os.path.join(CORPUS, harness)))


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def database(path, rows):
    """A database with these rows ({"table", "row"}), left unclosed: its main file is empty, all stands in `-wal`."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    columns: dict = {}
    for one in rows:
        columns.setdefault(one["table"], []).extend(name for name in one["row"] if name not in columns.get(one["table"], ()))
    for table, names in columns.items():
        connection.execute("CREATE TABLE %s (%s)" % (table, ", ".join('"%s"' % name for name in dict.fromkeys(names))))
    for one in rows:
        names = list(one["row"])
        connection.execute("INSERT INTO %s (%s) VALUES (%s)" % (
            one["table"], ", ".join('"%s"' % name for name in names), ", ".join("?" * len(names))), list(one["row"].values()))
    for ending in ("", "-wal"):                          # what a killed process leaves: copied while it is open
        shutil.copy(path + ending, path + ".left" + ending)
    connection.close()
    for ending in ("", "-wal"):
        os.replace(path + ".left" + ending, path + ending)


class Case:
    """One case on disk; change it before `collect`."""

    def __init__(self, harness, name, folder):
        self.harness, self.source = harness, os.path.join(CORPUS, harness, name)
        self.state, self.session = str(folder / "the state"), str(folder / "session")
        os.makedirs(os.path.join(self.session, "native"))
        os.makedirs(self.state)
        for path, _, names in os.walk(os.path.join(self.source, "state")):
            for file in names:
                self.put(os.path.join(path, file), os.path.relpath(path, os.path.join(self.source, "state")))
        self.stdout = lines(os.path.join(self.source, "stdout.jsonl"))
        self.attempts = lines(os.path.join(self.source, "attempts.jsonl"))
        self.expected = json.load(open(os.path.join(self.source, "expect.json"), encoding="utf-8"))
        self.baseline = self.expected.get("baseline")

    def put(self, path, below):
        target = os.path.join(self.state, below)
        os.makedirs(target, exist_ok=True)
        if path.endswith(ROWS):
            database(os.path.join(target, os.path.basename(path)[:-len(".jsonl")]), lines(path))
        else:
            shutil.copy(path, target)

    def collect(self):
        """(evidence with the records as plain values, live)."""
        reader = sys.modules[__import__("worker.harnesses." + self.expected["reader"], fromlist=["collect"]).__name__]
        live = reader.Live()
        for event in self.stdout:
            live.feed(event)
        with open(os.path.join(self.session, "model_attempts.jsonl"), "w") as file:
            file.writelines(json.dumps(one) + "\n" for one in self.attempts)
        session, native = (os.open(path, os.O_RDONLY) for path in (self.session, os.path.join(self.session, "native")))
        try:
            evidence = reader.collect({
                "state": self.state, "dirfd": session, "native_dirfd": native, "live": live, "invocation_id": "inv",
                "wire": {"user_agents": self.expected.get("user_agents", [])} if self.attempts else None, "started_at": None,
                "baseline": self.baseline, "redactor": None})
            evidence["plain"] = [json.loads(json.dumps(dict(one, conversation=items(one)) if "conversation" in one else one))
                                 for one in evidence["records"]]
        finally:
            os.close(session)
            os.close(native)
        return evidence, live


def items(record):
    conversation = record["conversation"]
    return [json.loads(one.decode("utf-8")) for one in conversation.encoded()] if hasattr(conversation, "encoded") else conversation


def seen(evidence, live):
    """What a case's expectation tells, of the evidence."""
    agents = [one for one in evidence["plain"] if one["kind"] == "agent_invocation"]
    tools = [one for one in evidence["plain"] if one["kind"] == "tool_call"]
    figures = evidence["usage_transcript"]
    return {
        "version": evidence["version"], "terminal": evidence["terminal"], "error_text": evidence["error_text"],
        "final": evidence["final_message"], "live": live.terminal,
        "tools": [[one["tool_call_id"], one["tool_name"], one["status"], one["error_type"]] for one in tools],
        "agents": [[one["parent_invocation_id"], one["spawned_by_tool_call_id"], one["status"], len(one["model_calls"])]
                   for one in agents],
        "items": [[item["type"] + (":" + item["role"] if "role" in item else "") for item in one["conversation"]]
                  for one in agents],
        "usage": figures and [figures[name] for name in (
            "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")],
        "gaps": sorted(one["code"] for one in evidence["gaps"]), "warnings": sorted(one["code"] for one in evidence["warnings"]),
        "compactions": sum(one["kind"] == "context_compaction" for one in evidence["plain"]),
        "native": sorted(evidence["native_files"]),
    }


def hostile(case, tmp_path):
    """The state's files as an agent could leave them: every one a symlink to a file outside.  Nothing may be read."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for path, _, names in os.walk(case.state):
        for name in names:
            os.replace(os.path.join(path, name), str(outside / name))
            os.symlink(str(outside / name), os.path.join(path, name))


def mutants(value):
    """The value with one thing in it, at every place in turn, turned into something else."""
    for other in (None, [], {}, 3, -1, True, "x", 1e308, "\ud800"):
        yield other
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(inner):
        copy = value.copy()
        for other in mutants(item):
            copy[key] = other
            yield copy


WORST = (None, 1, "", [], {}, {"type": []}, {"type": "text"}, {"type": "error"}, {"type": "error", "error": 1}, {"part": 3},
         {"type": "text", "part": {"text": 3}}, {"type": "step_finish", "part": {}}, {"type": "tool_use", "part": {"state": 1}},
         {"type": "message_end", "message": {"role": "assistant", "content": 3, "stopReason": []}}, {"type": "agent_end"},
         {"type": "tool_execution_end", "result": {"structuredContent": {"exit_code": True}}, "toolCallId": 7},
         {"type": "result"}, {"type": "session", "id": []}, {"type": "tool_execution_start", "args": []})

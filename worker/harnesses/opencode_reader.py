"""From the database of OpenCode or Kilocode to evidence.

`session`, `message` and `part` are read from a checkpointed copy (sqlite_copy.py).  The run's session is the one that stdout or the
requests' headers name; its sub-agents are the sessions below it (parent_id), and no other session is read.  Facts (measured):
  - a tool part holds call, result and times; `state.metadata.exit` is a shell's exit status; one still `running` was cut off
  - tokens are per step; `input` leaves out what was cached, `output` what was reasoning; a step whose tokens have no `total` got
    no usage from the provider (its zeros mean unknown), and attempts that failed leave none at all
  - the title of a sub-agent's task call (`metadata.sessionId`) says which call started which session
"""

from __future__ import annotations

import os

from worker import usage
from worker.gaps import Gaps
from worker.harnesses import opencode, sqlite_copy
from worker.harnesses import transcript_files as files
from worker.harnesses.opencode_events import ERRORS, Live, error_text
from worker.harnesses.reader_parts import (
    MOST_IDS, Items, by_exit_code, count_of, invocation, join_all, loaded, text_of, tool_call,
)  # fmt: skip
from worker.observations import Records

__all__ = ("ERRORS", "Live", "collect")

MOST_SESSIONS = 1000
OUTPUTS = "tool-output"  # files with what a tool printed in full
CUT_OFF = "shell tool terminated command after exceeding timeout"
QUIET_PARTS = frozenset("step-start snapshot patch file agent retry subtask".split())


def collect(run, harness=opencode, database="opencode.db"):
    """Evidence of one run; see codex_rollout.collect for what comes in and goes out."""
    gaps, story = Gaps(), None
    story = Story(run, gaps, harness)
    try:
        root = files.open_directory(run["state"])
    except (OSError, TypeError) as error:
        gaps.add("agent_artifact_unavailable", "the state directory cannot be opened: %s" % error)
        return story.evidence()
    try:
        copy = sqlite_copy.open_copy(root, database, run["native_dirfd"], run.get("redactor"), gaps)
        if copy is None:
            gaps.add("agent_artifact_unavailable", "no " + database)
        else:
            story.native_files.update(copy.native)
            story.read(copy)
            copy.close()
        story.keep_outputs(root)
    finally:
        os.close(root)
    return story.evidence()


class Session:
    """One session: its conversation, steps, and how it ended."""

    def __init__(self, row, owner, items):
        self.id, self.parent, self.owner, self.items = text_of(row["id"]), text_of(row["parent_id"]), owner, items
        self.version, self.created = text_of(row["version"]), seconds(row["time_created"])
        self.first = self.last = self.error = self.final = self.finish = None
        self.usage, self.missing, self.steps, self.compactions = None, 0, 0, []
        self.calls = set()

    @property
    def terminal(self):
        if self.error:
            return "failure"
        if self.finish is None or self.finish == "tool-calls":
            return None
        return "success" if self.finish == "stop" else "failure"


class Story:
    def __init__(self, run, gaps, harness):
        self.run, self.gaps, self.live, self.harness = run, gaps, run["live"], harness
        self.records, self.sessions, self.native_files, self.spawned = Records(run.get("dirfd")), [], {}, {}
        self.unknown = {}

    # -- which sessions -----------------------------------------------------------------------------------------------

    def read(self, database):
        wanted = self.wanted()
        columns = ("id", "parent_id", "version", "time_created", "title")
        rows = list(zip(range(MOST_SESSIONS), database.rows("session", columns, "ORDER BY time_created, id")))
        rows = [row for _, row in rows if text_of(row["id"])]
        roots = [row for row in rows if row["id"] == wanted] if wanted else [row for row in rows if not row["parent_id"]]
        if len(roots) > 1:
            self.gaps.add("transcript_ambiguous", "%d sessions" % len(roots), file=database.name)
        if len(roots) != 1:
            if database.connection is not None and len(roots) == 0:
                self.gaps.add("agent_artifact_unavailable", "the run's session is not in the database", file=database.name)
            return
        chosen = with_descendants(roots[0], rows)
        if len(chosen) < len(rows):
            self.gaps.add("transcript_unrelated", "%d other sessions" % (len(rows) - len(chosen)), file=database.name)
        for row in chosen:
            owner = self.run["invocation_id"] if row is roots[0] else row["id"]
            session = Session(row, owner, Items(self.run["native_dirfd"]))
            self.sessions.append(session)
            self.read_session(database, session)
        for name, count in sorted(self.unknown.items()):
            for _ in range(count):
                self.gaps.add("unknown_record_type", name, self.run["invocation_id"], database.name, key=name)

    def wanted(self):
        """The session that stdout announced; else the one that the requests' headers name first."""
        if self.live.thread_id:
            return self.live.thread_id
        from worker.observations import read_attempts

        named = (thread_of(one) for one in read_attempts(self.run["dirfd"]) if one.get("main")) if self.run.get("dirfd") else ()
        return next((name for name in named if name), None)

    # -- one session --------------------------------------------------------------------------------------------------

    def read_session(self, database, session):
        parts = "WHERE message_id = ? ORDER BY id"
        messages = database.rows("message", ("id", "data"), "WHERE session_id = ? ORDER BY time_created, id", (session.id,))
        for row in list(messages):
            said = loaded(row["data"])
            if said is None:
                self.damaged(database, session, "message", row["rowid"])
                continue
            role = said.get("role")
            text = []
            for part in database.rows("part", ("id", "data"), parts, (row["id"],)):
                content = loaded(part["data"])
                if content is None:
                    self.damaged(database, session, "part", part["rowid"])
                else:
                    self.part(session, role, content, part, text, database.name)
            self.message(session, said, text)

    def damaged(self, database, session, table, rowid):
        self.gaps.add("agent_artifact_record_unparseable", "row of table %s" % table, session.owner, database.name, rowid)

    def part(self, session, role, content, row, text, file):
        kind = content.get("type")
        handler = PARTS.get(kind) if isinstance(kind, str) else None
        if handler:
            handler(self, session, role, content, row, text, file)
        elif kind not in QUIET_PARTS:
            self.unknown["part/%s" % str(kind)[:60]] = self.unknown.get("part/%s" % str(kind)[:60], 0) + 1

    def message(self, session, said, text):
        """An assistant message that has ended says how; tokens of attempts that failed are zeros and count for nothing."""
        times = said.get("time") if isinstance(said.get("time"), dict) else {}
        for stamp in (seconds(times.get("created")), seconds(times.get("completed"))):
            if stamp is not None:
                session.first = stamp if session.first is None else session.first
                session.last = stamp if session.last is None else max(session.last, stamp)
        if said.get("role") != "assistant" or said.get("summary") is True:
            return
        session.error = error_text(said["error"]) if said.get("error") else None
        session.finish, session.final = text_of(said.get("finish")), text[-1] if text else None

    def on_text(self, session, role, content, row, text, file):
        said = text_of(content.get("text"))
        session.items.message("user" if role == "user" else "assistant", said)
        if said and role == "assistant":
            text.append(said)

    def on_reasoning(self, session, role, content, row, text, file):
        session.items.reasoning(text_of(content.get("text")))

    def on_step(self, session, role, content, row, text, file):
        session.steps += 1
        figures = figures_of(content.get("tokens"))
        if figures is None:
            session.missing += 1
        else:
            session.usage = figures if session.usage is None else usage.add(session.usage, figures)

    def on_tool(self, session, role, content, row, text, file):
        state = content.get("state") if isinstance(content.get("state"), dict) else {}
        identity, name = text_of(content.get("callID")), text_of(content.get("tool")) or "unknown"
        times = state.get("time") if isinstance(state.get("time"), dict) else {}
        synthetic = identity is None
        identity = identity or "%s@%d" % (file, row["rowid"])
        if synthetic or identity in session.calls:
            code = "tool_call_synthetic_id" if synthetic else "tool_call_duplicate"
            self.gaps.add(code, identity, session.owner, file, row["rowid"])
        if len(session.calls) < MOST_IDS:
            session.calls.add(identity)
        status, error = result_of(name, state)
        record = tool_call(session.owner, identity, name, status, error, seconds(times.get("start")), seconds(times.get("end")),
                           "executor")  # fmt: skip
        self.records.append(dict(record, synthetic=True) if synthetic else record)
        session.items.call(identity, name, state.get("input") or {})
        output = text_of(state.get("output")) or text_of(state.get("error"))
        if status != "incomplete":
            session.items.output(identity, output or "")
        metadata = state.get("metadata") if isinstance(state.get("metadata"), dict) else {}
        child = text_of(metadata.get("sessionId"))
        if child:
            self.spawned[child] = (session.owner, identity)

    def on_compaction(self, session, role, content, row, text, file):
        if len(session.compactions) < MOST_SESSIONS:
            session.compactions.append({
                "kind": "context_compaction", "invocation_id": session.owner, "observed_at": session.last,
                "trigger": "automatic" if content.get("auto") else None, "tokens_before": None, "tokens_after": None,
                "outcome": "completed", "summary": None, "first_kept_item_id": text_of(content.get("tail_start_id")),
                "before_model_call": None, "model_calls": [], "after_model_call": None,
            })  # fmt: skip

    # -- what they say together ---------------------------------------------------------------------------------------

    def keep_outputs(self, root):
        """What tools printed in full, where the transcript holds a part only."""
        if not sqlite_copy.exists(root, OUTPUTS):
            return
        for path in files.find(root, OUTPUTS, lambda name: True, 0, self.gaps):
            name = "tool-output-" + os.path.basename(path)
            target, _ = files.copy(root, path, self.run["native_dirfd"], name, self.run.get("redactor"), self.gaps, files.MOST_BYTES)
            if target:
                self.native_files["native/" + name] = target.entry()

    def evidence(self):
        root = self.sessions[0] if self.sessions else None
        owners = {session.id: session.owner for session in self.sessions}
        if root is None and self.live.thread_id:
            owners = {self.live.thread_id: self.run["invocation_id"]}
        calls = join_all(self.run, self.gaps, owners, {}, thread_of)
        for session in self.sessions:
            self.records.append(self.invocation(session, calls.get(session.owner, [])))
            for record in session.compactions:
                self.records.append(record)
        if root is None:
            self.records.append(invocation(self.run["invocation_id"], model_calls=calls.get(self.run["invocation_id"], [])))
        self.check_children()
        version = root and root.version
        warnings = list(self.live.warnings)
        if version and version not in self.harness.TESTED:
            warnings.append({"code": "untested_version", "detail": version})
        return dict(
            self.usage(), records=self.records, gaps=self.gaps.list(), version=version, warnings=warnings,
            final_message=self.live.final_message if self.live.terminal else root and root.final,
            terminal=root and root.terminal, error_text=root and root.error, native_files=self.native_files,
        )  # fmt: skip

    def check_children(self):
        known = {session.id for session in self.sessions}
        for child in sorted(set(self.spawned) - known):
            self.gaps.add("subagent_transcript_unavailable", child, self.run["invocation_id"], key=child)

    def invocation(self, session, calls):
        parent, spawned = self.spawned.get(session.id, (None, None))
        if session is not self.sessions[0]:
            owners = {other.id: other.owner for other in self.sessions}
            parent = parent or owners.get(session.parent, self.run["invocation_id"])
            if spawned is None:
                self.gaps.add("subagent_spawn_unlinked", None, session.owner)
        lasted = None if session.first is None else round((session.last - session.first) * 1000, 3)
        status = {"success": "completed", "failure": "failed", None: "incomplete"}[session.terminal]
        return invocation(
            session.owner, session.items, parent_invocation_id=parent, spawned_by_tool_call_id=spawned, status=status,
            duration_ms=lasted, error_type="model_error" if session.error else None, model_calls=calls,
        )  # fmt: skip

    def usage(self):
        """Sums over steps, each counted once; a step without usage makes the sum a part of it."""
        known = [session for session in self.sessions if session.usage is not None]
        total = None
        for session in known:
            total = session.usage if total is None else usage.add(total, session.usage)
        missing = sum(session.missing for session in self.sessions)
        root = self.sessions[0] if self.sessions else None
        notes = {
            "omitted": missing > 0, "partial": missing > 0 and total is not None, "root": root and root.usage,
            "compactions": sum(len(session.compactions) for session in self.sessions),
            "subagents": max(0, len(self.sessions) - 1),
        }  # fmt: skip
        threads = {session.id: dict(session.usage or usage.UNKNOWN) for session in self.sessions}
        return {"usage_transcript": total, "usage_events": None, "usage_notes": notes, "threads": threads}


PARTS = {
    "text": Story.on_text, "reasoning": Story.on_reasoning, "step-finish": Story.on_step, "tool": Story.on_tool,
    "compaction": Story.on_compaction,
}  # fmt: skip


def with_descendants(root, rows):
    """The root and every session below it, parents first."""
    chosen, known, grew = [root], {root["id"]}, True
    while grew:
        below = [row for row in rows if row["parent_id"] in known and row["id"] not in known]
        chosen, known, grew = chosen + below, known | {row["id"] for row in below}, bool(below)
    return chosen


def thread_of(attempt):
    identity = attempt.get("identity")
    return text_of(identity.get("x-session-id")) if isinstance(identity, dict) else None


def seconds(milliseconds):
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
        return None
    return milliseconds / 1000.0 if 0 < milliseconds < 1e15 else None


def figures_of(tokens):
    """Usage of one step in our names; None where the provider sent none (no `total`) or the figures are malformed."""
    if not isinstance(tokens, dict) or count_of(tokens.get("total")) is None:
        return None
    cache = tokens.get("cache") if isinstance(tokens.get("cache"), dict) else {}
    parts = [count_of(tokens.get(name)) for name in ("input", "output", "reasoning")]
    parts += [count_of(cache.get(name)) for name in ("read", "write")]
    if None in parts:
        return None
    given, output, reasoning, read, write = parts
    return usage.normalise({
        "input_tokens": given + read + write, "cached_input_tokens": read, "cache_write_input_tokens": write,
        "output_tokens": output + reasoning, "reasoning_output_tokens": reasoning, "total_tokens": tokens["total"],
    })  # fmt: skip


def result_of(name, state):
    """(status, error_type) of a tool part."""
    status, metadata = state.get("status"), state.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if status == "error":
        text = text_of(state.get("error")) or ""
        return ("cancelled", "aborted") if "abort" in text.lower() or metadata.get("interrupted") else ("failed", "tool_error")
    if status != "completed":
        return "incomplete", None
    if name == "invalid":
        return "failed", "invalid_arguments"
    code = metadata.get("exit")
    if isinstance(code, int) and not isinstance(code, bool):
        return by_exit_code(code)
    if "exit" in metadata:
        text = text_of(state.get("output")) or ""
        return ("timeout", "timeout") if CUT_OFF in text else ("unknown", None)
    return "completed", None

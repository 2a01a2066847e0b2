"""From the database of OpenCode or Kilocode to evidence.

`session`, `message` and `part` are read from a checkpointed copy (sqlite_copy.py).  The run's session is the one that stdout or
the requests' headers name; its sub-agents are the sessions below it (parent_id), and no other is read.  Facts (measured):
  - a tool part holds call, result and times; `state.metadata.exit` is a shell's exit status; one still `running` was cut off
  - tokens are per step; `input` leaves out what was cached, `output` what was reasoning; a step whose tokens have no `total` got
    no usage from the provider (its zeros mean unknown), and attempts that failed leave none at all
  - `metadata.sessionId` of a task call says which call started which session
"""

from __future__ import annotations

import os

from worker import usage
from worker.harnesses import opencode, reading, sqlite_copy
from worker.harnesses.opencode_events import ERRORS, Live, error_text
from worker.harnesses.reading import function_call, function_call_output, header, message, number, reasoning
from worker.observations import read_attempts

__all__ = ("ERRORS", "Live", "collect")

MOST_SESSIONS = 1000
OUTPUTS = "tool-output"  # files with what a tool printed in full
INVALID = "invalid"  # the tool that gets the calls of unknown tools, and those with arguments that cannot be read
CUT_OFF = "shell tool terminated command after exceeding timeout"
QUIET_PARTS = frozenset("step-start snapshot patch file agent retry subtask".split())
STATUSES = {"success": ("completed", None), "failure": ("failed", "model_error"), None: ("incomplete", "no_end")}


def collect(run, harness=opencode, database="opencode.db"):
    """Evidence of one run; see worker/harnesses/README.md."""
    evidence, live = reading.Reading(run), run["live"]
    story = Story(evidence)
    if evidence.root_fd is not None:
        copy = sqlite_copy.open_copy(evidence.root_fd, database, run["native_dirfd"], run.get("redactor"), evidence.gaps)
        if copy is None:
            evidence.gaps.add("agent_artifact_unavailable", "no " + database)
        else:
            evidence.native_files.update(copy.native)
            story.read(copy)
            copy.close()
        keep_outputs(evidence)
    story.check_children()
    root = story.root
    if root is None and live.thread_id:
        evidence.agent("stdout", live.thread_id)
    version, warnings = root and root.version, list(live.warnings)
    if version and version not in harness.TESTED:
        warnings.append({"code": "untested_version", "detail": version})
    return evidence.evidence(
        lambda attempt: header(attempt, "x-session-id"), version=version, warnings=warnings, terminal=root and terminal(root),
        error_text=root and root.error_text, final_message=live.final_message if live.terminal else final_of(root),
    )  # fmt: skip


def terminal(agent):
    """By the last assistant message: its error, else how it finished (`tool-calls`: it would have gone on)."""
    if agent.error_text:
        return "failure"
    if agent.finish is None or agent.finish == "tool-calls":
        return None
    return "success" if agent.finish == "stop" else "failure"


def final_of(agent):
    return agent.last_message if agent is not None and terminal(agent) == "success" else None


def keep_outputs(evidence):
    """What tools printed in full, where the transcript holds a part only."""
    if sqlite_copy.exists(evidence.root_fd, OUTPUTS):
        for path in evidence.find(OUTPUTS, lambda name: True, 0):
            evidence.copy(path, "tool-output-" + os.path.basename(path))


class Story:
    """The run's sessions, each read into an agent of its own."""

    def __init__(self, evidence):
        self.evidence, self.run, self.root, self.spawned = evidence, evidence.run, None, {}

    def read(self, database):
        wanted = self.wanted()
        columns = ("id", "parent_id", "version", "time_created")
        rows = [row for _, row in zip(range(MOST_SESSIONS), database.rows("session", columns, "ORDER BY time_created, id"))]
        rows = [row for row in rows if text_of(row["id"])]
        roots = [row for row in rows if row["id"] == wanted] if wanted else [row for row in rows if not row["parent_id"]]
        if len(roots) != 1:
            if roots:
                self.evidence.gaps.add("transcript_ambiguous", "%d sessions" % len(roots), file=database.name)
            elif database.connection is not None:
                self.evidence.gaps.add("agent_artifact_unavailable", "the run's session is not in it", file=database.name)
            return
        chosen = with_descendants(roots[0], rows)
        if len(chosen) < len(rows):
            self.evidence.gaps.add("transcript_unrelated", "%d other sessions" % (len(rows) - len(chosen)), file=database.name)
        for row in chosen:
            self.session(database, row)

    def wanted(self):
        """The session that stdout announced; else the one that the main requests' headers name."""
        if self.run["live"].thread_id or self.run.get("dirfd") is None:
            return self.run["live"].thread_id
        named = (header(one, "x-session-id") for one in read_attempts(self.run["dirfd"]) if one.get("main"))
        return next((name for name in named if name), None)

    def session(self, database, row):
        own = None if self.root is None else row["id"]
        agent = self.evidence.agent(database.name, row["id"], own)
        agent.version, agent.finish, agent.error_text = text_of(row["version"]), None, None
        agent.native_parent, agent.compacting = row["parent_id"], None
        self.root = self.root or agent
        query = "WHERE session_id = ? ORDER BY time_created, id"
        for said in list(database.rows("message", ("id", "data"), query, (row["id"],))):
            content = reading_object(agent, said, "message")
            if content is not None:
                Message(self, agent, content).tell(database, said["id"])
        agent.status, agent.error = STATUSES[terminal(agent)]
        if agent.compacting is not None:
            self.evidence.records.append(agent.compacting)

    def check_children(self):
        """Which call started which sub-agent; sub-agents that are not in the database."""
        agents = {agent.thread: agent for agent in self.evidence.agents}
        for agent in self.evidence.agents:
            if agent is not self.root:
                owner, agent.spawned_by = self.spawned.get(agent.thread, (None, None))
                above = agents.get(agent.native_parent)
                agent.parent = owner or (above or self.root).invocation_id
                if agent.spawned_by is None:
                    agent.gap("subagent_spawn_unlinked")
        for child in sorted(set(self.spawned) - set(agents)):
            self.evidence.gaps.add("subagent_transcript_unavailable", child, self.run["invocation_id"], key=child)


class Message:
    """One message and its parts, told to the session's agent."""

    def __init__(self, story, agent, content):
        self.story, self.agent, self.role = story, agent, content.get("role")
        self.content, self.texts = content, []

    def tell(self, database, identity):
        times = part_of(self.content, "time")
        self.at = seconds(times.get("created"))
        for stamp in (self.at, seconds(times.get("completed"))):
            self.agent.seen(stamp)
        for row in database.rows("part", ("id", "data"), "WHERE message_id = ? ORDER BY id", (identity,)):
            part = reading_object(self.agent, row, "part")
            kind = part.get("type") if part is not None else None
            handler = PARTS.get(kind) if isinstance(kind, str) else None
            if handler:
                handler(self, part, row["rowid"])
            elif part is not None and not (isinstance(kind, str) and kind in QUIET_PARTS):
                self.agent.count_unknown("part/%s" % kind)
        if self.role == "assistant" and self.content.get("summary") is True:
            self.compacted()
        elif self.role == "assistant":
            error = self.content.get("error")
            self.agent.error_text = error_text(error) if error else None
            self.agent.finish = text_of(self.content.get("finish"))
            self.agent.last_message = self.texts[-1] if self.texts else None

    def compacted(self):
        """The answer to a compaction part: its summary, or why there is none."""
        record, self.agent.compacting = self.agent.compacting, None
        if record is not None:
            failed = bool(self.content.get("error"))
            record.update(outcome="failed" if failed else "completed", summary="".join(self.texts) or None)
            self.story.evidence.records.append(record)

    def on_text(self, part, offset):
        text = text_of(part.get("text"))
        if text:
            self.agent.conversation.append(message("user" if self.role == "user" else "assistant", text))
            self.texts.append(text)

    def on_reasoning(self, part, offset):
        text = text_of(part.get("text"))
        if text:
            self.agent.conversation.append(reasoning(text))

    def on_step(self, part, offset):
        self.agent.used(offset, figures_of(part.get("tokens")))

    def on_tool(self, part, offset):
        state, name = part_of(part, "state"), text_of(part.get("tool")) or "unknown"
        times, tools = part_of(state, "time"), self.agent.tools
        started, ended = seconds(times.get("start")), seconds(times.get("end"))
        asked = text_of(part_of(state, "input").get("tool")) if name == INVALID else None  # what the model called
        record = tools.call(text_of(part.get("callID")), asked or name, started, offset)
        identity = record["tool_call_id"]
        self.agent.conversation.append(function_call(identity, name, state.get("input") or {}))
        result = result_of(name, state)
        if result[0] != "incomplete":
            tools.finish(record, result, None)
            output = text_of(state.get("output")) or text_of(state.get("error")) or ""
            self.agent.conversation.append(function_call_output(identity, output))
        tools.time(record, started, ended, "executor")
        child = text_of(part_of(state, "metadata").get("sessionId"))
        if child:
            self.story.spawned[child] = (self.agent.invocation_id, identity)

    def on_compaction(self, part, offset):
        self.agent.compacting = {
            "kind": "context_compaction", "invocation_id": self.agent.invocation_id, "observed_at": self.at,
            "trigger": "automatic" if part.get("auto") is True else None, "tokens_before": None, "tokens_after": None,
            "outcome": "incomplete", "summary": None, "first_kept_item_id": text_of(part.get("tail_start_id")),
            "before_model_call": None, "model_calls": [], "after_model_call": None,
        }  # fmt: skip


PARTS = {
    "text": Message.on_text, "reasoning": Message.on_reasoning, "step-finish": Message.on_step, "tool": Message.on_tool,
    "compaction": Message.on_compaction,
}  # fmt: skip


def reading_object(agent, row, table):
    """The JSON object in a row's `data`, or None with a gap."""
    try:
        found = reading.DECODER.decode(row["data"])
    except (ValueError, TypeError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    agent.gap("agent_artifact_record_unparseable", "a row of table " + table, row["rowid"])
    return None


def text_of(value):
    return value if isinstance(value, str) and value else None


def part_of(value, name):
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def with_descendants(root, rows):
    """The root and every session below it, parents first."""
    chosen, known, grew = [root], {root["id"]}, True
    while grew:
        below = [row for row in rows if row["parent_id"] in known and row["id"] not in known]
        chosen, known, grew = chosen + below, known | {row["id"] for row in below}, bool(below)
    return chosen


def seconds(milliseconds):
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
        return None
    return milliseconds / 1000.0 if 0 < milliseconds < 1e15 else None


def figures_of(tokens):
    """Usage of one step in our names; None where the provider sent none (no `total`) or the figures are malformed."""
    if not isinstance(tokens, dict) or number(tokens.get("total")) is None:
        return None
    cache = part_of(tokens, "cache")
    parts = [number(tokens.get(name)) for name in ("input", "output", "reasoning")]
    parts += [number(cache.get(name)) for name in ("read", "write")]
    if None in parts:
        return None
    given, output, reasoning, read, write = parts
    return usage.normalise({
        "input_tokens": given + read + write, "cached_input_tokens": read, "cache_write_input_tokens": write,
        "output_tokens": output + reasoning, "reasoning_output_tokens": reasoning, "total_tokens": tokens["total"],
    })  # fmt: skip


def result_of(name, state):
    """(status, error_type) of a tool part."""
    status, metadata = state.get("status"), part_of(state, "metadata")
    if status == "error":
        text = text_of(state.get("error")) or ""
        return ("cancelled", "aborted") if "abort" in text.lower() or metadata.get("interrupted") else ("failed", "tool_error")
    if status != "completed":
        return "incomplete", None
    if name == INVALID:
        return "failed", "invalid_arguments"
    code = metadata.get("exit")
    if isinstance(code, int) and not isinstance(code, bool):
        return ("completed", None) if code == 0 else ("failed", "exit_code_%d" % code)
    if "exit" in metadata:
        text = text_of(state.get("output")) or ""
        return ("timeout", "timeout") if CUT_OFF in text else ("unknown", None)
    return "completed", None

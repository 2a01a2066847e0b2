"""From Hermes' state.db and usage file to evidence (0.19.0), and its error texts.

stdout is the final text and no event, even where it looks like one (Live as it is); everything is in HERMES_HOME: `sessions` and
`messages` of state.db, read from a checkpointed copy (sqlite_copy.py), and usage.json, written when the CLI ends in order.
Facts (measured):
  - usage.json `completed` is the success; `failed` a model error, whose words are on stdout only; both false: cut off
  - a tool's result is JSON with its `exit_code` (124 and a note: timeout; -1: refused); tokens are totals of a session, `input`
    without what was cached; zeros mean unknown; on a cut or `length` they count too little
  - failed requests leave no record in the database but files sessions/request_dump_*.json, and not all of them
  - after a cut the CLI asks to go on in the user's name ("[System: ..."): these messages are its own
  - a compaction writes the shortened context behind the old one in one go: copies of the messages that stay, times a
    microsecond apart, around its summary ("[CONTEXT COMPACTION").  Or the session goes on in a child session (end_reason
    `compression`); other child sessions are sub-agents
"""

from __future__ import annotations

from worker import usage
from worker.harnesses import hermes, reading, sqlite_copy
from worker.harnesses.live import Live
from worker.harnesses.reading import function_call, function_call_output, message, number, reasoning

__all__ = ("ERRORS", "Live", "collect")

DATABASE = "state.db"
MOST_DUMPS = 100
MOST_SESSIONS = 1000
MOST_TOGETHER = 10000
EMPTY = ("(empty)",)
SUMMARY = "[CONTEXT COMPACTION"
TOGETHER = 0.0005  # s between messages that were written in one go
INJECTED = "[System: "  # messages in the user's name that the CLI made
SESSION = ("id", "parent_session_id", "started_at", "ended_at", "end_reason", "source", "input_tokens", "output_tokens",
           "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")  # fmt: skip
MESSAGE = ("id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp", "finish_reason", "reasoning",
           "reasoning_content")  # fmt: skip

# (pattern, kind, does it count only without a wire, where it was seen); words of a request dump, `status: message`.
ERRORS = (
    (r"context_length_exceeded|Context length exceeded|payload too large", "context_length", False, "0.19.0, 400 and 413"),
    (r"^429: .*(insufficient_quota|quota|billing)", "quota_exhausted", True, "0.19.0, insufficient_quota"),
    (r"^429: ", "rate_limited", True, "0.19.0, HTTP 429"),
    (r"^401: ", "authentication", True, "0.19.0, HTTP 401"),
    (r"^402: ", "quota_exhausted", True, "0.19.0, HTTP 402"),
    (r"^403: ", "permission", True, "0.19.0, HTTP 403"),
    (r"^404: ", "model_not_found", True, "0.19.0, HTTP 404"),
    (r"^(503|529): ", "overloaded", True, "0.19.0, HTTP 503"),
    (r"^(408|5\d\d): ", "server_error", True, "0.19.0, HTTP 500"),
    (r"^4\d\d: ", "invalid_request", True, "0.19.0, HTTP 400"),
    (r"Connection error", "connection", True, "0.19.0, reset before the head"),
)


def collect(run):
    """Evidence of one run; see worker/harnesses/README.md."""
    evidence, known = reading.Reading(run), run.get("baseline") or {}
    if known.get("prompt_in_argv"):
        evidence.gaps.add("prompt_in_argv")
    report, dumps = None, []
    story = Story(evidence)
    if evidence.root_fd is not None:
        report = whole(evidence, hermes.USAGE)
        dumps = [whole(evidence, path) for path in request_dumps(evidence)]
        copy = sqlite_copy.open_copy(evidence.root_fd, DATABASE, run["native_dirfd"], run.get("redactor"), evidence.gaps)
        if copy is None:
            evidence.gaps.add("agent_artifact_unavailable", "no " + DATABASE)
        else:
            evidence.native_files.update(copy.native)
            story.read(copy, (report or {}).get("session_id"))
            copy.close()
    ended = ending(report)
    if story.root is not None:
        story.root.status, story.root.error = STATUSES[ended]
    final = story.final if ended == "success" and story.final not in EMPTY else None
    warnings = list(run["live"].warnings)
    version = known.get("version")
    if version and version not in hermes.TESTED:
        warnings.append({"code": "untested_version", "detail": version})
    found = evidence.evidence(
        lambda attempt: story.thread if attempt.get("main") else None, version=version, warnings=warnings, terminal=ended,
        error_text=error_text(report, dumps), final_message=final,
    )  # fmt: skip
    return story.with_usage(found)


STATUSES = {"success": ("completed", None), "failure": ("failed", "model_error"), None: ("incomplete", "no_end")}


def whole(evidence, path):
    """A JSON document of the state directory, copied to native/; None where there is none."""
    if not sqlite_copy.exists(evidence.root_fd, path):
        return None
    native = evidence.copy(path)
    return evidence.whole(native) if native else None


def request_dumps(evidence):
    """Paths of the newest request dumps; there are none before the first failure."""
    if not sqlite_copy.exists(evidence.root_fd, "sessions"):
        return []
    return evidence.find("sessions", lambda name: name.startswith("request_dump_") and name.endswith(".json"), 0)[-MOST_DUMPS:]


def ending(report):
    """By the usage file; None where there is none (killed) or the CLI was interrupted."""
    if report is None:
        return None
    if report.get("failed") is True or report.get("completed") is not True:
        return "failure"
    return "success"


def error_text(report, dumps):
    """`status: message` of the last request that failed, else what the usage file says."""
    for dump in reversed([one for one in dumps if one]):
        error = dump.get("error") if isinstance(dump.get("error"), dict) else {}
        if isinstance(error.get("message"), str):
            return "%s: %s" % (error.get("status_code") or error.get("response_status"), error["message"])
    failure = (report or {}).get("failure")
    return failure if isinstance(failure, str) else None


class Story:
    """The sessions of the database as invocations."""

    def __init__(self, evidence):
        self.evidence, self.root, self.final, self.thread, self.totals = evidence, None, None, None, {}
        self.partial = False

    def read(self, database, announced):
        every = zip(range(MOST_SESSIONS), database.rows("sessions", SESSION, "ORDER BY started_at, id"))
        rows = [row for _, row in every if isinstance(row["id"], str)]
        known = {row["id"]: row for row in rows}
        tops = [row for row in rows if row["parent_session_id"] not in known]
        if isinstance(announced, str) and announced in known:
            tops = [top(known[announced], known)]
        if len(tops) > 1:
            self.evidence.gaps.add("transcript_ambiguous", "%d sessions" % len(tops), file=database.name)
        if len(tops) != 1:
            if database.connection is not None and not tops:
                self.evidence.gaps.add("agent_artifact_unavailable", "the database has no session", file=database.name)
            return
        agents = {}
        for row in rows:
            if top(row, known) is tops[0]:
                self.session(database, row, known, agents)

    def session(self, database, row, known, agents):
        """A session of its own, or the rest of its parent's."""
        parent = known.get(row["parent_session_id"])
        goes_on = parent is not None and parent["end_reason"] == "compression" and parent["id"] in agents
        if goes_on:
            agent = agents[parent["id"]]
            self.evidence.records.append(compaction(agent.invocation_id, row["started_at"], None))
        elif parent is None:
            agent = self.root = self.evidence.agent(database.name, row["id"])
            self.thread = row["id"]
        else:
            agent = self.evidence.agent(database.name, row["id"], row["id"])
            agent.parent = agents[parent["id"]].invocation_id if parent["id"] in agents else self.evidence.run["invocation_id"]
            agent.gap("subagent_spawn_unlinked")
            agent.status = "completed" if row["end_reason"] else "incomplete"
        agents[row["id"]] = agent
        figures = figures_of(row)
        self.partial = self.partial or figures is None
        if figures is not None:
            self.totals[agent] = usage.add(self.totals[agent], figures) if agent in self.totals else figures
        for batch in batches(database.rows("messages", MESSAGE, "WHERE session_id = ? ORDER BY id", (row["id"],))):
            summary = next((said for said in batch if is_summary(said)), None)
            if summary is not None:
                self.evidence.records.append(compaction(agent.invocation_id, summary["timestamp"], summary["content"]))
                continue
            for said in batch:
                Message(agent, said).tell()
        if agent is self.root:
            self.final = agent.last_message

    def with_usage(self, found):
        """Totals of sessions take the place of sums over calls: the database has none."""
        total = None
        for figures in self.totals.values():
            total = figures if total is None else usage.add(total, figures)
        threads = {str(agent.thread): dict(self.totals.get(agent) or usage.UNKNOWN) for agent in self.evidence.agents}
        notes = dict(found["usage_notes"], partial=self.partial and total is not None)
        return dict(found, usage_transcript=total, threads=threads, usage_notes=notes)


def top(row, known):
    seen = set()
    while row["parent_session_id"] in known and row["id"] not in seen:
        seen.add(row["id"])
        row = known[row["parent_session_id"]]
    return row


def batches(rows):
    """Lists of messages that were written in one go."""
    batch = []
    for row in rows:
        before, at = seconds(batch[-1]["timestamp"]) if batch else None, seconds(row["timestamp"])
        if batch and (before is None or at is None or not 0 <= at - before <= TOGETHER or len(batch) >= MOST_TOGETHER):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def is_summary(row):
    return row["role"] == "user" and isinstance(row["content"], str) and row["content"].startswith(SUMMARY)


def compaction(invocation_id, at, summary):
    return {
        "kind": "context_compaction", "invocation_id": invocation_id, "observed_at": seconds(at), "trigger": None,
        "tokens_before": None, "tokens_after": None, "outcome": "completed", "summary": summary, "first_kept_item_id": None,
        "before_model_call": None, "model_calls": [], "after_model_call": None,
    }  # fmt: skip


class Message:
    """One row of `messages`, told to its agent."""

    def __init__(self, agent, row):
        self.agent, self.row, self.at, self.offset = agent, row, seconds(row["timestamp"]), row["rowid"]
        self.text = row["content"] if isinstance(row["content"], str) else None

    def tell(self):
        self.agent.seen(self.at)
        handler = ROLES.get(self.row["role"]) if isinstance(self.row["role"], str) else None
        if handler:
            handler(self)
        else:
            self.agent.count_unknown("message/%s" % self.row["role"])

    def on_user(self):
        if self.text:
            if self.text.startswith(INJECTED):
                self.agent.gap("harness_message", self.text[:200], self.offset)
            self.agent.conversation.append(message("user", self.text))

    def on_system(self):
        if self.text:
            self.agent.conversation.append(message("system", self.text))

    def on_assistant(self):
        thought = self.row["reasoning"] or self.row["reasoning_content"]
        if isinstance(thought, str) and thought:
            self.agent.conversation.append(reasoning(thought))
        if self.text and self.text not in EMPTY:
            self.agent.conversation.append(message("assistant", self.text))
        calls = loaded(self.row["tool_calls"]) if self.row["tool_calls"] else []
        if not isinstance(calls, list):
            self.agent.gap("agent_artifact_record_unparseable", "tool_calls", self.offset)
            calls = []
        for call in calls:
            self.call(call)
        self.agent.last_message = None if calls else self.text

    def call(self, call):
        told = call.get("function") if isinstance(call, dict) else None
        if not isinstance(told, dict):
            self.agent.gap("agent_artifact_record_unparseable", "a tool call without function", self.offset)
            return
        identity, name = call.get("id") or call.get("call_id"), told.get("name")
        name = name if isinstance(name, str) else "unknown"
        record = self.agent.tools.call(identity if isinstance(identity, str) else None, name, self.at, self.offset)
        self.agent.conversation.append(function_call(record["tool_call_id"], name, told.get("arguments") or "{}"))

    def on_tool(self):
        identity, text = self.row["tool_call_id"], self.text or ""
        if not isinstance(identity, str):
            self.agent.gap("tool_output_orphan", "a result without tool_call_id", self.offset)
            return
        self.agent.tools.output(identity, result_of(text), self.at, self.offset)
        self.agent.conversation.append(function_call_output(identity, text))


ROLES = {
    "user": Message.on_user, "system": Message.on_system, "assistant": Message.on_assistant, "tool": Message.on_tool,
}  # fmt: skip


def loaded(text):
    try:
        return reading.DECODER.decode(text)
    except (ValueError, TypeError, RecursionError):
        return None


def result_of(text):
    """(status, error_type) of a tool's result: JSON with `exit_code` or `error`; other text tells nothing but that it failed."""
    found = loaded(text) if text.startswith("{") else None
    if not isinstance(found, dict):
        failed = text.startswith(("Error", "Unknown tool", "Tool ")) or "does not exist" in text[:200]
        return ("failed", "tool_error") if failed else (None, None)
    code, error = found.get("exit_code"), found.get("error")
    if isinstance(code, int) and not isinstance(code, bool):
        if code == 124 and "timed out" in str(found.get("output"))[-200:]:
            return "timeout", "timeout"
        if code == -1 and error:
            return "failed", "refused"
        return ("completed", None) if code == 0 else ("failed", "exit_code_%d" % code)
    return ("failed", "tool_error") if error or found.get("success") is False else ("completed", None)


def seconds(value):
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e12 else None


def figures_of(row):
    parts = [number(row[name]) for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens")]
    if None in parts:
        return None
    return reading.figures(sum(parts), row["output_tokens"], parts[1], parts[2], row["reasoning_tokens"])

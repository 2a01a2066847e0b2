"""From Pi's session file to evidence (0.80.2 and 1.6.0).

One JSONL file per session, its first record the header with the session's id, which stdout announces, too.  Facts (measured):
  - 0.80.2 writes nothing before the first assistant message: a run that ended earlier has no transcript
  - tool results have no exit status: 1.6.0 tells it on stdout (Live.results), 0.80.2 only as the last line of the text
  - usage stands in each assistant message, `input` without what was cached; reasoning only in 1.6.0; all zeros mean unknown
  - attempts that failed stay as assistant messages with stopReason `error`; `responseId` is the provider's
  - with Responses, a tool call's id is `call_id|item_id`
"""

from __future__ import annotations

import os
import re

from worker.harnesses import pi, reading
from worker.harnesses.codex_lines import unix_time
from worker.harnesses.live import words
from worker.harnesses.pi_events import ENDINGS, ERRORS, Live, error_of, text_in
from worker.harnesses.reading import figures, function_call, function_call_output, header, message, reasoning

__all__ = ("ERRORS", "Live", "collect")

MOST_RESPONSES = 100000
DEPTH = 1  # a caller's own session directory may have one folder per working directory
QUIET = frozenset(
    "model_change thinking_level_change context_edit usage branch_summary custom custom_message label session_info".split()
)
# The last line of a tool result's text -> (status, error type)
ENDS = (
    (re.compile(r"Command timed out after [\d.]+ seconds\s*\Z"), "timeout", "timeout"),
    (re.compile(r"(Command|Operation) aborted\s*\Z"), "cancelled", "aborted"),
)
EXIT = re.compile(r"Command exited with code (-?\d{1,6})\s*\Z")


def collect(run):
    """Evidence of one run; see worker/harnesses/README.md."""
    evidence = reading.Reading(run)
    live, known = run["live"], run.get("baseline") or {}
    agent, chosen = None, choose(evidence, live.thread_id)
    if chosen:
        native = evidence.copy(chosen)
        if native:
            agent = evidence.agent(native, live.thread_id)
            for offset, record in evidence.objects(native):
                Transcript(agent, live).feed(record, offset)
            agent.status, agent.error = STATUSES[terminal(agent)]
    version = reading.version_on_wire(run.get("wire"), r"^pi/([0-9][0-9A-Za-z.+-]*)") or known.get("version")
    warnings = list(live.warnings)
    if version and version not in pi.TESTED:
        warnings.append({"code": "untested_version", "detail": version})
    if agent is None and live.thread_id:
        evidence.agent("stdout", live.thread_id)
    return evidence.evidence(
        thread_of, version=version, warnings=warnings, terminal=agent and terminal(agent),
        error_text=getattr(agent, "error_text", None), final_message=live.final_message if live.terminal else final_of(agent),
    )  # fmt: skip


STATUSES = {"success": ("completed", None), "failure": ("failed", "model_error"), None: ("incomplete", "no_turn_end")}


def choose(evidence, thread):
    """The file of the announced session; without one the only file there is."""
    paths = evidence.find(".", lambda name: name.endswith(".jsonl"), DEPTH)
    named = [path for path in paths if thread and os.path.basename(path).endswith("_%s.jsonl" % thread)]
    if named or not paths:
        if not paths:
            evidence.gaps.add("agent_artifact_unavailable", "no session file (none is written before the first answer)")
        return named[0] if named else None
    if thread or len(paths) > 1:
        code = "transcript_unrelated" if thread else "transcript_ambiguous"
        evidence.gaps.add(code, "%d session files" % len(paths))
        return None
    return paths[0]


def thread_of(attempt):
    return header(attempt, "x-client-request-id") or header(attempt, "x-session-affinity")


def terminal(agent):
    return ENDINGS.get(getattr(agent, "stop", None))


def final_of(agent):
    return agent.last_message if agent is not None and terminal(agent) == "success" else None


class Transcript:
    """Gives one record of a session file to its agent."""

    def __init__(self, agent, live):
        self.agent, self.live = agent, live

    def feed(self, record, offset):
        kind = record.get("type")
        self.agent.seen(unix_time(record.get("timestamp")))
        said = record.get("message")
        if kind == "message" and isinstance(said, dict):
            handler = ROLES.get(said.get("role")) if isinstance(said.get("role"), str) else None
            if handler:
                handler(self, said, unix_time(record.get("timestamp")), offset)
            else:
                self.agent.count_unknown("message/%s" % said.get("role"))
        elif kind == "session":
            self.agent.thread = self.agent.thread or words(record.get("id"))
        elif kind == "compaction":
            self.on_compaction(record)
        elif not isinstance(kind, str) or kind not in QUIET:
            self.agent.count_unknown(kind)

    def on_prompt(self, said, at, offset):
        text = text_in(said)
        if text:
            self.agent.conversation.append(message(said["role"], text))

    def on_assistant(self, said, at, offset):
        agent = self.agent
        for block in said.get("content") if isinstance(said.get("content"), list) else ():
            if isinstance(block, dict):
                self.on_block(block, at, offset)
        agent.stop, agent.error_text = words(said.get("stopReason")), error_of(said)
        agent.last_message = text_in(said)
        response = said.get("responseId")
        if isinstance(response, str) and response and len(agent.responses) < MOST_RESPONSES:
            agent.responses.append(response)
        if said.get("stopReason") != "error" or figures_of(said):
            agent.used(offset, figures_of(said))

    def on_block(self, block, at, offset):
        kind, text = block.get("type"), block.get("text") or block.get("thinking")
        if kind == "text" and isinstance(text, str) and text:
            self.agent.conversation.append(message("assistant", text))
        elif kind == "thinking" and isinstance(text, str) and text:
            self.agent.conversation.append(reasoning(text))
        elif kind == "toolCall":
            identity = block.get("id") if isinstance(block.get("id"), str) else None
            name = block.get("name") if isinstance(block.get("name"), str) else "unknown"
            record = self.agent.tools.call(identity, name, at, offset)
            self.agent.conversation.append(function_call(record["tool_call_id"], name, block.get("arguments") or {}))
        elif kind not in ("text", "thinking", "image"):
            self.agent.count_unknown("block/%s" % kind)

    def on_result(self, said, at, offset):
        identity, text = said.get("toolCallId"), text_in(said) or ""
        if not isinstance(identity, str):
            self.agent.gap("tool_output_orphan", "a result without toolCallId", offset)
            return
        self.agent.tools.output(identity, result_of(said, text, self.live.results.get(identity)), at, offset)
        self.agent.conversation.append(function_call_output(identity, text))

    def on_compaction(self, record):
        before = record.get("tokensBefore")
        self.agent.reading.records.append({
            "kind": "context_compaction", "invocation_id": self.agent.invocation_id, "outcome": "completed", "trigger": None,
            "observed_at": unix_time(record.get("timestamp")), "tokens_before": reading.number(before), "tokens_after": None,
            "summary": record.get("summary") if isinstance(record.get("summary"), str) else None,
            "first_kept_item_id": record.get("firstKeptEntryId") if isinstance(record.get("firstKeptEntryId"), str) else None,
            "before_model_call": None, "model_calls": [], "after_model_call": None,
        })  # fmt: skip


ROLES = {
    "system": Transcript.on_prompt, "user": Transcript.on_prompt, "assistant": Transcript.on_assistant,
    "toolResult": Transcript.on_result,
}  # fmt: skip


def figures_of(said):
    raw = said.get("usage") if isinstance(said.get("usage"), dict) else {}
    parts = [reading.number(raw.get(name)) for name in ("input", "cacheRead", "cacheWrite")]
    if None in parts:
        return None
    return figures(sum(parts), raw.get("output"), parts[1], parts[2], raw.get("reasoning"), raw.get("totalTokens"))


def result_of(said, text, code):
    """(status, error_type) of a tool result; code: the exit status that stdout told."""
    if code is not None:
        return ("completed", None) if code == 0 else ("failed", "exit_code_%d" % code)
    if said.get("isError") is not True:
        return ("completed", None) if said.get("isError") is False else (None, None)
    for pattern, status, error in ENDS:
        if pattern.search(text):
            return status, error
    found = EXIT.search(text)
    return "failed", "exit_code_%s" % found.group(1) if found else "tool_error"

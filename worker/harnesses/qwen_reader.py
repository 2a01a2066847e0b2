"""From Qwen Code's stdout and session files to evidence (0.24.4).

stdout imitates Claude Code's events; what differs: usage of a turn stands at its last block and counts cached input in, all
zeros mean unknown, an error is a text block `[API Error: ...]` glued to whatever came before, `system/retry` tells of a
repeat.  The transcript is `<QWEN_HOME>/projects/<cwd>/chats/<session>.jsonl`, sub-agents
`projects/<cwd>/subagents/<session>/agent-*.jsonl` (`.meta.json` beside), long outputs below `tmp/`.  Its telemetry records
name the response of each answer and the sub-agent that got it, and each error with its HTTP status; a shell's exit status is
structured (`resultDisplay.exitCode`), the rest of its words are not needed.
"""

from __future__ import annotations

import re

from worker.harnesses import claude_code_events, qwen, reading
from worker.harnesses.codex_lines import text_of, unix_time

__all__ = ("ERRORS", "Live", "collect")

API_ERROR = re.compile(r"\[API Error: .*\Z", re.S)
OUT_OF_TURNS = (53, 55)  # exit codes for --max-session-turns, and for --max-tool-calls and --max-wall-time
SKIPPED = "Skipped because the provider attempt was retried"
# (pattern, kind, does it count only without a wire, where it was seen)
ERRORS = (
    (r"API Error: (.*\b)?(401|Incorrect API key)", "authentication", True, "HTTP 401"),
    (r"API Error: (.*\b)?403", "permission", True, "HTTP 403"),
    (r"API Error: (.*\b)?404", "model_not_found", True, "HTTP 404"),
    (r"(?i)context length|maximum context|context_length_exceeded", "context_length", False, "HTTP 400 and the CLI's own check"),
    (r"(?i)quota (exceeded|exhausted)|insufficient_quota", "quota_exhausted", True, "the CLI's own words for 429"),
    (r"API Error: (.*\b)?429|(?i:rate limit)", "rate_limited", True, "HTTP 429"),
    (r"API Error: (.*\b)?(503|529)", "overloaded", True, "HTTP 503"),
    (r"API Error: (.*\b)?5\d\d", "server_error", True, "HTTP 500"),
    (r"API Error: (.*\b)?4\d\d", "invalid_request", True, "HTTP 400 and 413"),
    (r"No stream activity for|Request timed? ?out", "model_timeout", True, "silent stream"),
    (r"stream ended without a finish reason|empty (response|stream)", "stream_interrupted", True, "clean end without finish"),
    (r"Connection error|ECONNRE(FUSED|SET)|terminated|socket hang up", "connection", True, "refused or reset"),
)
QUIET_SYSTEM = frozenset(
    "attribution_snapshot ui_telemetry notification chat_compression slash_command at_command file_history_snapshot "
    "session_title goal_state rewind".split()
)


class Live(claude_code_events.Live):
    VERSION = "qwen_code_version"

    def on_assistant(self, event):
        super().on_assistant(event)
        self.partial_message = without_error(self.partial_message)

    def on_result(self, event):
        super().on_result(event)
        self.final_message = without_error(self.final_message)
        self.usage = event.get("usage")


def without_error(text):
    """A message less the CLI's own `[API Error: ...]`; None where nothing is left."""
    return API_ERROR.sub("", text) or None if text else None


def collect(run):
    """Evidence of one run; see worker/harnesses/README.md."""
    story, session, before = reading.Reading(run), run["live"].thread_id, run.get("baseline") or {}
    reading.deny_success(run)
    if run.get("exit") in OUT_OF_TURNS and run["live"].terminal != "success":
        run["live"].limit = "turn_limit"  # no event says so, only a line on stderr
    every = story.find("projects", lambda name: True, 4)
    chats = [path for path in every if path.split("/")[2:3] == ["chats"] and path.endswith(".jsonl")]
    chosen = [path for path in chats if path.endswith("/%s.jsonl" % session)]
    if not session:
        chosen = [path for path in chats if path not in before]
    if len(chosen) != 1:
        code = "transcript_ambiguous" if chosen else "agent_artifact_unavailable"
        story.gaps.add(code, "%d session files for session %s" % (len(chosen), session))
        return story.evidence(lambda attempt: None, **known(run, None))
    if len(chats) > 1:
        story.gaps.add("transcript_unrelated", "%d" % (len(chats) - 1))
    root = read_all(story, chosen[0], every, before)
    for path in story.find("tmp", lambda name: name.endswith(".output"), 3):
        story.copy(path, "tool-output-" + path.rsplit("/", 1)[1])
    owners = {response: agent.thread for agent in story.agents for response in agent.responses}
    owner = reading.by_response(run, owners, root.agent.thread, len(story.agents) == 1)
    return story.evidence(owner, **known(run, root))


def read_all(story, path, every, before):
    """The root's Transcript, after its sub-agents were read, too."""
    project, session = path.split("/chats/")[0], path.rsplit("/", 1)[1][: -len(".jsonl")]
    native = story.copy(path)
    root = Transcript(story.agent(native or path, session), before.get(path, 0))
    for offset, record in story.objects(native) if native else ():
        root.feed(offset, record)
    for name in every:
        if name.startswith("%s/subagents/%s/" % (project, session)) and name.endswith(".jsonl"):
            read_subagent(story, root, name, every, before)
    return root


def read_subagent(story, root, path, every, before):
    native = story.copy(path)
    if native is None:
        return
    identity, meta = path.rsplit("/", 1)[1][len("agent-") : -len(".jsonl")], path[: -len(".jsonl")] + ".meta.json"
    copied = story.copy(meta) if meta in every else None
    said = story.whole(copied) or {} if copied else {}
    agent = story.agent(native, identity, identity)
    agent.parent = story.run["invocation_id"]
    agent.spawned_by = text_of(said.get("toolUseId") or said.get("parentToolUseId")) or root.spawned(identity)
    if agent.spawned_by is None:
        agent.gap("subagent_spawn_unlinked")
    transcript = Transcript(agent, before.get(path, 0))
    for offset, record in story.objects(native):
        transcript.feed(offset, record)
    agent.responses = root.subagents.get(identity, [])


class Transcript:
    """One session file, record by record; what it says is entered into its `agent`."""

    def __init__(self, agent, since):
        self.agent, self.since, self.subagents, self.calls = agent, since, {}, set()
        self.version = self.error_text = self.terminal = None

    def feed(self, offset, record):
        kind, current, at = text_of(record.get("type")), offset >= self.since, unix_time(record.get("timestamp"))
        self.version = text_of(record.get("version")) or self.version
        message = record.get("message") if isinstance(record.get("message"), dict) else {}
        listed = message.get("parts") if isinstance(message.get("parts"), list) else ()
        parts = [part for part in listed if isinstance(part, dict)]
        if current:
            self.agent.seen(at)
        if kind == "user":
            for part in parts:
                if text_of(part.get("text")):
                    self.agent.conversation.append(reading.message("user", part["text"]))
        elif kind == "assistant":
            self.on_assistant(record, parts, at, offset, current)
        elif kind == "tool_result":
            self.on_tool_result(record, parts, at, offset, current)
        elif kind == "system":
            self.on_system(record, at, current)
        else:
            self.agent.count_unknown(kind)

    def on_assistant(self, record, parts, at, offset, current):
        called = False
        for part in parts:
            call, text = part.get("functionCall"), text_of(part.get("text"))
            if isinstance(call, dict):
                called = True
                self.on_call(call, at, offset, current)
            elif text and part.get("thought"):
                self.agent.conversation.append(reading.reasoning(text))
            elif text:
                self.agent.conversation.append(reading.message("assistant", text))
                self.agent.last_message = text if current else self.agent.last_message
        if current:
            self.agent.used(offset, usage_of(record.get("usageMetadata")))
            self.terminal = None if called else "success"
            self.agent.status, self.agent.error = ("incomplete", "no_turn_end") if called else ("completed", None)

    def on_call(self, call, at, offset, current):
        identity, name = text_of(call.get("id")), text_of(call.get("name"))
        self.agent.conversation.append(reading.function_call(identity, name, call.get("args")))
        if current:
            self.calls.add(identity)
            self.agent.tools.call(identity, name or "tool", at, offset)

    def on_tool_result(self, record, parts, at, offset, current):
        told = record.get("toolCallResult") if isinstance(record.get("toolCallResult"), dict) else {}
        identity, text = text_of(told.get("callId")), ""
        for part in parts:
            response = part.get("functionResponse")
            if isinstance(response, dict):
                identity, text = text_of(response.get("id")) or identity, response_text(response.get("response"))
        self.agent.conversation.append(reading.function_call_output(identity, text))
        if identity is None:
            self.agent.gap("tool_output_orphan", "a result without id", offset)
        elif current:
            self.agent.tools.output(identity, result_of(told, text), at, offset)

    def on_system(self, record, at, current):
        kind, payload = text_of(record.get("subtype")), record.get("systemPayload")
        event = payload.get("uiEvent") if isinstance(payload, dict) else None
        if kind == "ui_telemetry" and isinstance(event, dict) and current:
            self.on_telemetry(event)
        elif kind == "chat_compression" and current:
            info = payload.get("info") if isinstance(payload, dict) and isinstance(payload.get("info"), dict) else {}
            self.agent.compactions.append({
                "kind": "context_compaction", "invocation_id": self.agent.invocation_id, "observed_at": at, "trigger": None,
                "tokens_before": reading.number(info.get("originalTokenCount")),
                "tokens_after": reading.number(info.get("newTokenCount")), "outcome": "completed", "summary": None,
                "first_kept_item_id": None, "before_model_call": None, "model_calls": [], "after_model_call": None,
            })  # fmt: skip
        elif kind not in QUIET_SYSTEM:
            self.agent.count_unknown("system/%s" % kind)

    def on_telemetry(self, event):
        name, owner = text_of(event.get("event.name")) or "", text_of(event.get("subagent_id"))
        if name.endswith(".api_response") and text_of(event.get("response_id")):
            (self.subagents.setdefault(owner, []) if owner else self.agent.responses).append(event["response_id"])
            self.error_text = self.error_text if owner else None
        elif name.endswith(".api_error") and not owner:
            self.error_text, self.terminal = text_of(event.get("error_message")) or "API error", "failure"
            self.agent.status, self.agent.error = "failed", "api_error"

    def spawned(self, identity):
        """The call that started a sub-agent: its id ends with the call's (`TYPE-CALL`)."""
        return next((call for call in self.calls if call and identity.endswith("-" + call)), None)


def response_text(response):
    if not isinstance(response, dict):
        return ""
    return text_of(response.get("output")) or text_of(response.get("error")) or ""


def result_of(told, text):
    """(status, error_type) of a tool result: the shell's own record first, then the CLI's status word."""
    shown = told.get("resultDisplay") if isinstance(told.get("resultDisplay"), dict) else {}
    code, status, outcome = shown.get("exitCode"), told.get("status"), text_of(shown.get("outcome")) or ""
    if text.startswith(SKIPPED):
        return "cancelled", "provider_retry"
    if "time" in outcome:
        return "timeout", "timeout"
    if status == "cancelled" or "cancel" in outcome:
        return "cancelled", "cancelled"
    if isinstance(code, int) and not isinstance(code, bool) and code != 0:
        return "failed", "exit_code_%d" % code
    if text_of(shown.get("signal")):
        return "failed", "signal_" + shown["signal"]
    return {"success": ("completed", None), "error": ("failed", text_of(told.get("errorType")) or "tool_error")}.get(
        status if isinstance(status, str) else "", (None, None)
    )


def usage_of(raw):
    """Gemini-style figures: the prompt counts cached tokens in; the candidates count thoughts in, as Chat Completions do."""
    if not isinstance(raw, dict):
        return None
    names = ("promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount")
    given, output, cached = (reading.number(raw.get(name)) for name in names)
    return reading.figures(given, output, cached, None, reading.number(raw.get("thoughtsTokenCount")))


def usage_of_result(raw):
    if not isinstance(raw, dict):
        return None
    return reading.figures(raw.get("input_tokens"), raw.get("output_tokens"), reading.number(raw.get("cache_read_input_tokens")))


def known(run, root):
    """The fields of the evidence that stdout and the root's transcript tell."""
    live = run["live"]
    version = root and root.version or live.version or reading.version_on_wire(run.get("wire"), r"QwenCode/(\S+)")
    warnings = list(live.warnings)
    if version and version not in qwen.TESTED:
        warnings.append({"code": "untested_version", "detail": version})
    return {
        "final_message": live.final_message if live.terminal else root and root.agent.last_message, "version": version,
        "terminal": root and root.terminal, "error_text": root and root.error_text,
        "usage_events": usage_of_result(live.usage), "warnings": warnings,
    }  # fmt: skip

"""One rollout file of Codex, record by record: history, tools, usage, compactions, how it ended.

Formats: 0.144.4 (`history_mode` legacy: event_msg copies of the messages) and 0.171.0 (paginated: event_msg item_completed
with the executor's own figures, token_usage_record per response, `ordinal`), and what lies between as far as it is alike.
  - total_token_usage and thread_token_usage are cumulative per thread: the last valid one counts (facts: repeated records,
    `last_token_usage` not to be summed); a malformed last one means unknown.
  - task_complete alone is not success; 0.171.0 adds `error`, 0.144.4 leaves last_agent_message null.
  - 0.144.4 has no structured exit code: "Process exited with code N" in the output's text.
Records before `since` (the size that the file had before the run) are history: they count for the conversation only.
"""

from __future__ import annotations

from worker import usage
from worker.harnesses.codex_lines import (
    MOST_TEXT,
    UUID,
    Place,
    display_text,
    executor_result,
    head,
    milliseconds,
    output_text,
    plain,
    result_of,
    split,
    text_of,
    unix_time,
)
from worker.harnesses.tool_calls import ToolCalls

CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
OUTPUTS = (
    "function_call_output",
    "custom_tool_call_output",
    "tool_search_output",
    "mcp_tool_call_output",
    "local_shell_call_output",
)
SELF_CONTAINED = ("web_search_call", "image_generation_call")  # call and result in one item
NO_TOOL = (
    "message",
    "reasoning",
    "additional_tools",
    "compaction",
    "compaction_summary",
    "context_compaction",
    "ghost_snapshot",
    "agent_message",
)
# Beginnings of payloads of which nothing is needed but, for display messages, their place (see Conversation.add_event).
MESSAGES = ('{"type":"user_message"', '{"type":"agent_message"')
QUIET = {"world_state": "{", "turn_context": "{", "event_msg": ('{"type":"agent_reasoning"',) + MESSAGES}
BLANK = "\r\n \t\0"
QUIET_EVENTS = frozenset(
    "user_message agent_message agent_reasoning agent_reasoning_raw_content agent_reasoning_section_break "
    "web_search_begin web_search_end exec_command_begin patch_apply_begin mcp_tool_call_begin image_generation_end "
    "view_image_tool_call thread_settings_applied thread_name_updated thread_goal_updated turn_diff background_event "
    "item_started collab_agent_spawn_begin collab_agent_interaction_begin collab_agent_interaction_end "
    "collab_waiting_begin collab_waiting_end collab_close_begin collab_close_end sub_agent_activity "
    "entered_review_mode exited_review_mode undo_completed warning error stream_error".split()
)
MOST_UNKNOWN = 200  # names of unknown types that are kept apart


class Thread:
    """Feed it lines; then `close`.  invocation_id is set before, once it is known whose thread this is."""

    def __init__(self, invocation_id, file, gaps, history, emit, since=0):
        self.invocation_id, self.file, self.gaps, self.history, self.emit = invocation_id, file, gaps, history, emit
        self.since, self.baseline, self.baseline_missing, self.candidate = since, None, False, None
        self.tools, self.at = ToolCalls(invocation_id, file, gaps, emit), Place()
        self.meta, self.unknown = {}, {}
        self.total, self.total_raw, self.total_seen, self.total_valid, self.reset = None, None, False, True, False
        self.first_written = self.last_written = ""
        self.turn_ended = self.turn_error = self.last_message = self.aborted = self.turn_open = None
        self.responses, self.spawned, self.compactions, self.compacting = [], {}, [], None
        self.context_tokens = None

    # -- one line -----------------------------------------------------------------------------------------------------

    def feed(self, offset, size, text, ended=True, utf8=True):
        """One line of `size` bytes at `offset`, without its newline; ended: it had one; utf8: its bytes were UTF-8."""
        known = _, kind, start = head(text)
        if kind in QUIET and text.startswith(QUIET[kind], start) and text.endswith("}}"):
            if text.startswith(MESSAGES, start):
                self.history.add_event(offset, size)
            return
        usual = start and text.endswith("}")
        if not usual:
            text = text.strip(BLANK)
            if not text:
                return
            known = head(text)
        try:
            stamp, kind, payload, found = split(text, known)
        except (ValueError, RecursionError) as error:
            code = "agent_artifact_record_unparseable" if ended else "transcript_truncated"
            self.gap(code, "%s: %s" % (type(error).__name__, str(error)[:200]), offset)
            return
        if not utf8:
            self.gap("transcript_not_utf8", None, offset)
        handler = TOP.get(kind) if isinstance(kind, str) else None
        if handler is None:
            self.count_unknown(str(kind))
        elif isinstance(payload, dict):
            at = self.at
            at.offset, at.length, at.written, at.current, at.payload = offset, size, stamp, offset >= self.since, None
            if found and usual and utf8 and kind == "response_item":
                at.payload = plain(offset, text, found)
            if at.current and isinstance(stamp, str):
                self.first_written = self.first_written or stamp
                self.last_written = stamp if stamp > self.last_written else self.last_written
            handler(self, payload, at)
        else:
            self.gap("agent_artifact_record_unparseable", "payload of %s is no object" % kind, offset)

    def close(self):
        """The file has ended."""
        self.tools.close()
        for kind, count in sorted(self.unknown.items()):
            self.gaps.add("unknown_record_type", kind, self.invocation_id, self.file, key=kind, count=count)

    def lasted_ms(self):
        """From the run's first record to its last, by their stamps; None where they have none."""
        first, last = unix_time(self.first_written), unix_time(self.last_written)
        return None if first is None or last is None else round((last - first) * 1000, 3)

    def gap(self, code, detail=None, offset=None):
        self.gaps.add(code, detail, self.invocation_id, self.file, offset)

    # -- kinds of records ---------------------------------------------------------------------------------------------

    def on_meta(self, payload, at):
        if not self.meta:
            self.meta = {name: payload.get(name) for name in ("id", "cli_version", "history_mode")}

    def on_context(self, payload, at):
        """Settings of a turn and of the world; nothing in them is an observation."""

    def on_item(self, payload, at):
        kind = text_of(payload.get("type")) or "untyped"
        self.history.add(payload, at)
        if not at.current or kind in NO_TOOL:
            return
        if kind in CALLS:
            name, space = text_of(payload.get("name")) or kind, text_of(payload.get("namespace"))
            self.tools.call(text_of(payload.get("call_id")), space + "." + name if space else name, at.stamp, at.offset)
        elif kind in OUTPUTS:
            self.on_output(payload, at)
        elif kind in SELF_CONTAINED:
            status = executor_result({"status": payload.get("status")})
            self.tools.call(text_of(payload.get("id")), kind[: -len("_call")], at.stamp, at.offset, status)
        else:
            self.count_unknown("response_item/%s" % kind)

    def on_output(self, payload, at):
        identity = text_of(payload.get("call_id"))
        text = output_text(payload.get("output"))
        if identity is None:
            self.gap("tool_output_orphan", "an output without call_id", at.offset)
            return
        self.tools.output(identity, result_of(text, payload.get("output")), at.stamp, at.offset)
        record = self.tools.calls.get(identity)
        if record and str(record["tool_name"]).endswith("spawn_agent"):
            for found in UUID.findall(text[:MOST_TEXT]):
                self.spawned.setdefault(found, identity)

    def on_event(self, payload, at):
        kind = text_of(payload.get("type")) or "untyped"
        handler = EVENTS.get(kind)
        if handler:
            handler(self, payload, at)
        elif kind not in QUIET_EVENTS:
            self.count_unknown("event_msg/%s" % kind)
        if kind in ("user_message", "agent_message"):
            self.history.add_event(at.offset, at.length)

    def count_unknown(self, name):
        name = name[:80] if name[:80] in self.unknown or len(self.unknown) < MOST_UNKNOWN else "others"
        self.unknown[name] = self.unknown.get(name, 0) + 1

    # -- usage --------------------------------------------------------------------------------------------------------

    def on_tokens(self, payload, at):
        info = payload.get("info")
        if info is None:
            return
        self.count(info.get("total_token_usage") if isinstance(info, dict) else info, at)
        last = info.get("last_token_usage") if isinstance(info, dict) else None
        tokens = last.get("total_tokens") if isinstance(last, dict) else None
        if isinstance(tokens, int) and tokens > 0 and tokens is not True:
            if self.compacting and self.compacting["tokens_after"] is None:
                self.compacting["tokens_after"] = tokens
            self.context_tokens = tokens

    def on_usage_record(self, payload, at):
        response = text_of(payload.get("response_id"))
        if response and at.current and len(self.responses) < 100000:
            self.responses.append(response)
        self.count(payload.get("thread_token_usage"), at)

    def count(self, raw, at):
        """A cumulative total: the last one counts; a malformed one makes it unknown; a lower one is a reset (C07)."""
        if raw == self.total_raw and self.total_valid and at.current:
            return  # written again and again (C02)
        figures, self.total_raw = usage.normalise(raw), raw
        self.total_seen, self.total_valid = True, figures is not None
        if figures is None:
            return
        if not at.current:
            self.total = self.baseline = figures
            return
        if self.total is not None and usage.went_down(self.total, figures):
            self.reset = True
            self.gap("usage_counter_reset", "from %s to %s" % (usage.text(self.total), usage.text(figures)), at.offset)
        self.total = figures

    # -- turns and compactions ----------------------------------------------------------------------------------------

    def on_turn_start(self, payload, at):
        if at.current:
            self.turn_open, self.turn_ended, self.turn_error, self.last_message, self.aborted = True, None, None, None, None

    def on_turn_end(self, payload, at):
        if not at.current:
            return
        error = payload.get("error")
        self.turn_open, self.turn_ended = False, "complete"
        self.last_message = text_of(payload.get("last_agent_message"))
        self.turn_error = text_of(error.get("message")) or "error" if isinstance(error, dict) else text_of(error)

    def on_abort(self, payload, at):
        if at.current:
            self.turn_open, self.turn_ended, self.aborted = False, "aborted", text_of(payload.get("reason")) or "aborted"

    def on_compacted(self, payload, at):
        if not at.current:
            return
        self.compacting = {
            "kind": "context_compaction",
            "invocation_id": self.invocation_id,
            "observed_at": at.stamp,
            "trigger": None,
            "tokens_before": self.context_tokens,
            "tokens_after": None,
            "outcome": "completed",
            "summary": text_of(payload.get("message")) or None,
            "first_kept_item_id": None,
            "before_model_call": None,
            "model_calls": [],
            "after_model_call": None,
        }
        if len(self.compactions) < 1000:
            self.compactions.append(self.compacting)

    # -- what the executor itself says ---------------------------------------------------------------------------------

    def on_item_completed(self, payload, at):
        item = payload.get("item")
        if not isinstance(item, dict):
            self.gap("agent_artifact_record_unparseable", "item_completed without item", at.offset)
            return
        self.history.add_event(at.offset, at.length)
        kind, identity = text_of(item.get("type")) or "untyped", text_of(item.get("id"))
        if kind in TOOL_ENDS:
            if at.current and identity:
                self.executed(identity, item, payload)
        elif kind not in DISPLAY_ITEMS:
            self.count_unknown("item_completed/%s" % kind)
        elif kind == "AgentMessage" and at.current:
            self.last_message = display_text(item) or self.last_message

    def executed(self, identity, item, payload):
        times = [milliseconds(payload.get(name)) for name in ("started_at_ms", "completed_at_ms")]
        self.tools.structured(identity, executor_result(item), *times)
        started = item.get("receiver_thread_ids") if "spawn" in str(item.get("tool")).lower() else None
        for thread in started if isinstance(started, list) else ():
            if isinstance(thread, str):
                self.spawned[thread] = identity

    def on_end(self, payload, at):
        """exec_command_end, patch_apply_end, mcp_tool_call_end of 0.144.4."""
        identity = text_of(payload.get("call_id"))
        if identity and at.current:
            self.tools.structured(identity, executor_result(payload), None, None)

    def on_spawn(self, payload, at):
        child, identity = text_of(payload.get("new_thread_id")), text_of(payload.get("call_id"))
        if child and identity:
            self.spawned[child] = identity


TOP = {
    "session_meta": Thread.on_meta,
    "turn_context": Thread.on_context,
    "world_state": Thread.on_context,
    "response_item": Thread.on_item,
    "event_msg": Thread.on_event,
    "compacted": Thread.on_compacted,
    "token_usage_record": Thread.on_usage_record,
}
EVENTS = {
    "token_count": Thread.on_tokens,
    "task_started": Thread.on_turn_start,
    "turn_started": Thread.on_turn_start,
    "task_complete": Thread.on_turn_end,
    "turn_complete": Thread.on_turn_end,
    "turn_aborted": Thread.on_abort,
    "context_compacted": Thread.on_context,
    "item_completed": Thread.on_item_completed,
    "exec_command_end": Thread.on_end,
    "patch_apply_end": Thread.on_end,
    "mcp_tool_call_end": Thread.on_end,
    "dynamic_tool_call_response": Thread.on_end,
    "collab_agent_spawn_end": Thread.on_spawn,
}
# Types of item_completed (0.171.0).
TOOL_ENDS = ("CommandExecution", "FileChange", "McpToolCall", "DynamicToolCall", "CollabAgentToolCall", "ImageView")
DISPLAY_ITEMS = (
    "UserMessage", "HookPrompt", "AgentMessage", "Plan", "Reasoning", "ContextCompaction", "EnteredReviewMode",
    "ExitedReviewMode", "SubAgentActivity", "Sleep", "WebSearch", "ImageGeneration",
)  # fmt: skip

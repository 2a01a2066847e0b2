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
    DECODER,
    MOST_TEXT,
    SURROGATE,
    UUID,
    Place,
    display_text,
    executor_result,
    head,
    milliseconds,
    output_text,
    result_of,
    split,
    text_of,
    unfold,
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
# Records of which nothing is needed but, for display messages, their place (see Conversation.add_event): how payloads begin.
QUIET_HEAD = 24
QUIET = {'{"type":"agent_reasoning': "other", '{"type":"agent_message",': "message", '{"type":"user_message","': "message"}
SETTINGS = {"world_state": "other", "turn_context": "other"}
ENDS = ("}\n", "}")
BLANK = "\r\n \t\0"
RAW_DECODE = DECODER.raw_decode
QUIET_EVENTS = frozenset(
    "user_message agent_message agent_reasoning agent_reasoning_raw_content agent_reasoning_section_break "
    "web_search_begin web_search_end exec_command_begin patch_apply_begin mcp_tool_call_begin image_generation_end "
    "view_image_tool_call thread_settings_applied thread_name_updated thread_goal_updated turn_diff background_event "
    "item_started collab_agent_spawn_begin collab_agent_interaction_begin collab_agent_interaction_end "
    "collab_waiting_begin collab_waiting_end collab_close_begin collab_close_end sub_agent_activity "
    "entered_review_mode exited_review_mode undo_completed warning error stream_error".split()
)
NEVER = float("inf")  # no count is as high
MOST_UNKNOWN = 200  # names of unknown types that are kept apart


class Thread:
    """Feed it lines; then `close`.  invocation_id is set before, once it is known whose thread this is."""

    def __init__(self, invocation_id, file, gaps, history, emit, since=0):
        self.invocation_id, self.file, self.gaps, self.history, self.emit = invocation_id, file, gaps, history, emit
        self.since, self.baseline, self.baseline_missing, self.candidate = since, None, False, None
        self.tools, self.at = ToolCalls(invocation_id, file, gaps, emit), Place()
        self.escapes = None  # in the text that is being read, the first escape that may be of a lone surrogate (C25)
        self.meta, self.unknown = {}, {}
        self.total, self.total_raw, self.total_seen, self.total_valid, self.reset = None, None, False, True, False
        self.forgotten = False  # the CLI has set its counter back
        self.used, self.made, self.unread = NEVER, NEVER, False  # see `count`
        self.first_written = self.last_written = ""
        self.turn_ended = self.turn_error = self.last_message = self.aborted = self.turn_open = None
        self.responses, self.spawned, self.compactions, self.compacting = [], {}, [], None
        self.context_tokens = None

    # -- one line -----------------------------------------------------------------------------------------------------

    def read(self, texts):
        """A whole file, as transcript_files.texts gives it."""
        for offset, text, ended, broken in texts:
            at, end, self.escapes = 0, len(text), SURROGATE.search(text)
            while at < end:
                following = self.usual(offset, text, at) if broken is None else None
                at = self.unusual(offset, text, at, ended, broken) if following is None else following

    def usual(self, offset, text, at):
        """The record at text[at], parsed where it stands; returns where the next one begins, or None where it has another layout
        or is no good.  Line ends between the tokens of a payload are taken: no writer puts them there, strict JSON has them."""
        kind, start, stamp = head(text, at)
        if not start:
            return None
        quiet = QUIET.get(text[start : start + QUIET_HEAD]) if kind == "event_msg" else SETTINGS.get(kind)
        if quiet:
            return self.quiet(offset, text, at, start, quiet)
        try:
            payload, end = RAW_DECODE(text, start)
        except (ValueError, RecursionError):
            return None
        if text[end : end + 2] not in ENDS or type(payload) is not dict:
            return None
        place, begin = self.at, offset + at
        place.offset, place.length, place.written, place.current = begin, end + 1 - at, stamp, begin >= self.since
        place.payload = offset + start, end - start
        if self.escapes and SURROGATE.search(text, start, end):
            place.payload = None
        if not text.isascii() and (kind != "response_item" or payload.get("type") not in NO_TOOL):
            payload = DECODER.decode(unfold(text[start:end]))
        self.record(kind, payload, place)
        return end + 2

    def quiet(self, offset, text, at, start, message):
        """A record of which only the place is needed, and that only of messages."""
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if not text.startswith("}}", end - 2):
            return None
        if message == "message":
            self.at.offset, self.at.length = offset + at, end - at
            self.history.add_event(self.at)
        return end + 1

    def unusual(self, offset, text, at, ended, broken):
        """A line in any layout, or one that is no record; returns where the next one begins."""
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line, place = text[at:end].strip(BLANK), self.at
        place.offset, place.length, place.payload = offset + at, broken or end - at, None
        try:
            place.written, kind, payload = split(unfold(line) if broken is None else line) if line else (None, None, None)
        except (ValueError, RecursionError) as error:
            code = "agent_artifact_record_unparseable" if ended else "transcript_truncated"
            self.gap(code, "%s: %s" % (type(error).__name__, str(error)[:200]), place.offset)
            return end + 1
        if line:
            if broken is not None:
                self.gap("transcript_not_utf8", None, place.offset)
            place.current = place.offset >= self.since
            self.record(kind, payload, place)
        return end + 1

    def record(self, kind, payload, at):
        handler = TOP.get(kind) if isinstance(kind, str) else None
        if handler is None:
            self.count_unknown(str(kind))
        elif isinstance(payload, dict):
            stamp = at.written
            if at.current and isinstance(stamp, str):
                self.first_written = self.first_written or stamp
                self.last_written = stamp if stamp > self.last_written else self.last_written
            handler(self, payload, at)
        else:
            self.gap("agent_artifact_record_unparseable", "payload of %s is no object" % kind, at.offset)

    def close(self):
        """The file has ended."""
        self.settle()
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
        self.history.add(at)
        if at.current:
            kind = text_of(payload.get("type")) or "untyped"
            handler = ITEMS.get(kind)
            if handler:
                handler(self, payload, at)
            elif kind not in NO_TOOL:
                self.count_unknown("response_item/%s" % kind)

    def on_call(self, payload, at):
        name, space = text_of(payload.get("name")) or payload["type"], text_of(payload.get("namespace"))
        self.tools.call(text_of(payload.get("call_id")), space + "." + name if space else name, at.stamp, at.offset)

    def on_self_contained(self, payload, at):
        status = executor_result({"status": payload.get("status")})
        name = payload["type"][: -len("_call")]
        self.tools.call(text_of(payload.get("id")), name, at.stamp, at.offset, status)

    def on_output(self, payload, at):
        identity, output = text_of(payload.get("call_id")), payload.get("output")
        if identity is None:
            self.gap("tool_output_orphan", "an output without call_id", at.offset)
            return
        text = output_text(output)
        record = self.tools.output(identity, result_of(text, output), at.stamp, at.offset)
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
            self.history.add_event(at)

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
        """A cumulative total: the last one counts; a malformed one makes it unknown; a lower one is a reset (C07).  One that goes
        on counting is looked at only when it was the last (`settle`)."""
        if at.current and type(raw) is dict:
            used, made = raw.get("input_tokens"), raw.get("output_tokens")
            if used == made == 0 and raw.get("total_tokens"):  # a full context (0.171.0): nothing was spent, all is forgotten
                self.settle()
                self.used, self.made, self.forgotten = NEVER, NEVER, True
                return
            if type(used) is int and type(made) is int and used >= self.used and made >= self.made:
                self.used, self.made, self.total_raw, self.unread = used, made, raw, True
                return
        self.settle()
        self.unread, self.used, self.made = False, NEVER, NEVER
        self.figures(raw, at.current, at.offset)
        if at.current and self.total_valid:
            self.used, self.made = self.total["input_tokens"], self.total["output_tokens"]

    def settle(self):
        if self.unread:
            self.unread = False
            self.figures(self.total_raw, True, None)

    def figures(self, raw, current, offset):
        figures, self.total_raw = usage.normalise(raw), raw
        self.total_seen, self.total_valid = True, figures is not None
        if figures is None:
            return
        if not current:
            self.total = self.baseline = figures
            return
        if self.total is not None and (self.forgotten or usage.went_down(self.total, figures)):
            self.reset, self.forgotten = True, False
            self.gap("usage_counter_reset", "from %s to %s" % (usage.text(self.total), usage.text(figures)), offset)
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
        self.history.add_event(at)
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
ITEMS = dict.fromkeys(CALLS, Thread.on_call)
ITEMS.update(dict.fromkeys(OUTPUTS, Thread.on_output))
ITEMS.update(dict.fromkeys(SELF_CONTAINED, Thread.on_self_contained))
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

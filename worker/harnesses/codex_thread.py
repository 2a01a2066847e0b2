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

import calendar
import json
import re

from worker import usage
from worker.harnesses.tool_calls import ToolCalls

HEAD = re.compile(rb'\{"timestamp":"([^"\\]{1,40})",(?:"ordinal":[0-9]{1,15},)?"type":"([a-z_]{1,40})","payload":')
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d{1,9})?Z$")


def refuse(constant):
    raise ValueError("%s is no JSON" % constant)


DECODER = json.JSONDecoder(parse_constant=refuse)
MOST_TEXT = 4000  # characters at an output's head that are searched for its result

# How a tool output begins -> (status, error type).  Seen with 0.144.4 and 0.171.0.
EXIT = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)$", re.M)
RESULTS = (
    (re.compile(r"^(Wall time: [0-9.]+ seconds\n)?aborted by user"), "cancelled", "aborted"),
    (re.compile(r"command timed out after \d+ milliseconds"), "timeout", "timeout"),
    (re.compile(r"^unsupported (custom tool )?call: "), "failed", "unsupported_call"),
    (re.compile(r"^failed to parse function arguments: "), "failed", "invalid_arguments"),
    (re.compile(r"^(execution error: |exec_command failed|write_stdin failed|Script failed|apply_patch verification failed)"), "failed", "tool_error"),
    (re.compile(r"^(Plan updated|Script completed|attached local image path)"), "completed", None),
)
# item_completed statuses (0.171.0) and those of *_end events (0.144.4).
STATUSES = {"completed": "completed", "failed": "failed", "declined": "cancelled"}
CALLS = {"function_call": "call_id", "custom_tool_call": "call_id", "local_shell_call": "call_id", "tool_search_call": "call_id"}
OUTPUTS = ("function_call_output", "custom_tool_call_output", "tool_search_output", "mcp_tool_call_output", "local_shell_call_output")
SELF_CONTAINED = ("web_search_call", "image_generation_call")  # call and result in one item
NO_TOOL = ("message", "reasoning", "additional_tools", "compaction", "compaction_summary", "context_compaction", "ghost_snapshot", "agent_message")
QUIET_EVENTS = frozenset(
    "user_message agent_message agent_reasoning agent_reasoning_raw_content agent_reasoning_section_break web_search_begin web_search_end "
    "exec_command_begin patch_apply_begin mcp_tool_call_begin thread_settings_applied thread_name_updated "
    "turn_diff background_event item_started image_generation_end view_image_tool_call collab_agent_interaction_begin "
    "collab_agent_interaction_end collab_waiting_begin collab_waiting_end collab_close_begin collab_close_end "
    "collab_agent_spawn_begin sub_agent_activity thread_goal_updated entered_review_mode exited_review_mode undo_completed warning".split()
)


class Thread:
    """Feed it lines; then `close`.  invocation_id is set before, once it is known whose thread this is."""

    def __init__(self, invocation_id, file, gaps, history, emit, since=0):
        self.invocation_id, self.file, self.gaps, self.history, self.emit = invocation_id, file, gaps, history, emit
        self.since, self.baseline = since, None
        self.tools = ToolCalls(invocation_id, file, gaps, emit)
        self.meta, self.unknown = {}, {}
        self.total, self.total_seen, self.total_valid, self.reset = None, False, True, False
        self.first_at = self.last_at = self.turn_ended = None
        self.turn_error = self.last_message = self.aborted = self.turn_open = None
        self.responses, self.spawned, self.compactions, self.compacting = [], {}, [], None
        self.context_tokens = None
        self.records = 0

    # -- one line -----------------------------------------------------------------------------------------------------

    def feed(self, offset, line):
        text, whole = line.strip(b"\r\n \t\0"), line.endswith(b"\n")
        if not text:
            return
        try:
            stamp, kind, payload, place = split(text)
        except (ValueError, RecursionError) as error:
            code = "agent_artifact_record_unparseable" if whole else "transcript_truncated"
            self.gap(code, "%s: %s" % (type(error).__name__, str(error)[:200]), offset)
            return
        self.records += 1
        if place is None and not_utf8(text):
            self.gap("transcript_not_utf8", None, offset)
        handler = TOP.get(kind) if isinstance(kind, str) else None
        if handler is None:
            self.unknown[str(kind)[:80]] = self.unknown.get(str(kind)[:80], 0) + 1
        elif isinstance(payload, dict):
            current = offset >= self.since
            if current and stamp is not None:
                self.first_at = stamp if self.first_at is None else self.first_at
                self.last_at = stamp if self.last_at is None else max(self.last_at, stamp)
            known = (offset + place[0], place[1]) if place and line.startswith(b"{") else None
            handler(self, payload, Place(offset, len(line), stamp, current, known))
        else:
            self.gap("agent_artifact_record_unparseable", "payload of %s is no object" % kind, offset)

    def close(self):
        self.tools.close()
        for kind, count in sorted(self.unknown.items()):
            for _ in range(count):
                self.gaps.add("unknown_record_type", kind, self.invocation_id, self.file, key=kind)
        for record in self.compactions:
            self.emit(record)

    def gap(self, code, detail=None, offset=None):
        self.gaps.add(code, detail, self.invocation_id, self.file, offset)

    # -- kinds of records ---------------------------------------------------------------------------------------------

    def on_meta(self, payload, at):
        if not self.meta:
            self.meta = {name: payload.get(name) for name in ("id", "session_id", "parent_thread_id", "forked_from_id", "cli_version", "history_mode", "source")}

    def on_context(self, payload, at):
        """Settings of a turn and of the world; nothing in them is an observation."""

    def on_item(self, payload, at):
        kind = payload.get("type")
        self.history.add(payload, at)
        if not at.current or kind in NO_TOOL:
            return
        if kind in CALLS:
            name = payload.get("name") or kind
            namespace = payload.get("namespace")
            self.tools.call(text_of(payload.get(CALLS[kind])), "%s.%s" % (namespace, name) if namespace else name, at.stamp, at.offset)
        elif kind in OUTPUTS:
            self.on_output(payload, at)
        elif kind in SELF_CONTAINED:
            status = STATUSES.get(payload.get("status"))
            self.tools.call(text_of(payload.get("id")), kind[: -len("_call")], at.stamp, at.offset, (status, None))
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
        kind = payload.get("type")
        handler = EVENTS.get(kind) if isinstance(kind, str) else None
        if handler:
            handler(self, payload, at)
        elif kind not in QUIET_EVENTS:
            self.count_unknown("event_msg/%s" % kind)
        if kind in ("user_message", "agent_message"):
            self.history.add_event(payload, at)

    def count_unknown(self, name):
        self.unknown[name[:80]] = self.unknown.get(name[:80], 0) + 1

    # -- usage --------------------------------------------------------------------------------------------------------

    def on_tokens(self, payload, at):
        info = payload.get("info")
        if info is None:
            return
        self.count(info.get("total_token_usage") if isinstance(info, dict) else info, at)
        last = usage.normalise(info.get("last_token_usage")) if isinstance(info, dict) else None
        if last and last["total_tokens"]:
            if self.compacting and self.compacting["tokens_after"] is None:
                self.compacting["tokens_after"] = last["total_tokens"]
            self.context_tokens = last["total_tokens"]

    def on_usage_record(self, payload, at):
        response = text_of(payload.get("response_id"))
        if response and at.current and len(self.responses) < 100000:
            self.responses.append(response)
        self.count(payload.get("thread_token_usage"), at)

    def count(self, raw, at):
        """A cumulative total: the last one counts; a malformed one makes it unknown; a lower one is a reset (C07)."""
        figures = usage.normalise(raw)
        self.total_seen, self.total_valid = True, figures is not None
        if figures is None:
            return
        if not at.current:
            self.total = self.baseline = figures
            return
        if self.total is not None and usage.went_down(self.total, figures):
            self.reset = True
            self.gaps.add("usage_counter_reset", "from %s to %s" % (usage.text(self.total), usage.text(figures)), self.invocation_id, self.file, at.offset)
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
            "kind": "context_compaction", "invocation_id": self.invocation_id, "observed_at": at.stamp, "trigger": None,
            "tokens_before": self.context_tokens, "tokens_after": None, "outcome": "completed",
            "summary": text_of(payload.get("message")) or None, "first_kept_item_id": None,
            "before_model_call": None, "model_calls": [], "after_model_call": None,
        }
        if len(self.compactions) < 1000:
            self.compactions.append(self.compacting)

    # -- what the executor itself says ---------------------------------------------------------------------------------

    def on_item_completed(self, payload, at):
        item = payload.get("item")
        if not isinstance(item, dict):
            self.gap("agent_artifact_record_unparseable", "item_completed without item", at.offset)
            return
        self.history.add_event(payload, at)
        kind, identity = item.get("type"), text_of(item.get("id"))
        if kind not in ITEM_TYPES:
            self.count_unknown("item_completed/%s" % kind)
        elif kind == "AgentMessage" and at.current:
            self.last_message = display_text(item) or self.last_message
        elif ITEM_TYPES[kind] and at.current and identity:
            self.executed(identity, item, payload)

    def executed(self, identity, item, payload):
        times = [milliseconds(payload.get(name)) for name in ("started_at_ms", "completed_at_ms")]
        self.tools.structured(identity, executor_result(item), *times)
        for thread in item.get("receiver_thread_ids") or ():
            if isinstance(thread, str) and "spawn" in str(item.get("tool")).lower():
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
# Types of item_completed -> whether it is a tool's end.
ITEM_TYPES = {
    "UserMessage": False, "HookPrompt": False, "AgentMessage": False, "Plan": False, "Reasoning": False, "ContextCompaction": False,
    "EnteredReviewMode": False, "ExitedReviewMode": False, "SubAgentActivity": False, "Sleep": False,
    "CommandExecution": True, "FileChange": True, "McpToolCall": True, "DynamicToolCall": True, "CollabAgentToolCall": True,
    "WebSearch": False, "ImageView": True, "ImageGeneration": False,
}  # fmt: skip
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Place:
    """Where a record stands: file offset and length, unix time or None, in this run or before it, and (start, length) of its
    payload where those bytes are strict JSON as they are."""

    __slots__ = ("offset", "length", "stamp", "current", "payload")

    def __init__(self, offset, length, stamp, current, payload):
        self.offset, self.length, self.stamp, self.current, self.payload = offset, length, stamp, current, payload


# -- reading --------------------------------------------------------------------------------------------------------------


def split(line):
    """(unix time, type, payload, (start, length) of the payload's bytes or None) of a line; raises ValueError.

    The usual layout is parsed once, and the payload's own bytes are found on the way; any other layout as a whole."""
    head = HEAD.match(line)
    if head:
        text = line[head.end() :].decode("utf-8", "replace")
        try:
            payload, end = DECODER.raw_decode(text)
        except json.JSONDecodeError as error:
            raise ValueError("%s at byte %d" % (error.msg, head.end() + error.pos)) from None
        tail = text[end:]
        if tail == "}" or tail.startswith(',"metadata":{') and isinstance(DECODER.decode("{" + tail[1:]), dict):
            plain = "\ufffd" not in text and "\\ud" not in text and "\\uD" not in text
            length = end if text.isascii() else len(text[:end].encode("utf-8"))
            return unix_time(head.group(1).decode("ascii", "replace")), head.group(2).decode(), payload, (head.end(), length) if plain else None
    record = DECODER.decode(line.decode("utf-8", "replace"))
    if not isinstance(record, dict):
        raise ValueError("no JSON object")
    return unix_time(record.get("timestamp")), record.get("type"), record.get("payload"), None


def not_utf8(line):
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


SECONDS = {}


def unix_time(stamp):
    """Unix seconds of an RFC 3339 UTC stamp; None for anything else."""
    found = TIME.match(stamp) if isinstance(stamp, str) else None
    if not found:
        return None
    minute = stamp[:16]
    if minute not in SECONDS:
        SECONDS.clear()
        SECONDS[minute] = calendar.timegm(tuple(int(part) for part in found.groups()[:5]) + (0,))
    return round(SECONDS[minute] + int(found.group(6)) + float(found.group(7) or 0), 6)


def text_of(value):
    return value if isinstance(value, str) and value else None


def milliseconds(value):
    return value / 1000.0 if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e15 else None


def output_text(output):
    """The text of an output: a string, or the text parts of a list of content items."""
    if isinstance(output, str):
        return output
    if isinstance(output, dict):
        return output_text(output.get("content") or output.get("output"))
    if isinstance(output, list):
        return "\n".join(item["text"] for item in output[:20] if isinstance(item, dict) and isinstance(item.get("text"), str))
    return ""


def result_of(text, raw=None):
    """(status, error_type) told by an output; (None, None) where it does not tell."""
    if isinstance(raw, dict) and isinstance(raw.get("success"), bool):
        return ("completed", None) if raw["success"] else ("failed", "tool_error")
    head = text[:MOST_TEXT].split("\nOutput:\n", 1)[0]
    for pattern, status, error in RESULTS:
        if pattern.search(head):
            return status, error
    found = EXIT.search(head) or EXIT.search(text[len(head) : len(head) + 40])
    if found:
        return ("completed", None) if int(found.group(1)) == 0 else ("failed", "exit_code_%s" % found.group(1))
    return None, None


def executor_result(item):
    """(status, error_type) of a structured record: exit code, success flag, MCP result, status word."""
    code, success, result = item.get("exit_code"), item.get("success"), item.get("result")
    if isinstance(code, int) and not isinstance(code, bool):
        return ("completed", None) if code == 0 else ("failed", "exit_code_%d" % code)
    if isinstance(success, bool):
        return ("completed", None) if success else ("failed", "tool_error")
    if isinstance(result, dict) and ("Ok" in result or "Err" in result):
        inner = result.get("Ok")
        failed = "Err" in result or isinstance(inner, dict) and bool(inner.get("isError") or inner.get("is_error"))
        return ("failed", "tool_error") if failed else ("completed", None)
    status = STATUSES.get(item.get("status")) if isinstance(item.get("status"), str) else None
    return status, "tool_error" if status == "failed" else None


def display_text(item):
    """The text of a display item (UserMessage, AgentMessage)."""
    content = item.get("content")
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "".join(part for part in parts if isinstance(part, str)) or None

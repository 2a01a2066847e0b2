"""What `pi --mode json` says on stdout, and its error texts (0.80.2 and 1.6.0).

Facts behind it, each measured with the real CLI: the exit code is 0 whatever happened; the last assistant message tells by its
stopReason, and only agent_end without `willRetry` ends a turn (a retry or a compaction may follow); a message is repeated in
message_start, turn_end and agent_end, so only message_end counts; the exit status of a tool stands in tool_execution_end of
1.6.0 only, and not in the transcript; a usage of all zeros means that the provider sent none.
"""

from __future__ import annotations

from worker.harnesses import live
from worker.harnesses.live import keep, words

MOST_RESULTS = 100000

# (pattern, kind, does it count only without a wire, where it was seen).  0.80.2 writes `400 text`, 1.6.0 `400: {json}`.
ERRORS = (
    (r"context_length_exceeded|maximum context length", "context_length", False, "both, HTTP 400"),
    (r"^stop: length", "output_limit", False, "both, stopReason length"),
    (r"^429\b.*(insufficient_quota|quota|billing)", "quota_exhausted", True, "both, insufficient_quota"),
    (r"^429\b|^Rate limit exceeded", "rate_limited", True, "both, HTTP 429 and in the stream"),
    (r"^401\b", "authentication", True, "both, HTTP 401"),
    (r"^402\b", "quota_exhausted", True, "both, HTTP 402"),
    (r"^403\b", "permission", True, "both, HTTP 403"),
    (r"^404\b", "model_not_found", True, "both, HTTP 404"),
    (r"^(503|529)\b", "overloaded", True, "both, HTTP 503"),
    (r"^(408|5\d\d)\b", "server_error", True, "both, HTTP 500"),
    (r"^4\d\d\b", "invalid_request", True, "both, HTTP 400, 413, 422"),
    (r"(Stream ended without finish_reason|ended before a terminal response event|^terminated)", "stream_interrupted", True,
     "both, cut"),
    (r"Body Timeout Error|UND_ERR_BODY_TIMEOUT|Request timed out", "model_timeout", True, "1.6.0, httpIdleTimeoutMs"),
    (r"^Connection error", "connection", True, "both, refused"),
    (r"^server_error: ", "server_error", True, "1.6.0, response.failed"),
)  # fmt: skip
ENDINGS = {"stop": "success", "length": "failure", "error": "failure", "aborted": "failure"}


class Live(live.Live):
    """`results`: {tool call id: exit code} as tool_execution_end told them."""

    HANDLERS = {
        "session": "on_session", "agent_start": "on_begin", "turn_start": "on_begin", "auto_retry_start": "on_begin",
        "compaction_start": "on_begin", "message_end": "on_message", "agent_end": "on_end",
        "tool_execution_start": "on_tool", "tool_execution_end": "on_result",
    }  # fmt: skip

    def __init__(self):
        super().__init__()
        self.stop, self.results = None, {}

    def on_session(self, event):
        self.thread_id = self.thread_id or words(event.get("id"))

    def on_begin(self, event):
        """A turn, a retry or a compaction begins: what was said of the end before does not count any more."""
        self.terminal = self.final_message = None

    def on_message(self, event):
        message = event.get("message")
        if not isinstance(message, dict) or message.get("role") != "assistant":
            return
        self.stop, self.partial_message = words(message.get("stopReason")), text_in(message)
        self.messages += bool(self.partial_message)
        self.message = error_of(message)
        if self.stop == "error":
            keep(self.errors, self.message)

    def on_end(self, event):
        if event.get("willRetry") is True:
            self.terminal = None
            return
        self.terminal = ENDINGS.get(self.stop)
        self.final_message = self.partial_message if self.terminal == "success" else None

    def on_tool(self, event):
        self.begin(words(event.get("toolName")) or "", words(event.get("toolCallId")), event.get("args"))

    def on_result(self, event):
        identity, result = words(event.get("toolCallId")), event.get("result")
        self.open.pop(identity, None)
        told = result.get("structuredContent") if isinstance(result, dict) else None
        code = told.get("exit_code") if isinstance(told, dict) else None
        if identity and isinstance(code, int) and not isinstance(code, bool) and len(self.results) < MOST_RESULTS:
            self.results[identity] = code


def text_in(message, kind="text", field="text"):
    """The text blocks of a message in one, or None."""
    content = message.get("content")
    if isinstance(content, str):
        return content or None
    blocks = content if isinstance(content, list) else ()
    parts = [block.get(field) for block in blocks if isinstance(block, dict) and block.get("type") == kind]
    return "".join(part for part in parts if isinstance(part, str)) or None


def error_of(message):
    """The words of an assistant message that did not end well, or None."""
    stop = words(message.get("stopReason"))
    if stop == "error":
        return words(message.get("errorMessage")) or "error"
    return None if ENDINGS.get(stop) != "failure" else words(message.get("errorMessage")) or "stop: %s" % stop

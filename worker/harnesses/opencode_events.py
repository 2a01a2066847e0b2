"""What `opencode run --format json` and `kilo run --format json` say on stdout, and their error texts.

Facts behind it, each measured with the real CLIs (OpenCode 1.17.11 and 1.18.33, Kilocode 7.7.7): there is no event for the end of
a run; the last step_finish tells by its reason (`stop` is the only success; `length`, `content-filter`, `unknown` and Kilocode's
`other`, a stream that ended without finish, are none, though the exit code is 0); `error` is an object or, in Kilocode, a bare
string, and may come before the text that belongs to it; a tool is printed only when it has ended.
"""

from __future__ import annotations

from worker.harnesses import live
from worker.harnesses.live import keep, words

# (pattern, kind, does it count only without a wire, where it was seen); the text is "NAME [status]: message".
ERRORS = (
    (r"^ContextOverflowError", "context_length", False, "both, HTTP 400 context_length_exceeded and 413"),
    (r"^ContentFilterError", "refusal", False, "opencode, finish_reason content_filter"),
    (r"^finish: content-filter", "refusal", False, "step_finish.reason"),
    (r"^(MessageOutputLengthError|finish: length)", "output_limit", False, "step_finish.reason"),
    (r"^\w+ \[429\]: .*(quota|billing)", "quota_exhausted", True, "both, insufficient_quota"),
    (r"^\w+ \[429\]", "rate_limited", True, "both, HTTP 429"),
    (r"^(ProviderAuthError|\w+ \[401\])", "authentication", True, "both, HTTP 401"),
    (r"^\w+ \[402\]", "quota_exhausted", True, "status words as for the others"),
    (r"^\w+ \[403\]", "permission", True, "both, HTTP 403"),
    (r"^(ProviderModelNotFoundError|Model not found|\w+ \[404\])", "model_not_found", True, "both, HTTP 404"),
    (r"^\w+ \[(503|529)\]", "overloaded", True, "both, HTTP 503"),
    (r"^\w+ \[(408|5\d\d)\]", "server_error", True, "both, HTTP 500 and 408"),
    (r"^\w+ \[4\d\d\]", "invalid_request", True, "both, HTTP 400 and 422"),
    (r"(SSE read timed out|headers timed out after)", "model_timeout", True, "both, chunkTimeout and headerTimeout"),
    (r"^(APIError|UnknownError): (Cannot connect to API|Unable to connect)", "connection", True, "both, refused"),
    (r"^APIError: .*(socket connection was closed|ECONNRESET|Connection reset)", "stream_interrupted", True, "both, cut"),
)


class Live(live.Live):
    """`steps` counts step_finish events."""

    HANDLERS = {
        "step_start": "on_step", "text": "on_text", "step_finish": "on_finish", "tool_use": "on_tool", "error": "on_error",
    }  # fmt: skip

    def __init__(self):
        super().__init__()
        self.steps, self.seen = 0, set()

    def feed(self, event):
        if isinstance(event, dict):
            self.thread_id = self.thread_id or words(event.get("sessionID"))
            event = event if event.get("type") == "error" or self.first(event) else {}
        super().feed(event)

    def first(self, event):
        """Kilocode 7.4.15 printed events twice; a part's id tells."""
        kind, part = words(event.get("type")), event.get("part")
        if not isinstance(part, dict):
            return False
        key = (kind, words(part.get("id")))
        if key[1] is None or len(self.seen) > 100000:
            return True
        known = key in self.seen
        self.seen.add(key)
        return not known

    def on_step(self, event):
        self.terminal = self.message = self.final_message = self.partial_message = None

    def on_text(self, event):
        text = words(event["part"].get("text"))
        if text:
            self.partial_message = text
            self.messages += 1

    def on_finish(self, event):
        self.steps += 1
        reason = words(event["part"].get("reason"))
        if reason == "stop":
            self.terminal, self.message, self.final_message = "success", None, self.partial_message
        elif reason != "tool-calls":
            self.terminal, self.message = "failure", "finish: %s" % reason

    def on_tool(self, event):
        name, state = words(event["part"].get("tool")) or "", event["part"].get("state")
        self.used(name, state.get("title") if isinstance(state, dict) else None)

    def on_error(self, event):
        text = error_text(event.get("error"))
        self.terminal, self.message, self.final_message = "failure", text, None
        keep(self.errors, text)


def error_text(error):
    """`NAME [status]: message` of an error object; a bare string as it stands."""
    if not isinstance(error, dict):
        return words(error) or "error"
    data = error.get("data") if isinstance(error.get("data"), dict) else {}
    status = data.get("statusCode")
    shown = " [%d]" % status if isinstance(status, int) and not isinstance(status, bool) else ""
    return "%s%s: %s" % (words(error.get("name")) or "Error", shown, words(data.get("message")) or "")

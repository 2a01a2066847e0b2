"""What `claude -p --output-format stream-json` says on stdout while it runs, and its error texts (2.1.332).

Facts behind it, each measured with the real CLI: `result` is the only terminal event, but neither last nor unique (a
background task makes a second `init` and `result`), so a new `init` opens the turn again and the last result counts;
`subtype: success` stands beside `is_error: true`; an `assistant` event holds one content block and the usage of the message's
start, never its end; `modelUsage` of the result is cumulative and holds sub-agents, its `usage` does not; all zeros mean that
the provider sent none; messages of the model `<synthetic>` are the CLI's own words.
"""

from __future__ import annotations

from worker.harnesses import live
from worker.harnesses.live import keep, words

SYNTHETIC = "<synthetic>"
TURN_LIMITS = ("error_max_turns",)

# (pattern, kind, does it count only without a wire, where it was seen)
ERRORS = (
    (r"Not logged in|Invalid API key . (Please run|Fix external)", "authentication", False, "no request was made"),
    (r"^Prompt is too long|^prompt_too_long", "context_length", False, "HTTP 400, terminal_reason prompt_too_long"),
    (r"^(API Error: )?(\d\d\d )?Credit balance is too low", "quota_exhausted", True, "HTTP 400, billing_error"),
    (r"^API Error: (Request rejected \()?429|rate_limit_error", "rate_limited", True, "HTTP 429"),
    (r"^API Error: (529|Overloaded)|overloaded_error|Repeated 529", "overloaded", True, "HTTP 529 and in-stream"),
    (r"^API Error: 5\d\d|api_error", "server_error", True, "HTTP 5xx"),
    (r"API Error: 401|authentication_error", "authentication", True, "HTTP 401"),
    (r"API Error: 403|permission_error", "permission", True, "HTTP 403"),
    (r"issue with the selected model|API Error: 404", "model_not_found", True, "HTTP 404"),
    (r"API Error: 400|invalid_request_error", "invalid_request", True, "HTTP 400"),
    (r"Request timed out", "model_timeout", True, "no answer before API_TIMEOUT_MS"),
    (r"Connection (error|closed|reset)|Unable to connect|connection_failed", "connection", True, "reset before headers"),
    (r"exceeded the \d+ output token maximum|max_output_tokens", "output_limit", True, "stop_reason max_tokens"),
    (r"unable to respond to this request.*Usage Policy", "refusal", True, "stop_reason refusal"),
)


class Live(live.Live):
    HANDLERS = {"system": "on_system", "assistant": "on_assistant", "user": "on_user", "result": "on_result"}
    VERSION = "claude_code_version"

    def __init__(self):
        super().__init__()
        self.version, self.results, self.retries = None, 0, 0

    def on_system(self, event):
        kind = event.get("subtype")
        if kind == "init":
            self.terminal = self.message = self.final_message = self.limit = None
            self.thread_id = self.thread_id or words(event.get("session_id"))
            self.version = words(event.get(self.VERSION)) or self.version
        elif kind in ("api_retry", "retry"):
            self.retries += 1
            data = event.get("data") if isinstance(event.get("data"), dict) else event
            detail = "%s %s" % (data.get("error_status") or "", data.get("error") or data.get("reason") or "")
            self.warn("cli_retry", detail.strip()[:300])
        elif kind in ("model_fallback", "model_refusal_no_fallback"):
            self.warn("cli_warning", kind)

    def on_assistant(self, event):
        message = event.get("message")
        if not isinstance(message, dict) or event.get("parent_tool_use_id"):
            return
        for block in blocks(message):
            if block.get("type") == "text" and message.get("model") != SYNTHETIC:
                self.partial_message = words(block.get("text"))
                self.messages += 1
            elif block.get("type") == "tool_use":
                self.begin(words(block.get("name")) or "tool", words(block.get("id")), block.get("input"))

    def on_user(self, event):
        message = event.get("message")
        for block in blocks(message) if isinstance(message, dict) else ():
            if block.get("type") == "tool_result":
                self.open.pop(words(block.get("tool_use_id")), None)

    def on_result(self, event):
        """The end of a turn.  A later `init` opens the run again."""
        self.results += 1
        subtype, error = words(event.get("subtype")) or "", event.get("error")
        failed = bool(event.get("is_error")) or subtype.startswith("error")
        text = words(event.get("result")) or words(error.get("message") if isinstance(error, dict) else error)
        reason = words(event.get("terminal_reason")) if failed else None
        self.terminal = "failure" if failed else "success"
        self.message = (text or words(event.get("api_error")) or reason or subtype) if failed else None
        self.final_message = None if failed else text or None
        self.limit = "turn_limit" if subtype in TURN_LIMITS else None
        self.usage = event.get("modelUsage") or event.get("usage")
        if failed:
            keep(self.errors, self.message or "")


def blocks(message):
    """The content blocks of a message; a plain string is one text block."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def text_in(block):
    """The text of a tool result: a string, or the text parts of a list."""
    content = block.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""

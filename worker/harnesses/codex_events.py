"""What `codex exec --json` says on stdout while it runs, and its error texts (0.144.4 and 0.171.0).

Facts behind it, each measured with the real CLI: turn.completed and turn.failed are the only terminal events; `error` events
and items of type `error` are warnings (reconnects, unknown model metadata); the usage of turn.completed is the thread's
total, sub-agents left out, and all zeros where the provider sent none; an item may start and never complete (0.144.4 loses
the end of a tool call when the last answer follows at once); ids are `item_N`, so nothing here joins to the transcript.
"""

from __future__ import annotations

from worker.harnesses import live
from worker.harnesses.live import MOST_OPEN, keep, words

# (pattern, kind, does it count only without a wire, where it was seen).  Apostrophes: 0.171.0 writes U+2019.
ERRORS = (
    (r"^Codex ran out of room in the model.s context window", "context_length", False, "both, code context_length_exceeded"),
    (r"\"context_length_exceeded\"", "context_length", True, "0.144.4, HTTP 400 body"),
    (r"^exceeded retry limit, last status: 429", "rate_limited", True, "both, HTTP 429"),
    (r"^(stream disconnected before completion: )?rate limit exceeded: ", "rate_limited", True, "0.171.0, response.failed"),
    (r"^You.ve hit your usage limit", "quota_exhausted", True, "both, 429 usage_limit_reached"),
    (r"^To use Codex with your ChatGPT plan, upgrade", "quota_exhausted", True, "both, 429 usage_not_included"),
    (r"^Quota exceeded\. Check your plan and billing details", "quota_exhausted", True, "both, insufficient_quota"),
    (r"^We.re currently experiencing high demand", "server_error", True, "both, HTTP 500"),
    (r"^Selected model is at capacity", "overloaded", True, "both, server_is_overloaded"),
    (r"^The model `[^`]*` does not exist", "model_not_found", True, "0.171.0, 404 model_not_found"),
    (r"^unexpected status 401 ", "authentication", True, "both, HTTP 401"),
    (r"^Missing environment variable: ", "authentication", True, "both, env_key without a value"),
    (r"^unexpected status 402 ", "quota_exhausted", True, "0.144.4, HTTP 402"),
    (r"^unexpected status 403 ", "permission", True, "both, HTTP 403"),
    (r"^unexpected status 404 ", "model_not_found", True, "both, HTTP 404"),
    (r"^unexpected status (429) ", "rate_limited", True, "status words as for the others"),
    (r"^unexpected status (503|529) ", "overloaded", True, "both, HTTP 503 and 529"),
    (r"^unexpected status (408|5\d\d) ", "server_error", True, "both, HTTP 502, 504, 599 and 408"),
    (r"^unexpected status 3\d\d ", "unexpected_response", True, "both, HTTP 300"),
    (r"^unexpected status 4\d\d ", "invalid_request", True, "both, HTTP 409, 413, 418, 422"),
    (r"^Invalid image in your last message", "invalid_request", True, "both, HTTP 400"),
    (r"Incomplete response returned, reason: max_output_tokens", "output_limit", True, "both, response.incomplete"),
    (r"Incomplete response returned, reason: content_filter", "refusal", True, "both, response.incomplete"),
    (r"^stream disconnected before completion: idle timeout waiting for SSE", "model_timeout", True, "both, silent stream"),
    (r"^stream disconnected before completion: error sending request", "connection", True, "both, refused or reset"),
    (r"^Connection failed: ", "connection", True, "0.171.0, refused"),
    (r"^stream disconnected before completion: (stream closed|Transport error)", "stream_interrupted", True, "both, cut"),
    (r"^stream disconnected before completion: ", "server_error", True, "both, response.failed of an unknown code"),
    (r"^\{\s*\"error\"", "invalid_request", True, "both, HTTP 400 body"),
)
FALLBACK = "Model metadata for "
ESTIMATES = "Heads up: Long threads and multiple compactions"


class Live(live.Live):
    HANDLERS = {
        "thread.started": "on_thread", "turn.started": "on_turn", "turn.completed": "on_success", "turn.failed": "on_failure",
        "error": "on_error", "item.started": "on_item", "item.updated": "on_item", "item.completed": "on_item",
    }  # fmt: skip

    def on_thread(self, event):
        self.thread_id = words(event.get("thread_id")) or self.thread_id

    def on_turn(self, event):
        self.terminal = self.message = self.final_message = self.partial_message = None

    def on_success(self, event):
        self.terminal, self.message, self.final_message = "success", None, self.partial_message
        self.usage = event.get("usage")

    def on_failure(self, event):
        error = event.get("error")
        self.terminal, self.final_message = "failure", None
        self.message = words(error.get("message") if isinstance(error, dict) else error) or self.message or ""

    def on_error(self, event):
        """Not terminal; its words are all there is where the CLI dies before turn.failed."""
        text = words(event.get("message")) or ""
        self.message = text if self.terminal is None else self.message
        keep(self.errors, text)
        self.warn("cli_error", text)

    def on_item(self, event):
        item = event.get("item")
        if not isinstance(item, dict):
            return
        kind, identity = words(item.get("type")) or "", words(item.get("id"))
        if event["type"] == "item.completed":
            self.open.pop(identity, None)
            self.completed(kind, item)
        elif identity and len(self.open) < MOST_OPEN:
            self.open[identity] = kind
        if kind not in ("agent_message", "reasoning", "error"):
            self.last_tool = {
                "name": kind,
                "detail": (words(item.get("command") or item.get("query") or item.get("tool")) or "")[:200],
            }

    def completed(self, kind, item):
        if kind == "agent_message":
            self.partial_message = words(item.get("text"))
            self.messages += 1
        elif kind == "error":
            self.warn("cli_warning", words(item.get("message")) or "")
        elif kind != "reasoning":
            self.tools[kind] = self.tools.get(kind, 0) + 1

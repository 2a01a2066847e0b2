"""What the proxy itself says, in the caller's dialect. Pure.

Rules of this file
- An answer of ours is a JSON error in the shape that the dialect's SDKs read, with `x-should-retry: false`
  (OpenAI and Anthropic SDKs obey it), so that a CLI shows the sentence and does not repeat the call.
- Limits are answered 400: the one status that no measured CLI retries (facts/codex.md: one request, body shown as it
  is), in words without "rate", "quota", "overloaded", "timeout" or "try again", which CLIs search for.
- A refusal closes the connection unless the request was read to its end.
"""
from __future__ import annotations

import json

REASONS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 408: "Request Timeout", 413: "Content Too Large",
           426: "Upgrade Required", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
           501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 505: "HTTP Version Not Supported"}

# (status) -> the `type` of an error in each vendor's vocabulary; others are the vendor's word for a server fault.
_ANTHROPIC = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
              413: "request_too_large", 431: "invalid_request_error", 426: "invalid_request_error"}
_GOOGLE = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 413: "INVALID_ARGUMENT",
           426: "FAILED_PRECONDITION", 431: "INVALID_ARGUMENT", 503: "UNAVAILABLE"}
_OPENAI = {400: "invalid_request_error", 401: "invalid_request_error", 403: "invalid_request_error",
           413: "invalid_request_error", 426: "invalid_request_error", 431: "invalid_request_error"}


def _openai(status, code, message):
    return {"error": {"message": message, "type": _OPENAI.get(status, "server_error"), "param": None, "code": code}}


def _anthropic(status, code, message):
    return {"type": "error", "error": {"type": _ANTHROPIC.get(status, "api_error"), "message": message, "code": code}}


def _google(status, code, message):
    return {"error": {"code": status, "message": message, "status": _GOOGLE.get(status, "INTERNAL"),
                      "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code}]}}


_SHAPES = {"responses": _openai, "chat": _openai, "messages": _anthropic, "generate_content": _google}

# rule -> (status, code, sentence)
REFUSALS = {
    "bad_request": (400, "bad_request", "The request could not be framed: %s."),
    "head_too_large": (431, "head_too_large", "The request's headers are too large: %s."),
    "slow_request": (408, "slow_request", "The request did not arrive: %s."),
    "request_too_large": (413, "request_too_large", "The request is larger than this run accepts (%s bytes)."),
    "method": (403, "method_not_allowed", "This proxy passes POST, GET, HEAD and OPTIONS."),
    "foreign_target": (403, "foreign_target", "This proxy goes to the run's model endpoint only."),
    "token": (401, "wrong_token", "This proxy opens with the run's token only."),
    "upgrade": (426, "upgrade_refused", "This proxy speaks HTTP/1.1; use plain requests."),
    "request_limit": (400, "sandbox_request_limit", "The run has used up its allowance of model requests (%s). It ends here."),
    "token_limit": (400, "sandbox_token_limit", "The run has used up its allowance of tokens (%s). It ends here."),
    "no_thread": (503, "worker_busy", "The worker has no thread or descriptor left for this connection."),
    "no_room": (503, "disk_full", "The worker has no room for this request (%s)."),
    "redirect_refused": (502, "redirect_refused", "The model endpoint answered with %s, another origin; not followed."),
    "no_answer": (502, "upstream_failed", "The model endpoint gave no answer: %s."),
    "handler": (502, "worker_error", "The worker failed while it handled this request: %s."),
    "replay_mismatch": (400, "replay_mismatch", "The recorded run cannot answer this: %s."),
    "shutdown": (503, "run_ended", "The run is being stopped."),
}


def refusal(rule, dialect, detail="", close=True, head_only=False, status=None):
    """-> (status, bytes of the complete response, message). `status` overrides the rule's own."""
    own_status, code, sentence = REFUSALS[rule]
    status = status or own_status
    message = sentence % detail if "%s" in sentence else sentence
    body = json.dumps(_SHAPES.get(dialect, _openai)(status, code, message)).encode()
    lines = ["HTTP/1.1 %d %s" % (status, REASONS[status]), "Content-Type: application/json",
             "Content-Length: %d" % len(body), "x-should-retry: false"]
    lines += ["Upgrade: HTTP/1.1"] if status == 426 else []
    lines += ["Connection: close"] if close else []
    return status, "\r\n".join(lines + ["", ""]).encode() + (b"" if head_only else body), message

"""What requests and answers say, in the four dialects: the witness's own reading, with nothing of transport/ or worker/.

`asked(api, request)`: what the model was shown, as shapes; `told(api, body, stream)`: what an answer said, as a Told. A shape
is what an item of a conversation is without what a CLI adds to it: (kind, role or call id, text).
"""
from __future__ import annotations

import json

NAMES = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")
# Events after which a cut leaves a content event and no end behind it (message("Half an answer.") of tests/endpoint.py).
CUT_AFTER = {"responses": 5, "chat": 2, "messages": 4, "generate_content": 1}


class Told:
    """What one answer said. `last`: name of its last event or marker; `ok`: complete, and no error."""

    def __init__(self, identity=None, usage=None, raw=None, items=(), last=None, ok=False):
        self.id, self.usage, self.raw, self.items, self.last, self.ok = identity, usage, raw, list(items), last, ok

    def calls(self):
        """[{"call_id", "name"}] of the tool calls that the model made."""
        return [{"call_id": item[1], "name": item[3]} for item in self.items if item[0].endswith("_call")] if self.ok else []

    def words(self):
        """The texts of its messages."""
        return [item[2] for item in self.items if item[0] == "message"]


def shape(item):
    """Of a Responses item."""
    kind = item.get("type")
    if kind == "message":
        parts = item["content"] if isinstance(item["content"], list) else [{"text": item["content"]}]
        return kind, item["role"], "".join(part.get("text", "") for part in parts)
    if kind == "reasoning":
        return kind, "", "".join(part.get("text", "") for part in item["summary"])
    return kind, item.get("call_id"), canonical(item.get("arguments", item.get("output", item.get("input"))))


def canonical(value):
    """Arguments and outputs: JSON without its white space, where it is JSON."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
    return json.dumps(value, sort_keys=True)


def call(identity, name, arguments):
    return "function_call", identity, canonical(arguments), name


def usage(*five):
    return dict(zip(NAMES, five))


def events(body):
    """[(data, parsed or None)] of the events that ended properly."""
    found = []
    for block in body.split(b"\n\n")[:-1]:
        data = b"".join(line[6:] for line in block.split(b"\n") if line.startswith(b"data: "))
        found.append((data, json.loads(data) if data[:1] == b"{" else None))
    return found


def parts_of(content, kinds=("text", "input_text")):
    """The texts of a message's content, one for each part."""
    if isinstance(content, str):
        return [content] if content else []
    return [part["text"] for part in content or () if part.get("type", "text") in kinds and part.get("text")]


# -- Responses ------------------------------------------------------------------------------------------------------------

def responses_asked(request):
    """Codex 0.144.4 sends its instructions in a field, 0.171.0 as the first message."""
    if isinstance(request["input"], str):
        return [("message", "user", request["input"])]
    first = 1 if not request.get("instructions") and request["input"][0].get("role") in ("developer", "system") else 0
    return [shape(item) for item in request["input"][first:]]


def responses_told(chunks):
    last = next((value for _, value in reversed(chunks) if value), {})
    response = last.get("response") or (last if last.get("object") == "response" else {})
    raw = response.get("usage") or None
    figures = raw and usage(raw["input_tokens"], raw["input_tokens_details"]["cached_tokens"], raw["output_tokens"],
                            raw["output_tokens_details"]["reasoning_tokens"], raw["total_tokens"])
    items = [shape(item) + (item.get("name"),) for item in response.get("output", ())]
    ended = last.get("type") or response.get("status")
    return Told(response.get("id"), figures, raw, items, ended, ended in ("response.completed", "completed"))


# -- Chat Completions -----------------------------------------------------------------------------------------------------

def chat_asked(request):
    found = []
    for said in request["messages"]:
        role, content = said["role"], said.get("content")
        if role == "tool":
            found.append(("function_call_output", said["tool_call_id"], canonical("".join(parts_of(content)))))
        elif role in ("user", "assistant"):
            found += [("message", role, text) for text in parts_of(content)]
            found += [call(one["id"], one["function"]["name"], one["function"]["arguments"])[:3] for one in said.get("tool_calls") or ()]
    return found


def chat_told(chunks):
    text, calls, raw, finish, wrong = "", {}, None, None, False
    for _, chunk in chunks:
        if chunk is None:
            continue
        raw, wrong = chunk.get("usage") or raw, wrong or "error" in chunk
        for choice in chunk.get("choices", ()):
            said = choice.get("delta") or choice.get("message") or {}
            text += said.get("content") or ""
            calls.update((one.get("index", number), one) for number, one in enumerate(said.get("tool_calls") or ()))
            finish = choice.get("finish_reason") or finish
    figures = raw and usage(raw["prompt_tokens"], raw["prompt_tokens_details"]["cached_tokens"], raw["completion_tokens"],
                            raw["completion_tokens_details"]["reasoning_tokens"], raw["total_tokens"])
    items = [("message", "assistant", text)] if text else []
    items += [call(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in calls.values()]
    ended = "[DONE]" if chunks and chunks[-1][0] == b"[DONE]" else None
    return Told(next((chunk["id"] for _, chunk in chunks if chunk and "id" in chunk), None), figures, raw, items, ended,
                bool(finish) and not wrong)


# -- Messages -------------------------------------------------------------------------------------------------------------

def messages_asked(request):
    found = []
    for said in request["messages"]:
        blocks = [{"type": "text", "text": said["content"]}] if isinstance(said["content"], str) else said["content"]
        for block in blocks:
            if block["type"] == "text":
                found.append(("message", said["role"], block["text"]))
            elif block["type"] == "tool_use":
                found.append(call(block["id"], block["name"], block["input"])[:3])
            elif block["type"] == "tool_result":
                found.append(("function_call_output", block["tool_use_id"], canonical("".join(parts_of(block.get("content"))))))
    return found


def messages_told(chunks):
    document, blocks, raw, last, wrong = {}, {}, {}, None, False
    for _, event in chunks:
        kind = event["type"]
        if kind in ("message_start", "message"):
            document = event.get("message") or event
            raw.update(document.get("usage") or {})
            blocks.update((index, dict(block)) for index, block in enumerate(document.get("content") or ()))
        elif kind == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"], json="")
        elif kind == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            block["text"] = block.get("text", "") + delta.get("text", "")
            block["json"] += delta.get("partial_json", "")
        elif kind == "message_delta":
            raw.update(event.get("usage") or {})
        last, wrong = kind if kind != "message" else None, wrong or kind == "error"
    items = [("message", "assistant", block["text"]) if block["type"] == "text" else
             call(block["id"], block["name"], block.get("json") or block["input"]) for block in blocks.values()]
    whole = last == "message_stop" or document.get("stop_reason") is not None
    given = sum(raw.get(name) or 0 for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
    out = raw.get("output_tokens", 0)       # of a cut answer: what its first event told
    figures = usage(given, raw.get("cache_read_input_tokens"), out, None, given + out) if raw else None
    return Told(document.get("id"), figures, raw or None, items, last, whole and not wrong)


# -- generateContent ------------------------------------------------------------------------------------------------------

def generate_content_asked(request):
    found = []
    for said in request["contents"]:
        role = "assistant" if said.get("role") == "model" else "user"
        for part in said["parts"]:
            if "functionCall" in part:
                one = part["functionCall"]
                found.append(call(one.get("id"), one["name"], one.get("args") or {})[:3])
            elif "functionResponse" in part:
                one = part["functionResponse"]
                output = one["response"].get("output", one["response"])
                found.append(("function_call_output", one.get("id"), canonical(output)))
            elif part.get("text") and not part.get("thought"):
                found.append(("message", role, part["text"]))
    return found


def generate_content_told(chunks):
    text, calls, raw, finish, wrong, identity = "", [], None, None, False, None
    for _, chunk in chunks:
        raw, wrong, identity = chunk.get("usageMetadata") or raw, wrong or "error" in chunk, identity or chunk.get("responseId")
        for candidate in chunk.get("candidates", ()):
            finish = candidate.get("finishReason") or finish
            for part in candidate["content"]["parts"]:
                text += part.get("text", "")
                calls += [part["functionCall"]] if "functionCall" in part else []
    figures = raw and usage(raw["promptTokenCount"], raw["cachedContentTokenCount"],
                            raw["candidatesTokenCount"] + raw["thoughtsTokenCount"], raw["thoughtsTokenCount"], raw["totalTokenCount"])
    items = ([("message", "assistant", text)] if text else []) + [call(one["id"], one["name"], one["args"]) for one in calls]
    return Told(identity, figures, raw, items, "finishReason" if finish else None, bool(finish) and not wrong)


ASKED = {"responses": responses_asked, "chat": chat_asked, "messages": messages_asked, "generate_content": generate_content_asked}
TOLD = {"responses": responses_told, "chat": chat_told, "messages": messages_told, "generate_content": generate_content_told}


def asked(api, request):
    """[shape] of what the model was shown, the CLI's own instructions left out."""
    return ASKED[api](request)


def told(api, body, stream):
    """Told of the body of an answer with status 200; stream: whether it is an event stream."""
    if stream:
        return TOLD[api](events(body))
    try:
        found = TOLD[api]([(body, json.loads(body))])
    except ValueError:
        return Told()
    found.last = None       # a document has no last event
    return found


# -- errors ---------------------------------------------------------------------------------------------------------------

def error(api, status, text, kind=None, code=None):
    """The body of an HTTP error as the dialect's vendor writes it."""
    if api == "messages":
        return {"type": "error", "error": {"type": kind or ANTHROPIC.get(status, "api_error"), "message": text}}
    if api == "generate_content":
        return {"error": {"code": status, "status": GOOGLE.get(status, "INTERNAL"), "message": text}}
    return {"error": {name: value for name, value in (("message", text), ("type", kind), ("code", code)) if value}}


ANTHROPIC = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
             429: "rate_limit_error", 529: "overloaded_error"}
GOOGLE = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED",
          500: "INTERNAL", 503: "UNAVAILABLE"}


def error_in_stream(api, text):
    """A rate limit as an error event after HTTP 200."""
    return {"responses": {"code": "rate_limit_exceeded", "message": text},
            "chat": {"code": "rate_limit_exceeded", "type": "rate_limit_error", "message": text},
            "messages": {"type": "rate_limit_error", "message": text},
            "generate_content": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": text}}[api]

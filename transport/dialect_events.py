"""The four dialects as tables and one reader each: which bytes can matter, what is preamble, where the facts stand.

A dialect reader takes (facts, value, kind): `facts` is the Reader whose attributes it sets, `value` one event's or
document's JSON object, `kind` its type (None for a document). It returns True where the event is preamble: it commits the
server to nothing, so a proxy that holds a stream may still throw the attempt away. An unknown event is content.
PREAMBLE: Responses: response.created, response.in_progress, response.queued, keepalive, ping and Codex's
codex.rate_limits; Messages: message_start, ping (content_block_start opens the answer and is content); Chat: chunks whose
deltas are empty but for the role, and Azure's first chunk without choices; generateContent: none.
Sources: the vendors' API references, streaming sections. Pure.
"""
from __future__ import annotations

import re

from transport.error_shapes import text_of
from transport.sse import count_alike, count_events
from transport.usage_shapes import merge_usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transport.dialects import Reader

_TERMINAL = ("response.completed", "response.failed", "response.incomplete", "response.cancelled", "response.done")
PREAMBLE = {
    "responses": ("response.created", "response.in_progress", "response.queued", "keepalive", "ping", "codex.rate_limits"),
    "messages": ("message_start", "ping"),
    "chat": ("ping",),
    "generate_content": (),
}
_ANSWER_KEYS = {
    "responses": frozenset(("output", "object")),
    "messages": frozenset(("content", "role")),
    "generate_content": frozenset(("candidates", "promptFeedback", "usageMetadata")),
}


_STATUSES = ("completed", "failed", "incomplete", "cancelled", "in_progress", "queued")  # of a response; gateways have others

# Events of these types carry a piece of an answer and nothing else.
_QUIET = {
    "responses": (b"response.output_text.delta", b"response.reasoning_text.delta", b"response.reasoning_summary_text.delta",
                  b"response.function_call_arguments.delta", b"response.custom_tool_call_input.delta",
                  b"response.refusal.delta"),
    "messages": (b"content_block_delta",),
}
_HEAD = re.compile(rb'(?:event: ?([\w.]{1,60})\n)?data: ?\{(?:"type": ?"([\w.]{1,60})",)?')

# A usage object of nothing but zeros: some servers send one behind the real figures, and counts only grow.
ZEROS = re.compile(rb'"\w{1,20}": ?\{(?:\s*"\w{1,40}": ?0,?)+\s*\}')


class Markers:
    """Which bytes of a stream can matter, once its answer has begun.

    `urgent`: an event with any of these is parsed at once; `nullable`: keys that stand in every event and matter only
    when not null; `usage`: a key of running figures, of which only the last counts; `quiet`: types that never matter.
    """

    def __init__(self, urgent: tuple = (), nullable: tuple = (), usage: bytes | None = None, quiet: tuple = ()) -> None:
        self._urgent = urgent + (b"[DONE]", b"event: error", b"event:error")
        self._urgent_in_objects = urgent  # where every event is known to be one line "data: {"
        self._nullable = tuple(map(_forms, nullable))
        self._usage = None if usage is None else _forms(usage)
        self._quiet = quiet

    def look(self, region: bytes) -> tuple:
        """(number of events, may one of them be urgent?, the last block with running usage or None)."""
        shape = _HEAD.match(region)
        if shape and shape.group(2) in self._quiet and shape.group(1) in (None, shape.group(2)):
            count = count_alike(region, shape.group())
            if count:
                return count, False, None
        count = count_alike(region, b"data: {") if region.startswith(b"data: {") else 0
        if self._any(self._urgent_in_objects if count else self._urgent, region):
            return 0, True, None
        return count or count_events(region), False, self._last_usage(region)

    def _any(self, markers: tuple, data: bytes) -> bool:
        for marker in markers:
            if marker in data:
                return True
        return any(_not_null(forms, data) for forms in self._nullable)

    def _last_usage(self, region: bytes) -> bytes | None:
        if self._usage is None or not _not_null(self._usage, region):
            return None
        key, null, spaced_null = self._usage
        last = at = region.rfind(key)
        while at >= 0 and (region.startswith((null, spaced_null), at) or ZEROS.match(region, at)):
            at = region.rfind(key, 0, at)
        at = last if at < 0 else at  # nothing but zeros
        begin, end = region.rfind(b"\n\n", 0, at), region.find(b"\n\n", at)
        return region[begin + 2 if begin >= 0 else 0:end if end >= 0 else None]


def _forms(key: bytes) -> tuple:
    return key, key + b":null", key + b": null"


def _not_null(forms: tuple, data: bytes) -> bool:
    key, null, spaced_null = forms
    count = data.count(key)
    return count > 0 and count != data.count(null) + data.count(spaced_null)


MARKERS = {
    "responses": Markers((b"response.completed", b"response.failed", b"response.incomplete", b"response.cancelled",
                          b"response.done"), nullable=(b'"error"', b'"usage"'), quiet=_QUIET["responses"]),
    "chat": Markers(nullable=(b'"error"', b'"finish_reason"'), usage=b'"usage"'),
    "messages": Markers((b"message_start", b"message_delta", b"message_stop"), nullable=(b'"error"', b'"usage"'),
                        quiet=_QUIET["messages"]),
    "generate_content": Markers((b'"promptFeedback"', b'"finishReason"'), nullable=(b'"error"',), usage=b'"usageMetadata"'),
}
NO_MARKERS = Markers(nullable=(b'"error"',))


def is_answer(dialect: str | None, value: dict) -> bool:
    """True where a document looks like an answer of its dialect, so that a `message` or `detail` in it is no error. One of Chat
    Completions has a choice: servers that have nothing to say answer 200 with none."""
    if dialect == "chat":
        return bool(value.get("choices"))
    if dialect == "responses" and value.get("status") in _STATUSES:
        return True
    return dialect is None or not _ANSWER_KEYS[dialect].isdisjoint(value)


def _names(facts: Reader, value: dict, identity: str, model: str) -> None:
    facts.response_id = facts.response_id or text_of(value.get(identity), 200) or None
    facts.model = facts.model or text_of(value.get(model), 200) or None


def _take_usage(facts: Reader, raw: object) -> None:
    if isinstance(raw, dict) and raw:
        if facts._raw is not None and not any(raw.values()):
            return  # zeros behind figures: counts only grow
        facts._raw = raw
        facts._late = None


def _responses(facts: Reader, value: dict, kind: str | None) -> bool:
    response = value if kind is None or value.get("object") == "response" else value.get("response")
    if isinstance(response, dict):
        _names(facts, response, "id", "model")
        _take_usage(facts, response.get("usage"))
        _responses_finish(facts, response, kind)
    if kind in _TERMINAL:
        facts.terminal, facts.complete = kind, True
    return kind in PREAMBLE["responses"]


def _responses_finish(facts: Reader, response: dict, kind: str | None) -> None:
    status = response.get("status") if kind is None or kind == "response.done" else kind.partition(".")[2]
    if status not in ("completed", "failed", "incomplete", "cancelled"):
        return
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    facts.finish_reason = text_of(reason, 100) or status


def _chat(facts: Reader, value: dict, kind: str | None) -> bool:
    _names(facts, value, "id", "model")
    groq = value.get("x_groq")
    _take_usage(facts, value.get("usage") or (groq.get("usage") if isinstance(groq, dict) else None))
    choices = value.get("choices")
    empty = isinstance(choices, list)
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        reason = text_of(choice.get("finish_reason"), 100)
        facts.finish_reason = reason or facts.finish_reason
        _take_usage(facts, choice.get("usage"))  # Moonshot
        empty = empty and not reason and _empty_delta(choice.get("delta"))
    if empty and not choices:
        empty = not value.get("usage")
    return empty or kind in PREAMBLE["chat"]


def _empty_delta(delta: object) -> bool:
    return isinstance(delta, dict) and not any(part for name, part in delta.items() if name != "role")


def _messages(facts: Reader, value: dict, kind: str | None) -> bool:
    message = value.get("message") if kind == "message_start" else value if kind in (None, "message") else None
    if isinstance(message, dict):
        _names(facts, message, "id", "model")
        _merge(facts, message.get("usage"))
        facts.finish_reason = text_of(message.get("stop_reason"), 100) or facts.finish_reason
    elif kind == "message_delta":
        delta = value.get("delta")
        _merge(facts, value.get("usage"))
        if isinstance(delta, dict):
            facts.finish_reason = text_of(delta.get("stop_reason"), 100) or facts.finish_reason
    elif kind == "message_stop":
        if not facts.content_seen and facts.finish_reason is None:
            return True  # nothing was said: no answer ends here
        facts.terminal, facts.complete = kind, True
    return kind in PREAMBLE["messages"]


def _merge(facts: Reader, raw: object) -> None:
    facts._raw = merge_usage(facts._raw, raw)


def _generate_content(facts: Reader, value: dict, kind: str | None) -> bool:
    _names(facts, value, "responseId", "modelVersion")
    _take_usage(facts, value.get("usageMetadata"))
    candidates = value.get("candidates")
    for candidate in candidates if isinstance(candidates, list) else ():
        reason = candidate.get("finishReason") if isinstance(candidate, dict) else None
        if isinstance(reason, str) and reason and reason != "FINISH_REASON_UNSPECIFIED":
            facts.finish_reason = text_of(reason, 100)
            facts.terminal, facts.complete = "finishReason", True
    feedback = value.get("promptFeedback")
    blocked = feedback.get("blockReason") if isinstance(feedback, dict) else None
    if isinstance(blocked, str) and blocked and facts.terminal is None:
        facts.finish_reason = text_of(blocked, 100)
        facts.terminal, facts.complete = "blockReason", True
    return False


READERS = {"responses": _responses, "chat": _chat, "messages": _messages, "generate_content": _generate_content}

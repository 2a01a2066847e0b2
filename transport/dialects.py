"""What a model response says, in four dialects: Responses, Chat Completions, Messages, generateContent.

`Reader` looks at the body as it passes and never changes it. Streams and single JSON documents both come out as the same
attributes. Rules:
- an error is known by its JSON, wherever it stands and whatever the `event:` line says (case A14);
- what cannot be read is said in `not_decoded` (a content coding, a size) and is never taken for a failure (case A27);
- only events that can matter are parsed: an event that holds none of its dialect's MARKERS has no usage, error, finish
  reason or terminal, and is only counted. Keys spelled with \\u escapes would be missed; no server writes those;
- memory is one event (16 MiB at most), or one JSON document of the same size.
When a stream is complete: `terminal` is set. Responses: response.completed, .failed, .incomplete, .cancelled (and
response.done), or an error. Messages: message_stop, or an error. generateContent: a finishReason or a blockReason, or an
error. Chat: "[DONE]", or an error, or, because many servers leave [DONE] out, a finish_reason and then a clean end
("finish_reason"); with neither it is a truncation, and so is an end ([DONE], message_stop) before which nothing was said. In
the other dialects [DONE] is a habit of some servers, after or instead of the real end. A single document is complete when it is
valid JSON and the framing said that it was whole; one without any key of its dialect ({}, [], {"status": "ok"}) is no answer.
Pure: no I/O, no clock.
"""
from __future__ import annotations

import re

from transport import dialect_events, sse
from transport.body_delays import body_delay
from transport.error_shapes import error_of
from transport.json_bytes import ArraySplitter, loads, top_level
from transport.usage_shapes import normalise_usage

LIMIT = sse.LIMIT
EXCERPT = 500
CHATTER = 512  # bytes: what is longer than this in one piece says something
_CHATTER = re.compile(rb"""[ ]*(?:\Z|:|event:[ ]?(?:ping|keep-?alive|heartbeat)[ ]*\Z|(?:id|retry):
    |data:[ ]*(?:\Z|\{[ ]?"type":[ ]?"(?:ping|keep-?alive|heartbeat)"))""", re.VERBOSE)  # of one line
_FAILED = {"code": None, "type": "response.failed", "message": None}
_ESCAPED = re.compile(r"%([2-7][0-9A-Fa-f])")
_PARSE_WHOLE = 1 << 20  # request bodies over this are scanned for three keys, not parsed
_ENDINGS = (("/responses", "responses"), ("/responses/compact", "responses"), ("/chat/completions", "chat"),
            ("/messages", "messages"), (":generateContent", "generate_content"),
            (":streamGenerateContent", "generate_content"))


def dialect_of(method: str, path: str) -> str | None:
    """The dialect of a model request, or None for anything else (token counting, model lists, batches, GET, ...). A server
    undoes escapes and may cut path parameters off; what it takes for a model request counts as one here."""
    if method.upper() != "POST":
        return None
    bare = _ESCAPED.sub(lambda found: chr(int(found.group(1), 16)), path.partition("?")[0]).partition(";")[0].rstrip("/")
    return next((dialect for ending, dialect in _ENDINGS if bare.endswith(ending)), None)


def describe_request(dialect: str | None, path: str, body: object) -> dict:
    """{"model": str|None, "tools": [names], "stream": bool} of a request body (bytes or any buffer); never raises."""
    wanted = ("model", "stream", "tools")
    document = loads(body) if isinstance(body, bytes) and len(body) <= _PARSE_WHOLE else top_level(body or b"", wanted)
    document = document if isinstance(document, dict) else {}
    bare = path.partition("?")[0]
    model = document.get("model")
    if not isinstance(model, str):
        model = _model_in_path(bare)
    stream = document.get("stream") is True or bare.endswith(":streamGenerateContent")
    return {"model": model, "tools": _tool_names(document.get("tools")), "stream": stream}


def _model_in_path(path: str) -> str | None:
    """.../models/NAME:generateContent (Google) and .../deployments/NAME/chat/completions (Azure)."""
    for before in ("/models/", "/deployments/"):
        _, found, rest = path.rpartition(before)
        if found:
            return rest.partition("/")[0].rpartition(":")[0] or rest.partition("/")[0] or None
    return None


def _tool_names(tools: object) -> list:
    names = []
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        inner = tool.get("functionDeclarations") or tool.get("function_declarations")
        for one in inner if isinstance(inner, list) else (tool.get("function"), tool):
            name = one.get("name") if isinstance(one, dict) else None
            if isinstance(name, str):
                names.append(name)
                if inner is None:
                    break
        else:
            if inner is None and isinstance(tool.get("type"), str):
                names.append(tool["type"])  # hosted tools have a type and no name
    return names


def _values(data: bytes) -> list:
    """The JSON of an event, or of its lines where each is one."""
    value = loads(data)
    return [value] if value is not None or b"\n" not in data else [loads(line) for line in data.split(b"\n")]


class Reader:
    """feed(bytes) as they come, then finish(clean): clean is False where the framing or the connection broke.

    events: stream events so far; terminal, complete: see above; is_stream; content_seen: something beyond preamble came
    (at the end, for a document); error: {"code","type","message"[,"detail"]} or None; finish_reason, response_id, model:
    as the vendor wrote them; usage, usage_raw; retry_delay: seconds from the error body; not_decoded: reason or None;
    blank: nothing came but white space; html: the body is a page or other markup; excerpt: the first 500 bytes of a body that
    is neither JSON nor events, else None.
    """

    events = 0
    terminal: str | None = None
    complete = is_stream = blank = content_seen = html = says_events = _is_events = False
    error: dict | None = None
    finish_reason: str | None = None
    response_id: str | None = None
    model: str | None = None
    retry_delay: float | None = None
    not_decoded: str | None = None
    excerpt: str | None = None
    _raw: dict | None = None
    _late: bytes | None = None  # the last event that only carries usage, parsed when somebody asks
    _head: bytes = b""
    _size = 0

    def __init__(self, dialect: str | None, content_type: str | None, content_encoding: str | None) -> None:
        self.dialect = dialect
        self._parts: list[bytes] = []
        self._markers = dialect_events.MARKERS.get(dialect or "", dialect_events.NO_MARKERS)
        self._mode = Reader._sniff  # a function, not a bound method: a reader that holds itself waits for the collector
        if content_type:
            kind = content_type.partition(";")[0].strip().lower()
            self.html = kind in ("text/html", "application/xhtml+xml")
            self.says_events = kind == "text/event-stream"
        coding = (content_encoding or "").strip().lower()
        if coding not in ("", "identity"):
            self.not_decoded = coding[:40]
            self._mode = Reader._ignore

    @property
    def usage_raw(self) -> dict | None:
        """The vendor's own usage object (for Messages streams: both parts merged)."""
        if self._late is not None:
            late, self._late = self._late, None
            event = sse.parse_block(late)
            for value in _values(event.data) if event else ():
                if value is not None:
                    self._read_value(value, None)
        return self._raw

    @property
    def answered(self) -> bool:
        """The last event of a good answer has come: clients stop reading there, so nothing that follows takes anything back.
        (generateContent has no event that says so for certain.)"""
        return self.terminal is not None and self.error is None and self._is_events and self.dialect != "generate_content"

    @property
    def usage(self) -> dict | None:
        return normalise_usage(self.dialect, self.usage_raw)

    def says_nothing(self, piece: bytes) -> bool:
        """Is there nothing of an answer in what was fed last: comments, pings, white space, or preamble to nothing yet?"""
        if self._is_events and not self.content_seen and self.error is None and not self._parser.pending:
            return True
        return all(_CHATTER.match(line) is not None for line in piece.splitlines())

    def feed(self, chunk: bytes) -> None:
        if chunk:
            self._mode(self, chunk)

    def finish(self, clean: bool) -> None:
        """The body has ended. Safe to call once; attributes are final afterwards."""
        if self._mode is Reader._sniff:
            self.blank = not self._head
            self._choose(self._head, at_end=True)
        if self._mode is Reader._events:
            self._finish_events(clean)
        elif self._mode is Reader._elements:
            self.complete = self.terminal is not None or self.error is not None
        elif self._mode is Reader._document:
            self._finish_document(clean)
        self._mode = Reader._ignore
        self._parts = []

    # What the body is: its first bytes say more than its Content-Type (servers answer errors as JSON under
    # text/event-stream, and pages under anything).
    def _sniff(self, chunk: bytes) -> None:
        self._head = (self._head + chunk).lstrip(b" \t\r\n")  # gateways send white space to keep a document waiting
        if self._head.startswith(sse.BOM):
            self._head = self._head[len(sse.BOM):].lstrip(b" \t\r\n")
        self._choose(self._head, at_end=False)

    def _choose(self, head: bytes, at_end: bool) -> None:
        bare = head[:16]
        if len(bare) < 6 and not at_end and bare[:1] not in (b"{", b"[", b"<"):
            return
        self._head = b""
        if bare[:1] == b"[" and self.dialect == "generate_content":
            self.is_stream, self._splitter = True, ArraySplitter(LIMIT)
            self._mode = Reader._elements
        elif bare[:1] in (b"{", b"["):
            self._mode = Reader._document
        elif bare[:1] != b"<" and (self.says_events or bare.startswith((b"data:", b"event:", b": ", b"retry:", b"id:"))):
            self.is_stream, self._is_events, self._parser = True, True, sse.Parser(LIMIT)
            self._mode = Reader._events
        else:
            self.html = self.html or bare[:1] == b"<"
            self._mode = Reader._text
        if head:
            self._mode(self, head)

    def _ignore(self, chunk: bytes) -> None:
        """Nothing can be read here; the bytes pass."""

    def _text(self, chunk: bytes) -> None:
        if self._size < EXCERPT:
            self._parts.append(chunk[:EXCERPT - self._size])
            self._size += len(self._parts[-1])
            self.excerpt = b"".join(self._parts).decode("utf-8", "replace")

    def _document(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size <= (LIMIT if self.dialect else _PARSE_WHOLE):
            self._parts.append(chunk)
        elif self.not_decoded is None:
            self.not_decoded = "too_large"
            self._parts = []

    def _finish_document(self, clean: bool) -> None:
        if self.not_decoded is not None:
            return
        body = b"".join(self._parts)
        value = loads(body)
        if not isinstance(value, (dict, list)):
            self.excerpt = body[:EXCERPT].decode("utf-8", "replace")
            return
        if isinstance(value, list):
            value = value[0] if value and isinstance(value[0], dict) else {}
        error = error_of(value, strict=dialect_events.is_answer(self.dialect, value))
        if self.dialect is not None:
            dialect_events.READERS[self.dialect](self, value, None)
        if error is None and self.dialect == "responses" and self.finish_reason == "failed":
            error = dict(_FAILED)
        self._take_error(error, value)
        self.terminal = None  # a document has no last event
        self.complete = clean
        if error is None and not dialect_events.is_answer(self.dialect, value):
            self.complete, self.excerpt = False, body[:EXCERPT].decode("utf-8", "replace")
        self.content_seen = True

    def _events(self, chunk: bytes) -> None:
        region = self._parser.take(chunk)
        if not region:
            return
        if self.content_seen and self._skim(region):
            return
        blocks = sse.blocks_of(region)
        del region  # one event may be 16 MiB
        for block in blocks:
            if self.content_seen and self._skim(block):
                continue
            event = sse.parse_block(block)
            if event is not None:
                self._event(event)
            else:
                self._stray(block)

    def _stray(self, block: bytes) -> None:
        """JSON that stands in no event: Gemini, and gateways behind which a model failed, end a stream with an error so."""
        block = block.strip()
        value = loads(block) if block[:1] in (b"{", b"[") else None
        if error_of(value, strict=True) is not None:
            self._read_value(value, None)

    def _skim(self, region: bytes) -> bool:
        """Counts events that cannot matter; False where one may, so that they must be parsed."""
        count, urgent, usage = self._markers.look(region)
        self.events += count
        if usage is not None and (self._late is None or not dialect_events.ZEROS.search(usage)):
            self._late = usage
        return not urgent

    def _event(self, event: sse.Event) -> None:
        if event.data.strip() == b"[DONE]":
            self.events += 1
            if self.dialect is None or self.dialect == "chat" and self._said_something():
                self.terminal, self.complete = "[DONE]", True
            return
        value = loads(event.data)
        if value is None and self._run_together(event):
            return
        if not event.complete and value is None:
            return  # the stream was cut inside this event
        self.events += 1
        if value is None and event.event == "error":
            value = {"type": "error", "message": event.data.decode("utf-8", "replace")}
        self._read_value(value, event.event)

    def _run_together(self, event: sse.Event) -> bool:
        """Events with no empty line between them (servers of GLM and Kimi): clients that read line by line take them."""
        lines = event.data.split(b"\n")
        if len(lines) == 1 or not isinstance(loads(lines[0]), dict):
            return False
        count = self.events + 1
        for number, line in enumerate(lines, 1):
            self._event(sse.Event(event.event, line, event.complete or number < len(lines)))
        self.events = count
        return True

    def _said_something(self) -> bool:
        return self.content_seen or self.finish_reason is not None or self._parser.oversized > 0

    def _read_value(self, value: object, name: str | None) -> None:
        """One event's JSON: an error, preamble, or content."""
        if isinstance(value, list):
            value = value[0] if value and isinstance(value[0], dict) else None
        if not isinstance(value, dict):
            self.content_seen = True
            return
        kind = value.get("type")
        kind = kind if isinstance(kind, str) else name
        error = error_of(value, strict=name != "error")
        if error is None and (kind == "error" or kind == "response.failed"):
            error = dict(_FAILED, type=kind)
        preamble, ended = False, self.answered
        if self.dialect is not None:
            preamble = dialect_events.READERS[self.dialect](self, value, kind)
        if ended:
            return  # clients stop reading at the end of a good answer, and so does the verdict
        if error is not None:
            self._take_error(error, value)
            self.terminal, self.complete = self.terminal or "error", True
        elif not preamble:
            self.content_seen = True

    def _take_error(self, error: dict | None, value: dict) -> None:
        if error is None:
            return
        if self.error is None or (self.error["code"] is None and error["code"] is not None):
            self.error = error  # an `error` event and the response.failed after it: the one that names a code
        if self.retry_delay is None:
            self.retry_delay = body_delay(value)

    def _finish_events(self, clean: bool) -> None:
        rest = self._parser.take_rest()
        event = sse.parse_block(rest, complete=False)
        if event is not None:
            self._event(event)
        else:
            self._stray(rest)
        if self._parser.oversized and self.not_decoded is None:
            self.not_decoded = "oversized_event"
        if self.terminal is None and self.dialect == "chat" and self.finish_reason is not None and clean:
            self.terminal = "finish_reason"
        self.complete = self.terminal is not None

    def _elements(self, chunk: bytes) -> None:
        for element in self._splitter.feed(chunk):
            self.events += 1
            self._read_value(loads(element), None)
        if self._splitter.oversized and self.not_decoded is None:
            self.not_decoded = "oversized_event"

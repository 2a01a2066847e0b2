"""A scripted model endpoint: it answers as its plan says and writes down all that it saw.

One file, standard library, Python 3.8+, no code in common with transport/: it is the independent
witness of every test. In a test: `with Endpoint([...]) as e: ... e.url ... e.requests()`; in a
container: `python3 endpoint.py --plan plan.json --witness witness.jsonl --info info.json
[--host H] [--port N] [--tls CERT KEY] [--unix PATH] [--gates DIR]`.

A plan is {"answers": [...], "default": ANSWER, "repeat": "always"|"last"|n} or just the list of
answers. POSTs take answers in order. ANSWER = one step, a list of steps (`upstream_by_attempt` is
another name for `answers`), or {"match": {"method", "path", "header": {name: part}, "body"},
"steps": ..., "times": n|"always"}: these go first, to requests of any method that contain the given
parts. {"after_accept": "rst"|"fin"|"stall"} takes a connection before anything is read. {"early":
true, "steps": ...} answers after the head, body unread. No answer left: `default`, else a 500 marked
`unplanned`; a GET without a match: 404. Steps: see STEPS; raw ones (`send`, ...) write bytes as they
stand, the others build a correct answer. After the last step the connection is kept, unless the head
that was sent says `Connection: close`.

Model answers {"responses"|"chat"|"messages"|"generate_content": {...}}: `items` (see ITEMS), `usage`
([input, cached, output, reasoning]; a dict as it stands; null; "omit"), `model`, `id`, `delay` (s, before
the head), `event_delay` (s, before each event), `headers`, `stream` (as the request says), `framing`
("chunked", "close"), `finish`, `error` ({"code", "message"} in the stream), `extra` ({event index:
raw text sent before it}), `cut_after` (events, or {"bytes": n}) and `then` ("fin", "rst", "stall",
"end": a clean end without the rest; or {"gate": name} / {"sleep": s}, after which it goes on).

Witness lines: {"event": "accept"|"request"|"answer"|"close"|"error", "connection", "at", ...}.
"""
from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import json
import os
import select
import socket
import ssl
import struct
import sys
import threading
import time

BODY_KEPT = 4 << 20          # of a request, in the witness log
HUNG = 60.0                  # hang guard of wait_for()
LEFT = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
PHRASES = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
           429: "Too Many Requests", 500: "Internal Server Error", 502: "Bad Gateway",
           503: "Service Unavailable", 504: "Gateway Timeout"}


class Left(Exception):
    """The peer closed or reset the connection, or the endpoint is stopped."""


class Ended(Exception):
    """A step ended the connection; args[0] says how."""


# --- items of an answer, short form -> the Responses form -------------------------------------

def message(text):
    return {"message": text}


def reasoning(text):
    return {"reasoning": text}


def function_call(name, arguments, call_id=None):
    return {"function_call": {"name": name, "arguments": arguments, "call_id": call_id}}


def custom_tool_call(name, text, call_id=None):
    return {"custom_tool_call": {"name": name, "input": text, "call_id": call_id}}


def web_search(query):
    return {"web_search": query}


def shell(command):
    """A call of Codex's shell tool."""
    return function_call("exec_command", {"cmd": command})


def _text(value):
    return value if isinstance(value, str) else json.dumps(value)


ITEMS = {
    "message": lambda v, i: {"id": "msg_" + i, "type": "message", "role": "assistant", "status": "completed",
                             "content": [{"type": "output_text", "text": v, "annotations": []}]},
    "reasoning": lambda v, i: {"id": "rs_" + i, "type": "reasoning", "encrypted_content": "b3BhcXVl",
                               "summary": [{"type": "summary_text", "text": v}]},
    "function_call": lambda v, i: {"id": "fc_" + i, "type": "function_call", "status": "completed", "name": v["name"],
                                   "call_id": v.get("call_id") or "call_" + i, "arguments": _text(v["arguments"])},
    "custom_tool_call": lambda v, i: {"id": "ctc_" + i, "type": "custom_tool_call", "status": "completed",
                                      "name": v["name"], "call_id": v.get("call_id") or "call_" + i,
                                      "input": v["input"]},
    "web_search": lambda v, i: {"id": "ws_" + i, "type": "web_search_call", "status": "completed",
                                "action": {"type": "search", "query": v}},
    "shell": lambda v, i: ITEMS["function_call"]({"name": "exec_command", "arguments": {"cmd": v}}, i),
}


def items_of(answer, number):
    out = []
    for index, item in enumerate(answer.get("items", [])):
        if "type" not in item:
            (kind, value), = item.items()
            item = ITEMS[kind](value, "%04d_%d" % (number, index))
        out.append(item)
    return out


def item_text(item):
    if item["type"] == "message":
        return "".join(part.get("text", "") for part in item["content"])
    return item.get("arguments", item.get("input", "{}"))


def pieces(text):
    half = (len(text) + 1) // 2
    return [p for p in (text[:half], text[half:]) if p]


# --- the four dialects: (answer, items, request number, model) -> (events, whole document) --------
# events: list of (event name or None, object or text)

def usage_of(answer, build):
    usage = answer.get("usage", [100, 0, 10, 0])
    return build(*usage) if isinstance(usage, list) else usage


def put_usage(where, key, usage):
    if usage != "omit":
        where[key] = usage


def responses_stream(answer, items, number, model):
    usage = usage_of(answer, lambda i, c, o, r: {
        "input_tokens": i, "input_tokens_details": {"cached_tokens": c}, "output_tokens": o,
        "output_tokens_details": {"reasoning_tokens": r}, "total_tokens": i + o})
    base = {"id": answer.get("id", "resp_%04d" % number), "object": "response", "model": model,
            "created_at": 1700000000, "status": "in_progress", "output": []}
    events = [("response.created", {"response": base}), ("response.in_progress", {"response": base})]
    deltas = {"message": "response.output_text", "function_call": "response.function_call_arguments",
              "custom_tool_call": "response.custom_tool_call_input"}
    for index, item in enumerate(items):
        at = {"output_index": index, "item_id": item.get("id")}
        events.append(("response.output_item.added", dict(at, item=dict(item, status="in_progress"))))
        if item["type"] in deltas:
            events += [(deltas[item["type"]] + ".delta", dict(at, content_index=0, delta=p))
                       for p in pieces(item_text(item))]
        events.append(("response.output_item.done", dict(at, item=item)))
    last = dict(base, status=answer.get("finish", "completed"), output=items)
    put_usage(last, "usage", usage)
    if "error" in answer:
        last.update(status="failed", error=answer["error"])
    elif last["status"] == "incomplete":
        last["incomplete_details"] = {"reason": answer.get("reason", "max_output_tokens")}
    events.append(("response." + last["status"], {"response": last}))
    return [(name, dict({"type": name, "sequence_number": n}, **data)) for n, (name, data) in enumerate(events)], last


def chat_stream(answer, items, number, model):
    usage = usage_of(answer, lambda i, c, o, r: {
        "prompt_tokens": i, "prompt_tokens_details": {"cached_tokens": c}, "completion_tokens": o,
        "completion_tokens_details": {"reasoning_tokens": r}, "total_tokens": i + o})
    base = {"id": answer.get("id", "chatcmpl-%04d" % number), "created": 1700000000, "model": model}
    texts = [item_text(i) for i in items if i["type"] == "message"]
    calls = [{"index": n, "id": i["call_id"], "type": "function",
              "function": {"name": i["name"], "arguments": item_text(i)}}
             for n, i in enumerate(i for i in items if i["type"] == "function_call")]
    finish = answer.get("finish", "tool_calls" if calls else "stop")
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{"content": p} for text in texts for p in pieces(text)]
    deltas += [{"tool_calls": [call]} for call in calls]
    chunk = dict(base, object="chat.completion.chunk")
    events = [(None, dict(chunk, choices=[{"index": 0, "delta": d, "finish_reason": None}])) for d in deltas]
    whole = {"role": "assistant", "content": "".join(texts) or None}
    if calls:
        whole["tool_calls"] = calls
    document = dict(base, object="chat.completion", choices=[{"index": 0, "message": whole, "finish_reason": finish}])
    put_usage(document, "usage", usage)
    if "error" in answer:
        return events + [(None, {"error": answer["error"]}), (None, "[DONE]")], {"error": answer["error"]}
    events.append((None, dict(chunk, choices=[{"index": 0, "delta": {}, "finish_reason": finish}])))
    if usage not in ("omit", None):
        events.append((None, dict(chunk, choices=[], usage=usage)))
    return events + [(None, "[DONE]")], document


def messages_stream(answer, items, number, model):
    usage = usage_of(answer, lambda i, c, o, r: {
        "input_tokens": i - c, "cache_read_input_tokens": c, "cache_creation_input_tokens": 0, "output_tokens": o})
    blocks = [{"type": "text", "text": item_text(i)} if i["type"] == "message" else
              {"type": "tool_use", "id": i["call_id"], "name": i["name"], "input": json.loads(item_text(i))}
              for i in items if i["type"] in ("message", "function_call")]
    finish = answer.get("finish", "tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn")
    document = {"id": answer.get("id", "msg_%04d" % number), "type": "message", "role": "assistant", "model": model,
                "content": blocks, "stop_reason": finish, "stop_sequence": None}
    start = dict(document, content=[], stop_reason=None)
    put_usage(document, "usage", usage)
    put_usage(start, "usage", dict(usage, output_tokens=1) if isinstance(usage, dict) else usage)
    events = [("message_start", {"message": start}), ("ping", {})]
    for index, block in enumerate(blocks):
        tool = block["type"] == "tool_use"
        empty = dict(block, input={}) if tool else dict(block, text="")
        events.append(("content_block_start", {"index": index, "content_block": empty}))
        for p in pieces(json.dumps(block["input"]) if tool else block["text"]):
            delta = {"type": "input_json_delta", "partial_json": p} if tool else {"type": "text_delta", "text": p}
            events.append(("content_block_delta", {"index": index, "delta": delta}))
        events.append(("content_block_stop", {"index": index}))
    if "error" in answer:
        return [(n, dict({"type": n}, **d)) for n, d in events + [("error", {"error": answer["error"]})]], document
    end = {"delta": {"stop_reason": finish, "stop_sequence": None}}
    put_usage(end, "usage", {"output_tokens": usage["output_tokens"]} if isinstance(usage, dict) else usage)
    events += [("message_delta", end), ("message_stop", {})]
    return [(name, dict({"type": name}, **data)) for name, data in events], document


def generate_content_stream(answer, items, number, model):
    usage = usage_of(answer, lambda i, c, o, r: {
        "promptTokenCount": i, "cachedContentTokenCount": c, "candidatesTokenCount": o - r,
        "thoughtsTokenCount": r, "totalTokenCount": i + o})
    base = {"responseId": answer.get("id", "gen_%04d" % number), "modelVersion": model}
    finish = answer.get("finish", "STOP")
    texts = [item_text(i) for i in items if i["type"] == "message"]
    calls = [{"functionCall": {"id": i["call_id"], "name": i["name"], "args": json.loads(item_text(i))}}
              for i in items if i["type"] == "function_call"]

    def chunk(some, end):
        data = dict(base, candidates=[{"index": 0, "content": {"role": "model", "parts": some}}])
        if end:
            data["candidates"][0]["finishReason"] = finish
            put_usage(data, "usageMetadata", usage)
        return data
    events = [(None, chunk([{"text": p}], False)) for text in texts for p in pieces(text)]
    events += [(None, chunk([call], False)) for call in calls]
    if "error" in answer:
        return events + [(None, {"error": answer["error"]})], {"error": answer["error"]}
    return events + [(None, chunk([], True))], chunk([{"text": t} for t in texts] + calls, True)


DIALECTS = {"responses": responses_stream, "chat": chat_stream, "messages": messages_stream,
            "generate_content": generate_content_stream}


def sse(name, data):
    text = data if isinstance(data, str) else json.dumps(data)
    return (("event: %s\n" % name if name else "") + "data: " + text + "\n\n").encode()


def head(status, headers):
    lines = ["HTTP/1.1 %d %s" % (status, PHRASES.get(status, "Status"))]
    for name, value in headers.items():
        lines += ["%s: %s" % (name, v) for v in (value if isinstance(value, list) else [value])]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


# --- one request being answered -----------------------------------------------------------------

class Exchange:
    """Runs the steps of one answer on one connection."""

    def __init__(self, endpoint, sock, request=None):
        self.endpoint, self.sock, self.request = endpoint, sock, request or {}
        self.sent, self.first_sent, self.closing = 0, None, False

    def run(self, steps):
        for step in steps:
            kind = kind_of(step)
            getattr(self, "step_" + kind)(step[kind], step)

    def write(self, data):
        if self.first_sent is None and data:
            self.first_sent = time.time()
            self.closing = b"\r\nconnection: close" in data.split(b"\r\n\r\n")[0].lower()
        try:
            self.sock.sendall(data)
        except (OSError, ValueError):
            raise Left() from None
        self.sent += len(data)

    def wait(self, seconds=None, until=lambda: False):
        """Wait until `until`, the time is over, or the peer leaves."""
        poll = select.poll()
        poll.register(self.sock, LEFT)
        end = None if seconds is None else time.monotonic() + seconds
        while not until():
            left = 0.02 if end is None else min(0.02, end - time.monotonic())
            if left <= 0:
                return
            if self.endpoint.stopping or poll.poll(left * 1000):
                raise Left()

    def step_send(self, value, _step):
        self.write(value.encode("utf-8"))

    def step_send_hex(self, value, _step):
        self.write(bytes.fromhex(value))

    def step_send_b64(self, value, _step):
        self.write(base64.b64decode(value))

    def step_send_generated(self, value, _step):
        """`head` + `text` x `repeat` + `tail` in writes of `write` bytes, one block in memory."""
        text, left = value["text"].encode(), int(value.get("repeat", 1))
        size = int(value.get("write", 65536))
        per = max(1, (1 << 20) // max(1, len(text)))
        self.write(value.get("head", "").encode())
        while left:
            block = memoryview(text * min(per, left))
            left -= min(per, left)
            for at in range(0, len(block), size):
                self.write(block[at:at + size])
        self.write(value.get("tail", "").encode())

    def step_sleep(self, value, _step):
        self.wait(float(value))

    def step_gate(self, value, _step):
        self.wait(until=lambda: self.endpoint.is_open(value))

    def step_stall(self, _value, _step):
        self.wait()

    def step_close(self, value, _step):
        raise Ended(value)

    def step_status(self, value, step):
        body = step.get("body", "")
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        if "json" in step:
            body, headers = _text(step["json"]), {"Content-Type": "application/json"}
        self.document(value, dict(headers, **step.get("headers", {})), body.encode(), step)

    def step_json(self, value, step):
        self.step_status(200, dict(step, json=value))

    def step_html(self, value, step):
        headers = dict({"Content-Type": "text/html"}, **step.get("headers", {}))
        self.document(step.get("code", 200), headers, value.encode(), step)

    def step_send_gzip(self, value, _step):
        self.step_status(value.get("status", 200), dict(value, gzip=True))

    def document(self, status, headers, body, step):
        if step.get("gzip"):
            body, headers = gzip.compress(body, mtime=0), dict(headers, **{"Content-Encoding": "gzip"})
        headers.setdefault("Content-Length", len(body))
        self.write(head(status, headers) + (b"" if self.request.get("method") == "HEAD" else body))

    def step_responses(self, value, step):
        self.model_answer(kind_of(step), value)

    step_chat = step_messages = step_generate_content = step_responses

    def model_answer(self, dialect, answer):
        try:
            asked = json.loads(self.request.get("body") or "{}")
        except ValueError:
            asked = {}
        number = self.request.get("request", 0)
        model = answer.get("model") or asked.get("model") or "scripted-model"
        events, document = DIALECTS[dialect](answer, items_of(answer, number), number, model)
        self.wait(answer.get("delay", 0))
        stream = answer.get("stream")
        if stream is None:
            stream = asked.get("stream") or "streamGenerateContent" in self.request.get("path", "")
        headers = dict({"x-request-id": "req_%04d" % number}, **answer.get("headers", {}))
        if not stream:
            self.document(200, dict({"Content-Type": "application/json"}, **headers), _text(document).encode(), {})
            return
        self.stream([sse(*event) for event in events], headers, answer)

    def stream(self, events, headers, answer):
        chunked = answer.get("framing", "chunked") == "chunked"
        how = {"Transfer-Encoding": "chunked"} if chunked else {"Connection": "close"}
        self.write(head(200, dict({"Content-Type": "text/event-stream"}, **dict(how, **headers))))
        cut, then, extra = answer.get("cut_after"), answer.get("then", "fin"), answer.get("extra", {})
        left = cut["bytes"] if isinstance(cut, dict) else None

        def put(data):
            if data:
                self.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)

        for index, data in enumerate(events):
            if cut == index and self.cut(then):
                break
            self.wait(answer.get("event_delay", 0))
            data = extra.get(str(index), extra.get(index, "")).encode() + data
            if left is not None and left < len(data):
                put(data[:left])
                if self.cut(then):
                    break
                data, left = data[left:], None
            elif left is not None:
                left -= len(data)
            put(data)
        if chunked:
            self.write(b"0\r\n\r\n")

    def cut(self, then):
        """-> True: end the stream here, cleanly; False: go on."""
        if then == "end":
            return True
        if isinstance(then, dict):
            self.run([then])
            return False
        self.run([{"stall": True}] if then == "stall" else [{"close": then}])
        return True


STEPS = tuple(name[5:] for name in dir(Exchange) if name.startswith("step_"))


def kind_of(step):
    """A step is named by its first key that stands in STEPS, `status` going before `json`."""
    kinds = [key for key in ("status", "html") + STEPS if key in step]
    if not kinds:
        raise ValueError("no step: %r (steps are %s)" % (step, ", ".join(STEPS)))
    return kinds[0]


def entry_of(answer):
    """An answer of the plan in its full form {"match", "steps", "times", ...}; ValueError if it is none."""
    if isinstance(answer, dict) and ("steps" in answer or "after_accept" in answer or "match" in answer):
        entry = dict(answer)
    else:
        entry = {"steps": answer}
    steps = entry.get("steps", [])
    entry["steps"] = [steps] if isinstance(steps, dict) else list(steps)
    for step in entry["steps"]:
        kind_of(step)
    entry.setdefault("times", "always" if "match" in entry else 1)
    return entry


UNPLANNED = entry_of({"status": 500, "json": {"error": {"message": "the plan has no answer left"}}})


def fits(match, request):
    lower = {k.lower(): v for k, v in request["headers"]}
    return (match.get("method", request["method"]) == request["method"] and match.get("path", "") in request["path"]
            and match.get("body", "") in request["body"]
            and all(part in lower.get(name.lower(), "\0") for name, part in match.get("header", {}).items()))


class Plan:
    """Deals out the answers; thread-safe."""

    def __init__(self, plan):
        plan = {"answers": plan} if isinstance(plan, list) else dict(plan)
        if "upstream" in plan:
            plan.update(answers=[plan["upstream"]], repeat="always")
        entries = [entry_of(a) for a in plan.get("answers", plan.get("upstream_by_attempt", []))]
        self.matched = [e for e in entries if "match" in e]
        ordered = [e for e in entries if "match" not in e]
        repeat = plan.get("repeat", 1)
        self.again = ordered if repeat == "always" else ordered[-1:] if repeat == "last" else []
        self.queue = [dict(e) for _ in range(repeat if isinstance(repeat, int) else 1) for e in ordered]
        self.default = entry_of(plan["default"]) if "default" in plan else None
        self.lock = threading.Lock()

    def take(self, want):
        if not self.queue:
            self.queue = [dict(e) for e in self.again]
        if not self.queue or not want(self.queue[0]):
            return None
        entry = self.queue[0]
        if entry["times"] != "always":
            entry["times"] -= 1
            if entry["times"] <= 0:
                self.queue.pop(0)
        return entry

    def for_connection(self):
        with self.lock:
            return self.take(lambda entry: "after_accept" in entry)

    def for_request(self, request):
        with self.lock:
            for entry in self.matched:
                if entry["times"] and fits(entry["match"], request):
                    if entry["times"] != "always":
                        entry["times"] -= 1
                    return entry
            if request["method"] != "POST":
                return self.default or entry_of({"status": 404, "json": {"error": {"message": "no such path"}}})
            return self.take(lambda entry: "after_accept" not in entry) or self.default


# --- the server ---------------------------------------------------------------------------------

class Endpoint:
    """`with Endpoint(plan) as e`: listens at e.url; e.requests() is what it saw and did."""

    def __init__(self, plan, witness=None, host="127.0.0.1", port=0, tls=None, unix=None, gates=None):
        self.plan, self.host, self.gate_dir, self.unix = Plan(plan), host, gates, unix
        self.lines, self.changed, self.released, self.stopping = [], threading.Condition(), set(), False
        self.unplanned = 0
        self.log = open(witness, "a", encoding="utf-8") if witness else None
        self.tls = None
        if tls:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(*tls)
        self.listener = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        if not unix:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(unix or (host, port))
        self.listener.listen(512)
        self.port = None if unix else self.listener.getsockname()[1]
        self.url = "unix:" + unix if unix else "%s://%s:%d" % ("https" if tls else "http", host, self.port)
        self.open, self.threads, self.counts = set(), [], {"connection": 0, "request": 0}

    def start(self):
        self.threads.append(threading.Thread(target=self.accept, daemon=True))
        self.threads[0].start()
        return self

    __enter__ = start

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.stopping = True
        for sock in [self.listener] + list(self.open):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in list(self.threads):
            thread.join(5)
        self.listener.close()
        with self.changed:
            if self.log:
                self.log.close()
                self.log = None

    def release(self, name):
        self.released.add(name)

    def is_open(self, name):
        return name in self.released or bool(self.gate_dir and os.path.exists(os.path.join(self.gate_dir, name)))

    def note(self, event, connection, **fields):
        line = dict({"event": event, "connection": connection, "at": time.time()}, **fields)
        with self.changed:
            self.lines.append(line)
            if self.log:
                self.log.write(json.dumps(line) + "\n")
                self.log.flush()
            self.changed.notify_all()

    def number(self, what):
        with self.changed:
            self.counts[what] += 1
            return self.counts[what]

    def requests(self):
        """The requests in order of arrival, each with its `answer` line (or None) under that key."""
        with self.changed:
            return joined(self.lines)

    def wait_for(self, condition, timeout=HUNG):
        """Wait until this many requests came (int) or condition(requests) holds; AssertionError when it does not."""
        enough = (lambda seen: len(seen) >= condition) if isinstance(condition, int) else condition
        with self.changed:
            if not self.changed.wait_for(lambda: enough(joined(self.lines)), timeout):
                raise AssertionError("endpoint: not seen within %s s; witness: %s" % (timeout, self.lines))
        return self.requests()

    def accept(self):
        while not self.stopping:
            try:
                sock = self.listener.accept()[0]
            except OSError:
                return
            thread = threading.Thread(target=self.serve, args=(sock, self.number("connection")), daemon=True)
            self.threads.append(thread)
            thread.start()

    def serve(self, sock, connection):
        self.open.add(sock)
        self.note("accept", connection)
        how = "fin"
        try:
            sock = self.greet(sock, connection)
            reader = Reader(sock)
            while self.one_request(sock, reader, connection):
                pass
        except Left:
            how = "peer_left"
        except Ended as end:
            how = end.args[0]
        except (ValueError, OSError, KeyError, TypeError) as bad:   # a broken plan or peer must show in the log
            how = "error"
            self.note("error", connection, message="%s: %s" % (type(bad).__name__, bad))
        self.finish(sock, how)
        self.note("close", connection, how=how)

    def greet(self, sock, connection):
        entry = self.plan.for_connection()
        if entry:
            Exchange(self, sock).run([{"stall": True} if entry["after_accept"] == "stall"
                                      else {"close": entry["after_accept"]}])
        if self.unix is None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            self.open.discard(sock)
            sock = self.tls.wrap_socket(sock, server_side=True)
            self.open.add(sock)
        return sock

    def finish(self, sock, how):
        self.open.discard(sock)
        try:
            if how == "rst":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif isinstance(sock, ssl.SSLSocket):
                sock.settimeout(0.2)         # close_notify, not long waiting for the peer's
                sock.unwrap()
            else:
                sock.shutdown(socket.SHUT_WR)
        except (OSError, ValueError):
            pass
        if isinstance(sock, ssl.SSLSocket) and how == "rst":
            socket.socket(fileno=sock.detach()).close()
        else:
            sock.close()

    def one_request(self, sock, reader, connection):
        request = reader.head()
        if request is None:
            return False
        request["request"] = self.number("request")
        early = next((e for e in self.plan.matched + self.plan.queue[:1] if e.get("early")), None)
        if not early:
            if request.pop("expect"):
                sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            reader.body(request)
        request.pop("expect", None)
        framing = request.pop("framing", None)
        self.note("request", connection, **request)
        entry = self.plan.for_request(request) or UNPLANNED
        self.unplanned += entry is UNPLANNED
        exchange, ended = Exchange(self, sock, request), "kept"
        try:
            exchange.run(entry["steps"])
            if exchange.closing or early:
                raise Ended("fin")
        except Left:
            ended = "peer_left"
            raise
        except Ended as end:
            ended = end.args[0]
            raise
        finally:
            self.note("answer", connection, request=request["request"], sent_bytes=exchange.sent,
                      first_sent_at=exchange.first_sent, ended=ended, unplanned=entry is UNPLANNED, framing=framing)
        return True


class Reader:
    """Reads requests off a socket, strictly enough to notice a broken proxy."""

    def __init__(self, sock):
        self.sock, self.buffer = sock, b""

    def fill(self):
        try:
            data = self.sock.recv(262144)
        except OSError:
            raise Left() from None
        if not data:
            raise Left()
        self.buffer += data

    def until(self, mark):
        while mark not in self.buffer:
            self.fill()
        part, self.buffer = self.buffer.split(mark, 1)
        return part

    def exactly(self, size):
        parts = [self.buffer[:size]]
        self.buffer = self.buffer[size:]
        size -= len(parts[0])
        while size:
            self.fill()
            parts.append(self.buffer[:size])
            self.buffer = self.buffer[size:]
            size -= len(parts[-1])
        return b"".join(parts)

    def head(self):
        """-> the request without its body; None when the peer is done."""
        try:
            if not self.buffer:
                self.fill()
        except Left:
            return None
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        method, path, version = lines[0].split(" ")
        headers = [[part.strip() for part in line.split(":", 1)] for line in lines[1:]]
        lower = {name.lower(): value for name, value in headers}
        framing = "chunked" if "chunked" in lower.get("transfer-encoding", "") else lower.get("content-length", "0")
        return {"method": method, "path": path, "version": version, "headers": headers, "body": "", "body_bytes": 0,
                "framing": framing, "expect": "100-continue" in lower.get("expect", "").lower()}

    def body(self, request):
        if request["framing"] == "chunked":
            parts = []
            while True:
                size = int(self.until(b"\r\n").split(b";")[0], 16)
                if not size:
                    break
                parts.append(self.exactly(size))
                self.exactly(2)
            while self.until(b"\r\n"):
                pass
            data = b"".join(parts)
        else:
            data = self.exactly(int(request["framing"]))
        request.update(body=data[:BODY_KEPT].decode("utf-8", "surrogateescape"), body_bytes=len(data),
                       body_sha256=hashlib.sha256(data).hexdigest())


def joined(lines):
    answers = {line["request"]: line for line in lines if line["event"] == "answer"}
    return [dict(line, answer=answers.get(line["request"])) for line in lines if line["event"] == "request"]


def read_witness(path):
    """The requests of a witness file, as Endpoint.requests() gives them."""
    with open(path, encoding="utf-8") as file:
        return joined([json.loads(line) for line in file])


def main(argv=None):
    parser = argparse.ArgumentParser(description="a scripted model endpoint")
    for name in ("plan", "witness", "info", "unix", "gates"):
        parser.add_argument("--" + name, required=name == "plan")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
    args = parser.parse_args(argv)
    with open(args.plan, encoding="utf-8") as file:
        plan = json.load(file)
    endpoint = Endpoint(plan, args.witness, args.host, args.port, args.tls, args.unix, args.gates).start()
    info = json.dumps({"url": endpoint.url, "port": endpoint.port, "pid": os.getpid()})
    if args.info:
        with open(args.info + ".tmp", "w") as file:
            file.write(info)
        os.rename(args.info + ".tmp", args.info)
    print(info, flush=True)
    endpoint.threads[0].join()


if __name__ == "__main__":
    sys.exit(main())

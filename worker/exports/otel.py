"""OpenTelemetry spans in the GenAI conventions, as the JSON form of OTLP (one ExportTraceServiceRequest).  Pure.

    invoke_agent CODEX                       the run, or a sub-agent below the tool call that spawned it
        chat MODEL                           a model call, with usage and finish reason
            POST                             each HTTP attempt, retries included (http.request.resend_count)
        execute_tool NAME                    a tool call

Ids are hashes of the run's invocation id and nonce and of what the span is: the same outcome gives the same bytes.  Gaps,
warnings and compactions are events of their invocation.  What the conventions have no name for is called `sandbox_worker.*`.
Messages, arguments and results are not exported: the conventions leave them out unless asked for, and ATIF has them.
Names: opentelemetry semantic-conventions-genai (in development); OTLP JSON: opentelemetry-proto, "JSON Protobuf Encoding".
"""

from __future__ import annotations

import hashlib

from worker.exports.evidence import count, fields, number, objects, text

INTERNAL, CLIENT = 1, 3  # SpanKind
OK, ERROR = 1, 2  # StatusCode
PROVIDERS = {"responses": "openai", "chat": "openai", "messages": "anthropic", "generate_content": "gcp.gemini"}
OPERATIONS = {"generate_content": "generate_content"}
USAGE = (
    ("gen_ai.usage.input_tokens", "input_tokens"),
    ("gen_ai.usage.output_tokens", "output_tokens"),
    ("gen_ai.usage.cache_read.input_tokens", "cached_input_tokens"),
    ("gen_ai.usage.cache_creation.input_tokens", "cache_write_input_tokens"),
    ("gen_ai.usage.reasoning.output_tokens", "reasoning_output_tokens"),
)
NOT_WELL = ("failed", "timeout", "cancelled", "incomplete")  # statuses of a tool call
LAST_NANOSECOND = (1 << 63) - 1


def export(found):
    maker = Spans(found)
    version = text(found.result.get("version")) or "unknown"
    resource = attributes({
        "service.name": "sandbox-worker", "service.version": version, "host.name": found.result.get("hostname"),
        "sandbox_worker.not_verified": "; ".join(found.faults) or None})  # fmt: skip
    scope = {"scope": {"name": "sandbox-worker", "version": version}, "spans": maker.spans()}
    return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [scope]}]}


class Spans:
    """All spans of a run, the root first."""

    def __init__(self, found):
        self.found, self.made = found, []
        self.trace = digest("trace", found.invocation_id, str(found.result.get("nonce")))[:32]
        started = number(found.result.get("started_at")) or 0
        self.whole = started, max(started, number(found.result.get("ended_at")) or started)
        self.tool_spans, self.agent_spans, self.used, self.emitted = {}, {}, {}, set()
        dialects = [text(one.get("dialect")) for one in found.attempts if text(one.get("dialect"))]
        self.dialect = dialects[0] if dialects else None

    def spans(self):
        found = self.found
        rest = [one for one in found.invocations if one is not found.root]
        for one in [found.root] + rest:
            identity = text(one.get("invocation_id")) or found.invocation_id
            self.agent_spans.setdefault(identity, self.identity("invoke_agent", identity))
        self.root = self.agent_spans[text(found.root.get("invocation_id")) or found.invocation_id]
        for one in found.tool_calls:
            key = (text(one.get("invocation_id")), text(one.get("tool_call_id")))
            self.tool_spans.setdefault(key, self.identity("execute_tool", *map(str, key)))
        for one in [found.root] + rest:
            self.agent(one)
        for call in found.calls:
            self.chat(call)
        for one in found.tool_calls:
            self.tool(one)
        return self.made

    def identity(self, *words):
        """A span id; a second span of the same name gets another one."""
        self.used[words] = self.used.get(words, 0) + 1
        return digest(self.trace, *words, str(self.used[words]))[:16]

    def add(self, identity, parent, name, kind, times, told, error=None, events=()):
        """error: (error.type, words) or None."""
        span = {"traceId": self.trace, "spanId": identity}
        if parent and parent != identity:
            span["parentSpanId"] = parent
        span.update(name=name, kind=kind, startTimeUnixNano=nano(times[0]), endTimeUnixNano=nano(max(times)))
        span["attributes"] = attributes(dict(told, **({"error.type": error[0]} if error else {})))
        if events:
            span["events"] = list(events)
        span["status"] = {"code": ERROR, "message": str(error[1])} if error else {"code": OK}
        self.made.append(span)

    def agent(self, invocation):
        found, is_root = self.found, invocation is self.found.root
        identity = text(invocation.get("invocation_id")) or found.invocation_id
        span, parent = self.agent_spans[identity], None
        if span in self.emitted:  # a second invocation of this id
            span = self.identity("invoke_agent", identity)
        self.emitted.add(span)
        if not is_root:
            above = text(found.parents[id(invocation)].get("invocation_id"))
            spawned = (above, text(invocation.get("spawned_by_tool_call_id")))
            parent = self.tool_spans.get(spawned) or self.agent_spans.get(above) or self.root
        name = text(found.harness.get("name")) or "unknown"
        calls = found.calls_of(invocation)
        told = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": PROVIDERS.get(str(self.dialect), "_OTHER"),
            "gen_ai.agent.name": name,
            "gen_ai.agent.id": identity,
            "gen_ai.agent.version": found.harness.get("version"),
            "gen_ai.conversation.id": found.invocation_id,
            "gen_ai.request.model": found.model,
            "gen_ai.response.finish_reasons": finishes(calls[-1].last) if calls else None,
            "sandbox_worker.invocation.status": invocation.get("status"),
        }
        told.update(usage(found.usage_of(invocation)))
        if is_root:
            told.update(self.run())
        self.add(span, parent, "invoke_agent " + name, INTERNAL, self.times_of(invocation), told,
                 self.error_of(invocation, is_root), self.events_of(invocation, is_root))  # fmt: skip

    def run(self):
        found, disposition = self.found, fields(self.found.result.get("disposition"))
        told = {"sandbox_worker.outcome." + name: found.outcome.get(name) for name in ("kind", "status", "fault", "code",
                                                                                     "http_status")}  # fmt: skip
        told.update({"sandbox_worker.disposition." + name: disposition.get(name) for name in (
            "action", "reason", "verify_allowed")})  # fmt: skip
        usage_chosen = found.usage_of(found.root)
        told.update({"sandbox_worker.usage." + name: usage_chosen.get(name) for name in ("source", "completeness")})
        told.update({"sandbox_worker." + name: found.result.get(name) for name in (
            "nonce", "return_code", "timed_out", "cleanup_confirmed")})  # fmt: skip
        labels = fields(found.result.get("labels"))
        told.update({"sandbox_worker.label." + name: labels[name] for name in sorted(labels)})
        return told

    def error_of(self, invocation, is_root):
        if is_root:
            good = self.found.outcome.get("status") == "completed"
            words = self.found.outcome.get("message") or self.found.outcome.get("kind")
            return None if good else (str(self.found.outcome.get("kind")), words)
        kind = text(invocation.get("error_type")) or ("_OTHER" if invocation.get("status") == "failed" else None)
        return (kind, invocation.get("status")) if kind else None

    def events_of(self, invocation, is_root):
        identity, events = text(invocation.get("invocation_id")), []
        for one in self.found.compactions:
            if text(one.get("invocation_id")) == identity:
                told = {name: one.get(name) for name in ("trigger", "tokens_before", "tokens_after", "outcome")}
                events.append(self.event("context_compaction", number(one.get("observed_at")), told))
        known = set(self.agent_spans)
        for one in self.found.gaps:
            owner = text(one.get("invocation_id"))
            if owner == identity or is_root and owner not in known:
                events.append(self.event("gap", None, {name: one.get(name) for name in (
                    "code", "detail", "file", "offset", "count")}))  # fmt: skip
        for one in objects(self.found.result.get("warnings")) if is_root else ():
            events.append(self.event("warning", None, {name: one.get(name) for name in ("code", "detail")}))
        return events

    def event(self, name, moment, told):
        """An event of this run; one without a time of its own stands at the run's end, when it was written."""
        prefix = "sandbox_worker.%s" % name
        return {"timeUnixNano": nano(self.whole[1] if moment is None else moment), "name": prefix,
                "attributes": attributes({"%s.%s" % (prefix, key): value for key, value in told.items()})}  # fmt: skip

    def times_of(self, invocation):
        """From the first to the last thing that the invocation did; the whole run for the root and where nothing is known."""
        if invocation is self.found.root:
            return self.whole
        identity, moments = text(invocation.get("invocation_id")), []
        for call in self.found.calls_of(invocation):
            moments += [one.get(name) for one in call.attempts for name in ("started_at", "ended_at")]
        for one in self.found.tool_calls:
            if text(one.get("invocation_id")) == identity:
                moments += [one.get("started_at"), one.get("completed_at")]
        known = [one for one in map(number, moments) if one is not None]
        return (min(known), max(known)) if known else self.whole

    def chat(self, call):
        owner = self.agent_spans.get(call.invocation_id) or self.root
        last, first = call.last, (call.attempts or [{}])[0]
        dialect, model = text(last.get("dialect")), text(last.get("model"))
        operation = OPERATIONS.get(str(dialect), "chat")
        identity = self.identity("chat", str(call.invocation_id), call.identity)
        times = self.between(first.get("started_at"), last.get("ended_at"))
        first_byte = number(last.get("first_byte_at"))
        told = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": PROVIDERS.get(str(dialect), "_OTHER"),
            "gen_ai.request.model": model,
            "gen_ai.response.id": call.response_id,
            "gen_ai.response.finish_reasons": finishes(last),
            "gen_ai.response.time_to_first_chunk": None if first_byte is None else max(0.0, first_byte - times[0]),
            "gen_ai.conversation.id": self.found.invocation_id,
            "http.response.status_code": last.get("status"),
            "sandbox_worker.model_call.id": call.identity,
            "sandbox_worker.model_call.kind": call.told.get("request_kind"),
            "sandbox_worker.model_call.attempts": len(call.attempts),
            "sandbox_worker.main": last.get("main"),
        }
        told.update(usage(fields(last.get("usage"))))
        name = "%s %s" % (operation, model) if model else operation
        self.add(identity, owner, name, CLIENT, times, told, failure(last))
        for place, one in enumerate(call.attempts):
            self.attempt(one, place, identity, call)

    def attempt(self, one, place, parent, call):
        wait, broke = fields(one.get("wait")), fields(one.get("error"))
        told = {
            "http.request.method": one.get("method"),
            "url.path": one.get("path"),
            "http.response.status_code": one.get("status"),
            "http.request.resend_count": place or None,
            "http.request.body.size": one.get("request_bytes"),
            "http.response.body.size": one.get("response_bytes"),
        }
        told.update({"sandbox_worker.attempt." + name: one.get(name) for name in (
            "seq", "attempt", "decision", "rule", "ambiguous")})  # fmt: skip
        told.update({"sandbox_worker.wait." + name: wait.get(name) for name in ("seconds", "source")})
        told.update({"sandbox_worker.error." + name: broke.get(name) for name in ("phase", "kind", "message")})
        times = self.between(one.get("started_at"), one.get("ended_at"))
        identity = self.identity("attempt", call.identity, str(one.get("seq")))
        self.add(identity, parent, text(one.get("method")) or "HTTP", CLIENT, times, told, failure(one))

    def tool(self, one):
        owner, name, status = text(one.get("invocation_id")), text(one.get("tool_name")), one.get("status")
        told = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name or "unknown",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": one.get("tool_call_id"),
            "gen_ai.conversation.id": self.found.invocation_id,
            "sandbox_worker.tool.status": status,
            "sandbox_worker.tool.timing_source": one.get("timing_source"),
        }
        kind = text(one.get("error_type")) or (status if status in NOT_WELL else None)
        key = (owner, text(one.get("tool_call_id")))
        first = self.tool_spans.pop(key, None)  # a duplicate id is a span of its own
        identity = first or self.identity("execute_tool", *map(str, key))
        times = self.between(one.get("started_at"), one.get("completed_at"))
        parent = self.agent_spans.get(owner) or self.root
        self.add(identity, parent, "execute_tool " + (name or "unknown"), INTERNAL, times, told, (kind, status) if kind else None)

    def between(self, started, ended):
        """Times as numbers; an unknown one is the other, and with none of them it is the run's start."""
        started, ended = number(started), number(ended)
        started = (self.whole[0] if ended is None else ended) if started is None else started
        return started, started if ended is None else ended


def failure(attempt):
    """(error.type, words) of an attempt that failed; the low-cardinality kind, else the status."""
    kind, status = text(attempt.get("failure")), attempt.get("status")
    if kind is None and attempt.get("error"):
        kind = text(fields(attempt["error"]).get("kind")) or "_OTHER"
    if kind is None and isinstance(status, int) and status >= 400:
        kind = str(status)
    words = fields(attempt.get("provider_error")).get("message") or fields(attempt.get("error")).get("message") or kind
    return (kind, words) if kind else None


def finishes(attempt):
    reason = text(attempt.get("finish"))
    return [reason] if reason else None


def usage(known):
    return {name: known[ours] for name, ours in USAGE if count(known.get(ours)) is not None}


def attributes(told):
    """OTLP key-values; what is not known is left out."""
    return [{"key": key, "value": value(one)} for key, one in told.items() if one is not None]


def value(one):
    """An AnyValue: whole numbers of 64 bits are strings in OTLP JSON, larger ones are words."""
    if isinstance(one, bool):
        return {"boolValue": one}
    if isinstance(one, int):
        return {"intValue": str(one)} if -(1 << 63) <= one < 1 << 63 else {"stringValue": str(one)}
    if isinstance(one, float):
        return {"doubleValue": one} if number(one) is not None else {"stringValue": str(one)}
    if isinstance(one, list):
        return {"arrayValue": {"values": [value(each) for each in one]}}
    return {"stringValue": one if isinstance(one, str) else str(one)}


def nano(moment):
    """Unix seconds as OTLP nanoseconds (a string), microseconds exact."""
    return str(min(max(0, round(moment * 1000000) * 1000), LAST_NANOSECOND))


def digest(*words):
    return hashlib.sha256("\0".join(words).encode("utf-8", "replace")).hexdigest()

"""The rules of the formats that `export` writes, as far as they can be said without the peers' own code (tests/peer_models.py has
that): each function returns sentences about what is wrong with a document."""
from __future__ import annotations

import datetime

AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
# ATIF-v1.8: object -> its fields and their types; all objects refuse further ones.
STRING, NUMBER, INTEGER, OBJECT, LIST, TRUTH = str, (int, float), int, dict, list, bool
TRAJECTORY = {"schema_version": STRING, "session_id": STRING, "trajectory_id": STRING, "agent": OBJECT, "steps": LIST, "notes": STRING,
              "final_metrics": OBJECT, "continued_trajectory_ref": STRING, "extra": OBJECT, "subagent_trajectories": LIST}
STEP = {"step_id": INTEGER, "timestamp": STRING, "source": STRING, "model_name": STRING, "reasoning_effort": (str, float),
        "message": STRING, "reasoning_content": STRING, "tool_calls": LIST, "observation": OBJECT, "metrics": OBJECT,
        "is_copied_context": TRUTH, "llm_call_count": INTEGER, "extra": OBJECT}
AGENT = {"name": STRING, "version": STRING, "model_name": STRING, "tool_definitions": LIST, "extra": OBJECT}
CALL = {"tool_call_id": STRING, "function_name": STRING, "arguments": OBJECT, "extra": OBJECT}
RESULT = {"source_call_id": STRING, "content": STRING, "subagent_trajectory_ref": LIST, "extra": OBJECT}
METRICS = {"prompt_tokens": INTEGER, "completion_tokens": INTEGER, "cached_tokens": INTEGER, "cost_usd": NUMBER, "extra": OBJECT}
TOTALS = {"total_prompt_tokens": INTEGER, "total_completion_tokens": INTEGER, "total_cached_tokens": INTEGER,
          "total_cost_usd": NUMBER, "total_steps": INTEGER, "extra": OBJECT}
REFERENCE = {"trajectory_id": STRING, "session_id": STRING, "trajectory_path": STRING, "extra": OBJECT}
# The reference's bundle: kind -> fields; strict.
CALL_REFERENCE = {"model_call_id", "model_ref", "response_id"}
BUNDLE = {
    "agent_invocation": {"invocation_id", "parent_invocation_id", "spawned_by_tool_call_id", "status", "duration_ms", "error_type",
                         "model_calls", "conversation"},
    "tool_call": {"invocation_id", "tool_call_id", "sandbox_id", "tool_name", "started_at", "completed_at", "duration_ms",
                  "timing_source", "status", "error_type"},
    "context_compaction": {"invocation_id", "observed_at", "trigger", "tokens_before", "tokens_after", "outcome", "summary",
                           "first_kept_item_id", "before_model_call", "model_calls", "after_model_call"},
    "sandbox": {"role", "provider", "sandbox_id", "outcome", "exit_code", "wall_time_s", "cpu_time_s", "peak_memory_mib",
                "resource_usage_source", "error_type"},
}
WORDS = {("agent_invocation", "status"): {"completed", "failed", "incomplete", "unknown"},
         ("tool_call", "status"): {"completed", "failed", "timeout", "cancelled", "incomplete", "unknown"},
         ("tool_call", "timing_source"): {"executor", "artifact", "harness", None},
         ("context_compaction", "outcome"): {"completed", "failed", "aborted", "unknown"},
         ("sandbox", "role"): {"agent", "verifier", "environment"},
         ("sandbox", "outcome"): {"completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown"}}


def shaped(value, shape, needed, place):
    if not isinstance(value, dict):
        yield "%s is no object" % place
        return
    for name, inner in value.items():
        if name not in shape:
            yield "%s.%s is no field" % (place, name)
        elif inner is not None and (not isinstance(inner, shape[name]) or shape[name] is int and isinstance(inner, bool)):
            yield "%s.%s has the wrong type: %r" % (place, name, inner)
    for name in needed:
        if value.get(name) is None:
            yield "%s.%s is missing" % (place, name)


def atif(document, place="root"):
    yield from shaped(document, TRAJECTORY, ("schema_version", "agent", "steps"), place)
    if document["schema_version"] != "ATIF-v1.8" or not document["steps"]:
        yield "%s: version %s, %d steps" % (place, document["schema_version"], len(document["steps"]))
    yield from shaped(document["agent"], AGENT, ("name", "version"), place + ".agent")
    if document.get("final_metrics"):
        yield from shaped(document["final_metrics"], TOTALS, (), place + ".final_metrics")
    below = document.get("subagent_trajectories") or []
    names = [one.get("trajectory_id") for one in below]
    if None in names or len(set(names)) != len(names):
        yield "%s: the sub-agents' trajectory_ids are %s" % (place, names)
    for number, step in enumerate(document["steps"], 1):
        yield from atif_step(step, number, names, "%s.steps[%d]" % (place, number - 1))
    for number, one in enumerate(below):
        yield from atif(one, "%s.subagent_trajectories[%d]" % (place, number))


def atif_step(step, number, below, place):
    yield from shaped(step, STEP, ("step_id", "source"), place)
    if step["step_id"] != number or step["source"] not in ("system", "user", "agent") or not isinstance(step.get("message"), str):
        yield "%s: id, source or message" % place
    if step["source"] != "agent":
        yield from ("%s.%s belongs to the agent" % (place, name) for name in AGENT_ONLY if step.get(name) is not None)
    if step.get("timestamp"):
        datetime.datetime.fromisoformat(step["timestamp"].replace("Z", "+00:00"))
    if step.get("metrics"):
        yield from shaped(step["metrics"], METRICS, (), place + ".metrics")
    calls = set()
    for call in step.get("tool_calls") or []:
        yield from shaped(call, CALL, ("tool_call_id", "function_name", "arguments"), place + ".tool_calls")
        calls.add(call["tool_call_id"])
    for result in (step.get("observation") or {"results": []})["results"]:
        yield from shaped(result, RESULT, (), place + ".observation")
        if result.get("source_call_id") is not None and result["source_call_id"] not in calls:
            yield "%s: a result of %s, which is no call of this step" % (place, result["source_call_id"])
        for reference in result.get("subagent_trajectory_ref") or []:
            yield from shaped(reference, REFERENCE, ("trajectory_id",), place + ".reference")
            if reference["trajectory_id"] not in below:
                yield "%s: %s is not embedded here" % (place, reference["trajectory_id"])


def otel(document):
    (resource,) = document["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    spans = scope["spans"]
    ids = [span["spanId"] for span in spans]
    if len(set(ids)) != len(ids):
        yield "span ids are not unique"
    if sum("parentSpanId" not in span for span in spans) != 1 or "parentSpanId" in spans[0]:
        yield "there is not one root, and first"
    for span in spans:
        if not hexadecimal(span["traceId"], 32) or not hexadecimal(span["spanId"], 16) or span["traceId"] != spans[0]["traceId"]:
            yield "%s: ids" % span["name"]
        if span.get("parentSpanId", ids[0]) not in ids:
            yield "%s: its parent is no span" % span["name"]
        if not 0 <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) < 1 << 64:
            yield "%s: times" % span["name"]
        known = {one["key"] for one in span["attributes"]}
        if len(known) != len(span["attributes"]) or any(len(one["value"]) != 1 for one in span["attributes"]):
            yield "%s: attributes" % span["name"]
        if span["name"].split(" ")[0] in ("chat", "invoke_agent", "generate_content") and not {
                "gen_ai.operation.name", "gen_ai.provider.name"} <= known:
            yield "%s: a required attribute is missing" % span["name"]
        if (span["status"]["code"] == 2) != ("error.type" in known):
            yield "%s: status and error.type disagree" % span["name"]


def hexadecimal(word, length):
    return len(word) == length and not set(word) - set("0123456789abcdef") and set(word) != {"0"}


def responses(document):
    if document["object"] != "response" or document["status"] not in ("completed", "failed", "incomplete"):
        yield "object or status"
    if (document["error"] is not None) != (document["status"] == "failed"):
        yield "error and status disagree"
    if (document["incomplete_details"] is not None) != (document["status"] == "incomplete"):
        yield "incomplete_details and status disagree"
    if len(document["metadata"]) > 16 or any(not isinstance(one, str) or len(one) > 512 for one in document["metadata"].values()):
        yield "metadata"
    for item in document["output"]:
        if not isinstance(item.get("id"), str) or not isinstance(item.get("type"), str):
            yield "an item without id or type"
        if item["type"] == "message" and item["role"] != "assistant":
            yield "a message to the model is no output"


def bundle(document):
    if set(document) != {"source", "records", "gaps"}:
        yield "fields of the bundle"
    parents, kinds = {}, set()
    for record in document["records"]:
        kind = record["kind"]
        kinds.add(kind)
        if set(record) - {"kind"} != BUNDLE[kind]:
            yield "%s: fields %s" % (kind, sorted(set(record) ^ BUNDLE[kind]))
        yield from ("%s.%s is %r" % (kind, name, record[name]) for (of, name), words in WORDS.items()
                    if of == kind and record[name] not in words)
        if kind == "agent_invocation":
            if record["invocation_id"] in parents:
                yield "an invocation id stands twice"
            parents[record["invocation_id"]] = record["parent_invocation_id"]
        for reference in record.get("model_calls", ()):
            if set(reference) - CALL_REFERENCE or not reference["model_call_id"]:
                yield "a reference to a model call: %s" % reference
        if kind == "tool_call" and None not in (record["started_at"], record["completed_at"]) and (
                record["completed_at"] < record["started_at"]):
            yield "a tool call ends before it begins"
    for start in parents:
        seen, at = set(), start
        while at in parents and at not in seen:
            seen.add(at)
            at = parents[at]
        if at in seen:
            yield "parents form a circle"
    yield from ("fields of a gap: %s" % gap for gap in document["gaps"] if set(gap) != {"code", "invocation_id", "detail"})


RULES = {"atif": atif, "otel": otel, "responses": responses, "bundle": bundle}


def broken(name, document):
    """Sentences about what is wrong with a document of this format."""
    return list(RULES[name](document))

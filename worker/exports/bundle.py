"""The reference contract's AgentObservationBundle: its fields and no others, in its own bounds.  Pure.

The contract is strict, so what it has no field for is left out or told in a gap's `detail`: file and offset, how often a gap was
seen, records of kinds that it does not know.  An invocation id that stands twice and a circle of parents are not allowed there;
the second of the two, and the link that closes the circle, are left out, with a gap.
"""

from __future__ import annotations

from worker.exports.evidence import count, fields, number, objects, text

INVOCATION = ("completed", "failed", "incomplete", "unknown")
TOOL = ("completed", "failed", "timeout", "cancelled", "incomplete", "unknown")
SANDBOX = ("completed", "failed", "timeout", "oom", "sandbox_error", "cancelled", "unknown")
COMPACTION = ("completed", "failed", "aborted", "unknown")
SOURCES = ("executor", "artifact", "harness")
ROLES = ("agent", "verifier", "environment")


def export(found):
    gaps = [gap(one) for one in found.gaps]
    for one in found.others:
        gaps.append(gap({"code": "unknown_record_type", "detail": str(one.get("kind"))[:80]}))
    for sentence in found.faults:
        gaps.append(gap({"code": "evidence_tampered", "detail": sentence}))
    records = [sandbox(one) for one in found.sandboxes] + invocations(found.invocations, gaps)
    records += [tool_call(one) for one in found.tool_calls] + [compaction(one) for one in found.compactions]
    return {"source": text(found.observations.get("source")) or "unknown", "records": records, "gaps": gaps}


def invocations(told, gaps):
    made = {}
    for one in told:
        identity = text(one.get("invocation_id")) or "unknown"
        if identity in made:
            gaps.append(gap({"code": "agent_artifact_record_unparseable", "invocation_id": identity,
                             "detail": "a second invocation with this id"}))  # fmt: skip
            continue
        made[identity] = {
            "kind": "agent_invocation",
            "invocation_id": identity,
            "parent_invocation_id": text(one.get("parent_invocation_id")),
            "spawned_by_tool_call_id": text(one.get("spawned_by_tool_call_id")),
            "status": one_of(one.get("status"), INVOCATION),
            "duration_ms": length(one.get("duration_ms")),
            "error_type": text(one.get("error_type")),
            "model_calls": [reference(call) for call in objects(one.get("model_calls")) if reference(call)],
            "conversation": objects(one.get("conversation")),
        }
    for identity, one in made.items():
        chain, above = {identity}, one["parent_invocation_id"]
        while above in made and above not in chain:
            chain.add(above)
            above = made[above]["parent_invocation_id"]
        if above in chain:
            gaps.append(gap({"code": "agent_artifact_record_unparseable", "invocation_id": identity,
                             "detail": "its parents form a circle"}))  # fmt: skip
            one["parent_invocation_id"] = None
    return list(made.values())


def tool_call(one):
    started, completed = number(one.get("started_at")), number(one.get("completed_at"))
    if started is not None and completed is not None and completed < started:
        completed = None
    return {
        "kind": "tool_call",
        "invocation_id": text(one.get("invocation_id")) or "unknown",
        "tool_call_id": text(one.get("tool_call_id")) or "unknown",
        "sandbox_id": text(one.get("sandbox_id")),
        "tool_name": text(one.get("tool_name")),
        "started_at": started,
        "completed_at": completed,
        "duration_ms": length(one.get("duration_ms")),
        "timing_source": one.get("timing_source") if one.get("timing_source") in SOURCES else None,
        "status": one_of(one.get("status"), TOOL),
        "error_type": text(one.get("error_type")),
    }


def compaction(one):
    return {
        "kind": "context_compaction",
        "invocation_id": text(one.get("invocation_id")) or "unknown",
        "observed_at": number(one.get("observed_at")),
        "trigger": text(one.get("trigger")),
        "tokens_before": count(one.get("tokens_before")),
        "tokens_after": count(one.get("tokens_after")),
        "outcome": one_of(one.get("outcome"), COMPACTION),
        "summary": text(one.get("summary")),
        "first_kept_item_id": text(one.get("first_kept_item_id")),
        "before_model_call": reference(fields(one.get("before_model_call"))),
        "model_calls": [reference(call) for call in objects(one.get("model_calls")) if reference(call)],
        "after_model_call": reference(fields(one.get("after_model_call"))),
    }


def sandbox(one):
    exit_code = one.get("exit_code")
    return {
        "kind": "sandbox",
        "role": one.get("role") if one.get("role") in ROLES else "agent",
        "provider": text(one.get("provider")),
        "sandbox_id": text(one.get("sandbox_id")),
        "outcome": one_of(one.get("outcome"), SANDBOX),
        "exit_code": exit_code if isinstance(exit_code, int) and not isinstance(exit_code, bool) else None,
        "wall_time_s": length(one.get("wall_time_s")),
        "cpu_time_s": length(one.get("cpu_time_s")),
        "peak_memory_mib": length(one.get("peak_memory_mib")),
        "resource_usage_source": text(one.get("resource_usage_source")),
        "error_type": text(one.get("error_type")),
    }


def reference(call):
    """A reference to a model call, or None where it has no id."""
    identity = text(call.get("model_call_id"))
    return {"model_call_id": identity, "response_id": text(call.get("response_id"))} if identity else None


def gap(one):
    detail = text(one.get("detail"))
    place = ["%s %s" % (name, one[name]) for name in ("file", "offset") if one.get(name) is not None]
    if count(one.get("count")) not in (None, 0, 1):
        place.append("%d times" % one["count"])
    words = "%s (%s)" % (detail or "", ", ".join(place)) if place else detail
    return {"code": text(one.get("code")) or "unknown", "invocation_id": text(one.get("invocation_id")),
            "detail": words and words.strip()}  # fmt: skip


def one_of(value, words):
    return value if isinstance(value, str) and value in words else "unknown"


def length(value):
    """A number from 0, or None."""
    value = number(value)
    return value if value is not None and value >= 0 else None

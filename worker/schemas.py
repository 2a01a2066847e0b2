"""JSON Schemas of every document, from the tables that validate.

`input` is the table that `contract.load` applies.  The others describe what the
worker writes: `verify` applies `result` on the host, and the tests apply each to
what real runs wrote.  A field may be added at any time; one is changed or removed
only with a new number in `schema`.
"""
from __future__ import annotations

from worker.contract import INPUT

STRING, NUMBER, INTEGER, BOOLEAN = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
OBJECT, LIST = {"type": "object"}, {"type": "array", "items": {"type": "object"}}
STATUSES = ["completed", "failed", "incomplete", "not_run"]
ACTIONS = ["grade", "mask", "retry"]
FAULTS = ["agent", "model", "limit", "environment", "worker", "host", "none"]
INVOCATION_STATUSES = ["completed", "failed", "incomplete", "unknown"]
TOOL_STATUSES = ["completed", "failed", "timeout", "cancelled", "incomplete", "unknown"]
DECISIONS = ["forwarded", "retried", "gave_up", "latched", "refused", "stale_connection"]
TOKENS = ["input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens",
          "reasoning_output_tokens", "total_tokens"]


def null(schema):
    return dict(schema, type=[schema["type"], "null"])


def one_of(values):
    return {"type": "string", "enum": values}


def document(**fields):
    """An object with these fields, all required; readers ignore others."""
    return {"type": "object", "required": sorted(fields), "properties": fields}


def optional(**fields):
    return {"type": "object", "properties": fields}


FILE = document(size=INTEGER, sha256=STRING)
USAGE = optional(**{name: null(INTEGER) for name in TOKENS})
IDENTITY = {"nonce": STRING, "invocation_id": STRING, "schema": STRING}
OUTCOME = document(
    status=one_of(STATUSES), kind=STRING, fault=one_of(FAULTS), code=null(STRING), http_status=null(INTEGER),
    message=null(STRING), evidence=null(OBJECT))
DISPOSITION = document(action=one_of(ACTIONS), reason=STRING, verify_allowed=BOOLEAN)

LAUNCH = document(
    version=STRING, started_at=NUMBER, launched_at=NUMBER, uptime=NUMBER, pid=INTEGER, guard_pid=INTEGER, agent_pid=null(INTEGER),
    port=null(INTEGER), harness=STRING, command=null({"type": "array", "items": STRING}),
    given_command=null({"type": "array", "items": STRING}), cwd=STRING, env_names={"type": "array", "items": STRING},
    agent_home=null(STRING), timeout=NUMBER, hold=null(STRING), error=null(STRING), **IDENTITY)
CLEANUP = document(
    cleanup_confirmed=BOOLEAN, return_code=INTEGER, timed_out=BOOLEAN, error=null(STRING), proof=null(STRING),
    signals=LIST, killed=LIST, killed_count=INTEGER, **IDENTITY)
RESULT = document(
    version=STRING, bundle=OBJECT, return_code=INTEGER, timed_out=BOOLEAN, cleanup_confirmed=BOOLEAN, error=null(STRING),
    hostname=STRING, pid=INTEGER, started_at=NUMBER, ended_at=NUMBER, duration_ms=INTEGER, harness=OBJECT,
    final_message=null(STRING), usage=OBJECT, counts=OBJECT, warnings=LIST, gaps=INTEGER, sandbox=null(OBJECT),
    resources=null(OBJECT), outcome=OUTCOME, disposition=DISPOSITION,
    files={"type": "object", "additionalProperties": FILE}, **IDENTITY)
ATTEMPT = document(
    seq=INTEGER, request=INTEGER, attempt=INTEGER, invocation_id=STRING, main=BOOLEAN, method=null(STRING), path=null(STRING),
    dialect=null(STRING), model=null(STRING), fingerprint=null(STRING), started_at=NUMBER, sent_at=null(NUMBER),
    first_byte_at=null(NUMBER), ended_at=NUMBER, status=null(INTEGER), response_id=null(STRING),
    response_headers=null(OBJECT), retry_after=null(STRING), wait=null(optional(seconds=NUMBER, source=STRING)),
    decision=one_of(DECISIONS), rule=null(STRING), failure=null(STRING), provider_error=null(OBJECT), error=null(OBJECT),
    request_bytes=null(INTEGER), request_sha256=null(STRING), response_bytes=null(INTEGER), events=null(INTEGER),
    terminal=null(STRING), finish=null(STRING), stream_error=null(OBJECT), usage=null(USAGE), usage_raw=null(OBJECT),
    reused_connection=null(BOOLEAN), ambiguous=null(BOOLEAN))
GAP = document(code=STRING, invocation_id=null(STRING), detail=null(STRING), file=null(STRING), offset=null(INTEGER),
               count=INTEGER)
OBSERVATIONS = document(source=STRING, records={"type": "array", "items": document(kind=STRING)},
                        gaps={"type": "array", "items": GAP})
# Field by field for each kind of record (DESIGN 10); tests hold every record of a real run against them.
RECORDS = {
    "agent_invocation": document(
        invocation_id=STRING, parent_invocation_id=null(STRING), spawned_by_tool_call_id=null(STRING),
        status=one_of(INVOCATION_STATUSES), duration_ms=null(NUMBER), error_type=null(STRING), model_calls=LIST,
        conversation={"type": "array", "items": OBJECT}),
    "tool_call": document(
        invocation_id=STRING, tool_call_id=STRING, tool_name=null(STRING), started_at=null(NUMBER),
        completed_at=null(NUMBER), duration_ms=null(NUMBER), timing_source=null(STRING), status=one_of(TOOL_STATUSES),
        error_type=null(STRING)),
    "context_compaction": document(invocation_id=STRING),
    "sandbox": document(role=STRING, outcome=STRING, exit_code=null(INTEGER), wall_time_s=null(NUMBER),
                        cpu_time_s=null(NUMBER), peak_memory_mib=null(NUMBER), error_type=null(STRING)),
}
SCHEMAS = {"input": INPUT, "launch": LAUNCH, "attempt": ATTEMPT, "cleanup": CLEANUP, "observations": OBSERVATIONS,
           "result": RESULT}


def published(name):
    """The schema `name` as a JSON Schema document (draft 2020-12)."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "sandbox-worker %s" % name}
    return dict(head, **SCHEMAS[name])


def missing(schema, value, name: str = ""):
    """The first required field that `value` lacks, by its dotted name, or None."""
    if not isinstance(value, dict):
        return None
    for field in schema.get("required", ()):
        if field not in value:
            return name + field
    for field, inner in schema.get("properties", {}).items():
        found = missing(inner, value.get(field), "%s%s." % (name, field))
        if found:
            return found
    return None

"""`response.json`: the run as one Responses API response object, as a host that called a model would have it.  Pure.

Output are the items that the model made and what its tools answered, of the root conversation.  `usage` covers the whole run,
sub-agents included; it is null where input or output is not known, and a detail that is not known is left out: no figure is 0
for unknown.  Outcome, disposition and the number of gaps stand in `metadata` (strings of at most 512 characters, as the API has).
"""

from __future__ import annotations

from worker.exports import evidence as facts
from worker.exports.evidence import count, fields, number, text

STATUSES = {"completed": "completed", "failed": "failed", "incomplete": "incomplete", "not_run": "failed"}
# The API knows two reasons; of other limits `metadata.kind` tells.
REASONS = {"output_limit": "max_output_tokens", "token_limit": "max_output_tokens"}
LONGEST_METADATA = 512
PASSED = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "mcp_call", "function_call_output",
          "custom_tool_call_output", "local_shell_call_output")  # fmt: skip
OURS = ("internal_chat_message_metadata_passthrough",)  # what a CLI keeps beside an item


def export(found):
    result, outcome = found.result, found.outcome
    status = STATUSES.get(str(outcome.get("status")), "failed")
    return {
        "id": "resp_" + found.invocation_id,
        "object": "response",
        "created_at": int(number(result.get("started_at")) or 0),
        "completed_at": int(number(result.get("ended_at")) or 0) if status == "completed" else None,
        "status": status,
        "error": error(outcome) if status == "failed" else None,
        "incomplete_details": {"reason": REASONS.get(str(outcome.get("kind")))} if status == "incomplete" else None,
        "instructions": None,
        "metadata": metadata(found),
        "model": found.model or "unknown",
        "output": output(facts.items(found.root)),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": usage(found.usage_of(found.root)),
    }


def error(outcome):
    """The API asks for a code; one that is no provider's failure has the general one."""
    return {"code": text(outcome.get("code")) or "server_error", "message": text(outcome.get("message")) or "no further words"}


def metadata(found):
    disposition = fields(found.result.get("disposition"))
    told = {
        "kind": found.outcome.get("kind"),
        "status": found.outcome.get("status"),
        "fault": found.outcome.get("fault"),
        "http_status": found.outcome.get("http_status"),
        "action": disposition.get("action"),
        "verify_allowed": disposition.get("verify_allowed"),
        "gaps": len(found.gaps),
        "usage_source": found.usage_of(found.root).get("source"),
        "usage_completeness": found.usage_of(found.root).get("completeness"),
        "harness": "%s %s" % (found.harness.get("name"), found.harness.get("version")),
        "nonce": found.result.get("nonce"),
        "not_verified": "; ".join(found.faults) or None,
    }
    return {name: (str(value).lower() if isinstance(value, bool) else str(value))[:LONGEST_METADATA]
            for name, value in told.items() if value is not None}  # fmt: skip


def usage(known):
    figures = [count(known.get(name)) for name in ("input_tokens", "output_tokens")]
    if None in figures:
        return None
    total = count(known.get("total_tokens"))
    return {
        "input_tokens": figures[0],
        "input_tokens_details": details(
            known, (("cached_tokens", "cached_input_tokens"), ("cache_write_tokens", "cache_write_input_tokens"))),
        "output_tokens": figures[1],
        "output_tokens_details": details(known, (("reasoning_tokens", "reasoning_output_tokens"),)),
        "total_tokens": figures[0] + figures[1] if total is None else total,
    }  # fmt: skip


def details(known, names):
    return {theirs: known[ours] for theirs, ours in names if count(known.get(ours)) is not None}


def output(items):
    made = []
    for place, item in enumerate(items):
        shaped = shape(item, place)
        if shaped is not None:
            made.append(shaped)
    return made


def shape(item, place):
    """The item as the API shapes it, or None where it is no output (a message to the model, a type that it does not know)."""
    kind = item.get("type")
    identity = text(item.get("id")) or "item_%d" % place
    if kind == "message" and item.get("role") == "assistant":
        said, _ = facts.content_text(item.get("content"))
        content = [{"type": "output_text", "text": said, "annotations": []}]
        return {"id": identity, "type": kind, "role": "assistant", "status": status_of(item), "content": content}
    if kind == "reasoning":
        parts = [{"type": "summary_text", "text": one} for one in [facts.reasoning_text(item)] if one]
        return {"id": identity, "type": kind, "summary": parts}
    if kind in PASSED:
        kept = {name: value for name, value in item.items() if name not in OURS}
        return dict(kept, id=identity, status=status_of(item))
    return None


def status_of(item):
    return item["status"] if item.get("status") in ("in_progress", "completed", "incomplete", "failed") else "completed"

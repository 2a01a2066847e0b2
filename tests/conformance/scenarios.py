"""The scenarios, as data: what the model endpoint answers, and what must then be known.

A scenario's fields:
    name, says                  its name; one sentence
    plan                        the endpoint's plan (tests/endpoint.py)
    document                    fields of the input document beyond the runner's own; dicts are merged
    settings                    words put before the prompt on the CLI's command line (then `command` is given)
    outcome                     kind, status, fault, code, http_status, action that the result must have
    failures                    of each exchange with the endpoint, in order of arrival: the failure kind, None for success
    decisions                   likewise, the proxy's decision; where absent: forwarded
    tools                       status of each tool call that the model made, in order
    usage                       "sum": complete, the witness's sum; "unknown": no answer told any
    transcript                  what the CLI's own total must be: "sum" (the witness's sum), "none", or None: not compared
    killed                      a word of a process's command line that the receipt must name, or None
    exit                        the agent's own exit code (return_code)
    message                     final_message, or None
    compactions, sub_agents     how many there are
    rejects                     what a verifier would find: the run is graded zero, the record stays as it is
    files                       {name: text} in the working directory
    not_applicable              {evidence: reason}

The last answer of a successful run is delayed: Codex 0.144.4 may drop the end of a tool call from stdout when the final
answer follows at once. Waits are short so that a run takes a second or two.
"""
from __future__ import annotations

import copy
import json

from tests.endpoint import message, reasoning, shell

FIRST, SECOND, THIRD = [1000, 400, 50, 20], [1100, 900, 30, 0], [1200, 1000, 10, 5]      # usage of an answer
RETRY = {"base": 0.05, "cap": 0.1, "max_attempts": 3}
THINKS = 0.35                           # s before a final answer


def says(*items, usage=FIRST, **more):
    """An answer of the model."""
    return {"responses": dict({"items": list(items), "usage": usage}, **more)}


def final(text="All done.", usage=THIRD, **more):
    return says(message(text), usage=usage, delay=THINKS, **more)


def error(status, text, headers=None, **fields):
    return {"status": status, "json": {"error": dict({"message": text}, **fields)}, "headers": headers or {}}


def in_stream(code, text):
    return says(message("Let me "), error={"code": code, "message": text})


def provider(kind, http_status, action, code="server_error", fault="model"):
    return {"kind": kind, "status": "failed", "fault": fault, "code": code, "http_status": http_status, "action": action}


COMPLETED = {"kind": "completed", "status": "completed", "fault": "none", "code": None, "http_status": None, "action": "grade"}
LIMITED = {"type": "rate_limit_error", "code": "rate_limit_exceeded"}
SPAWN = {"type": "function_call", "id": "fc_spawn", "status": "completed", "call_id": "call_spawn", "name": "spawn_agent",
         "namespace": "multi_agent_v1", "arguments": json.dumps({"message": "Compute the answer."})}
DEFAULTS = {"document": {}, "settings": [], "decisions": None, "tools": [], "usage": "sum", "transcript": "sum", "killed": None,
            "exit": 0, "message": "All done.", "compactions": 0, "sub_agents": 0, "rejects": False,
            "files": {}, "not_applicable": {}, "outcome": COMPLETED}


def scenario(name, what, plan, failures, **more):
    return dict(copy.deepcopy(DEFAULTS), name=name, says=what, plan=plan, failures=failures, **more)


SCENARIOS = [
    scenario("tool_success", "two tool calls, both succeed",
             [says(reasoning("Think first."), shell("echo one")), says(shell("echo two; pwd"), usage=SECOND), final()],
             [None, None, None], tools=["completed", "completed"]),
    scenario("tool_failure", "a tool call exits 7, the agent goes on",
             [says(shell("echo oops >&2; exit 7")), final(usage=SECOND)], [None, None], tools=["failed"]),
    scenario("usage_omitted", "no answer tells its usage: unknown, never 0",
             [says(shell("echo one"), usage="omit"), final(usage="omit")], [None, None], tools=["completed"],
             usage="unknown", transcript="none"),
    scenario("retry_429", "429 with Retry-After twice, then success",
             [error(429, "Slow down.", {"Retry-After": "0.3"}, **LIMITED), error(429, "Slow down.", {"Retry-After": "0.2"}),
              says(shell("echo one")), final(usage=SECOND)],
             ["rate_limited", "rate_limited", None, None], decisions=["retried", "retried", "forwarded", "forwarded"],
             tools=["completed"]),
    scenario("retry_500", "500, then success",
             [error(500, "Internal error."), says(shell("echo one")), final(usage=SECOND)],
             ["server_error", None, None], decisions=["retried", "forwarded", "forwarded"], tools=["completed"]),
    scenario("model_timeout", "the endpoint never answers; asked again once, then given up",
             [says(shell("echo one")), {"stall": True}, {"stall": True}],
             [None, "model_timeout", "model_timeout"], decisions=["forwarded", "retried", "gave_up"], tools=["completed"],
             document={"model": {"first_byte_timeout": 0.8}}, outcome=provider("model_timeout", None, "retry"), exit=1,
             message=None),
    scenario("model_error", "500 for ever, until the attempts are used up",
             [error(500, "Internal error.")] * 3, ["server_error"] * 3, decisions=["retried", "retried", "gave_up"],
             outcome=provider("server_error", 500, "retry"), exit=1, message=None, transcript="none", usage="unknown"),
    scenario("error_after_tool", "400 after a completed tool call: the tokens spent before stay known",
             [says(shell("echo one")), error(400, "Bad input.", type="invalid_request_error", code="bad_input")],
             [None, "invalid_request"], tools=["completed"],
             outcome=provider("invalid_request", 400, "mask", fault="agent"), exit=1, message=None),
    scenario("stream_cut_answer", "a stream breaks in the middle while the proxy holds the answer: asked again unseen",
             [says(shell("echo one")), final("Half an answer.", usage=SECOND, cut_after=5, then="rst"), final(usage=SECOND)],
             [None, "stream_interrupted", None], decisions=["forwarded", "retried", "forwarded"], tools=["completed"]),
    scenario("stream_cut_first_event", "a stream breaks in the middle after its first events have been passed on",
             [says(shell("echo one")), final("Half an answer.", usage=SECOND, cut_after=5, then="rst")],
             [None, "stream_interrupted"], tools=["completed"], document={"retry": {"hold": "first_event"}},
             outcome=provider("stream_interrupted", 200, "retry"), exit=1, message=None),
    scenario("in_stream_rate_limit", "HTTP 200, then a rate limit inside the stream, until the attempts are used up",
             [says(shell("echo one"))] + [in_stream("rate_limit_exceeded", "Slow down. Please try again in 0.2s.")] * 3,
             [None] + ["rate_limited"] * 3, decisions=["forwarded", "retried", "retried", "gave_up"], tools=["completed"],
             outcome=provider("rate_limited", 200, "retry", "rate_limit_exceeded"), exit=1, message=None,
             transcript=None),
    scenario("quota", "429 that says that the account is empty: not asked again",
             [error(429, "You exceeded your current quota, please check your plan and billing details.",
                    type="insufficient_quota", code="insufficient_quota")],
             ["quota_exhausted"], outcome=provider("quota_exhausted", 429, "mask", "rate_limit_exceeded", "host"), exit=1,
             message=None, usage="unknown", transcript="none"),
    scenario("verifier_failure", "the agent succeeds, its work is wrong: a verifier grades zero and nothing is masked",
             [says(shell("echo 41 >answer.txt")), final(usage=SECOND)], [None, None], tools=["completed"], rejects=True),
    scenario("detached_child", "a tool leaves a process in a session of its own that ignores signals",
             [says(shell("setsid sh -c 'trap \"\" TERM INT HUP; sleep 987' >/dev/null 2>&1 & echo started")),
              final(usage=SECOND)], [None, None], tools=["completed"], killed="sleep 987"),
    scenario("sub_agent", "the agent starts a sub-agent: a thread of its own, owned by its own invocation",
             {"answers": [
                 {"match": {"header": {"x-openai-subagent": "collab_spawn"}}, "times": "always",
                  "steps": says(message("It is 42."), usage=[500, 0, 7, 0])},
                 says(SPAWN), says(message("Started."), usage=SECOND, delay=1.5), final()]},
             None, settings=["-c", "features.multi_agent=true"], tools=["completed"], sub_agents=1),
    scenario("compaction", "the context is compacted in the middle of the turn",
             [says(shell("echo one"), usage=[9000, 400, 50, 20]), says(message("What was done so far."), usage=SECOND), final()],
             [None, None, None], settings=["-c", "model_auto_compact_token_limit=5000"], tools=["completed"], compactions=1),
    scenario("killed_mid_tool", "the CLI is killed by somebody else while a tool runs",
             [says(shell("trap '' TERM; kill -9 $PPID; sleep 986"))], [None], tools=["incomplete"], exit=-9, message=None,
             outcome={"kind": "killed", "status": "failed", "fault": "environment", "code": None, "http_status": None,
                      "action": "retry"}, killed="sleep 986", transcript=None),
]
BY_NAME = {one["name"]: one for one in SCENARIOS}

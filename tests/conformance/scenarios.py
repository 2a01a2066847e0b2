"""The scenarios, as data: what the model endpoint answers, and what must then be known. `of(harness)`: those of one CLI.

A scenario's fields:
    name, says, harness         its name; one sentence; the Harness (harnesses/base.py) that it is written for
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

Waits are short so that a run takes a second or two.
"""
from __future__ import annotations

import copy

from tests.conformance import dialects
from tests.conformance.harnesses import TABLE
from tests.endpoint import message

CODEX = TABLE["codex"]
FIRST, SECOND, THIRD = [1000, 400, 50, 20], [1100, 900, 30, 0], [1200, 1000, 10, 5]      # usage of an answer
RETRY = {"base": 0.05, "cap": 0.1, "max_attempts": 3}
COMPLETED = {"kind": "completed", "status": "completed", "fault": "none", "code": None, "http_status": None, "action": "grade"}
LIMITED = {"kind": "rate_limit_error", "code": "rate_limit_exceeded"}
DEFAULTS = {"document": {}, "settings": [], "decisions": None, "tools": [], "usage": "sum", "transcript": "sum", "killed": None,
            "message": "All done.", "compactions": 0, "sub_agents": 0, "rejects": False, "files": {}, "not_applicable": {},
            "outcome": COMPLETED}


def scenario(name, what, plan, failures, harness=CODEX, **more):
    """`exit` may be left out: what the harness says of a success or a failure."""
    made = dict(copy.deepcopy(DEFAULTS), name=name, says=what, plan=plan, failures=failures, harness=harness, **more)
    made.setdefault("exit", harness.exits.get(name, 0 if made["outcome"] == COMPLETED else harness.fails))
    return made


def provider(kind, http_status, action, code="server_error", fault="model"):
    return {"kind": kind, "status": "failed", "fault": fault, "code": code, "http_status": http_status, "action": action}


def says(*items, usage=FIRST, harness=CODEX, **more):
    """An answer of the model."""
    return harness.says(*items, usage=usage, **more)


def final(text="All done.", usage=THIRD, harness=CODEX, **more):
    return harness.final(text, usage, **more)


def error(status, text, headers=None, kind=None, code=None, harness=CODEX):
    return {"status": status, "json": dialects.error(harness.api, status, text, kind, code), "headers": headers or {}}


def of(harness):
    """All scenarios, in this harness's dialect and tool names; those that do not apply to it have no plan."""
    found = []
    for make in SCENARIOS:
        name = make.__name__
        if name in harness.not_applicable:
            found.append({"name": name, "says": make.__doc__, "harness": harness, "plan": None})
            continue
        parts = make(Script(harness))
        found.append(scenario(name, make.__doc__, parts.pop("plan"), parts.pop("failures"), harness=harness, **parts))
    return found


class Script:
    """The words that scenarios are written in, for one harness."""

    def __init__(self, harness):
        self.harness, self.detached, self.reasons = harness, harness.detached, harness.reasons
        self.shell, self.cut_after = harness.shell, dialects.CUT_AFTER[harness.api]

    def says(self, *items, usage=FIRST, **more):
        return says(*items, usage=usage, harness=self.harness, **more)

    def final(self, text="All done.", usage=THIRD, **more):
        return final(text, usage, self.harness, **more)

    def error(self, status, text, headers=None, **more):
        return error(status, text, headers, harness=self.harness, **more)

    def limited(self, text):
        """A rate limit inside a stream that began well."""
        return self.says(message("Let me "), error=dialects.error_in_stream(self.harness.api, text))

    def again(self, name):
        """How often the endpoint sees the CLI's own repeat of a request that failed in this scenario."""
        return self.harness.asks_again.get(name, 0)


# -- the scenarios: name and docstring are what the table shows ----------------------------------------------------------

def tool_success(to):
    """two tool calls, both succeed"""
    plan = [to.says(*to.reasons(), to.shell("echo one")), to.says(to.shell("echo two; pwd"), usage=SECOND), to.final()]
    return {"plan": plan, "failures": [None] * 3, "tools": ["completed", "completed"]}


def tool_failure(to):
    """a tool call exits 7, the agent goes on"""
    plan = [to.says(to.shell("echo oops >&2; exit 7")), to.final(usage=SECOND)]
    return {"plan": plan, "failures": [None, None], "tools": ["failed"]}


def usage_omitted(to):
    """no answer tells its usage: unknown, never 0"""
    plan = [to.says(to.shell("echo one"), usage="omit"), to.final(usage="omit")]
    return {"plan": plan, "failures": [None, None], "tools": ["completed"], "usage": "unknown", "transcript": "none"}


def retry_429(to):
    """429 with Retry-After twice, then success"""
    plan = [to.error(429, "Slow down.", {"Retry-After": "0.3"}, **LIMITED), to.error(429, "Slow down.", {"Retry-After": "0.2"}),
            to.says(to.shell("echo one")), to.final(usage=SECOND)]
    return {"plan": plan, "failures": ["rate_limited", "rate_limited", None, None],
            "decisions": ["retried", "retried", "forwarded", "forwarded"], "tools": ["completed"]}


def retry_500(to):
    """500, then success"""
    plan = [to.error(500, "Internal error."), to.says(to.shell("echo one")), to.final(usage=SECOND)]
    return {"plan": plan, "failures": ["server_error", None, None], "decisions": ["retried", "forwarded", "forwarded"],
            "tools": ["completed"]}


def model_timeout(to):
    """the endpoint never answers; asked again once, then given up"""
    again = to.again("model_timeout")
    return {"plan": [to.says(to.shell("echo one"))] + [{"stall": True}] * (2 + again),
            "failures": [None] + ["model_timeout"] * (2 + again), "decisions": ["forwarded", "retried"] + ["gave_up"] * (1 + again),
            "tools": ["completed"], "document": {"model": {"first_byte_timeout": 0.8}},
            "outcome": provider("model_timeout", None, "retry"), "message": None}


def model_error(to):
    """500 for ever, until the attempts are used up"""
    return {"plan": [to.error(500, "Internal error.")] * 3, "failures": ["server_error"] * 3,
            "decisions": ["retried", "retried", "gave_up"], "outcome": provider("server_error", 500, "retry"), "message": None,
            "transcript": "none", "usage": "unknown"}


def error_after_tool(to):
    """400 after a completed tool call: the tokens spent before stay known"""
    plan = [to.says(to.shell("echo one")), to.error(400, "Bad input.", kind="invalid_request_error", code="bad_input")]
    return {"plan": plan, "failures": [None, "invalid_request"], "tools": ["completed"],
            "outcome": provider("invalid_request", 400, "mask", fault="agent"), "message": None}


def stream_cut_answer(to):
    """a stream breaks in the middle while the proxy holds the answer: asked again unseen"""
    plan = [to.says(to.shell("echo one")), to.final("Half an answer.", usage=SECOND, cut_after=to.cut_after, then="rst"),
            to.final(usage=SECOND)]
    return {"plan": plan, "failures": [None, "stream_interrupted", None], "decisions": ["forwarded", "retried", "forwarded"],
            "tools": ["completed"]}


def stream_cut_first_event(to):
    """a stream breaks in the middle after its first events have been passed on"""
    times = (1 + to.again("stream_cut_first_event")) * (1 + to.harness.goes_on)
    plan = [to.says(to.shell("echo one"))]
    plan += [to.final("Half an answer.", usage=SECOND, cut_after=to.cut_after, then="rst")] * times
    return {"plan": plan, "failures": [None] + ["stream_interrupted"] * times, "tools": ["completed"],
            "document": {"retry": {"hold": "first_event"}}, "outcome": provider("stream_interrupted", 200, "retry"),
            "message": None}


def in_stream_rate_limit(to):
    """HTTP 200, then a rate limit inside the stream, until the attempts are used up"""
    times = 1 + to.harness.goes_on
    plan = [to.says(to.shell("echo one"))] + [to.limited("Slow down. Please try again in 0.2s.")] * 3 * times
    return {"plan": plan, "failures": [None] + ["rate_limited"] * 3 * times,
            "decisions": ["forwarded"] + ["retried", "retried", "gave_up"] * times, "tools": ["completed"],
            "outcome": provider("rate_limited", 200, "retry", "rate_limit_exceeded"), "message": None,
            "transcript": None}


def quota(to):
    """429 that says that the account is empty: not asked again"""
    plan = [to.error(429, "You exceeded your current quota, please check your plan and billing details.",
                     kind="insufficient_quota", code="insufficient_quota")]
    return {"plan": plan, "failures": ["quota_exhausted"], "message": None, "usage": "unknown", "transcript": "none",
            "outcome": provider("quota_exhausted", 429, "mask", "rate_limit_exceeded", "host")}


def verifier_failure(to):
    """the agent succeeds, its work is wrong: a verifier grades zero and nothing is masked"""
    plan = [to.says(to.shell("echo 41 >answer.txt")), to.final(usage=SECOND)]
    return {"plan": plan, "failures": [None, None], "tools": ["completed"], "rejects": True}


def detached_child(to):
    """a tool leaves a process in a session of its own that ignores signals"""
    plan = [to.says(to.detached("sleep 987")), to.final(usage=SECOND)]
    return {"plan": plan, "failures": [None, None], "tools": ["completed"], "killed": "sleep 987"}


def sub_agent(to):
    """the agent starts a sub-agent: a thread of its own, owned by its own invocation"""
    return dict({"failures": None, "sub_agents": 1}, **to.harness.sub_agent())


def compaction(to):
    """the context is compacted in the middle of the turn"""
    return dict({"failures": None, "compactions": 1}, **to.harness.compaction())


def killed_mid_tool(to):
    """the CLI is killed by somebody else while a tool runs"""
    outcome = {"kind": "killed", "status": "failed", "fault": "environment", "code": None, "http_status": None, "action": "retry"}
    return {"plan": [to.says(to.shell(to.harness.kills("sleep 986")))], "failures": [None], "tools": ["incomplete"], "exit": -9,
            "message": None, "outcome": outcome, "killed": "sleep 986", "transcript": None}


SCENARIOS = (tool_success, tool_failure, usage_omitted, retry_429, retry_500, model_timeout, model_error, error_after_tool,
             stream_cut_answer, stream_cut_first_event, in_stream_rate_limit, quota, verifier_failure, detached_child, sub_agent,
             compaction, killed_mid_tool)
QUICK = ("tool_success", "tool_failure", "retry_429", "error_after_tool")       # what CI plays with every harness
BY_NAME = {one["name"]: one for one in of(CODEX)}       # Codex's

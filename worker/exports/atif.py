"""ATIF-v1.8 (Agent Trajectory Interchange Format): one trajectory, sub-agents embedded where they were spawned.  Pure.

A step of the agent is one answer of the model: what the answers' ids tell to be of one model call, else what stands between two
outputs.  `metrics` are given only to a step whose model call is known by such an id, never by its position.  The format has no
field for HTTP attempts, gaps and outcome: they stand in `extra.sandbox_worker` of the root.
"""

from __future__ import annotations

import datetime
import json

from worker.exports import evidence as facts
from worker.exports.evidence import count, fields, number, objects, text

VERSION = "ATIF-v1.8"
SOURCES = {"user": "user", "assistant": "agent"}
METRICS = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"), ("cached_tokens", "cached_input_tokens"))
TOTALS = tuple(("total_" + name, ours) for name, ours in METRICS)
TOOL = ("status", "started_at", "completed_at", "duration_ms", "timing_source", "error_type")
LAST_SECOND = 253402300799  # of the year 9999


def export(found):
    """The trajectory document of an Evidence."""
    tree, names = {}, {}
    for one in found.invocations:
        if one is not found.root:
            tree.setdefault(id(found.parents[id(one)]), []).append(one)
    document = trajectory(found, found.root, tree, names)
    document["extra"] = {"sandbox_worker": about(found, names)}
    return document


def trajectory(found, invocation, tree, names):
    """One invocation's document and those of its sub-agents.  names: {trajectory id: invocation}, filled here."""
    identity = unique(text(invocation.get("invocation_id")) or found.invocation_id, names)
    names[identity] = invocation
    below = [trajectory(found, one, tree, names) for one in tree.get(id(invocation), ())]
    made = Steps(found, invocation)
    spawned = {}
    for one, document in zip(tree.get(id(invocation), ()), below):
        spawned.setdefault(text(one.get("spawned_by_tool_call_id")), []).append(document["trajectory_id"])
    made.refer(spawned)
    steps = made.finish()
    document = {
        "schema_version": VERSION,
        "session_id": found.invocation_id,
        "trajectory_id": identity,
        "agent": agent(found),
        "steps": steps,
        "final_metrics": totals(found.usage_of(invocation), len(steps)),
        "extra": {"sandbox_worker": invocation_extra(invocation)},
    }
    return dict(document, subagent_trajectories=below) if below else document


def unique(identity, names):
    """The id, with a number where another invocation has it already."""
    number_, made = 1, identity
    while made in names:
        number_ += 1
        made = "%s#%d" % (identity, number_)
    return made


def agent(found):
    described = {"name": text(found.harness.get("name")) or "unknown", "version": text(found.harness.get("version")) or "unknown"}
    return dict(described, model_name=found.model) if found.model else described


def totals(usage, steps):
    """final_metrics; what is not known is left out, never 0."""
    known = {name: usage[ours] for name, ours in TOTALS if count(usage.get(ours)) is not None}
    return dict(known, total_steps=steps, extra={"usage": usage} if usage else {"usage": None})


def invocation_extra(invocation):
    return {name: invocation.get(name) for name in (
        "parent_invocation_id", "spawned_by_tool_call_id", "status", "error_type", "duration_ms")}  # fmt: skip


def about(found, names):
    """What the format has no field for."""
    result, shown = found.result, {text(item.get("call_id")) or text(item.get("id"))
                                   for one in found.invocations for item in facts.items(one)}  # fmt: skip
    documents = [(identity, one.get("invocation_id")) for identity, one in names.items()]
    return dict(
        invocation_extra(found.root),
        version=result.get("version"),
        invocation_id=result.get("invocation_id"),
        nonce=result.get("nonce"),
        labels=result.get("labels"),
        outcome=found.outcome,
        disposition=result.get("disposition"),
        warnings=objects(result.get("warnings")),
        gaps=found.gaps,
        usage=result.get("usage"),
        usage_covers="the whole run, sub-agents included",
        counts=result.get("counts"),
        peers=result.get("exports"),
        model_calls=[dict(call.summary(), invocation_id=call.invocation_id) for call in found.calls],
        context_compactions=found.compactions,
        sandbox=found.sandboxes,
        tool_calls_without_item=[one for one in found.tool_calls if text(one.get("tool_call_id")) not in shown],
        other_records=found.others,
        renamed_trajectories={identity: old for identity, old in documents if old != identity},
        not_verified=found.faults,
    )


# -- steps --------------------------------------------------------------------------------------------------------------------


class Steps:
    """The steps of one invocation, made item by item."""

    def __init__(self, found, invocation):
        self.found, self.invocation, self.steps, self.places = found, invocation, [], {}
        self.calls = {}  # id of a step -> its model call
        self.records = {one.get("tool_call_id"): one for one in found.tool_calls if text(one.get("tool_call_id"))
                        and one.get("invocation_id") == invocation.get("invocation_id")}  # fmt: skip
        for item in facts.items(invocation):
            self.add(item)

    def add(self, item):
        kind = str(item.get("type"))
        if kind == "message":
            self.message(item)
        elif kind == "reasoning":
            self.reasoning(item)
        elif facts.is_output(item):
            self.output(item)
        elif facts.is_call(item):
            self.call(item)
        else:  # a type that came later
            step = self.steps[-1] if self.steps else self.step("system", "")
            step["extra"].setdefault("other_items", []).append(item)

    def step(self, source, said):
        made = {"source": source, "message": said, "extra": {}}
        self.steps.append(made)
        return made

    def answer(self, item):
        """The agent's step that an item of the model belongs to."""
        call, last = self.found.call_of(self.invocation, item), self.steps[-1] if self.steps else None
        before = self.calls.get(id(last))
        same = last is not None and last["source"] == "agent" and (
            call is before if call and before else "observation" not in last)  # fmt: skip
        step = last if same else self.step("agent", "")
        if call and not self.calls.get(id(step)):
            self.calls[id(step)] = call
        return step

    def message(self, item):
        said, besides = facts.content_text(item.get("content"))
        source = SOURCES.get(str(item.get("role")), "system")
        step = self.answer(item) if source == "agent" else self.step(source, "")
        step["message"] = "\n".join(part for part in (step["message"], said) if part)
        if besides:
            step["extra"].setdefault("content_left_out", []).extend(besides)
        if source == "system" and item.get("role") not in ("system", "developer"):
            step["extra"]["role"] = item.get("role")

    def reasoning(self, item):
        step, said = self.answer(item), facts.reasoning_text(item)
        if said:
            step["reasoning_content"] = "\n".join(part for part in (step.get("reasoning_content"), said) if part)
        elif item.get("encrypted_content"):
            step["extra"]["reasoning_encrypted"] = True

    def call(self, item):
        step = self.answer(item)
        identity = text(item.get("call_id")) or text(item.get("id"))
        step.setdefault("tool_calls", [])
        identity = identity or "item-%d.%d" % (len(self.steps), len(step["tool_calls"]))
        record = self.records.get(identity)
        known = {name: record.get(name) for name in TOOL} if record else {}
        made = {"tool_call_id": identity, "function_name": facts.tool_name(item), "arguments": arguments(item)}
        step["tool_calls"].append(dict(made, extra=known) if known else made)
        self.places[identity] = step
        if "output" in item or "result" in item:  # a call that holds its result
            self.result(step, identity, item.get("output", item.get("result")))

    def output(self, item):
        identity = text(item.get("call_id"))
        step = self.places.get(identity)
        if step is not None:
            self.result(step, identity, item.get("output"))
            return
        step = self.steps[-1] if self.steps else self.step("system", "")
        self.result(step, None, item.get("output"))["extra"] = {"call_id": item.get("call_id")}

    def result(self, step, identity, output):
        content, besides = facts.content_text(output)
        if not isinstance(output, (str, list)):
            content = None if output is None else json.dumps(output, ensure_ascii=False, sort_keys=True, default=str)
        made = {} if identity is None else {"source_call_id": identity}
        made["content"] = content
        if besides:
            made["extra"] = {"content_left_out": besides}
        step.setdefault("observation", {"results": []})["results"].append(made)
        return made

    def refer(self, spawned):
        """Enter the sub-agents' documents at the calls that spawned them."""
        for identity, below in spawned.items():
            step = self.places.get(identity)
            if step is None:
                continue
            results = step.setdefault("observation", {"results": []})["results"]
            own = [one for one in results if one.get("source_call_id") == identity]
            target = own[0] if own else self.result(step, identity, None)
            target["subagent_trajectory_ref"] = [{"trajectory_id": one} for one in below]

    def finish(self):
        """The steps with their numbers, times and metrics; at least one."""
        if not self.steps:
            self.step("system", "The conversation of this invocation is not known.")["extra"]["made_up"] = True
        finished = []
        for place, step in enumerate(self.steps, 1):
            call = self.calls.get(id(step))
            step = dict({"step_id": place}, **step)
            if call:
                step.update(told_by(call))
                step["extra"].update(call.summary())
            if not step["extra"]:
                del step["extra"]
            finished.append(step)
        return finished


def told_by(call):
    """What a model call tells of its step."""
    usage, last = fields(call.last.get("usage")), call.last
    told = {"llm_call_count": 1, "timestamp": iso(last.get("ended_at")), "model_name": text(last.get("model"))}
    metrics = {name: usage[ours] for name, ours in METRICS if count(usage.get(ours)) is not None}
    if metrics:
        told["metrics"] = dict(metrics, extra={"usage": usage})
    return {name: value for name, value in told.items() if value is not None}


def arguments(item):
    """A call's arguments as an object; what is none stands under `input`."""
    given = next((item[name] for name in facts.ARGUMENTS if name in item), None)
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return {"input": given}
    return given if isinstance(given, dict) else {} if given is None else {"input": given}


def iso(moment):
    """Unix seconds as ISO 8601, UTC; None where they are none."""
    moment = number(moment)
    if moment is None or not 0 <= moment <= LAST_SECOND:
        return None
    return datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).isoformat(timespec="milliseconds")

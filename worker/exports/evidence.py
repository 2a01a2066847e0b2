"""What a run left, as exporters look at it: any field may have any type, since the files came out of a sandbox.  Pure.

The joins are by native ids only.  A model call owns the attempts that observations.json lists for it; a conversation item belongs
to a model call where exactly one call's answers hold the item's own id (`identifiers`, read from the recorded bodies).
"""

from __future__ import annotations

import math
import re

KINDS = ("agent_invocation", "tool_call", "context_compaction", "sandbox")
# Ids of items in any dialect's answer: Responses `id` and `call_id`, Chat Completions and Messages `id`.
IDENTIFIER = re.compile(rb'"(?:id|call_id)"\s*:\s*"([^"\\]{1,200})"')
CALL, OUTPUT = "_call", "_output"
# How an item that is a call names what it was asked to do.
ARGUMENTS = ("arguments", "input", "action", "operation", "code", "queries")


# -- values of unknown type ---------------------------------------------------------------------------------------------------


def text(value):
    """A string that is not empty, or None."""
    return value if isinstance(value, str) and value else None


def number(value):
    """A finite number, or None."""
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300 and math.isfinite(value)
    return value if right else None


def count(value):
    """A whole number from 0, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def fields(value):
    return value if isinstance(value, dict) else {}


def objects(value):
    """The objects of a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# -- the run ------------------------------------------------------------------------------------------------------------------


class Call:
    """One model call: its ids, the invocation that owns it (None: nothing says which) and its attempts in order."""

    def __init__(self, identity, invocation_id, response_id, attempts, told):
        self.identity, self.invocation_id, self.response_id = identity, invocation_id, response_id
        self.attempts, self.told = attempts, told  # told: what observations.json says of it

    @property
    def last(self):
        return self.attempts[-1] if self.attempts else {}

    @property
    def failure(self):
        """The kind of failure with which it ended, or None."""
        return text(self.last.get("failure"))

    def summary(self):
        """The call and its attempts as plain values, for a format that has no field for them."""
        known = {name: self.told[name] for name in ("turn_id", "request_kind", "compaction_trigger") if name in self.told}
        attempts = [{name: one.get(name) for name in ATTEMPT} for one in self.attempts]
        return dict(known, model_call_id=self.identity, response_id=self.response_id, attempts=attempts)


ATTEMPT = ("seq", "attempt", "main", "started_at", "first_byte_at", "ended_at", "status", "decision", "rule", "failure", "wait",
           "error", "provider_error", "finish", "usage")  # fmt: skip


class Evidence:
    """result, observations: documents; attempts: records; identifiers: {seq: ids in that answer}; faults: sentences that say what
    does not hold of the outcome (an export that was asked for all the same carries them)."""

    def __init__(self, result, observations, attempts, identifiers=None, faults=()):
        self.result, self.observations, self.faults = fields(result), fields(observations), list(faults)
        self.attempts = objects(attempts)
        self.outcome, self.harness = fields(self.result.get("outcome")), fields(self.result.get("harness"))
        records = objects(self.observations.get("records"))
        self.invocations, self.tool_calls, self.compactions, self.sandboxes = (
            [one for one in records if one.get("kind") == kind] for kind in KINDS)  # fmt: skip
        self.others = [one for one in records if one.get("kind") not in KINDS]
        self.gaps = objects(self.observations.get("gaps"))
        own = [one for one in self.invocations if one.get("invocation_id") == self.invocation_id]
        self.root = (own + self.invocations + [{}])[0]  # the run's own invocation
        self.parents = self._parents()
        self.calls = list(self._calls())
        self._owners = self._items_to_calls(identifiers or {})

    @property
    def invocation_id(self):
        return text(self.result.get("invocation_id")) or "unknown"

    @property
    def model(self):
        """The model that the first main request asked for, or None."""
        names = [text(one.get("model")) for one in self.attempts if one.get("main") is True]
        return next((name for name in names if name), None)

    def _parents(self):
        """{id of an invocation's object: the invocation above it}; the root stands above each that names none of these, and above
        one whose parents would form a circle."""
        root, by_id, parents = self.root, {}, {}
        for one in self.invocations:
            if text(one.get("invocation_id")):
                by_id.setdefault(one["invocation_id"], one)
        for one in self.invocations:
            chain, first = [one], by_id.get(text(one.get("parent_invocation_id")))
            above = first
            while above is not None and above is not root and not any(above is each for each in chain):
                chain.append(above)
                above = by_id.get(text(above.get("parent_invocation_id")))
            parents[id(one)] = first if above is root else root
        return parents

    def _calls(self):
        by_seq = {one.get("seq"): one for one in self.attempts if isinstance(one.get("seq"), int)}
        owned = set()
        for invocation in self.invocations:
            for told in objects(invocation.get("model_calls")):
                seqs = [seq for seq in told.get("attempts") or () if isinstance(seq, int)] if isinstance(
                    told.get("attempts"), list) else []  # fmt: skip
                owned.update(seqs)
                yield Call(str(told.get("model_call_id")), text(invocation.get("invocation_id")), text(told.get("response_id")),
                           [by_seq[seq] for seq in seqs if seq in by_seq], told)  # fmt: skip
        rest = {}
        for one in self.attempts:
            if one.get("seq") not in owned if isinstance(one.get("seq"), int) else True:
                rest.setdefault(str(one.get("request")), []).append(one)
        for request, attempts in rest.items():
            response = [text(one.get("response_id")) for one in attempts if text(one.get("response_id"))]
            yield Call(request, None, response[-1] if response else None, attempts, {})

    def _items_to_calls(self, identifiers):
        """{(invocation id, item id): its call}, where exactly one call of the invocation has an answer with that id."""
        found = {}
        for call in self.calls:
            for attempt in call.attempts:
                seq = attempt.get("seq")
                for identity in identifiers.get(seq, ()) if isinstance(seq, int) else ():
                    key = (call.invocation_id, identity)
                    found[key] = call if found.get(key, call) is call else None
        return found

    def call_of(self, invocation, item):
        """The model call that made a conversation item, or None."""
        for name in ("id", "call_id"):
            call = self._owners.get((text(invocation.get("invocation_id")), text(item.get(name))))
            if call:
                return call
        return None

    def calls_of(self, invocation):
        own = text(invocation.get("invocation_id"))
        return [call for call in self.calls if own and call.invocation_id == own]

    def usage_of(self, invocation):
        """Usage of one invocation: the run's for the root (sub-agents included), else its own thread's; {} where unknown."""
        usage = fields(self.result.get("usage"))
        if invocation is self.root:
            return fields(usage.get("chosen"))
        threads = fields(usage.get("threads"))
        return fields(threads.get(text(invocation.get("invocation_id"))))


def identifiers(pieces):
    """The ids that stand in an answer's bytes; an id that two pieces share is found only where they overlap enough."""
    found, rest = set(), b""
    for piece in pieces:
        data = rest + piece
        found.update(one.decode("utf-8", "replace") for one in IDENTIFIER.findall(data))
        rest = data[-512:]
    return found


# -- conversation items -------------------------------------------------------------------------------------------------------


def items(invocation):
    return objects(invocation.get("conversation"))


def is_call(item):
    return str(item.get("type")).endswith(CALL)


def is_output(item):
    return str(item.get("type")).endswith(OUTPUT)


def tool_name(item):
    """As the tool_call records have it: with its name space, and the item's type where it has no name."""
    name, space = text(item.get("name")) or str(item.get("type"))[: -len(CALL)], text(item.get("namespace"))
    return "%s.%s" % (space, name) if space else name


def content_text(content):
    """(the text of an item's content, what it holds besides: [{"type", "size"}])."""
    if isinstance(content, str):
        return content, []
    words, besides = [], []
    for part in content if isinstance(content, list) else []:
        said = part.get("text", part.get("refusal")) if isinstance(part, dict) else part
        if isinstance(said, str):
            words.append(said)
        else:
            besides.append({"type": str(fields(part).get("type")), "size": len(str(part))})
    return "\n".join(words), besides


def reasoning_text(item):
    """The readable part of a reasoning item, or None."""
    parts = [content_text(item.get(name))[0] for name in ("summary", "content")]
    return text("\n".join(part for part in parts if part))

"""observations.json: records and gaps with the field names of the reference contract (DESIGN 10).

A reader hands over Records (tool calls, compactions, invocations); here the model calls are joined to HTTP attempts, the
outcome gives the root invocation its status, and the document is written piece by piece, in constant memory.  A model call
is one request to the proxy with all its attempts, and the CLI's own repeats of it (the same bytes) until it is answered; each
attempt is owned by exactly one invocation, that of the thread which
its headers name, and one that names none of this run's threads is a gap.
"""

from __future__ import annotations

import json
import os

from worker.conversation import Conversation, strict
from worker.gaps import GAPS, Gaps, gap
from worker.keep import Lines

__all__ = ("GAPS", "Gaps", "Records", "gap", "document", "chunks", "join", "link_compactions", "read_attempts")

SPILL = 500  # records kept in memory; more go to an unlinked file in the session directory
ATTEMPTS = "model_attempts.jsonl"
MOST_EARLY = 1000  # records that are kept back for one that is written late: a stream may stay open for the whole run
INVOCATION_STATUS = {"completed": "completed", "failed": "failed", "incomplete": "incomplete"}
SANDBOX_OUTCOMES = {"wall_timeout": "timeout", "out_of_memory": "oom", "cancelled": "cancelled", "worker_error": "sandbox_error"}


class Records:
    """Append records; iterate over them any number of times.  dirfd: where to spill to, or None to keep all in memory."""

    def __init__(self, dirfd=None):
        self.kinds, self.invocations = {}, []
        self._spilled, self._kept = Lines(dirfd), []

    def append(self, record):
        kind = record["kind"]
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if kind == "agent_invocation":
            self.invocations.append(record)  # few, and their conversation is no plain value
            return
        self._kept.append(record)
        full = len(self._kept) >= SPILL and self._spilled.dirfd is not None
        if full and self._spilled.extend(strict(self._kept)[1:-1] + b"\n"):  # a batch on a line; else: memory
            self._kept = []

    def batches(self):
        """All but the invocations as JSON, many to a piece, with commas between and no brackets around."""
        yield from self._spilled
        if self._kept:
            yield strict(self._kept)[1:-1]

    def __iter__(self):
        yield from self.invocations
        for batch in self.batches():
            yield from json.loads(b"[" + batch + b"]")

    def __len__(self):
        return sum(self.kinds.values())


# -- model calls ----------------------------------------------------------------------------------------------------------


def read_attempts(dirfd):
    """The attempt records of the session directory in the order of their `seq`; unreadable lines are left out (the writer never
    leaves one).  A line is written when its exchange is over, and a client that has its answer may be faster than that."""
    held, due = {}, 1
    for record in attempt_lines(dirfd):
        seq = record.get("seq")
        if not isinstance(seq, int) or seq < due or seq in held:
            yield record
            continue
        held[seq] = record
        due = min(held) if len(held) > MOST_EARLY else due
        while due in held:
            yield held.pop(due)
            due += 1
    for seq in sorted(held):
        yield held[seq]


def attempt_lines(dirfd):
    try:
        fd = os.open(ATTEMPTS, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dirfd)
    except OSError:
        return
    with os.fdopen(fd, "rb") as file:
        for line in file:
            try:
                record = json.loads(line.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield record


def join(attempts, owners, responses, gaps, thread_of, describe=None):
    """{invocation_id: [model call]} from attempt records.

    owners: {thread id: invocation_id}; responses: {invocation_id: [response ids that the transcript names]};
    thread_of(attempt): the thread that it names, or None; describe(attempt): further fields of the model call."""
    calls, by_request, unanswered, carried, unowned = {}, {}, {}, {}, 0
    for attempt in attempts:
        owner, request, response = owners.get(thread_of(attempt)), str(attempt.get("request")), attempt.get("response_id")
        if owner is None:
            unowned += attempt.get("dialect") is not None  # probes of other paths are nobody's model calls
            continue
        question = owner, attempt.get("fingerprint") or request
        call = by_request.get((owner, request)) or unanswered.get(question)
        if call is None:
            call = {"model_call_id": request, "response_id": None, "attempts": []}
            call.update(describe(attempt) if describe else {})
            calls.setdefault(owner, []).append(call)
        by_request[owner, request] = call
        call["attempts"].append(attempt.get("seq"))
        if attempt.get("failure") or attempt.get("error"):
            unanswered[question] = call
        else:
            unanswered.pop(question, None)
        if isinstance(response, str):
            call["response_id"] = response
            carried.setdefault((owner, response), set()).add(call["model_call_id"])
    for owner, names in responses.items():
        for name in names:
            found = carried.get((owner, name), ())
            if len(found) != 1:
                gaps.add("model_call_reference_ambiguous" if found else "model_call_reference_unmatched", name, owner, key=name)
    if unowned:
        gaps.add("model_call_ownership_unavailable", "%d attempts" % unowned, key="all")
    return calls


def link_compactions(compactions, calls, gaps):
    """Enter into a thread's compaction records the calls that made them and their neighbours.

    calls: the invocation's, in order, with `request_kind`.  A run of compaction calls makes one compaction; where their
    numbers differ, nothing says which made which."""
    runs, others = [], []
    for index, call in enumerate(calls):
        if call.get("request_kind") != "compaction":
            others.append(index)
        elif runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    if len(runs) != len(compactions):
        if compactions and calls:
            detail = "%d compactions, %d runs of compaction calls" % (len(compactions), len(runs))
            gaps.add("model_call_reference_ambiguous", detail, compactions[0]["invocation_id"], key="compactions")
        return
    for record, run in zip(compactions, runs):
        record["model_calls"] = [reference(calls[index]) for index in run]
        record["trigger"] = record.get("trigger") or calls[run[0]].get("compaction_trigger")
        before, after = [at for at in others if at < run[0]], [at for at in others if at > run[-1]]
        record["before_model_call"] = reference(calls[before[-1]]) if before else None
        record["after_model_call"] = reference(calls[after[0]]) if after else None


def reference(call):
    return {"model_call_id": call["model_call_id"], "response_id": call["response_id"]}


# -- the document ---------------------------------------------------------------------------------------------------------


def document(source, evidence, outcome, facts):
    """The whole document as plain values, for small runs and tests; `chunks` writes the same without holding it."""
    return json.loads(b"".join(chunks(source, evidence, outcome, facts)).decode("utf-8"))


def chunks(source, evidence, outcome, facts):
    """Pieces of the document as UTF-8 JSON.  source: the harness; evidence: what a reader's `collect` returned, gaps of the
    other parts added; outcome: what outcome.classify said; facts: {"ending", "main_status", "resources", "started_at",
    "ended_at", "receipt"} of the run, any of them missing."""
    yield b'{"source":' + strict(source) + b',"records":[' + strict(sandbox(outcome, facts))
    for record in evidence["records"].invocations:
        record = with_outcome(record, outcome)
        conversation = record.pop("conversation")
        yield b",\n" + strict(record)[:-1] + b',"conversation":['
        comma = b""
        for item in conversation.encoded() if isinstance(conversation, Conversation) else map(strict, conversation):
            yield comma + item
            comma = b","
        yield b"]}"
    for batch in evidence["records"].batches():
        yield b",\n" + batch
    yield b'],"gaps":' + strict(list(evidence["gaps"]) + run_gaps(outcome)) + b"}"


def with_outcome(record, outcome):
    """A copy of an invocation; the root's status is the run's."""
    if record["parent_invocation_id"] is not None:
        return dict(record)
    status = INVOCATION_STATUS.get(outcome["status"], "unknown")
    return dict(record, status=status, error_type=None if status == "completed" else outcome["kind"])


def sandbox(outcome, facts):
    """The run as a sandbox saw it: outcome, exit code, time, memory."""
    resources = facts.get("resources") or {}
    started, ended = facts.get("started_at"), facts.get("ended_at")
    fallback = "unknown" if outcome["status"] == "not_run" else "completed" if outcome["kind"] == "completed" else "failed"
    return {
        "kind": "sandbox",
        "role": "agent",
        "outcome": SANDBOX_OUTCOMES.get(outcome["kind"], fallback),
        "exit_code": facts.get("main_status"),
        "wall_time_s": max(0.0, ended - started) if started is not None and ended is not None else resources.get("wall_time_s"),
        "cpu_time_s": resources.get("cpu_time_s"),
        "peak_memory_mib": resources.get("peak_memory_mib"),
        "error_type": None if outcome["kind"] == "completed" else outcome["kind"],
    }


def run_gaps(outcome):
    return [gap("harness_not_run", outcome["message"])] if outcome["status"] == "not_run" else []

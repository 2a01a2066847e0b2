"""What became of the run: the first row of ROWS that matches decides.  Pure: facts in, verdict out.

Order of belief: the wire (main requests only), then the harness's terminal event, then its transcript, then the exit code;
what the CLI printed serves as a message, and names a kind only where the wire is silent (no proxy, or a failure that the CLI
itself decided without asking the endpoint).

facts (a missing name is None or False):
  worker_error: sentence | None; started: False when nothing was launched; launch_error: {"kind", "message"} | None
  ending: {"cause", "signals": [{"signal", "at"}], "signal_received", "timed_out", ...} of worker/watch.py
  main_status: exit code, -signal, or None; wire: the transport's summary at the time the run ended | None; model_given
  live, transcript: {"terminal": None|"success"|"failure", "message"/"error_text", "limit": None|"turn_limit"}
  kernel: {"oom", "pids", "disk_full"} with evidence only; harness; exit_zero_is_success; timeout_s; output_seen
  error_table: [(regex, kind, needs_wire, source)] of the harness
The result is the `outcome` object of DESIGN 9: status, kind, fault, code, http_status, message, evidence.
"""

from __future__ import annotations

import re

HEALING = (
    "rate_limited", "overloaded", "server_error", "model_timeout", "connection", "stream_interrupted", "unexpected_response",
)  # fmt: skip
LASTING = ("quota_exhausted", "authentication", "permission", "model_not_found", "invalid_request", "tls_failed")
PROVIDER = HEALING + LASTING
SIGKILL, KILLED_IN_A_SHELL = -9, 137  # 128 + 9, as a shell reports a child that SIGKILL ended (POSIX sh, exit status)
SILENT_STREAM = 300.0  # s without anything of an answer; a third of the wall limit where that is less

FAULTS = {
    "worker_error": "worker",
    "launch_failed": "environment",
    "cancelled": "host",
    "terminated": "host",
    "completed": "none",
    "request_limit": "limit",
    "token_limit": "limit",
    "context_length": "limit",
    "refusal": "model",
    "output_limit": "limit",
    "turn_limit": "limit",
    "quota_exhausted": "host",
    "authentication": "host",
    "permission": "host",
    "model_not_found": "host",
    "invalid_request": "agent",
    "tls_failed": "environment",
    "out_of_memory": "environment",
    "disk_full": "environment",
    "pids_exhausted": "environment",
    "killed": "environment",
    "no_model_call": "environment",
    "wall_timeout": "limit",
    "no_output": "agent",
    "agent_crash": "agent",
    "agent_error": "agent",
}
FAULTS.update((kind, "model") for kind in HEALING)


# -- reading the facts ----------------------------------------------------------------------------------------------------


def part(facts, *names):
    """A nested fact; None where any step is missing."""
    for name in names:
        facts = facts.get(name) if isinstance(facts, dict) else None
    return facts


def terminal(facts):
    """ "success", "failure" or None: the harness's event, else its transcript, else (where exit 0 is the marker) the exit."""
    said = part(facts, "live", "terminal") or part(facts, "transcript", "terminal")
    if said is None and facts.get("exit_zero_is_success") and facts.get("main_status") == 0:
        return "success"
    return said


def said_text(facts):
    """The CLI's own words about its failure; empty when it claims success."""
    if part(facts, "live", "terminal") == "success":
        return ""
    return part(facts, "live", "message") or part(facts, "transcript", "error_text") or ""


def last_main(facts):
    return part(facts, "wire", "main", "last")


def abandoned(record):
    """The client left, or we shut down: such an attempt decides nothing."""
    return part(record, "error", "phase") in ("client", "shutdown") and not record.get("failure")


def owed(facts, record):
    """The kind of the trouble in which the client left, or None: nobody answered after a failure, or for too long."""
    error = part(record, "error")
    if part(error, "phase") != "client" or record.get("terminal") is not None:
        return None
    return part(error, "earlier") or ("model_timeout" if too_long(facts, part(error, "idle_s")) else None)


def too_long(facts, seconds):
    """Is a silence of the model's one?"""
    return (seconds or 0.0) >= min(SILENT_STREAM, (facts.get("timeout_s") or 900.0) / 3)


def answered(record):
    """A good answer; an error beside its last event came after it."""
    status, broken = record.get("status"), record.get("error") and not record.get("terminal")
    return not record.get("failure") and not broken and isinstance(status, int) and 200 <= status < 300


def wire_success(facts):
    """The last main request before the end succeeded; without a model there is nothing to ask."""
    if not facts.get("model_given"):
        return True
    last = last_main(facts)
    if last is None or abandoned(last):
        return bool(part(facts, "wire", "main", "succeeded"))
    return answered(last)


def open_failure(facts):
    """(kind, record) of a main request that is failed, waiting to be tried again, asked again and not answered, or without
    anything of an answer for too long (keep-alives are nothing of one)."""
    pending = part(facts, "wire", "main", "open")
    if pending:
        earlier = pending.get("last_record")
        if pending.get("state") in ("waiting", "sent") and part(earlier, "failure"):
            return earlier["failure"], earlier
        if too_long(facts, pending.get("idle_s")):
            return "model_timeout", earlier or {"request": pending.get("request"), "attempt": pending.get("attempt")}
        return None, None
    last = last_main(facts)
    kind = last and (last.get("failure") or owed(facts, last))
    return (kind, last) if kind else (None, None)


def not_a_stream(record):
    """A good answer, but a document: a CLI that waits for a stream calls it a broken one (Codex: "stream closed before...")."""
    return bool(record) and answered(record) and record.get("terminal") is None and not record.get("events")


def wire_silent(facts):
    return not facts.get("model_given") or facts.get("wire") is None


def text_kind(facts):
    """(kind, source) that the harness's table gives to the CLI's words.  With a wire, only rows that need none count, and
    only while the wire reports no failure of its own."""
    text = said_text(facts)
    if not text or open_failure(facts)[0]:
        return None, None
    for pattern, kind, needs_wire, source in facts.get("error_table") or ():
        if not re.search(pattern, text):
            continue
        if wire_silent(facts) or not needs_wire:
            return kind, source
        if kind in HEALING and not_a_stream(last_main(facts)):
            return "unexpected_response", source
    return None, None


def deciding_kind(facts):
    """The kind that the wire, else the text, gives to an open failure."""
    return open_failure(facts)[0] or text_kind(facts)[0]


def ended_by(facts, kind):
    """Whether the finish reason of the last answer says so (the transport knows them)."""
    return terminal(facts) != "success" and part(facts, "wire", "main", "ended_by") == kind


def foreign_kill(facts):
    """SIGKILL ended the main process (or a shell says so of its child), and it was not ours."""
    ours = any(sent.get("signal") == "SIGKILL" for sent in part(facts, "ending", "signals") or ())
    return facts.get("main_status") in (SIGKILL, KILLED_IN_A_SHELL) and not ours


def ended_badly(facts):
    return facts.get("main_status") not in (0, None) and not part(facts, "ending", "timed_out")


def proxy_failed(facts):
    """The proxy itself failed at the last main request: nobody's fault but ours."""
    return part(last_main(facts), "rule") == "handler"


# -- the table ------------------------------------------------------------------------------------------------------------


def cause_is(*causes):
    return lambda facts: part(facts, "ending", "cause") in causes


def told_to_stop(facts):
    """The worker got a stop signal: while the agent ran, or when that had just ended without success (see Ending.hear)."""
    late = cause_is("exit")(facts) and part(facts, "ending", "signal_received") is not None
    return cause_is("signal", "owner_gone")(facts) or (late and not succeeded(facts))


def succeeded(facts):
    return terminal(facts) == "success" and wire_success(facts)


def kind_is(*kinds):
    return lambda facts: deciding_kind(facts) in kinds


def said_or_ended_by(kind):
    return lambda facts: deciding_kind(facts) == kind or ended_by(facts, kind)


# (kind, or a function of the facts; predicate; status; where the evidence stands).  Order is DESIGN 9's.
ROWS = (
    ("worker_error", lambda f: bool(f.get("worker_error")) or cause_is("proxy_dead")(f) or proxy_failed(f), "failed", "worker"),
    ("launch_failed", lambda f: bool(f.get("launch_error")), "not_run", "launch"),
    ("cancelled", cause_is("stop"), "incomplete", "stop"),
    ("terminated", told_to_stop, "incomplete", "stop"),
    ("completed", succeeded, "completed", "event"),
    ("request_limit", lambda f: part(f, "wire", "limit") == "request_limit", "incomplete", "limit"),
    ("token_limit", lambda f: part(f, "wire", "limit") == "token_limit", "incomplete", "limit"),
    ("context_length", said_or_ended_by("context_length"), "incomplete", "attempt"),
    ("refusal", said_or_ended_by("refusal"), "completed", "attempt"),
    ("output_limit", said_or_ended_by("output_limit"), "incomplete", "attempt"),
    ("turn_limit", lambda f: part(f, "live", "limit") == "turn_limit", "incomplete", "event"),
    (deciding_kind, kind_is(*PROVIDER), "failed", "attempt"),
    ("out_of_memory", lambda f: bool(part(f, "kernel", "oom")) and foreign_kill(f), "failed", "kernel"),
    ("disk_full", lambda f: bool(part(f, "kernel", "disk_full")) and ended_badly(f), "failed", "kernel"),
    ("pids_exhausted", lambda f: bool(part(f, "kernel", "pids")) and ended_badly(f), "failed", "kernel"),
    ("killed", foreign_kill, "failed", "signal"),
    ("no_model_call", lambda f: bool(f.get("model_given")) and not part(f, "wire", "main_requests"), "failed", "wire"),
    ("wall_timeout", lambda f: bool(part(f, "ending", "timed_out")), "incomplete", "deadline"),
    ("no_output", lambda f: not f.get("output_seen"), "failed", "exit"),
    ("agent_crash", lambda f: terminal(f) is None and f.get("main_status") != 0, "failed", "exit"),
    ("agent_error", lambda f: True, "failed", "exit"),
)
KINDS = tuple(row[0] for row in ROWS if isinstance(row[0], str)) + PROVIDER


def classify(facts):
    """The outcome object of one run."""
    named, _, status, source = next(row for row in ROWS if row[1](facts))
    kind = named if isinstance(named, str) else named(facts)
    if kind in ("cancelled", "terminated") and facts.get("started") is False:
        status = "not_run"
    record = deciding_record(facts, kind) if source in ("attempt", "event") else None
    http_status = record.get("status") if record and source == "attempt" else None
    return {
        "status": status,
        "kind": kind,
        "fault": "host" if replay_misfit(facts, kind, record) else FAULTS[kind],
        "code": responses_code(kind, http_status),
        "http_status": http_status,
        "message": sentence(facts, kind, record),
        "evidence": evidence(facts, kind, source, record),
    }


def responses_code(kind, http_status):
    """The Responses API error code (openai-openapi, ResponseErrorCode) that a peer expects for the kind."""
    if kind == "rate_limited" or (kind in PROVIDER and http_status == 429):
        return "rate_limit_exceeded"
    if kind in ("context_length", "refusal"):
        return "invalid_prompt"
    return "server_error" if kind in PROVIDER else None


def deciding_record(facts, kind):
    record = open_failure(facts)[1] or last_main(facts)
    return record if record and (kind == "completed" or not abandoned(record) or owed(facts, record)) else None


def evidence(facts, kind, source, record):
    """Which attempt, event, signal or figure decided."""
    if source == "attempt" and record:
        names = ("seq", "request", "attempt", "status", "failure", "finish", "decision", "rule")
        return dict([("source", "attempt")] + [(name, record[name]) for name in names if record.get(name) is not None])
    if source == "attempt":
        return {"source": "text", "rule": text_kind(facts)[1], "text": said_text(facts)[:500]}
    if source == "event":
        said = part(facts, "live", "terminal") and "event" or part(facts, "transcript", "terminal") and "transcript" or "exit"
        return {"source": said, "seq": part(record, "seq"), "return_code": facts.get("main_status")}
    if source == "launch":
        return {"source": "launch", "error": part(facts, "launch_error", "kind")}
    if source in ("stop", "deadline"):
        return {"source": source, "cause": part(facts, "ending", "cause"), "signal": part(facts, "ending", "signal_received")}
    if source == "limit":
        return {"source": "limit", "requests": part(facts, "wire", "main_requests"), "usage": part(facts, "wire", "usage")}
    if kind == "killed":
        return {"source": "signal", "signal": 9, "return_code": facts["main_status"], "probable": facts["main_status"] > 0}
    return {"source": source, "return_code": facts.get("main_status"), "terminal": terminal(facts)}


def replay_misfit(facts, kind, record):
    """A recorded run was to answer and does not fit: the host's doing, not the agent's."""
    said = part(record, "provider_error", "code")
    return kind == "invalid_request" and bool(facts.get("replayed")) and said == "replay_mismatch"


# What a reader should know beside the outcome, and what it never changes.  (code, predicate of facts and kind, detail)
WARNINGS = (
    ("replayed", lambda f, kind: f.get("replayed"), lambda f: "the model's answers are those recorded in %s" % f["replayed"]),
    (
        "recovered_errors",
        lambda f, kind: part(f, "wire", "recovered") or part(f, "wire", "aux_failed"),
        lambda f: recovered(f["wire"]),
    ),
    ("nonzero_exit", lambda f, kind: kind == "completed" and f.get("main_status") != 0, lambda f: str(f.get("main_status"))),
    ("empty_output", lambda f, kind: kind == "completed" and not f.get("final_message"), lambda f: "no final message"),
    ("lingered", lambda f, kind: part(f, "ending", "lingered"), lambda f: "it was done and did not exit"),
    (
        "supervision_stopped",
        lambda f, kind: part(f, "ending", "worker_stops") or (part(f, "ending", "late_s") or 0) >= LATE,
        lambda f: "%d times the worker, %.0f s over the deadline" % (f["ending"]["worker_stops"], f["ending"]["late_s"]),
    ),
    (
        "clock_moved",
        lambda f, kind: abs(f.get("clock_moved_s") or 0) >= MOVED,
        lambda f: "the wall clock went %+.0f s apart from the run's own; a transcript has the CLI's times" % f["clock_moved_s"],
    ),
)
MOVED = 2.0  # seconds; a clock that is kept right by small steps moves less in a day
LATE = 1.0  # seconds; stopped processes are continued after supervise.LATE, which counts from before the launch


def recovered(wire):
    return "%d main requests recovered, %d side requests failed" % (wire.get("recovered") or 0, wire.get("aux_failed") or 0)


def warnings(facts, outcome):
    """[{"code", "detail"}] for a run of which `classify(facts)` said `outcome`; facts["final_message"] is looked at, too."""
    return [{"code": code, "detail": detail(facts)} for code, holds, detail in WARNINGS if holds(facts, outcome["kind"])]


# -- words ----------------------------------------------------------------------------------------------------------------

SENTENCES = {
    "cancelled": "The host asked the run to stop.",
    "terminated": "The worker was told to terminate.",
    "completed": "The agent reported success.",
    "request_limit": "The run's limit of model requests was reached.",
    "token_limit": "The run's limit of tokens was reached.",
    "turn_limit": "The agent reached its own limit of turns.",
    "out_of_memory": "The kernel's out-of-memory killer ended the agent.",
    "disk_full": "The agent ended on a full disk.",
    "pids_exhausted": "The agent ended when no more processes could be created.",
    "killed": "The agent was killed by a SIGKILL that was not ours.",
    "no_model_call": "The agent made no model call; its configuration or credentials are suspect.",
    "wall_timeout": "The run reached its time limit.",
    "no_output": "The agent exited without any output.",
    "agent_crash": "The agent exited without reporting success or failure.",
    "agent_error": "The agent ended without success.",
}


def sentence(facts, kind, record):
    if kind == "worker_error" and cause_is("proxy_dead")(facts):
        return "The model proxy stopped working: its listener died."
    if kind == "worker_error":
        return facts.get("worker_error") or "The model proxy stopped working: %s" % (
            part(last_main(facts), "error", "message"))
    if kind == "launch_failed":
        return part(facts, "launch_error", "message") or "The agent could not be started."
    if kind == "terminated" and part(facts, "ending", "guard_gone"):
        return "The guard, which watches the worker, died or was killed; nobody asked the run to stop."
    if kind in SENTENCES:
        detail = said_text(facts) if kind in ("agent_error", "agent_crash") else ""
        return SENTENCES[kind] + (" It said: " + detail[:1000] if detail else "")
    provider = part(record, "provider_error", "message") or part(record, "provider_error", "excerpt")
    transport = part(record, "error", "message")
    words = provider or transport or said_text(facts) or bare(record)
    return "%s: %s" % (kind.replace("_", " ").capitalize(), str(words)[:1000])


def bare(record):
    """What can be said of an attempt about which nobody said anything."""
    finish, status = part(record, "finish"), part(record, "status")
    if finish:
        return "the answer ended with %s" % finish
    if status:
        return "HTTP %d without a message" % status if status >= 300 else "HTTP %d, and no whole answer" % status
    return "no answer came"

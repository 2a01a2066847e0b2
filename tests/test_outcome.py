"""Every row of the outcome table, by facts as the worker gathers them; the order of the rows; whose words are believed.

The real runs behind the rows are in tests/test_conformance*.py; here each predicate and its neighbours are seen alone.
"""

from __future__ import annotations

import pytest

from transport.provider_errors import finish_kind
from worker import outcome, policy


def wire(last=None, open=None, **more):
    ended = {} if last is None else {"last": last}
    ended["ended_by"] = last and finish_kind(last.get("finish"), last.get("terminal"))
    main = dict({"last": None, "open": open, "succeeded": 0, "failed": 0}, **ended)
    if last is not None:
        good = not last.get("failure") and not last.get("error")
        main.update(succeeded=more.pop("succeeded", int(good)), failed=int(not good))
    return dict({"main_requests": 0 if last is None and open is None else 1, "limit": None, "usage": None, "main": main}, **more)


def good(**more):
    return dict(
        {"seq": 3, "request": 2, "attempt": 1, "status": 200, "failure": None, "error": None, "finish": "completed",
         "events": 7, "terminal": "response.completed"}, **more
    )


def bad(kind, status=None, **more):
    return dict(
        {"seq": 4, "request": 2, "attempt": 6, "status": status, "failure": kind, "error": None, "decision": "gave_up"}, **more
    )


def facts(**more):
    """A run with a model that exited 1 without a terminal event."""
    ending = dict({"cause": "exit", "signals": [], "signal_received": None, "timed_out": False}, **more.pop("ending", {}))
    base = {
        "worker_error": None,
        "launch_error": None,
        "ending": ending,
        "main_status": 1,
        "wire": wire(good()),
        "model_given": True,
        "live": {"terminal": None, "message": None},
        "transcript": {},
        "kernel": {},
        "harness": "codex",
        "exit_zero_is_success": False,
        "timeout_s": 600,
        "output_seen": True,
        "error_table": (),
        "started": True,
    }
    return dict(base, **more)


SUCCESS = {"terminal": "success", "message": None}
FAILURE = {"terminal": "failure", "message": "boom"}
KILLED = {"signals": [{"signal": "SIGINT", "at": 1.0}, {"signal": "SIGKILL", "at": 2.0}]}
WAITING = {"request": 2, "attempt": 3, "since": 1.0, "idle_s": 2.0, "state": "waiting", "last_record": bad("rate_limited", 429)}
SILENT = {"request": 2, "attempt": 1, "since": 1.0, "idle_s": 201.0, "state": "streaming", "last_record": None}
AGAIN = {"request": 2, "attempt": 3, "since": 1.0, "idle_s": 2.0, "state": "sent", "last_record": bad("overloaded", 503)}
BUSY = {"request": 2, "attempt": 1, "since": 1.0, "idle_s": 1.0, "state": "streaming", "last_record": None}

NO_ANSWER = {"phase": "connect", "kind": "refused", "message": "connection refused"}
DEADLINE = {"cause": "timeout", "timed_out": True}
LEFT = good(status=None, error={"phase": "client", "kind": "reset", "message": "the client left"})


def left(**more):
    return wire(good(status=None, events=0, terminal=None, finish=None, error=dict(LEFT["error"], **more)), succeeded=2)




def failed(kind, status=None, **more):
    """The CLI says that it failed, and its last main request did."""
    return facts(live=FAILURE, wire=wire(bad(kind, status, **more)))


# (name, facts, "kind status fault code http_status")
ROWS = [
    ("the worker failed", facts(worker_error="KeyError: x"), "worker_error failed worker - -"),
    ("the proxy died", facts(ending={"cause": "proxy_dead"}), "worker_error failed worker - -"),
    (
        "not found",
        facts(launch_error={"kind": "not_found", "message": "no such program"}, started=False, main_status=None),
        "launch_failed not_run environment - -",
    ),
    ("stopped", facts(ending={"cause": "stop"}), "cancelled incomplete host - -"),
    ("stopped before the start", facts(ending={"cause": "stop"}, started=False), "cancelled not_run host - -"),
    ("told to terminate", facts(ending={"cause": "signal", "signal_received": 15}), "terminated incomplete host - -"),
    ("told when the agent had just ended", facts(ending={"cause": "exit", "signal_received": 15}, main_status=-15),
     "terminated incomplete host - -"),
    ("told when the agent had just succeeded", facts(ending={"cause": "exit", "signal_received": 15}, live={"terminal": "success"}),
     "completed completed none - -"),
    ("the host is gone", facts(ending={"cause": "owner_gone"}), "terminated incomplete host - -"),
    ("success", facts(live=SUCCESS, main_status=0), "completed completed none - -"),
    ("success, then exit 1", facts(live=SUCCESS), "completed completed none - -"),
    ("success, then a foreign SIGKILL", facts(live=SUCCESS, main_status=-9), "completed completed none - -"),
    (
        "success, then it lingered",
        facts(live=SUCCESS, main_status=-2, ending={"cause": "linger"}),
        "completed completed none - -",
    ),
    ("the transcript's success", facts(transcript={"terminal": "success"}, main_status=0), "completed completed none - -"),
    ("exit 0 of any program", facts(exit_zero_is_success=True, main_status=0), "completed completed none - -"),
    ("no model", facts(model_given=False, wire=None, live=SUCCESS, main_status=0), "completed completed none - -"),
    (
        "the client left a later request",
        facts(live=SUCCESS, main_status=0, wire=wire(LEFT, succeeded=2)),
        "completed completed none - -",
    ),
    (
        "our limit of requests",
        facts(live=FAILURE, wire=wire(good(), limit="request_limit")),
        "request_limit incomplete limit - -",
    ),
    ("our limit of tokens", facts(live=FAILURE, wire=wire(good(), limit="token_limit")), "token_limit incomplete limit - -"),
    ("the context is full", failed("context_length", 400), "context_length incomplete limit invalid_prompt 400"),
    ("refused (D11)", failed("refusal", 400), "refusal completed model invalid_prompt 400"),
    (
        "filtered (D11)",
        facts(live=FAILURE, wire=wire(good(finish="content_filter"))),
        "refusal completed model invalid_prompt 200",
    ),
    ("output limit (D11)", failed("output_limit", 200), "output_limit incomplete limit - 200"),
    (
        "finish: output limit",
        facts(live=FAILURE, wire=wire(good(finish="max_output_tokens"))),
        "output_limit incomplete limit - 200",
    ),
    ("finish: the context is full", facts(live=FAILURE, wire=wire(good(finish="model_context_window_exceeded"))),
     "context_length incomplete limit invalid_prompt 200"),
    ("a prompt that Gemini blocked", facts(live=FAILURE, wire=wire(good(finish="OTHER", terminal="blockReason"))),
     "refusal completed model invalid_prompt 200"),
    ("turn limit", facts(live={"terminal": "failure", "message": "x", "limit": "turn_limit"}), "turn_limit incomplete limit - -"),
    ("429 for ever", failed("rate_limited", 429), "rate_limited failed model rate_limit_exceeded 429"),
    (
        "a wait that outlasts our deadline",
        facts(ending=DEADLINE, wire=wire(bad("rate_limited", 429), WAITING)),
        "rate_limited failed model rate_limit_exceeded 429",
    ),
    ("it left a model that was silent for too long", facts(wire=left(idle_s=201.0, earlier=None)), "model_timeout failed model server_error -"),
    ("it left a model that was silent for a while", facts(wire=left(idle_s=199.0, earlier=None)), "agent_crash failed agent - -"),
    ("it left while a failure was being repaired", facts(wire=left(idle_s=5.0, earlier="overloaded")),
     "overloaded failed model server_error -"),
    ("it left, and had succeeded", facts(live=SUCCESS, wire=left(idle_s=500.0, earlier=None)), "completed completed none - -"),
    ("asked again, and nothing came before our deadline", facts(ending=DEADLINE, wire=wire(None, AGAIN)),
     "overloaded failed model server_error 503"),
    ("asked again, and the answer came while our deadline did", facts(ending=DEADLINE, wire=wire(None, dict(AGAIN, state="streaming"))),
     "wall_timeout incomplete limit - -"),
    ("overloaded", failed("overloaded", 529), "overloaded failed model server_error 529"),
    ("500 for ever", failed("server_error", 500), "server_error failed model server_error 500"),
    (
        "a silent stream at our deadline",
        facts(ending=DEADLINE, wire=wire(None, SILENT)),
        "model_timeout failed model server_error -",
    ),
    ("the first byte never came", failed("model_timeout"), "model_timeout failed model server_error -"),
    ("refused connection", failed("connection", error=NO_ANSWER), "connection failed model server_error -"),
    ("cut", failed("stream_interrupted", 200), "stream_interrupted failed model server_error 200"),
    ("a page instead", failed("unexpected_response", 200), "unexpected_response failed model server_error 200"),
    ("quota", failed("quota_exhausted", 429), "quota_exhausted failed host rate_limit_exceeded 429"),
    ("401 (D09)", failed("authentication", 401), "authentication failed host server_error 401"),
    ("403", failed("permission", 403), "permission failed host server_error 403"),
    ("404", failed("model_not_found", 404), "model_not_found failed host server_error 404"),
    ("400", failed("invalid_request", 400), "invalid_request failed agent server_error 400"),
    ("certificate", failed("tls_failed"), "tls_failed failed environment server_error -"),
    (
        "exit 0 on a failed last request",
        facts(exit_zero_is_success=True, main_status=0, wire=wire(bad("server_error", 500))),
        "server_error failed model server_error 500",
    ),
    (
        "success claimed on a failed last request",
        facts(live=SUCCESS, main_status=0, wire=wire(bad("connection"))),
        "connection failed model server_error -",
    ),
    ("out of memory", facts(main_status=-9, kernel={"oom": True}), "out_of_memory failed environment - -"),
    ("out of memory, behind a shell", facts(main_status=137, kernel={"oom": True}), "out_of_memory failed environment - -"),
    ("a full disk", facts(kernel={"disk_full": True}), "disk_full failed environment - -"),
    ("no more processes", facts(kernel={"pids": True}), "pids_exhausted failed environment - -"),
    ("a foreign SIGKILL (B18)", facts(main_status=-9), "killed failed environment - -"),
    ("137 from a shell (B18)", facts(main_status=137), "killed failed environment - -"),
    (
        "exit 0, no call (D08)",
        facts(exit_zero_is_success=True, main_status=0, wire=wire()),
        "no_model_call failed environment - -",
    ),
    ("our deadline (D13)", facts(main_status=-9, ending=dict(KILLED, **DEADLINE)), "wall_timeout incomplete limit - -"),
    (
        "our deadline, in an answer",
        facts(main_status=-2, ending=DEADLINE, wire=wire(None, BUSY)),
        "wall_timeout incomplete limit - -",
    ),
    ("nothing said", facts(output_seen=False), "no_output failed agent - -"),
    ("text, then exit 1 (D18)", facts(), "agent_crash failed agent - -"),
    ("text, then a signal", facts(main_status=-11), "agent_crash failed agent - -"),
    ("a failure of its own", facts(live=FAILURE), "agent_error failed agent - -"),
    ("exit 0 without a word of success", facts(main_status=0), "agent_error failed agent - -"),
    (
        "its own exit just before our deadline (D14)",
        facts(main_status=3, ending={"cause": "exit"}),
        "agent_crash failed agent - -",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_rows(row):
    decided = outcome.classify(row[1])
    found = [decided[name] for name in ("kind", "status", "fault", "code", "http_status")]
    assert " ".join("-" if value is None else str(value) for value in found) == row[2]
    assert decided["message"] and decided["evidence"]["source"]


def test_every_kind_has_a_row_a_fault_and_an_action():
    seen = {row[2].split()[0] for row in ROWS}
    assert seen == set(outcome.KINDS) == set(outcome.FAULTS) == set(policy.TABLE)


ORDER = [
    # what else is true, and the row that still wins
    ("our own proxy's failure is not the agent's", facts(wire=wire(bad(None, rule="handler", error={"phase": "handler"}))),
     "worker_error"),
    ("a failed worker before everything", facts(worker_error="x", live=SUCCESS, ending={"cause": "stop"}), "worker_error"),
    ("a stop before success", facts(ending={"cause": "stop"}, live=SUCCESS, main_status=0), "cancelled"),
    ("success before a limit", facts(live=SUCCESS, wire=wire(good(), limit="token_limit")), "completed"),
    ("a limit before an open failure", facts(wire=wire(bad("server_error", 500), limit="request_limit")), "request_limit"),
    ("an open failure before a kill", facts(main_status=-9, wire=wire(bad("server_error", 500))), "server_error"),
    ("an open failure before our deadline", facts(ending=DEADLINE, wire=wire(bad("overloaded", 503))), "overloaded"),
    ("a kill before no model call", facts(main_status=-9, wire=wire()), "killed"),
    ("no model call before our deadline", facts(ending={"cause": "timeout", "timed_out": True}, wire=wire()), "no_model_call"),
]


@pytest.mark.parametrize("row", ORDER, ids=[row[0] for row in ORDER])
def test_first_match_decides(row):
    assert outcome.classify(row[1])["kind"] == row[2]


def test_silence_is_measured_against_the_limit():
    third = facts(timeout_s=300, ending={"cause": "timeout", "timed_out": True}, wire=wire(None, dict(BUSY, idle_s=100.0)))
    assert outcome.classify(third)["kind"] == "model_timeout"
    less = facts(timeout_s=300, ending={"cause": "timeout", "timed_out": True}, wire=wire(None, dict(BUSY, idle_s=99.0)))
    assert outcome.classify(less)["kind"] == "wall_timeout"
    long = facts(timeout_s=86400, ending={"cause": "timeout", "timed_out": True}, wire=wire(None, dict(BUSY, idle_s=300.0)))
    assert outcome.classify(long)["kind"] == "model_timeout"


def test_a_new_request_after_a_failed_one_is_no_open_failure():
    given = facts(ending={"cause": "timeout", "timed_out": True}, wire=wire(bad("server_error", 500), BUSY))
    assert outcome.classify(given)["kind"] == "wall_timeout"


TABLE = ((r"^too many", "rate_limited", True, "test"), (r"^no room", "context_length", False, "test"))
TEXT = [
    ("without a wire the text decides", False, None, "too many requests", "rate_limited"),
    ("with a wire it does not", True, wire(good()), "too many requests", "agent_error"),
    ("unless the CLI can know it alone", True, wire(good()), "no room left", "context_length"),
    ("the wire's own failure is stronger", True, wire(bad("server_error", 500)), "no room left", "server_error"),
    ("words in the middle do not count", False, None, "there were too many", "agent_error"),
]


@pytest.mark.parametrize("row", TEXT, ids=[row[0] for row in TEXT])
def test_known_texts(row):
    _, model_given, given, text, kind = row
    live = {"terminal": "failure", "message": text}
    decided = outcome.classify(facts(model_given=model_given, wire=given, live=live, error_table=TABLE))
    assert decided["kind"] == kind
    if kind == "rate_limited":
        assert decided["evidence"]["source"] == "text" and decided["code"] == "rate_limit_exceeded"


def test_a_success_is_not_searched_for_error_texts():
    live = {"terminal": "success", "message": "too many"}
    assert (
        outcome.classify(facts(model_given=False, wire=None, live=live, main_status=0, error_table=TABLE))["kind"] == "completed"
    )


def test_the_deciding_attempt_is_named():
    record = bad("rate_limited", 429, rule="max_attempts", provider_error={"message": "slow down"})
    decided = outcome.classify(facts(live=FAILURE, wire=wire(record)))
    named = {name: record[name] for name in ("seq", "request", "attempt", "status", "failure", "decision", "rule")}
    assert decided["evidence"] == dict(named, source="attempt")
    assert decided["message"] == "Rate limited: slow down"


def test_a_kill_behind_a_shell_is_marked_as_probable():
    assert outcome.classify(facts(main_status=137))["evidence"]["probable"] is True
    assert outcome.classify(facts(main_status=-9))["evidence"]["probable"] is False


@pytest.mark.parametrize(
    "missing",
    [
        {},
        {"wire": None, "model_given": True},
        {"ending": None},
        {"wire": {}},
        {"wire": {"main": None}},
        {"wire": {"main": {"last": None, "open": None}}, "model_given": True},
    ],
)
def test_missing_facts_never_raise(missing):
    assert outcome.classify(missing)["kind"] in outcome.KINDS


WARNED = [
    ("recovered (D02, D15)", {"wire": wire(good(), recovered=1)}, ["recovered_errors"]),
    ("a failed side request", {"wire": wire(good(), aux_failed=2)}, ["recovered_errors"]),
    ("exit 1 after success", {"main_status": 1}, ["nonzero_exit"]),
    ("nothing to show", {"final_message": None}, ["empty_output"]),
    ("it lingered", {"ending": {"lingered": True}}, ["lingered"]),
    ("nothing", {}, []),
]


@pytest.mark.parametrize("row", WARNED, ids=[row[0] for row in WARNED])
def test_warnings_beside_a_success(row):
    given = facts(**dict({"live": SUCCESS, "main_status": 0, "final_message": "42"}, **row[1]))
    decided = outcome.classify(given)
    assert decided["kind"] == "completed"
    assert [one["code"] for one in outcome.warnings(given, decided)] == row[2]

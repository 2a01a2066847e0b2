"""The disposition table, its overrides and its safety rules; exit codes; the names that peers use."""

from __future__ import annotations

import pytest

from worker import outcome, policy


def dispose(kind, confirmed=True, tampered=False, overrides=None, attempt=1, most=None):
    return policy.dispose({"kind": kind}, confirmed, tampered, overrides, attempt, most)


ACTIONS = {  # DESIGN 9, last column
    "retry": "worker_error terminated rate_limited overloaded server_error model_timeout connection "
             "stream_interrupted unexpected_response out_of_memory disk_full pids_exhausted killed",
    "mask": "launch_failed cancelled quota_exhausted authentication permission model_not_found "
            "invalid_request tls_failed no_model_call",
    "grade": "completed request_limit token_limit context_length refusal output_limit turn_limit wall_timeout "
             "no_output agent_crash agent_error",
}  # fmt: skip
KINDS = [(kind, action) for action, kinds in ACTIONS.items() for kind in kinds.split()]


@pytest.mark.parametrize(("kind", "action"), KINDS)
def test_actions(kind, action):
    found = dispose(kind)
    assert (found["action"], found["verify_allowed"]) == (action, kind != "worker_error")
    assert kind in found["reason"]


def test_the_table_is_complete():
    assert {kind for kind, _ in KINDS} == set(policy.TABLE) == set(outcome.KINDS)


SAFETY = [
    # (name, disposed, action, verify_allowed)
    ("an override", dispose("killed", overrides={"killed": "grade"}), "grade", True),
    ("an override of another kind", dispose("killed", overrides={"refusal": "mask"}), "retry", True),
    ("the last attempt", dispose("killed", attempt=3, most=3), "mask", True),
    ("one before the last", dispose("killed", attempt=2, most=3), "retry", True),
    ("past the last", dispose("killed", attempt=4, most=3), "mask", True),
    ("grade does not count attempts", dispose("completed", attempt=3, most=3), "grade", True),
    (
        "an override to retry on the last attempt",
        dispose("completed", overrides={"completed": "retry"}, attempt=1, most=1),
        "mask",
        True,
    ),
    ("tampered", dispose("completed", tampered=True), "mask", False),
    ("tampered and overridden", dispose("killed", tampered=True, overrides={"killed": "grade"}), "mask", False),
    ("tampered, to be retried", dispose("killed", tampered=True), "retry", False),
    ("unconfirmed", dispose("completed", confirmed=False), "mask", False),
    ("unconfirmed, to be retried", dispose("killed", confirmed=False), "mask", False),
    ("unconfirmed and overridden", dispose("completed", confirmed=False, overrides={"completed": "grade"}), "mask", False),
    ("a failed worker on the last attempt", dispose("worker_error", attempt=2, most=2), "mask", False),
]


@pytest.mark.parametrize("row", SAFETY, ids=[row[0] for row in SAFETY])
def test_safety(row):
    assert (row[1]["action"], row[1]["verify_allowed"]) == row[2:]


@pytest.mark.parametrize(("kind", "confirmed", "code"), [
    ("completed", True, 0), ("killed", True, 75), ("authentication", True, 69), ("completed", False, 70), ("killed", False, 70),
    ("worker_error", True, 70), ("worker_error", False, 70),
])  # fmt: skip
def test_exit_codes(kind, confirmed, code):
    assert policy.exit_code({"kind": kind}, dispose(kind, confirmed), confirmed) == code


GYM = """transport_unreachable transport_peer_drop transport_timeout transport_local_resource agent_run_error
    agent_request_failed agent_timeout agent_command_not_allowed environment_server_failed protocol_violation
    provider_unavailable provider_quota_exhausted provider_oom_killed cancelled kill_shaped shutdown
    persistence_failed""".split()
INSPECT = ("context", "time", "working", "message", "token", "cost", "operator", "custom")


@pytest.mark.parametrize("kind", sorted(policy.TABLE))
def test_peer_names(kind):
    given = {"kind": kind, "message": "x" * 3000}
    found = policy.exports(given, dispose(kind))
    gym, harbor, inspect = found["gym"], found["harbor"], found["inspect"]
    assert gym["failure_kind"] in GYM or kind == "completed" or gym["failure_kind"] == "sandbox_worker:" + kind
    assert gym["mask_sample"] == (dispose(kind)["action"] != "grade")
    assert gym["failure_reason"] is None or len(gym["failure_reason"]) == 2000
    assert inspect["limit"] is None or (inspect["limit"] in INSPECT and inspect["error"] is None)
    assert harbor["has_valid_reward"] == (dispose(kind)["action"] == "grade")  # what is graded is a valid reward, and only that
    assert (harbor["exception"] is None) == (kind == "completed")


def test_mask_sample_follows_the_disposition():
    masked = dispose("completed", confirmed=False)
    assert policy.exports({"kind": "completed", "message": ""}, masked)["gym"]["mask_sample"] is True
    assert policy.exports({"kind": "completed", "message": ""})["gym"]["mask_sample"] is False

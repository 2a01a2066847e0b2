"""What the host should do with a run, and the names by which its peers know the outcome.  Pure data and two small functions.

grade: hand it to the verifier; mask: keep it, never score it; retry: run it again in a fresh sandbox.
Sources of the peers' names (DESIGN 9, last paragraph): Gym failure kinds and mask_sample; Harbor exception names with
(should_retry, should_grade, has_valid_reward); Inspect EvalSampleLimit types or an error; verifiers v1 error types (the
boundary that a failure crossed).  A name with a colon is our own, as Gym asks for where it has none.
"""

from __future__ import annotations

GRADE, MASK, RETRY = "grade", "mask", "retry"
EXIT_CODES = {GRADE: 0, RETRY: 75, MASK: 69}  # sysexits: EX_OK, EX_TEMPFAIL, EX_UNAVAILABLE
NOT_VERIFIABLE = 70  # EX_SOFTWARE

RETRY_GRADE_INVALID = (True, True, False)
VALID_REWARD = (False, True, True)
NO_RETRY_NO_GRADE = (False, False, False)
RETRY_NO_GRADE = (True, False, False)

# kind: (action, Gym failure_kind, Harbor exception, Harbor flags, Inspect limit or None for an error, verifiers error)
TABLE = {
    "worker_error": (RETRY, "environment_server_failed", "EnvironmentError", RETRY_NO_GRADE, None, "SandboxError"),
    "launch_failed": (MASK, "agent_command_not_allowed", "AgentSetupError", NO_RETRY_NO_GRADE, None, "HarnessError"),
    "cancelled": (MASK, "cancelled", "CancelledError", NO_RETRY_NO_GRADE, "operator", "RolloutError"),
    "terminated": (RETRY, "shutdown", "CancelledError", NO_RETRY_NO_GRADE, "operator", "RolloutError"),
    "completed": (GRADE, None, None, VALID_REWARD, None, None),
    "request_limit": (GRADE, "sandbox_worker:request_limit", "AgentTimeoutError", VALID_REWARD, "custom", None),
    "token_limit": (GRADE, "sandbox_worker:token_limit", "AgentTimeoutError", VALID_REWARD, "token", None),
    "context_length": (
        GRADE,
        "sandbox_worker:context_length",
        "ContextWindowExceededError",
        VALID_REWARD,
        "context",
        "OverlongPromptError",
    ),
    "refusal": (GRADE, "sandbox_worker:refusal", "AgentSafetyRefusalError", VALID_REWARD, None, None),
    "output_limit": (GRADE, "sandbox_worker:output_limit", "OutputTokenExceededError", VALID_REWARD, "token", None),
    "turn_limit": (GRADE, "sandbox_worker:turn_limit", "AgentTimeoutError", VALID_REWARD, "message", None),
    "rate_limited": (RETRY, "sandbox_worker:rate_limited", "ApiRateLimitError", RETRY_GRADE_INVALID, None, "ProviderError"),
    "overloaded": (RETRY, "sandbox_worker:overloaded", "ApiOverloadedError", RETRY_GRADE_INVALID, None, "ProviderError"),
    "server_error": (RETRY, "agent_request_failed", "ApiInternalServerError", RETRY_GRADE_INVALID, None, "ProviderError"),
    "model_timeout": (RETRY, "transport_timeout", "ApiResponseStalledError", RETRY_GRADE_INVALID, None, "ProviderError"),
    "connection": (RETRY, "transport_unreachable", "NetworkConnectionError", RETRY_GRADE_INVALID, None, "ProviderError"),
    "stream_interrupted": (RETRY, "transport_peer_drop", "ApiConnectionClosedError", RETRY_GRADE_INVALID, None, "ProviderError"),
    "unexpected_response": (RETRY, "protocol_violation", "UnknownApiError", RETRY_GRADE_INVALID, None, "ProviderError"),
    "quota_exhausted": (MASK, "sandbox_worker:quota_exhausted", "ApiUsageLimitError", RETRY_GRADE_INVALID, None, "ProviderError"),
    "authentication": (
        MASK,
        "sandbox_worker:authentication",
        "AgentAuthenticationError",
        NO_RETRY_NO_GRADE,
        None,
        "ProviderError",
    ),
    "permission": (MASK, "sandbox_worker:permission", "PermissionDeniedError", NO_RETRY_NO_GRADE, None, "ProviderError"),
    "model_not_found": (MASK, "sandbox_worker:model_not_found", "ModelNotFoundError", NO_RETRY_NO_GRADE, None, "ProviderError"),
    "invalid_request": (MASK, "agent_request_failed", "BadRequestError", (False, True, False), None, "ProviderError"),
    "tls_failed": (MASK, "transport_unreachable", "NetworkConnectionError", RETRY_GRADE_INVALID, None, "ProviderError"),
    "out_of_memory": (RETRY, "provider_oom_killed", "OutOfMemoryError", RETRY_NO_GRADE, None, "SandboxError"),
    "disk_full": (RETRY, "persistence_failed", "EnvironmentError", RETRY_NO_GRADE, None, "SandboxError"),
    "pids_exhausted": (RETRY, "transport_local_resource", "EnvironmentError", RETRY_NO_GRADE, None, "SandboxError"),
    "killed": (RETRY, "kill_shaped", "EnvironmentError", RETRY_NO_GRADE, None, "SandboxError"),
    "no_model_call": (MASK, "sandbox_worker:no_model_call", "AgentSetupError", NO_RETRY_NO_GRADE, None, "HarnessError"),
    "wall_timeout": (GRADE, "agent_timeout", "AgentTimeoutError", VALID_REWARD, "time", None),
    "no_output": (GRADE, "agent_run_error", "NonZeroAgentExitCodeError", VALID_REWARD, None, "HarnessError"),
    "agent_crash": (GRADE, "agent_run_error", "NonZeroAgentExitCodeError", VALID_REWARD, None, "HarnessError"),
    "agent_error": (GRADE, "agent_run_error", "NonZeroAgentExitCodeError", VALID_REWARD, None, "HarnessError"),
}


def dispose(outcome, cleanup_confirmed, tampered, overrides, run_attempt, run_max_attempts):
    """{"action", "reason", "verify_allowed"}.  overrides: {kind: action} of the input document, or None; run_attempt counts
    from 1; run_max_attempts: None without a bound.  Safety rules come after the overrides, and cannot be overridden."""
    kind = outcome["kind"]
    action, reason = TABLE[kind][0], kind
    if overrides and kind in overrides:
        action, reason = overrides[kind], kind + ", by the input document's policy"
    if action == RETRY and run_max_attempts is not None and (run_attempt or 1) >= run_max_attempts:
        action, reason = MASK, "%s, attempt %d of %d" % (kind, run_attempt or 1, run_max_attempts)
    if tampered and action == GRADE:
        action, reason = MASK, "evidence was tampered with"
    if not cleanup_confirmed:
        action, reason = MASK, "cleanup is not confirmed"
    allowed = bool(cleanup_confirmed) and not tampered and kind != "worker_error"
    return {"action": action, "reason": reason, "verify_allowed": allowed}


def exit_code(outcome, disposition, cleanup_confirmed):
    """DESIGN 5: 70 where nothing may be verified in this sandbox, else by the action."""
    if outcome["kind"] == "worker_error" or not cleanup_confirmed:
        return NOT_VERIFIABLE
    return EXIT_CODES[disposition["action"]]


def exports(outcome, disposition=None):
    """The peers' names for an outcome; mask_sample follows the disposition where one is given."""
    kind = outcome["kind"]
    action, gym, harbor, flags, limit, verifiers = TABLE[kind]
    action = disposition["action"] if disposition else action
    error = None if kind in ("completed", "refusal") or limit else kind
    return {
        "gym": {"failure_kind": gym, "mask_sample": action != GRADE, "failure_reason": gym and outcome["message"][:2000]},
        "harbor": {"exception": harbor, "should_retry": flags[0], "should_grade": flags[1], "has_valid_reward": flags[2]},
        "inspect": {"limit": limit, "error": error},
        "verifiers": {"error": verifiers},
    }

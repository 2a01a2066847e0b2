"""What is said about a run, in words that need no knowledge of this project.  Tables only.

KINDS: kind -> (headline, what it means).  ACTIONS: what to do.  RULES: why the proxy did not try again, or did.
"""

from __future__ import annotations

KINDS = {
    "completed": ("The agent finished its task.", "It said so itself, and its last model request had succeeded."),
    "request_limit": ("The agent used up its allowance of model requests.", "The limit was set by the host for this run."),
    "token_limit": ("The agent used up its allowance of tokens.", "The limit was set by the host for this run."),
    "turn_limit": ("The agent used up its own allowance of turns.", "The limit is the agent CLI's."),
    "wall_timeout": (
        "The run reached its time limit.",
        "The agent was still working, with no model failure open, and was stopped.",
    ),
    "context_length": (
        "The conversation no longer fitted the model's context.",
        "The provider refused the last request for its length.",
    ),
    "refusal": ("The model refused to go on.", "A content filter or policy ended the conversation."),
    "output_limit": ("The model's answer was cut at its output limit.", "The last answer ended before it was whole."),
    "rate_limited": (
        "The model provider limited the rate of requests.",
        "It had not recovered when the run ended. The agent is not to blame.",
    ),
    "overloaded": ("The model provider was overloaded.", "It had not recovered when the run ended. The agent is not to blame."),
    "server_error": ("The model provider failed.", "It had not recovered when the run ended. The agent is not to blame."),
    "model_timeout": (
        "The model provider did not answer in time.",
        "The agent was waiting for the model when the run ended. It is not to blame.",
    ),
    "connection": (
        "The model provider could not be reached.",
        "No connection to the endpoint could be made or kept. The agent is not to blame.",
    ),
    "stream_interrupted": (
        "The model's answer broke off.",
        "The stream ended before the answer was whole. The agent is not to blame.",
    ),
    "unexpected_response": (
        "Something else than the model answered.",
        "An error page, a block page or a redirect came where a model answer was due.",
    ),
    "quota_exhausted": (
        "The account at the model provider is used up.",
        "Asking again cannot help; the quota or the billing must be mended.",
    ),
    "authentication": ("The model provider did not accept the key.", "Asking again cannot help; the key must be mended."),
    "permission": (
        "The model provider forbids this use.",
        "The key has no right to this model, or the provider does not serve this place.",
    ),
    "model_not_found": ("The model provider does not know this model.", "The model's name or the endpoint must be mended."),
    "invalid_request": ("The request was refused as invalid.", "The same request would be refused again."),
    "tls_failed": (
        "No trusted connection to the model provider.",
        "Its certificate could not be verified from inside the sandbox.",
    ),
    "out_of_memory": (
        "The sandbox ran out of memory.",
        "The kernel ended the agent. Whether the agent or the sandbox is too big for it is not known.",
    ),
    "disk_full": ("The sandbox's disk was full.", "The agent ended on it."),
    "pids_exhausted": ("The sandbox could start no more processes.", "The agent ended on it."),
    "killed": ("Somebody killed the agent.", "It ended by a SIGKILL that the worker did not send."),
    "no_model_call": (
        "The agent never called the model.",
        "Its configuration or its credentials are suspect; the provider was not asked.",
    ),
    "no_output": ("The agent ended without a word.", "It printed nothing, and no model failure explains it."),
    "agent_crash": ("The agent crashed.", "It ended without reporting success or failure, and no model failure explains it."),
    "agent_error": ("The agent ended without success.", "It reported a failure, and no model failure explains it."),
    "launch_failed": ("The agent could not be started.", "Nothing of it ran."),
    "cancelled": ("The host cancelled the run.", "It asked the worker to stop."),
    "terminated": ("The worker was told to terminate.", "A signal, or the loss of its owner, ended the run from outside."),
    "worker_error": ("The worker itself failed.", "What happened to the agent after that is not known."),
}
UNKNOWN_KIND = ("The run ended as \u201c%s\u201d.", "This version of the report has no words for that.")
# action -> (what to do, tone)
ACTIONS = {
    "grade": ("Grade it: the result counts.", "good"),
    "retry": ("Run it again in a fresh sandbox: this run says nothing about the agent.", "odd"),
    "mask": ("Keep it, but never score it: running it again unchanged would not help.", "warn"),
}
FAULTS = {
    "agent": "the agent",
    "model": "the model provider",
    "limit": "a limit of this run",
    "environment": "the sandbox",
    "worker": "the worker",
    "host": "the host's settings or wish",
    "none": "nobody",
}
STATUS_TONE = {"completed": "good", "failed": "bad", "incomplete": "warn", "not_run": "bad"}
# decision of an attempt -> (word, tone)
DECISIONS = {
    "forwarded": ("passed on", "good"),
    "retried": ("tried again", "warn"),
    "gave_up": ("given up", "bad"),
    "latched": ("answered from memory", "bad"),
    "refused": ("refused by the proxy", "bad"),
    "stale_connection": ("sent again, old connection", "quiet"),
}
RULES = {
    "success": "the answer was whole",
    "max_attempts": "all attempts were used up",
    "wait_over_max": "the wait asked for is too long",
    "wait_over_budget": "the time for waiting is used up",
    "wait_over_deadline": "the wait would outlast the run",
    "cannot_heal": "repeating such a request cannot help",
    "ambiguous_limit": "another repeat could be paid for twice",
    "client_gone": "the agent had left",
    "client_left": "the agent left",
    "shutdown": "the run was being stopped",
    "client_has_bytes": "part of the answer was with the agent already",
    "server_said_no": "the provider asks not to repeat it",
    "name_does_not_exist": "the endpoint's name does not exist",
    "certificate_failure": "the certificate cannot be trusted",
    "status_429": "status 429",
    "status_408": "status 408",
    "status_5xx": "a 5xx status",
    "status_529": "status 529",
    "status_cloudflare": "a gateway's 52x status",
    "held_cut": "the answer broke off unseen",
    "not_sent": "nothing had been sent",
    "held_truncated": "the answer ended too early, unseen",
    "held_error": "an error inside the stream, unseen",
    "ambiguous": "sent, but never answered",
    "request_limit": "the run's limit of requests",
    "token_limit": "the run's limit of tokens",
    "token": "the run's token was missing or wrong",
    "handler": "the worker failed",
}
TOOL_TONES = {
    "completed": "good",
    "failed": "bad",
    "timeout": "bad",
    "cancelled": "warn",
    "incomplete": "warn",
    "unknown": "quiet",
}
WARNINGS = {
    "recovered_errors": "Model requests failed and were made good by repeating them, or side requests failed.",
    "nonzero_exit": "The agent reported success, yet its exit code is not 0.",
    "empty_output": "The agent reported success without a final message.",
    "lingered": "The agent's CLI did not exit by itself after its last event, and was stopped.",
    "key_exposed": "The real key could be read inside the sandbox.",
    "untested_version": "This version of the agent's CLI has not been tested with the worker.",
    "supervision_stopped": "The agent, or a pause of the whole sandbox, had stopped the worker for a while.",
    "clock_moved": "The sandbox's wall clock was set while the run went on, or the machine slept. The worker's own times hold.",
    "replayed": "The model's answers are those of a recorded run.",
}

"""The documents of a run, built from what is known about it.  No decision is made here; see outcome.py and policy.py.

The first six fields of the receipt's and the result's contract (`return_code`,
`timed_out`, `cleanup_confirmed`, `error`, `hostname`, `pid`) are the reference
runner's and keep their meaning for the hosts that read only those.
"""
from __future__ import annotations

import os
import sys

from worker import processes
from worker.version import BUNDLE, VERSION

SCHEMA = "sandbox-worker/result/1"
# Causes in which the reference says timed_out although no deadline passed: the runner was told to stop.
TOLD_TO_STOP = ("stop", "signal", "owner_gone")
COUNTS = ("requests", "main_requests", "attempts", "retries", "wait_s", "refused", "recovered", "aux_failed")


def launch(run):
    """launch.json: which processes there are, what was started and how."""
    job, error, launched = run.job, launch_error(run), run.launch
    return dict(
        run.session.identity, schema="sandbox-worker/launch/1", version=VERSION, started_at=run.started_at,
        uptime=processes.uptime() - (run.session.clock.now() - run.started_at),
        launched_at=run.session.clock.now(), marker=run.marker, input=run.source, pid=os.getpid(), guard_pid=os.getppid(),
        agent_pid=run.agent and run.agent.pid, port=run.transport.port if run.transport else None,
        harness=run.harness.NAME, command=launched.get("argv"), given_command=launched.get("given_argv"), cwd=job["cwd"],
        env_names=launched.get("env_names"), agent_home=launched.get("home"), state=launched.get("state"),
        timeout=job["timeout"], hold=job["retry"]["hold"] if job["model"] else None, notes=launched.get("notes", []),
        error=error and error["message"])


def launch_error(run):
    error = run.launch_error
    return error if error is None or isinstance(error, dict) else {"kind": error.kind, "message": error.message}


def return_code(facts):
    """The agent's exit code, or minus its signal; 1 where unknown (as the reference has it)."""
    return 1 if facts["main_status"] is None else facts["main_status"]


def timed_out(facts):
    ending = facts["ending"]
    return bool(ending["timed_out"] or (ending["cause"] in TOLD_TO_STOP and ending["signals"]))


def receipt(run, facts):
    """cleanup.json: proof that no descendant is left, or why there is none."""
    found = facts["receipt"]
    return dict(
        run.session.identity, schema="sandbox-worker/cleanup/1", cleanup_confirmed=found["cleanup_confirmed"],
        return_code=return_code(facts), timed_out=timed_out(facts), error=found["error"] or facts["worker_error"],
        proof=found["proof"], signals=facts["ending"]["signals"], killed=found["killed"], killed_count=found["killed_count"])


def outcome_facts(run, evidence, facts):
    """What outcome.classify looks at."""
    live = facts["live"]
    return {
        "worker_error": facts["worker_error"], "launch_error": facts["launch_error"], "ending": facts["ending"],
        "main_status": facts["main_status"], "wire": facts["wire"], "model_given": run.job["model"] is not None,
        "replayed": ((run.job["model"] or {}).get("replay") or {}).get("directory"),
        "live": {"terminal": live.terminal, "message": live.message, "limit": getattr(live, "limit", None)},
        "transcript": {"terminal": evidence.get("terminal"), "error_text": evidence.get("error_text")},
        "kernel": (facts.get("resources") or {}).get("kernel") or {}, "started": run.launch_error is None,
        "harness": run.harness.NAME, "exit_zero_is_success": run.harness.EXIT_ZERO_IS_SUCCESS,
        "timeout_s": run.job["timeout"], "output_seen": facts["output_seen"], "clock_moved_s": facts["clock_moved_s"],
        "error_table": getattr(sys.modules[run.harness.READER], "ERRORS", ()), "final_message": evidence.get("final_message")}


def document(run, evidence, facts, decided,
             disposition):
    """result.json, without its seal."""
    started, ended = run.started_at, facts["ended_at"]
    error = facts["worker_error"] or (facts["launch_error"] or {}).get("message") or facts["receipt"]["error"]
    return dict(
        run.session.identity, schema=SCHEMA, version=VERSION, bundle=dict(BUNDLE),
        return_code=return_code(facts), timed_out=timed_out(facts),
        cleanup_confirmed=facts["receipt"]["cleanup_confirmed"], error=error, hostname=os.uname().nodename, pid=os.getpid(),
        started_at=started, ended_at=ended, duration_ms=max(0, round((ended - started) * 1000)),
        labels=run.job["labels"], run_attempt=run.job["run_attempt"], run_max_attempts=run.job["run_max_attempts"],
        harness={"name": run.harness.NAME, "version": evidence.get("version"), "tested": list(run.harness.TESTED)},
        final_message=evidence.get("final_message") if decided["status"] == "completed" else None,
        usage=evidence["usage"], counts=counts(evidence, facts), warnings=evidence["warnings"],
        gaps=len(evidence["gaps"]), sandbox=facts.get("sandbox"), agent_home=run.launch.get("home"),
        resources=facts.get("resources"), outcome=decided, disposition=disposition,
        files=dict(sorted(run.session.files.items())), exports=evidence.get("exports"))


def counts(evidence, facts):
    wire = facts["wire"] or {}
    kinds = evidence["records"].kinds
    return dict({name: wire.get(name) for name in COUNTS}, events=facts["live"].events,
                tool_calls=kinds.get("tool_call", 0), invocations=kinds.get("agent_invocation", 0))

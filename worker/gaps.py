"""Gaps: the facts that could not be observed, said out loud.  Every code stands in GAPS with its meaning.

A gap is {"code", "invocation_id", "detail", "file", "offset", "count"}: one per unreadable region, one per unknown record
type with its count.  The first fourteen codes are the reference contract's own and keep its meaning.
"""

from __future__ import annotations

GAPS = {
    "agent_artifact_unavailable": "no transcript of the run could be found or read",
    "agent_artifact_record_unparseable": "a record of the transcript is no readable JSON object of its kind",
    "tool_outcome_unavailable": "a tool call has an output, but nothing says whether it succeeded",
    "partial_model_usage_unavailable": "the usage of at least one model call is not known",
    "cached_token_usage_unavailable": "no source says how many input tokens were cached",
    "reasoning_token_usage_unavailable": "no source says how many output tokens were reasoning",
    "model_call_join_key_unavailable": "model calls cannot be joined to HTTP attempts: there is no wire",
    "model_call_reference_unmatched": "the transcript names a response that no recorded HTTP attempt carried",
    "model_call_reference_ambiguous": "the transcript names a response that several recorded requests carried",
    "model_call_ownership_unavailable": "an HTTP attempt names no thread of this run, so no invocation owns it",
    "model_metadata_fallback": "the CLI did not know the model and fell back to defaults",
    "compaction_accuracy_advisory": "the CLI says that token counts after a compaction are estimates",
    "harness_not_run": "the agent was never started",
    "no_wire": "the run had no model proxy of ours, so no HTTP attempts are recorded",
    "prompt_in_argv": "the CLI takes its prompt only in its arguments, where every process can read it",
    "transcript_ambiguous": "several transcripts could be the run's and nothing says which; none was chosen",
    "transcript_unrelated": "transcripts of other threads lie in the same state directory and were left alone",
    "transcript_not_regular": "where a transcript was looked for lay something else than a plain file; it was not opened",
    "transcript_limit": "a bound on the number, depth or size of transcripts was reached; the rest was not read",
    "transcript_truncated": "the last record of a transcript is cut",
    "transcript_line_too_long": "a record over the bound of one line was skipped",
    "transcript_not_utf8": "a record holds bytes that are no UTF-8; they were replaced",
    "transcript_compressed": "a transcript is compressed in a way that the standard library cannot read",
    "transcript_damaged": "a compressed transcript breaks off or is damaged; it was read up to there",
    "transcript_copy_incomplete": "the copy of a transcript in native/ is not whole",
    "unknown_record_type": "records of a type that this version does not know were skipped",
    "unsupported_history_mode": "the transcript stores its history in a way that this version does not know",
    "history_elsewhere": "the thread continues another one whose history its transcript does not repeat",
    "history_from_events": "the transcript has no model items; the conversation was made from its display events",
    "tool_output_orphan": "a tool output names a call that does not exist",
    "tool_output_early": "a tool output stands before its call",
    "tool_output_duplicate": "a tool call has more than one output; the first counts",
    "tool_call_duplicate": "several tool calls have the same id; their outputs cannot be told apart",
    "tool_call_synthetic_id": "a tool call has no id of its own; one was made from file and offset",
    "tool_time_reversed": "a tool call ends before it begins; its times are not given",
    "event_transcript_difference": "standard output and transcript do not tell the same",
    "subagent_spawn_unlinked": "nothing says which tool call started a sub-agent",
    "subagent_transcript_unavailable": "a sub-agent was started, but its transcript is missing",
    "usage_invalid": "the last usage figures are malformed; an older total is not used in their place",
    "usage_omitted": "the provider reported no usage",
    "usage_counter_reset": "the CLI's token counter went down; what it counted before is not in its total",
    "usage_baseline_unavailable": "the thread is older than the run and its earlier total is not known",
    "usage_mismatch": "two sources of usage disagree",
    "usage_inconsistent": "usage figures contradict themselves",
    "line_oversized": "a line of output is longer than can be kept; its head is",
    "output_dropped": "output over the limit was dropped between head and tail",
    "evidence_lost": "evidence could not be written (a full disk) or was cut",
    "evidence_tampered": "an evidence file was changed by somebody else than the worker",
    "foreign_files": "files that the worker did not write lie in the session directory; they are not in the manifest",
    "event_times_unavailable": "the CLI's output was read when it had ended, so its events have no times of their own",
    "model_attempts_untold": "the CLI made model requests that its events and answers do not tell of",
    "transcript_superseded": "the CLI took records of its transcript back; they are kept in the conversation",
    "harness_message": "a message in the user's name that the CLI itself made",
    "transcript_record_repeated": "a record stands in the transcript more than once; the first counts",
    "transcript_unreadable": "a transcript is in a format that this Python cannot read; it was copied only",
    "gaps_truncated": "more gaps than can be kept",
}
MOST = 5000


class Gaps:
    """Collects gaps; equal ones (same code, invocation, file and key) become one with a count."""

    def __init__(self, most=MOST):
        self._found, self._most, self._lost = {}, most, 0

    def add(self, code, detail=None, invocation_id=None, file=None, offset=None, key=None, count=1):
        """key: what makes two gaps the same; None means that each offset is its own."""
        GAPS[code]  # an unknown code is an error of ours
        name = (code, invocation_id, file, offset if key is None else key, detail if key is None else None)
        if name in self._found:
            self._found[name]["count"] += count
        elif len(self._found) >= self._most:
            self._lost += count
        else:
            self._found[name] = gap(code, detail, invocation_id, file, offset, count)

    def list(self):
        lost = [gap("gaps_truncated", count=self._lost)] if self._lost else []
        return list(self._found.values()) + lost


def gap(code, detail=None, invocation_id=None, file=None, offset=None, count=1):
    return {"code": code, "invocation_id": invocation_id, "detail": detail, "file": file, "offset": offset, "count": count}

"""From Codex's rollout files to evidence: which files are the run's, what each says, what they say together.

`collect` is called once, after the last process is dead.  The run's thread is the one that the CLI announced (stdout, else
the thread header of its requests); its sub-agents are the files whose session or parent is that thread.  All other files are
left alone.  What is read of a file is what its copy in native/ gets, secrets blanked, in one pass.
"""

from __future__ import annotations

import os

from worker import usage
from worker.conversation import Conversation
from worker.gaps import Gaps
from worker.harnesses import codex
from worker.harnesses import codex_sessions as sessions
from worker.harnesses import transcript_files as files
from worker.harnesses.codex_events import ERRORS, ESTIMATES, FALLBACK, Live
from worker.harnesses.codex_lines import display_text, text_of, unix_time
from worker.harnesses.codex_thread import Thread
from worker.harnesses.codex_wire import describe, metadata, thread_of, version_on_wire
from worker.observations import Records, join, link_compactions, read_attempts

__all__ = ("ERRORS", "Live", "collect")


def collect(run):
    """Evidence of one run.

    run: state (CODEX_HOME), dirfd (session directory), native_dirfd, live, wire, invocation_id, started_at, baseline
    ({path: size} or None), redactor.  Returns records, gaps, usage_transcript, usage_events, usage_notes, threads,
    final_message, version, terminal, error_text, native_files, warnings."""
    gaps = Gaps()
    story = Story(run, gaps)
    try:
        root = files.open_directory(run["state"])
    except (OSError, TypeError) as error:
        gaps.add("agent_artifact_unavailable", "the state directory cannot be opened: %s" % error)
        return story.evidence()
    try:
        story.candidates = sessions.candidates(root, gaps)
        for chosen in sessions.choose(story.candidates, story.wanted_thread(), run.get("baseline"), gaps):
            story.read(root, chosen)
    finally:
        os.close(root)
    return story.evidence()


# -- what they say --------------------------------------------------------------------------------------------------------


class Story:
    """Everything that the run's threads say, gathered file by file."""

    def __init__(self, run, gaps):
        self.run, self.gaps, self.live = run, gaps, run["live"]
        self.records, self.budget = Records(run.get("dirfd")), files.MOST_BYTES
        self.threads, self.native_files, self.root, self.candidates = [], {}, None, []

    def wanted_thread(self):
        """The thread that stdout announced; else the one that the main requests' headers name."""
        if self.live.thread_id:
            return self.live.thread_id
        if self.run.get("dirfd") is None:
            return None
        main = (one for one in read_attempts(self.run["dirfd"]) if one.get("main"))
        named = {thread_of(one) for one in main if not metadata(one).get("parent_thread_id")} - {None}
        return named.pop() if len(named) == 1 else None

    def read(self, root, candidate):
        """One file: copied, then read from the copy."""
        name = os.path.basename(candidate.path)
        name = name[:-3] if name.endswith(".gz") else name
        name = name if "native/" + name not in self.native_files else "%d-%s" % (len(self.native_files), name)
        redactor, native = self.run.get("redactor"), self.run["native_dirfd"]
        copy = files.Copy(root, candidate.path, native, name, redactor, self.gaps, self.budget)
        if copy.target is None:
            return
        thread = self.thread(candidate, name, os.dup(copy.target.fileno())) if copy.readable else None
        if thread:
            thread.read(files.texts(copy.pieces, "native/" + name, self.gaps))
        copy.close()
        self.budget -= copy.target.size
        self.native_files["native/" + name] = copy.target.entry()
        if thread:
            self.finish(root, thread)

    def thread(self, candidate, name, fd):
        known = self.run.get("baseline")
        invocation = self.run["invocation_id"] if self.root is None else candidate.id
        history = Conversation(fd, item_of_event)
        since = (known or {}).get(candidate.path, 0)
        thread = Thread(invocation, "native/" + name, self.gaps, history, self.records.append, since)
        thread.candidate = candidate
        return thread

    def finish(self, root, thread):
        """A thread whose file has been read."""
        thread.close()
        self.root = self.root or thread
        self.threads.append(thread)
        self.check(thread, self.run.get("baseline"))
        if thread.candidate.forked:
            self.continue_from(root, thread)

    def continue_from(self, root, thread):
        """A forked thread counts on from its origin's total (0.171.0: session_meta.history_base says where)."""
        thread.gap("history_elsewhere", "thread %s" % thread.candidate.forked)
        thread.baseline = sessions.total_at(root, self.candidates, thread.candidate.meta.get("history_base"), sessions.MOST_FORKS)
        if thread.baseline is None:
            thread.baseline_missing = True
            thread.gap("usage_baseline_unavailable", "forked from %s" % thread.candidate.forked)

    def check(self, thread, known):
        """Gaps that only a whole file shows."""
        began = thread.candidate.meta.get("timestamp")
        if thread.meta.get("history_mode") not in (None, "legacy", "paginated"):
            thread.gap("unsupported_history_mode", str(thread.meta.get("history_mode"))[:80])
        if thread.total_seen and not thread.total_valid:
            thread.gap("usage_invalid")
        if thread.history.from_events:
            thread.gap("history_from_events")
        if not len(thread.history):
            thread.gap("agent_artifact_unavailable", "the transcript holds no conversation")
        if known is None and older(began, self.run.get("started_at")):
            thread.baseline_missing = True
            thread.gap("usage_baseline_unavailable", "the thread began at %s" % began)

    # -- evidence -----------------------------------------------------------------------------------------------------

    def evidence(self):
        root = self.root
        calls = self.join_calls()
        for thread in self.threads:
            owned = calls.get(thread.invocation_id, [])
            self.records.append(self.invocation(thread, owned))
            link_compactions(thread.compactions, owned, self.gaps)
            for record in thread.compactions:
                self.records.append(record)
        if not self.threads:
            self.records.append(bare_invocation(self.run["invocation_id"], calls.get(self.run["invocation_id"], [])))
        self.differences()
        shares = self.usage_by_thread()
        version = root and text_of(root.meta.get("cli_version")) or version_on_wire(self.run.get("wire"))
        warnings = self.warnings()
        if version and version not in codex.TESTED:
            warnings.append({"code": "untested_version", "detail": version})
        final = self.live.final_message if self.live.terminal else root and root.last_message
        return dict(
            shares,
            records=self.records,
            gaps=self.gaps.list(),
            final_message=final,
            version=version,
            terminal=terminal(root),
            error_text=root and root.turn_error,
            native_files=self.native_files,
            warnings=warnings,
        )

    def join_calls(self):
        """Model calls of each invocation; those of compactions are entered into their records by request kind."""
        if self.run.get("wire") is None or self.run.get("dirfd") is None:
            self.gaps.add("no_wire")
            self.gaps.add("model_call_join_key_unavailable", "no wire")
            return {}
        owners = {thread.candidate.id: thread.invocation_id for thread in self.threads}
        if self.live.thread_id and not self.threads:
            owners[self.live.thread_id] = self.run["invocation_id"]
        responses = {thread.invocation_id: thread.responses for thread in self.threads}
        return join(read_attempts(self.run["dirfd"]), owners, responses, self.gaps, thread_of, describe)

    def invocation(self, thread, calls):
        root = thread is self.root
        ids = {other.candidate.id: other.invocation_id for other in self.threads}
        parent = None if root else ids.get(thread.candidate.parent, self.run["invocation_id"])
        spawned = next(
            (other.spawned[thread.candidate.id] for other in self.threads if thread.candidate.id in other.spawned), None
        )
        if not root and spawned is None:
            thread.gap("subagent_spawn_unlinked")
        status, error = ending(thread)
        record = bare_invocation(thread.invocation_id, calls)
        record.update(
            parent_invocation_id=parent,
            spawned_by_tool_call_id=spawned,
            status=status,
            error_type=error,
            duration_ms=thread.lasted_ms(),
            conversation=thread.history,
        )
        return record

    def differences(self):
        """Where stdout and rollout do not tell the same; the rollout is the truth about tools."""
        if self.live.open:
            kinds = ", ".join(sorted(set(self.live.open.values())))
            detail = "%d items started on stdout and did not complete there (%s)" % (len(self.live.open), kinds)
            self.gaps.add("event_transcript_difference", detail, self.run["invocation_id"], key="open")
        root = self.root
        if root and self.live.terminal == "success" and root.last_message != self.live.final_message:
            detail = "the last message on stdout is not the transcript's"
            self.gaps.add("event_transcript_difference", detail, self.run["invocation_id"], key="final")
        spawned = {child for thread in self.threads for child in thread.spawned}
        for found in sorted(spawned - {thread.candidate.id for thread in self.threads}):
            self.gaps.add("subagent_transcript_unavailable", found, self.run["invocation_id"], key=found)
        for warning in self.live.warnings:
            for prefix, code in ((FALLBACK, "model_metadata_fallback"), (ESTIMATES, "compaction_accuracy_advisory")):
                if warning["detail"].startswith(prefix):
                    self.gaps.add(code, warning["detail"][:300], self.run["invocation_id"], key=code)

    def warnings(self):
        return [one for one in self.live.warnings if not one["detail"].startswith((FALLBACK, ESTIMATES))]

    def usage_by_thread(self):
        """usage_transcript (the run's share of all threads), usage_events, usage_notes, threads."""
        total, partial, threads = None, False, {}
        for thread in self.threads:
            figures = self.share(thread)
            partial = partial or figures is None
            shown = dict(figures or usage.UNKNOWN)
            if thread.baseline is not None or thread.baseline_missing:
                shown["thread_total"] = thread.total
            threads[thread.candidate.id] = shown
            if figures is not None:
                total = figures if total is None else usage.add(total, figures)
        notes = {
            "reset": any(thread.reset for thread in self.threads),
            "invalid": any(thread.total_seen and not thread.total_valid for thread in self.threads),
            "omitted": any(not thread.total_seen and terminal(thread) == "success" for thread in self.threads),
            "compactions": sum(len(thread.compactions) for thread in self.threads),
            "partial": partial and total is not None,
            "root": self.share(self.root) if self.root else None,
            "subagents": max(0, len(self.threads) - 1),
        }
        return {"usage_transcript": total, "usage_events": self.events_usage(), "usage_notes": notes, "threads": threads}

    def share(self, thread):
        """The run's part of a thread's total; None where it is not known."""
        if thread.total is None or thread.baseline_missing:
            return None
        if not thread.total_valid:
            return None
        if thread.baseline is None or thread.reset:
            return thread.total
        return usage.subtract(thread.total, thread.baseline)

    def events_usage(self):
        """The root thread's share by turn.completed; all zeros mean that the provider sent none (facts)."""
        figures = usage.normalise(self.live.usage)
        if figures is None or usage.is_zero(figures) and not (self.root and self.root.total):
            return None
        if self.root and self.root.baseline_missing:
            return None
        if self.root and self.root.baseline is not None:
            return usage.subtract(figures, self.root.baseline)
        return figures


def terminal(root):
    """What the transcript says of the end; 0.144.4 writes task_complete after any failure, so only a message is a success."""
    if root is None or root.turn_ended != "complete":
        return None
    if root.turn_error:
        return "failure"
    return "success" if root.last_message else None


def ending(thread):
    """(status, error_type) of an invocation by its own transcript."""
    if thread.turn_ended == "aborted":
        return "incomplete", "turn_" + thread.aborted
    if thread.turn_ended is None:
        return ("incomplete", "no_turn_end") if thread.turn_open else ("unknown", None)
    return {"success": ("completed", None), "failure": ("failed", "turn_failed"), None: ("unknown", None)}[terminal(thread)]


def bare_invocation(identity, calls):
    return {
        "kind": "agent_invocation",
        "invocation_id": identity,
        "parent_invocation_id": None,
        "spawned_by_tool_call_id": None,
        "status": "unknown",
        "duration_ms": None,
        "error_type": None,
        "model_calls": calls,
        "conversation": [],
    }


def older(began, started_at):
    """Did a thread begin before the run?  A second's tolerance: the file's stamps are of the CLI's wall clock."""
    began = unix_time(began)
    return began is not None and started_at is not None and began < started_at - 1.0


# -- display events as items ----------------------------------------------------------------------------------------------


def item_of_event(payload):
    """A Responses API item for a display event of a transcript without model items (C21); None for what is no message."""
    item = payload.get("item") if payload.get("type") == "item_completed" else payload
    kind = item.get("type") if isinstance(item, dict) else None
    text = display_text(item) or text_of(item.get("message")) if isinstance(item, dict) else None
    if kind in ("UserMessage", "user_message") and text:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    if kind in ("AgentMessage", "agent_message") and text:
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    if kind == "Reasoning":
        parts = [part for part in item.get("summary_text") or () if isinstance(part, str)]
        return {"type": "reasoning", "summary": [{"type": "summary_text", "text": part} for part in parts]}
    return None

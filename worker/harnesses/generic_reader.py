"""What can be known of any program: its JSON lines, if it prints some, how it ended, and its model calls as the wire had them.
It has no transcript.

Terminal shapes that several CLIs share are understood ({"type": "result", "is_error": ...}, turn.completed, turn.failed), so
that a program that has said its last word and does not exit can be stopped; for anything else exit 0 is the success.
"""

from __future__ import annotations

from worker.gaps import Gaps
from worker.harnesses import live
from worker.harnesses.codex_rollout import bare_invocation
from worker.harnesses.live import keep, words
from worker.observations import Records, join, read_attempts

ERRORS = ()
TURN_LIMITS = ("error_max_turns",)


class Live(live.Live):
    HANDLERS = {
        "result": "on_result", "turn.completed": "on_success", "turn.failed": "on_failure", "error": "on_error",
        "item.completed": "on_item",
    }  # fmt: skip

    def on_success(self, event):
        self.terminal, self.message, self.final_message = "success", None, self.partial_message
        self.usage = event.get("usage")

    def on_failure(self, event):
        error = event.get("error")
        self.terminal, self.final_message = "failure", None
        self.message = words(error.get("message") if isinstance(error, dict) else error) or ""

    def on_error(self, event):
        keep(self.errors, words(event.get("message")) or "")

    def on_item(self, event):
        if isinstance(event.get("item"), dict) and event["item"].get("type") == "agent_message":
            self.partial_message = words(event["item"].get("text"))

    def on_result(self, event):
        """The last line of Claude Code and of those that imitate it."""
        failed = bool(event.get("is_error")) or str(event.get("subtype") or "success").startswith("error")
        text = words(event.get("result"))
        self.terminal = "failure" if failed else "success"
        self.message, self.final_message = (text or str(event.get("subtype")), None) if failed else (None, text)
        self.limit = "turn_limit" if event.get("subtype") in TURN_LIMITS else None
        self.usage = event.get("usage")


def collect(run):
    """No transcript is looked for; the gap says so.  Usage and model calls come from the wire."""
    gaps, records, live, root = Gaps(), Records(), run["live"], run["invocation_id"]
    calls = {}
    if run.get("wire") is None:
        gaps.add("no_wire")
    elif run.get("dirfd") is not None:
        calls = join(read_attempts(run["dirfd"]), {True: root}, {}, gaps, lambda attempt: attempt.get("main"))
    gaps.add("agent_artifact_unavailable", "the generic harness knows no transcript")
    records.append(bare_invocation(root, calls.get(root, [])))
    return {
        "records": records, "gaps": gaps.list(), "usage_transcript": None, "usage_events": None, "usage_notes": {},
        "threads": {}, "final_message": live.final_message, "version": None, "terminal": None, "error_text": None,
        "native_files": {}, "warnings": list(live.warnings),
    }  # fmt: skip

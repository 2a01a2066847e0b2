"""Tool calls of one conversation: calls and outputs joined by their native ids, whatever their order.

Held are the calls of a window (at least the last WINDOW); an older one is handed out as it stands, so memory does not grow
with the transcript.  Status: completed, failed, timeout, cancelled, incomplete (no output seen), unknown (output without a known
result).  Of several calls with one id neither gets an output that could be the other's (C14).
"""

from __future__ import annotations

WINDOW = 512
MOST_EARLY = 1024
PRIVATE = ("_answered", "_structured", "_timed", "_ambiguous")  # marks on a record while it is in the window


class ToolCalls:
    """emit(record) gets every finished tool_call record, in the order of the calls."""

    def __init__(self, invocation_id, file, gaps, emit):
        self.invocation_id, self.file, self.gaps, self.emit = invocation_id, file, gaps, emit
        self.window = []  # records in call order; entries of `calls` point into it
        self.calls, self.early = {}, {}

    def call(self, identity, name, at, offset, known=None):
        """A call begins; `known` (status, error_type) where the record that announces it tells its end, too."""
        synthetic = not identity
        if synthetic:
            identity = "%s@%d" % (self.file, offset)
            self.gap("tool_call_synthetic_id", identity, offset)
        record = {
            "kind": "tool_call",
            "invocation_id": self.invocation_id,
            "tool_call_id": identity,
            "tool_name": name,
            "started_at": at,
            "completed_at": None,
            "duration_ms": None,
            "timing_source": "artifact" if at else None,
            "status": "incomplete",
            "error_type": None,
        }
        if synthetic:
            record["synthetic"] = True
        earlier = self.calls.get(identity)
        if earlier is not None:
            self.gap("tool_call_duplicate", identity, offset)
            if not earlier.get("_answered"):
                earlier["_ambiguous"] = record["_ambiguous"] = True
        self.calls[identity] = record
        self.window.append(record)
        if identity in self.early:
            result, ended, place = self.early.pop(identity)
            self.gap("tool_output_early", identity, place)
            self.finish(record, result, ended if ended and at and ended >= at else None)
        if known:
            self.finish(record, known, at)
        if len(self.window) >= 2 * WINDOW:
            self.release(WINDOW)
        return record

    def output(self, identity, result, at, offset):
        """An output arrives; result is (status, error_type), both None where the output does not tell.  The record, or None."""
        record = self.calls.get(identity)
        if record is None:
            if identity in self.early or len(self.early) >= MOST_EARLY:
                self.gap("tool_output_orphan", identity, offset)
            else:
                self.early[identity] = (result, at, offset)
        elif record.get("_answered"):
            self.gap("tool_output_duplicate", identity, offset)
        elif record.get("_ambiguous"):
            for other in self.window:
                if other["tool_call_id"] == identity and other.get("_ambiguous"):
                    other["status"] = "unknown"
        else:
            self.finish(record, result, at)
        return record

    def finish(self, record, result, at):
        """The output's text decides, unless the executor's own record came first; an abort is told only by the text."""
        record["_answered"] = True
        if not record.get("_structured") or result[0] == "cancelled":
            record["status"], record["error_type"] = result[0] or "unknown", result[1]
        if not record.get("_timed"):
            self.time(record, record["started_at"], at)

    def structured(self, identity, result, started, completed):
        """What the executor's own record says about a call; better than the output's text.  The record, or None."""
        record = self.calls.get(identity)
        if record is None or record.get("_ambiguous"):
            return None
        record["_structured"] = True
        if result[0] and record["status"] != "cancelled":
            record["status"], record["error_type"] = result
        if started is not None:
            record["_timed"] = True
            self.time(record, started, completed, "executor")
        return record

    def time(self, record, started, completed, source="artifact"):
        """Times of a record, unix seconds; the better source overwrites."""
        if started is not None and completed is not None and completed < started:
            self.gap("tool_time_reversed", record["tool_call_id"])
            completed = None
        record["started_at"], record["completed_at"] = started, completed
        record["duration_ms"] = None if started is None or completed is None else round((completed - started) * 1000, 3)
        record["timing_source"] = source if started is not None else None

    def release(self, count=None):
        """Hand out the oldest records (all without a count)."""
        for record in self.window[:count]:
            if self.calls.get(record["tool_call_id"]) is record:
                del self.calls[record["tool_call_id"]]
            if record["status"] == "unknown":
                self.gaps.add(
                    "tool_outcome_unavailable", record["tool_name"], self.invocation_id, self.file, key=record["tool_name"]
                )
            for name in PRIVATE:
                record.pop(name, None)
            self.emit(record)
        self.window = self.window[count:] if count is not None else []

    def close(self):
        """The transcript has ended: calls without output are incomplete, outputs without call are orphans."""
        self.release()
        for identity, (_, _, offset) in self.early.items():
            self.gap("tool_output_orphan", identity, offset)

    def gap(self, code, detail, offset=None):
        self.gaps.add(code, detail, self.invocation_id, self.file, offset)

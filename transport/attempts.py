"""The attempt record: one line of model_attempts.jsonl for every exchange, whatever became of it (DESIGN 8).

- `new_record` fixes the fields and their order; what is unknown stays null (usage is never 0 for unknown).
- `Book` gives out `seq` (rising, at the attempt's start, so that bodies/SEQ.* have their names) and writes each record
  once, redacted, as one line. `Summary` folds records into the figures that the worker reads; the same fold runs over
  the lines on disk after a crash (`fold_attempts`).
- Text in a record is JSON with ASCII only: bytes of headers are read as Latin-1 (RFC 9110 5.5), nothing can fail to encode.
"""
from __future__ import annotations

import json
import threading

USAGE = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens", "reasoning_output_tokens",
         "total_tokens")

# Response headers worth keeping, besides every name with "ratelimit" or "rate-limit" in it.
KEPT_HEADERS = frozenset((
    "retry-after", "retry-after-ms", "x-should-retry", "x-request-id", "request-id", "x-amzn-requestid", "apim-request-id",
    "x-ms-request-id", "x-goog-request-id", "x-correlation-id", "cf-ray", "content-type", "content-encoding", "content-length",
    "location", "server", "openai-processing-ms", "openai-model", "openai-organization", "x-ms-region", "date"))


def new_record(seq, request, attempt, invocation_id, started_at):
    return {
        "seq": seq, "request": request.id, "fingerprint": request.fingerprint, "attempt": attempt,
        "invocation_id": invocation_id, "main": request.main, "method": request.method, "path": request.target,
        "dialect": request.dialect, "model": request.model, "identity": request.identity, "user_agent": request.user_agent,
        "started_at": started_at, "sent_at": None, "first_byte_at": None, "ended_at": None,
        "status": None, "response_id": None, "response_headers": {}, "retry_after": None, "wait": None,
        "decision": None, "rule": None, "failure": None, "provider_error": None, "error": None,
        "request_bytes": request.size, "request_sha256": request.sha256, "request_encoding": request.encoding,
        "response_bytes": 0, "events": 0, "terminal": None, "finish": None, "stream_error": None,
        "usage": None, "usage_raw": None, "not_decoded": None, "reused_connection": False, "ambiguous": False,
        "bodies": None,
    }


def kept_headers(pairs):
    """(name, value) of str -> {lower name: value, or list of values where there are several}."""
    kept = {}
    for name, value in pairs:
        lower = name.lower()
        if lower in KEPT_HEADERS or "ratelimit" in lower or "rate-limit" in lower:
            if lower in kept:
                kept[lower] = (kept[lower] if isinstance(kept[lower], list) else [kept[lower]]) + [value]
            else:
                kept[lower] = value
    return kept


_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


class Book:
    """Thread-safe. `file` is an EvidenceFile, `redactor` cleans each line as a whole."""

    def __init__(self, file, redactor):
        self._file, self._redactor, self._lock = file, redactor, threading.Lock()
        self._seq, self.summary = 0, Summary()

    def next_seq(self):
        with self._lock:
            self._seq += 1
            return self._seq

    def write(self, record):
        line = self._redactor.clean(_encode(record).encode())
        with self._lock:
            self._file.write(line + b"\n")
            self.summary.add(record, line)

    def redacted(self, record):
        return json.loads(self._redactor.clean(_encode(record).encode()))

    def figures(self):
        with self._lock:
            return self.summary.as_dict()


class Summary:
    def __init__(self):
        self.counts = dict.fromkeys(("requests", "main_requests", "attempts", "retries", "refused", "aux_failed", "recovered"), 0)
        self.wait_s, self.limit, self.usage, self.usage_attempts, self.usage_missing = 0.0, None, None, 0, 0
        self.succeeded, self.failed, self.last_line = 0, 0, None
        self.spent = {True: dict.fromkeys(USAGE), False: dict.fromkeys(USAGE)}  # main -> sums, for the limits
        self._requests, self._broken = set(), set()  # request ids seen; fingerprints with failed main attempts
        self._threads, self._models, self._agents = {}, [], []

    def add(self, record, line):
        counts, main = self.counts, record["main"]
        if record["decision"] == "refused":
            counts["refused"] += 1
            if main and record["rule"] in ("request_limit", "token_limit"):
                self.limit = record["rule"]
            return
        if record["request"] not in self._requests:
            self._requests.add(record["request"])
            counts["requests"] += 1
            counts["main_requests"] += bool(main)
        counts["attempts"] += record["decision"] != "latched"
        if record["decision"] == "retried":
            counts["retries"] += 1
            self.wait_s += (record["wait"] or {}).get("seconds") or 0.0
        self._note(record)
        if record["usage"] is not None:
            self._add_usage(record)
        self._judge(record, line)

    def _judge(self, record, line):
        failed = bool(record["failure"] or record["error"])
        final = record["decision"] not in ("retried", "stale_connection")
        if not record["main"]:
            self.counts["aux_failed"] += failed and final
            return
        self.last_line = line
        if failed:
            self._broken.add(record["fingerprint"])
            self.failed += final
        elif final:
            self.succeeded += 1
            self.counts["recovered"] += record["fingerprint"] in self._broken
            self._broken.discard(record["fingerprint"])
            if record["usage"] is None and record["dialect"] and 200 <= (record["status"] or 0) < 300:
                self.usage_missing += 1

    def _add_usage(self, record):
        self.usage_attempts += 1
        self.usage = _sum(self.usage, record["usage"])
        self.spent[bool(record["main"])] = _sum(self.spent[bool(record["main"])], record["usage"])
        for thread in (record.get("identity") or {}).values():  # the first identity header names the thread
            self._threads[thread] = _sum(self._threads.get(thread), record["usage"])
            break

    def _note(self, record):
        model, agent = record["model"], record.get("user_agent")
        if model and model not in self._models and len(self._models) < 64:
            self._models.append(model)
        if agent and agent not in self._agents and len(self._agents) < 8:
            self._agents.append(agent)

    def as_dict(self):
        counts = self.counts
        return {
            "requests": counts["requests"], "main_requests": counts["main_requests"], "attempts": counts["attempts"],
            "retries": counts["retries"], "wait_s": round(self.wait_s, 3), "refused": counts["refused"],
            "aux_failed": counts["aux_failed"], "recovered": counts["recovered"],
            "main": {"last": json.loads(self.last_line) if self.last_line else None, "open": None,
                     "succeeded": self.succeeded, "failed": self.failed},
            "limit": self.limit, "usage": dict(self.usage) if self.usage else None, "usage_missing": self.usage_missing,
            "usage_attempts": self.usage_attempts, "threads": {key: dict(value) for key, value in self._threads.items()},
            "models": list(self._models), "user_agents": list(self._agents),
        }


def _sum(total, usage):
    """Sums per name; a name that no attempt knows stays null."""
    total = dict(total) if total else dict.fromkeys(USAGE)
    for name, value in usage.items():
        if value and name in total:
            total[name] = (total[name] or 0) + value
        elif value == 0 and total.get(name, 0) is None:
            total[name] = 0
    return total


def fold_attempts(records):
    """The summary of records read from disk (dicts; those that are none are skipped)."""
    summary = Summary()
    for record in records:
        if isinstance(record, dict) and "seq" in record and "decision" in record:
            try:
                summary.add(dict(new_record(0, _Unknown, 1, None, None), **record), json.dumps(record).encode())
            except (TypeError, AttributeError):
                continue
    return summary.as_dict()


class _Unknown:
    """A request of which nothing is known: the defaults of a record."""
    id = fingerprint = main = method = target = dialect = model = user_agent = size = sha256 = encoding = None
    identity = {}

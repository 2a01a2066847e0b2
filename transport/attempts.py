"""The attempt record: one line of model_attempts.jsonl for every exchange, whatever became of it (DESIGN 8).

- `blank_record` fixes the fields and their order; what is unknown stays null (usage is never 0 for unknown).
- `Summary` folds records into the figures that the worker reads (book.py, while the run goes on); the same fold runs over the
  lines on disk after a crash (`fold_attempts`).
- Text in a record is JSON with ASCII only: bytes of headers are read as Latin-1 (RFC 9110 5.5), nothing can fail to encode.
Pure.
"""
from __future__ import annotations

from transport.provider_errors import finish_kind

USAGE = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens", "reasoning_output_tokens",
         "total_tokens")
REMEMBERED = 4096  # fingerprints of failures, for those that a later repeat of the CLI makes good
NO_USAGE = dict.fromkeys(USAGE)

# Response headers worth keeping, besides every name with "ratelimit" or "rate-limit" in it.
KEPT_HEADERS = frozenset((
    "retry-after", "retry-after-ms", "x-should-retry", "x-request-id", "request-id", "x-amzn-requestid", "apim-request-id",
    "x-ms-request-id", "x-goog-request-id", "x-correlation-id", "cf-ray", "content-type", "content-encoding", "content-length",
    "location", "server", "openai-processing-ms", "openai-model", "openai-organization", "x-ms-region", "date",
    "x-replay-request", "x-replay-match"))


def blank_record(asking, invocation_id):
    """All fields in their order, with what is known from a request's head (request.Asking)."""
    return {
        "seq": 0, "request": None, "fingerprint": None, "attempt": 1,
        "invocation_id": invocation_id, "main": None, "method": asking.method, "path": asking.target,
        "dialect": asking.dialect, "model": None, "identity": asking.identity, "user_agent": asking.user_agent,
        "started_at": None, "sent_at": None, "first_byte_at": None, "ended_at": None,
        "status": None, "response_id": None, "response_headers": {}, "retry_after": None, "wait": None,
        "decision": None, "rule": None, "failure": None, "provider_error": None, "error": None,
        "request_bytes": None, "request_sha256": None, "request_encoding": asking.encoding,
        "response_bytes": 0, "events": 0, "terminal": None, "finish": None, "stream_error": None,
        "usage": None, "usage_raw": None, "not_decoded": None, "reused_connection": False, "ambiguous": False,
        "bodies": None,
    }


class Nothing:
    """Stands for the head of a request that could not be read; the defaults of a record."""
    method = target = dialect = user_agent = encoding = None
    identity = {}


def kept_headers(head):
    """The telling headers of a response: {lower name: value, or list of values where there are several}."""
    kept = {}
    for lower, values in head.names.items():
        name = _KEPT[lower] if lower in _KEPT else _kept_as(lower)
        if name:
            kept[name] = [value.decode("latin-1") for value in values] if len(values) > 1 else values[0].decode("latin-1")
    return kept


_KEPT = {}  # header names seen -> how they are called in the record, "" where they are not kept


def _kept_as(lower):
    name = lower.decode("latin-1")
    name = name if name in KEPT_HEADERS or "ratelimit" in name or "rate-limit" in name else ""
    if len(_KEPT) < 512:
        _KEPT[lower] = name
    return name


class Summary:
    def __init__(self):
        self.counts = dict.fromkeys(("requests", "main_requests", "attempts", "retries", "refused", "aux_failed", "recovered",
                                     "succeeded", "failed", "usage_missing", "usage_attempts"), 0)
        self.wait_s, self.limit, self.last = 0.0, None, None
        self.spent = {True: NO_USAGE, False: NO_USAGE}  # main -> sums
        self._unfinished, self._broken = set(), {}  # ids of requests that go on; fingerprints of main ones that failed
        self._threads, self._models, self._agents = {}, [], []

    def copy(self):
        """Another one to add to. Sums are never changed in place."""
        other = Summary()
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, (dict, set, list)) and name != "last" else value)
        return other

    def add(self, record):
        counts, main, decision = self.counts, record["main"], record["decision"]
        if decision == "refused":
            counts["refused"] += 1
            if main and record["rule"] in ("request_limit", "token_limit"):
                self.limit = record["rule"]
            return
        again = decision in ("retried", "stale_connection")  # more of this request will follow
        if record["request"] not in self._unfinished:
            counts["requests"] += 1
            counts["main_requests"] += bool(main)
            if again:
                self._unfinished.add(record["request"])
        elif not again:
            self._unfinished.discard(record["request"])
        counts["attempts"] += decision != "latched"
        if decision == "retried":
            counts["retries"] += 1
            self.wait_s += (record["wait"] or {}).get("seconds") or 0.0
        model, agent = record["model"], record.get("user_agent")
        if model and model not in self._models and len(self._models) < 64:
            self._models.append(model)
        if agent and agent not in self._agents and len(self._agents) < 8:
            self._agents.append(agent)
        if record["usage"] is not None:
            self._add_usage(record)
        self._judge(record, not again)

    def _judge(self, record, final):
        counts, failed = self.counts, bool(record["failure"] or (record["error"] and not left_after_the_end(record)))
        if not record["main"]:
            counts["aux_failed"] += bool(failed and final and record["dialect"])  # a probe may well find nothing
            return
        if self.last is None or ended(record) >= ended(self.last):  # a line may be written after that of a later answer
            self.last = record
        if failed:
            self._broken[record["fingerprint"]] = True
            if len(self._broken) > REMEMBERED:
                del self._broken[next(iter(self._broken))]
            counts["failed"] += final
        elif final:
            counts["succeeded"] += 1
            counts["recovered"] += record["fingerprint"] in self._broken
            self._broken.pop(record["fingerprint"], None)
            if lacks_usage(record) and record["dialect"] and 200 <= (record["status"] or 0) < 300:
                counts["usage_missing"] += 1

    def _add_usage(self, record):
        self.counts["usage_attempts"] += 1
        main, usage = bool(record["main"]), record["usage"]
        self.spent[main] = add_up(self.spent[main], usage)
        for thread in (record.get("identity") or {}).values():  # the first identity header names the thread
            self._threads[thread] = add_up(self._threads.get(thread, NO_USAGE), usage)
            break

    def as_dict(self):
        counts = self.counts
        names = ("requests", "main_requests", "attempts", "retries", "refused", "aux_failed", "recovered", "usage_missing",
                 "usage_attempts")
        return dict(
            {name: counts[name] for name in names}, wait_s=round(self.wait_s, 3),
            main={"last": self.last, "open": None, "succeeded": counts["succeeded"], "failed": counts["failed"],
                  "ended_by": self.last and finish_kind(self.last["finish"], self.last["terminal"])},
            limit=self.limit, usage=add_up(self.spent[True], self.spent[False]) if counts["usage_attempts"] else None,
            threads={key: dict(value) for key, value in self._threads.items()},
            models=list(self._models), user_agents=list(self._agents))


def ended(record):
    """When its answer ended: a record whose end is not known is the newest."""
    at = record["ended_at"]
    return at if isinstance(at, (int, float)) else float("inf")


def lacks_usage(record):
    """True where input or output is unknown: a sum over such an answer says too little."""
    usage = record["usage"]
    return usage is None or usage.get("input_tokens") is None or usage.get("output_tokens") is None


def left_after_the_end(record):
    """True where the answer had its terminal event, and then the client closed (SDKs do at that event), the run stopped, or the
    server broke the connection. Nothing of the answer was lost."""
    return record["terminal"] is not None and record["stream_error"] is None and (
        (record["error"] or {}).get("phase") in ("client", "shutdown", "body"))


def add_up(total, usage):
    """Sums per name; a name that no attempt knows stays null, and a contradiction in one is one in the sum."""
    total = total.copy()
    for name, value in usage.items():
        if name == "inconsistent" and value:
            total[name] = True
        elif value is not None and name in NO_USAGE:
            total[name] = value + (total[name] or 0)
    return total


def fold_attempts(records):
    """The summary of records read from disk (dicts; those that are none are skipped)."""
    summary = Summary()
    for record in records:
        if isinstance(record, dict) and "seq" in record and "decision" in record:
            try:
                summary.add(dict(blank_record(Nothing, None), **record))
            except (TypeError, AttributeError):
                continue
    return summary.as_dict()

"""One request of a client, from its complete arrival to its answer: latch, attempts, waits, and the last word.

The story of `deliver`:
  1. at a limit: a refusal. Latched: the last real answer at once.
  2. a wait that is open for the same fingerprint is joined.
  3. attempts, until one is forwarded or given up; a stale reused connection is replayed once without counting.
  4. on giving up: what was held of a broken answer, else the last real answer unchanged, else a refusal of ours.
Before the client can see the end of an answer, everything that follows from it is settled (`Engine.settled`): tokens, figures,
latch. A stream's terminal event is such an end; what happens after it is still in the record, which is written last.
The client's departure and the end of the run come as exceptions out of any wait; the record is written on the way out.
"""
from __future__ import annotations

from transport.attempt import Attempt
from transport.decisions import decide
from transport.errors import ClientLeft, Stopped
from transport.latch import Entry
from transport.provider_errors import refuses_retry
from transport.refusals import refusal
from transport.retry import server_refuses_retry, wait_for
from transport.waits import monotonic


class Delivery:
    __slots__ = ("engine", "client", "request", "entry", "open", "keep_alive")

    def __init__(self, engine, client, request):
        self.engine, self.client, self.request = engine, client, request
        self.keep_alive = request.asking.keep_alive
        self.entry = self.open = None

    def deliver(self):
        """-> may the client's connection go on?"""
        engine, request = self.engine, self.request
        refused = engine.admit(request)
        if refused:
            return self.refuse(*refused)
        failure = None
        try:
            self.open = engine.opened_main(request)
            rule = self._remember() if engine.latch.entries else None
            if rule:
                return self._latched(rule)
            if self.entry is None:
                self.entry = Entry()
            else:
                self._join_wait()
            go_on, failure = self._attempts()
            return go_on
        finally:
            engine.request_ended(request, failure)

    def _remember(self):
        """Sets `entry` where something is known of this fingerprint. -> the rule by which it is answered at once, or None"""
        engine, request = self.engine, self.request
        with engine.lock:
            self.entry = engine.latch.find(request.fingerprint)
            if self.open is not None and self.entry:
                self.open.last_record = self.entry.record
            return engine.latch.latched(self.entry, monotonic()) if self.entry and request.dialect else None

    def refuse(self, rule, detail=""):
        """An answer of ours before anything was sent upstream; one record."""
        engine, request = self.engine, self.request
        close = not self.keep_alive
        status, block, message = refusal(rule, request.dialect, detail, close, request.asking.method == "HEAD")
        engine.record_refusal(request, rule, status, message)
        self.client.send(block)
        return not close

    # -- attempts --------------------------------------------------------------------------------------------------
    def _attempts(self):
        fresh = False
        while True:
            attempt = Attempt(self)
            failed = True
            try:
                decision = self._one(attempt, fresh)
                failed = attempt.failure is not None
                if decision == "stale_connection":
                    fresh = True
                    continue
                if decision == "retried":
                    fresh = False
                else:
                    return self._answer(attempt, decision), attempt.failure
            except (ClientLeft, Stopped) as reason:
                attempt.left(reason)
                raise
            except BaseException as error:
                attempt.record["error"] = {"phase": "handler", "kind": type(error).__name__, "message": str(error)[:500]}
                attempt.record["decision"], attempt.record["rule"] = "gave_up", "handler"
                raise
            finally:
                attempt.close(failed)
                if self.open is not None:
                    self.open.last_record = attempt.record
            self._sleep(attempt.record["wait"]["seconds"])

    def _one(self, attempt, fresh):
        """Exchange, judge, decide, settle. -> decision"""
        record = attempt.record
        attempt.exchange(fresh)
        if record["fingerprint"] is None:
            attempt.describe()
        if not fresh and attempt.is_stale():
            record["error"], record["failure"] = attempt.error.as_record(), None
            record["decision"], record["rule"] = "stale_connection", "replayed_once"
            return "stale_connection"
        failure = attempt.failure = record["failure"] = attempt.judge()
        if attempt.error is not None:
            record["error"] = attempt.error.as_record()
        if failure is None:
            record["decision"], record["rule"] = "forwarded", "success"
            if not attempt.ended:
                self.engine.settled(self.request, record, None)
            return "forwarded"
        record["ambiguous"] = attempt.unanswered()
        with self.engine.lock:
            entry = self.entry = self.engine.latch.enter(self.request.fingerprint, self.entry)
        decision, record["rule"] = self._decide(attempt, failure)
        record["decision"] = decision
        with self.engine.lock:
            entry.failures += 1
            entry.failure = failure
            entry.ambiguous += record["ambiguous"]
            self._latch(attempt, decision)
        if decision != "retried":
            self.engine.settled(self.request, record, failure)
        return decision

    def ends(self, attempt):
        """The terminal event of a stream is about to go to the client."""
        record = attempt.record
        record["failure"] = failure = attempt.judge(False)
        record["decision"], record["rule"] = "forwarded", "success" if failure is None else "client_has_bytes"
        self.engine.settled(self.request, record, failure)

    def _decide(self, attempt, failure):
        """-> (decision, rule); sets the record's wait where one was in question."""
        engine, record, retry, error = self.engine, attempt.record, self.engine.retry, attempt.error
        with engine.lock:
            number = self.entry.failures + 1
        delay = attempt.reader.retry_delay if attempt.reader is not None else None
        wait = wait_for(attempt.pairs(), delay, number, retry["base"], retry["cap"], engine.now(), engine.random)
        verdict, rule = decide({
            "status": record["status"], "kind": failure, "phase": error and error.phase, "failure": error and error.kind,
            "held": not attempt.released, "truncated": attempt.stream_failed, "sent": attempt.unanswered(),
            "stream_error": attempt.reader is not None and attempt.reader.error is not None and (record["status"] or 0) < 400,
            "ambiguous_so_far": self.entry.ambiguous, "ambiguous_replays": retry["ambiguous_replays"],
            "refused_by_server": server_refuses_retry(attempt.pairs()), "attempt": number,
            "max_attempts": retry["max_attempts"], "wait": wait["seconds"], "max_wait": retry["max_wait"],
            "budget_left": engine.budget_left(), "time_left": engine.time_left(self.request), "statuses": retry["statuses"]})
        record["wait"] = wait if verdict != "final" else None
        answered = attempt.answer is not None or attempt.released
        return {"retry": "retried", "give_up": "gave_up", "final": "forwarded" if answered else "gave_up"}[verdict], rule

    def would_retry(self, attempt):
        """Asked for an error answer that does not end: is it worth dropping?"""
        return self._decide(attempt, attempt.judge(False))[0] == "retried"

    def _latch(self, attempt, decision):
        """What the entry learns from a failed attempt. Called with the lock held."""
        entry, reader, answer = self.entry, attempt.reader, attempt.answer
        entry.record = attempt.record
        entry.said, entry.status = attempt.record["provider_error"] or entry.said, attempt.record["status"]
        if answer is not None and attempt.clean:
            entry.keep(answer)
        if decision == "retried":
            return
        readable = reader is not None and reader.error is not None and not reader.html and not reader.not_decoded
        if readable and refuses_retry(attempt.failure) and entry.answer is answer and answer is not None:
            entry.rule = "cannot_heal"
        wait = attempt.record["wait"]
        if decision == "gave_up" and wait and wait["source"] != "backoff":
            entry.until = monotonic() + wait["seconds"]

    # -- the last word -----------------------------------------------------------------------------------------------
    def _answer(self, attempt, decision):
        """-> may the client's connection go on?"""
        if attempt.released:
            return attempt.finish_release()
        held = attempt.answer
        if held is None:
            return self._last_real_answer(attempt.error)
        held.complete = attempt.clean and not (attempt.stream_failed and held.framing == "chunked")
        held.tail = attempt.body.tail
        go_on = held.deliver(self.client, self.keep_alive)
        if self.entry.answer is not held:
            held.body.close()
        return go_on

    def _last_real_answer(self, error):
        answer = self.entry.answer
        if answer is not None:
            return answer.deliver(self.client, self.keep_alive)
        self.entry.detail = error.message if error else ""
        self.entry.refusal = error.rule if error else "no_answer"
        return self._no_answer()

    def _no_answer(self):
        close = not self.keep_alive
        rule, detail = self.entry.refusal or "no_answer", self.entry.detail
        self.client.send(refusal(rule, self.request.dialect, detail, close, self.request.asking.method == "HEAD")[1])
        return not close

    def _latched(self, rule):
        engine, entry = self.engine, self.entry
        request, record = self.request, engine.new_record(self.request, entry.failures)
        request.look()
        record.update(decision="latched", rule=rule, failure=entry.failure, model=request.model, fingerprint=request.fingerprint,
                      request_sha256=request.sha256, provider_error=entry.said,
                      status=entry.answer.status if entry.answer else entry.status)
        engine.closed(record, opened=False)
        engine.uncount(request)
        engine.request_ended(request, entry.failure)
        if entry.answer is not None:
            return entry.answer.deliver(self.client, self.keep_alive)
        return self._no_answer()

    # -- waiting -----------------------------------------------------------------------------------------------------
    def _join_wait(self):
        until = self.entry.wait_until
        if until is not None and until > monotonic():
            self._sleep(until - monotonic())

    def _sleep(self, seconds):
        """Ends early only by ClientLeft or Stopped."""
        engine, until = self.engine, monotonic() + seconds
        self.entry.wait_until = until
        if self.open is not None:
            self.open.state = "waiting"
        engine.wait_begins()
        try:
            self.client.watch.wait(until=until)
        finally:
            engine.wait_ends()
        self.entry.wait_until = None

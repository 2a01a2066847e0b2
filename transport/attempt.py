"""One HTTP exchange with the upstream for a request: send, hold, forward, record.

Rules of this file
- One attempt, one record, whatever happens: `run` writes it on every way out.
- Until something is `released`, the client has seen nothing and the attempt may be retried. What is held lies in an
  Answer. `hold: first_event` releases at the first content event of a stream or the first byte of anything else;
  `hold: answer` at the end of a model answer, which for a stream is its terminal event: what breaks after it is in `error`, and
  is no failure. An error (by status, or in a stream before content) is held to its end, as
  far as HOLD_SECONDS and HOLD_BYTES go, so that it can be judged, retried, or passed on whole.
- Bytes are read for the record, go to the client, and are written to disk, in this order. The last bytes, and those with a
  stream's terminal event, go when all that follows from the answer is settled (delivery.py): a client acts on them.
- What the record needs of the request is worked out while the upstream thinks.
"""
from __future__ import annotations

from transport import http1
from transport.answer import TOGETHER, Answer, ends_connection, head_bytes
from transport.attempts import kept_headers
from transport.dialects import CHATTER, Reader
from transport.errors import SpoolFull, Stopped, UpstreamFailed, from_os_error
from transport.provider_errors import BROKEN_OFF, classify, finish_kind
from transport.retry import asked_delay
from transport.spool import Spool
from transport.upstream import READ
from transport.waits import monotonic

OWN_LIMIT = "max_tool_calls"  # incomplete_details.reason (Responses API): the request's own, beside those of finish_kind
HOLD_SECONDS = 5.0
HOLD_BYTES = 1024 * 1024
STALE = ("reset", "eof")


class HoldOver(Exception):
    """The time for holding back is over."""


class Attempt:
    link = head = body = reader = answer = error = failure = hold_until = sent_at = response_file = request_file = None
    released = ended = clean = stream_failed = False
    last = b""  # of a released answer: kept back until it is settled

    def __init__(self, delivery):
        self.delivery, self.open = delivery, delivery.open
        self.engine, self.client, self.request = engine, _, request = delivery.engine, delivery.client, delivery.request
        self.record = engine.new_record(request, delivery.entry.failures + 1)
        self.hold_answer = engine.retry["hold"] == "answer" and request.dialect is not None
        engine.live[self.record["seq"]] = self

    # -- the exchange ----------------------------------------------------------------------------------------------
    def exchange(self, fresh):
        """To the end of the answer, or to the failure in `error`. ClientLeft and Stopped pass through."""
        phase = "head"
        try:
            self._send(fresh)
            self._read_head()
            phase = "body"
            self._read_body()
            self.clean = True
        except UpstreamFailed as error:
            self.error = error
        except http1.Malformed as error:
            rule = "head_too_large" if error.status == 431 else "bad_framing"
            self.error = UpstreamFailed(phase, rule, error.message, "unexpected_response")
        except OSError as error:
            self.error = from_os_error(phase, error)
        finally:
            self._part_with_link()

    def _send(self, fresh):
        engine, request, record = self.engine, self.request, self.record
        watch, size = self.client.watch, request.size
        self.link = link = engine.upstream.take(watch, fresh)
        record["reused_connection"] = link.reused
        self._state("sent")
        self.sent_at = now = monotonic()
        record["sent_at"] = now + engine.epoch
        bodiless, head = request.asking.onward
        link.send(b"%s%d\r\n\r\n" % (head, size) if size else bodiless, request.spool, watch)
        engine.face.last_activity = monotonic()
        if request.first_seq is None:
            request.first_seq = record["seq"]
            self.request_file = engine.bodies.open(record["seq"], "request")
            if self.request_file:
                for piece in request.spool.pieces():
                    self.request_file.write(piece)
        self.describe()

    def _read_head(self):
        engine, record = self.engine, self.record
        self.head = head = self.link.read_head(self.client.watch, self._timeouts)
        status = head.first[1]
        engine.face.last_activity = now = monotonic()
        record["first_byte_at"], record["status"] = now + engine.epoch, status
        record["response_headers"] = headers = kept_headers(head)
        raw = headers.get("retry-after")
        record["retry_after"] = ", ".join(raw) if isinstance(raw, list) else raw  # one value, as RFC 9110 5.3 joins them
        self._state("streaming")
        if 300 <= status < 400:
            self._refuse_redirect()
        self.body = http1.response_body(head, self.request.asking.head.first[0])
        self.reader = Reader(self.request.dialect, head.text(b"content-type"), head.text(b"content-encoding"))
        self.answer = Answer(head, self.body.framing, Spool(engine.dirfd))
        if not self.hold_answer or status >= 400:
            self.hold_until = now + HOLD_SECONDS
        if not self.body.done:
            self.response_file = engine.bodies.open(record["seq"], "response")

    def _refuse_redirect(self):
        for value in self.head.names.get(b"location", ()):
            location = value.decode("latin-1")
            if not self.engine.route.same_origin(location):
                raise UpstreamFailed("head", "redirect_refused", "a redirect to " + location[:200], "unexpected_response",
                                     rule="redirect_refused")

    def _read_body(self):
        engine, body, link, watch = self.engine, self.body, self.link, self.client.watch
        eager = False
        while not body.done:
            try:
                data = link.take() or link.read(watch, *self._timeouts("idle"), eager)
            except HoldOver:
                self._hold_is_over()
                continue
            if not data:
                if body.eof() and not (link.stream.ragged and self._is_cut()):
                    return
                raise UpstreamFailed("body", "truncated", self._how_truncated(), "stream_interrupted")
            eager = len(data) == READ and not engine.reception.stopping
            self._take(body.feed(data), body.wire)

    def _is_cut(self):
        """TLS ended without its closure alert, and so did the body: it is whole only where it says so itself."""
        self.reader.finish(True)
        return not self.reader.complete

    def _take(self, piece, wire):
        self.reader.feed(piece)
        self.record["response_bytes"] += len(piece)
        if not self.released:
            self._hold(wire)
        elif self.body.done:
            self.last = piece if self.client.http10 else wire
        else:
            if self.reader.terminal is not None and not self.ended:
                self._end()
            self.client.send(piece if self.client.http10 else wire)
        if self.response_file:
            self.response_file.write(piece)
        self.engine.face.last_activity = now = monotonic()
        if self.open is not None and (len(piece) > CHATTER or not self.reader.says_nothing(piece)):
            self.open.said_at = now

    def _end(self):
        self.ended = True
        self._copy_reader()
        self.delivery.ends(self)

    # -- holding -----------------------------------------------------------------------------------------------------
    def _hold(self, wire):
        try:
            self.answer.body.write(wire)
        except SpoolFull:  # no room to hold: pass on what there is, and then the rest
            self.release()
            self.client.send(wire)
            return
        if self.body.done:
            return  # it is all there: judged first, then sent
        if self._is_error():
            if self.hold_until is None:
                self.hold_until = monotonic() + HOLD_SECONDS
            if self.answer.body.size > HOLD_BYTES:
                self._hold_is_over()
        elif self._is_answered() if self.hold_answer else self._has_content():
            self.release()

    def _is_error(self):
        return self.head.first[1] >= 400 or self.reader.error is not None

    def _is_answered(self):
        """A server, or what stands before it, may leave a stream open after its last event, or end it without its last chunk."""
        if self.reader.terminal is None or self._odd_end() is not None:
            return False
        if self.hold_until is None:
            self.hold_until = monotonic() + HOLD_SECONDS  # for the dialect in which more may come
        return self.reader.answered

    def _has_content(self):
        reader = self.reader
        if reader.content_seen or reader.not_decoded or reader.dialect is None:
            return True
        return not reader.is_stream and not reader.says_events and self.answer.body.size > 0

    def _hold_is_over(self):
        """An error that does not end is judged by what is there: leave it for another try, or pass it on."""
        self.hold_until = None
        if self._is_error() and self.delivery.would_retry(self):
            raise UpstreamFailed("body", "hold_over", "an error answer that did not end in time", self.judge(False))
        self.release()

    def release(self):
        """The client gets the head and what was held; from here on there is no other try."""
        if self.released:
            return
        self.released, client, framing = True, self.client, self.body.framing
        if self.reader.terminal is not None:
            self._end()
        close = ends_connection(framing, client.http10, self.delivery.keep_alive)
        block = head_bytes(self.head, framing, client.http10, close)
        unchunk = http1.Chunked() if framing == "chunked" and client.http10 else None
        for piece in self.answer.body.pieces():
            block += unchunk.feed(piece) if unchunk else piece
            if len(block) > TOGETHER:
                client.send(block)
                block = b""
        if block:
            client.send(block)
        self.answer.body.close()
        self.answer = None

    def finish_release(self):
        """The end of a released answer. -> may the client's connection go on?"""
        client, framing, rest = self.client, self.body.framing, self.last
        whole = self.clean and not (self.stream_failed and framing == "chunked")
        if whole and not client.http10:
            rest += self.body.tail
        if rest:
            client.send(rest)
        if not whole:
            client.abort(reset=framing == "close" or client.http10)
            return False
        return not ends_connection(framing, client.http10, self.delivery.keep_alive)

    # -- deadlines ---------------------------------------------------------------------------------------------------
    def _timeouts(self, kind):
        """-> (until, what to raise then) for the next read: the nearest of the deadlines that apply."""
        if not self.engine.timed and (self.released or self.hold_until is None):
            return None, None
        settings, until, cause = self.engine.settings, None, None
        seconds = settings.get("first_byte_timeout" if kind == "first_byte" else "idle_timeout")
        if seconds:
            until = (self.sent_at if kind == "first_byte" else monotonic()) + seconds
            cause = kind + "_timeout"
        if not self.released:
            timer = self.engine.client_deadline(self.request)
            if timer is not None and (until is None or timer < until):
                until, cause = timer, "client_timer"
            if self.hold_until is not None and (until is None or self.hold_until < until):
                return self.hold_until, HoldOver
        if until is None:
            return None, None
        phase = "head" if self.head is None else "body"
        return until, lambda: UpstreamFailed(phase, cause, "no byte in time (%s)" % cause, "model_timeout")

    # -- what it was -------------------------------------------------------------------------------------------------
    def judge(self, finished=True):
        """The failure kind of the answer as received (None: it is good). Sets the record's fields once finished."""
        record, reader, status = self.record, self.reader, self.record["status"]
        if reader is None:
            return self.error.failure if self.error else None
        if finished:
            reader.finish(self.clean)
            self._copy_reader()
        if status < 300 and reader.error is None and (self.error is None or reader.answered) and (
                not finished or self.request.dialect is None or reader.complete or reader.not_decoded):
            return self._odd_end() if finished and self.request.dialect else None
        delay = asked_delay(self.pairs(), reader.retry_delay, self.engine.now())[0]
        kind = classify(status, reader.error, record["response_headers"].get("content-type"), reader.excerpt, delay)
        if status >= 400 or reader.error is not None:
            return kind or "unexpected_response"
        if self.error is not None:
            return self.error.failure
        if status >= 300:
            return "unexpected_response"
        if reader.is_stream or reader.blank:
            self.stream_failed = True
            words = "nothing came after the head" if reader.blank else "the stream ended without its terminal event"
            self.error = UpstreamFailed("body", "no_terminal", words, "stream_interrupted")
            return "stream_interrupted"
        return kind or "unexpected_response"

    def _odd_end(self):
        """A response that says of itself that it was cancelled, or is incomplete for a reason that is no limit and no policy,
        was broken off by the provider."""
        said = self.reader.finish_reason in BROKEN_OFF or self.reader.terminal in ("response.cancelled", "response.incomplete")
        self.stream_failed = said and self.reader.finish_reason != OWN_LIMIT and finish_kind(self.reader.finish_reason) is None
        return "stream_interrupted" if self.stream_failed else None

    def _copy_reader(self):
        record, reader = self.record, self.reader
        record.update(events=reader.events, terminal=reader.terminal, finish=reader.finish_reason,
                      response_id=reader.response_id, usage=reader.usage, usage_raw=reader.usage_raw,
                      not_decoded=reader.not_decoded)
        if reader.model and not record["model"]:
            record["model"] = reader.model
        if reader.error is not None:
            record["stream_error" if record["status"] < 400 else "provider_error"] = reader.error
            record["provider_error"] = dict(reader.error)
        if (reader.excerpt or record["status"] >= 400) and record["provider_error"] is None and reader.excerpt:
            record["provider_error"] = {"code": None, "type": None, "message": None, "excerpt": reader.excerpt}

    def pairs(self):
        """The response's headers as text."""
        return self.head.pairs() if self.head is not None else []

    def _how_truncated(self):
        if isinstance(self.body, http1.Sized):
            got = self.body.length - self.body.left
            return "Content-Length %d, got %d bytes" % (self.body.length, got)
        if self.body.framing == "close":
            return "TLS ended without a closure alert"
        return "the connection ended inside a chunked body"

    def is_stale(self):
        """A reused connection that the server had closed: no byte of an answer, no blame."""
        return (self.error is not None and self.link is not None and self.link.reused and not self.link.got_byte
                and self.error.phase in ("send", "head") and self.error.kind in STALE)

    def unanswered(self):
        return bool(self.error is not None and self.link is not None and self.link.sent_all and not self.link.got_byte
                    and self.error.phase != "tls")  # an alert: the server says that it took no request

    # -- the end -----------------------------------------------------------------------------------------------------
    def describe(self):
        """What the record says of the request, main or not, however the attempt ends."""
        request, record = self.request, self.record
        request.look()
        record["model"] = request.model or record["model"]
        record["fingerprint"], record["request_sha256"] = request.fingerprint, request.sha256

    def close(self, failed):
        """Write the record and close the files. Called once on every way out; a stop may have been first."""
        if self.record["fingerprint"] is None:
            self.describe()
        names = []
        for file in (self.request_file, self.response_file):
            if file:
                file.end(failed)
                names.append("bodies/" + file.name)
        self.record["bodies"] = names or None
        self.engine.closed(self.record)

    def shut_down(self):
        """Called by another thread at the end of the run, when the handler did not come back in time."""
        decision = "forwarded" if self.released else "gave_up"
        self.engine.closed(dict(self.record, error=Stopped().as_record(), decision=decision, rule="shutdown"))

    def left(self, reason):
        """The client left or the run stops: what was read so far goes into the record."""
        if self.reader is not None:
            self.reader.finish(False)
            self._copy_reader()
        self.record["error"] = dict(reason.as_record(), **self._owed())
        self.record["decision"] = "forwarded" if self.released else "gave_up"
        self.record["rule"] = "shutdown" if isinstance(reason, Stopped) else "client_left"

    def _owed(self):
        """What the client had waited for in vain: seconds without anything of an answer, and the failure before this attempt."""
        if self.open is None:
            return {}
        earlier = (self.open.last_record or {}).get("failure") if self.open.state != "streaming" else None
        return {"idle_s": self.open.idle_s(), "earlier": earlier}

    def _part_with_link(self):
        link, body = self.link, self.body
        if link is None:
            return
        good = (self.clean and body is not None and body.done and body.framing != "close" and not body.excess and not link.data
                and link.reusable and link.sent_all and self.head.keeps_alive())
        if good:
            self.engine.upstream.give_back(link, self.client.watch)
        else:
            link.close(self.client.watch)

    def _state(self, state):
        if self.open is not None:
            self.open.state, self.open.attempt, self.open.said_at = state, self.record["attempt"], monotonic()
            if state == "sent":
                self.open.since, self.open.client = self.engine.now(), self.client

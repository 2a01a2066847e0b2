"""What all connections of one proxy share: the upstream, the latch, the records, the limits, the time that is left.

Loaded after the agent was launched. Every method may be called from any handler thread; state is guarded by one lock,
which is never held while something is read, sent or waited for.
"""
from __future__ import annotations

import itertools
import os
import threading

from transport.ambient import way_from
from transport.book import Book
from transport.errors import UpstreamFailed
from transport.evidence import EvidenceFile
from transport.exchange import serve
from transport.latch import Latch
from transport.outgoing import Outgoing
from transport.recording import Bodies
from transport.redact import Redactor
from transport.refusals import refusal
from transport.request import Askings, Conversation, Request, Unread
from transport.routes import Route
from transport.upstream import Upstream
from transport.waits import monotonic

ATTEMPTS = "model_attempts.jsonl"
FUTILE = 20  # main requests given up one after the other; a CLI that asks on and on is then as good as silent (OpenCode 1.17.11)
GIVE_UP_BEFORE = 5.0  # seconds before the CLI's own timer (DESIGN 11)
DEFAULT_RETRY = {"max_attempts": 6, "max_wait": 120.0, "budget": 900.0, "base": 1.0, "cap": 60.0, "ambiguous_replays": 1,
                 "hold": "first_event", "statuses": None}


class Engine:
    def __init__(self, settings, face, reception):
        self.reception, self.given_up = reception, 0
        self.face, self.now, self.random = face, settings["now"], _random
        self.epoch = self.now() - monotonic()  # unix seconds = monotonic + epoch: `now` never runs apart from the other clock
        self.settings, self.stop_fd, self.dirfd = settings, face.stop_fd, settings["dirfd"]
        self.retry = dict(DEFAULT_RETRY, **{k: v for k, v in (settings.get("retry") or {}).items() if v is not None})
        self.limits = settings.get("limits") or {}
        self.token_limits = [(name, self.limits[name]) for name in ("total_tokens", "output_tokens") if self.limits.get(name)]
        self.token, self.api = face.token, settings.get("api")
        socket_path = settings.get("socket")
        self.route = Route(settings.get("base_url") or "http://localhost", self.api, settings.get("query"))
        way = way_from(os.environ, self.route) if settings.get("use_proxy") and not socket_path else None
        key = settings.get("key")
        self.outgoing = Outgoing(self.route, key, settings.get("auth"), settings.get("headers"),
                                 absolute=bool(way) and self.route.scheme == "http",
                                 proxy_headers=way.headers if way and self.route.scheme == "http" else ())
        ca_file = settings.get("ca_file") or os.environ.get("SSL_CERT_FILE") or None
        secrets = list(settings.get("secrets") or ()) + [s.encode() for s in (self.token, key) if s]
        self.redactor = Redactor(secrets)
        if not settings.get("replay"):
            self.upstream = Upstream(self.route, socket_path, ca_file, way)
        else:
            from transport.recorded import Recorded
            self.upstream = Recorded(self.route, settings["replay"], self.redactor.clean)
        self.attempts_file = EvidenceFile(self.dirfd, ATTEMPTS, fd=face.attempts_fd)
        self.book = Book(self.attempts_file, self.redactor)
        self.bodies = Bodies(settings.get("bodies") or "all", face.bodies_fd, self.redactor, self.limits.get("body_bytes"))
        self.latch, self.lock = Latch(self.retry["max_attempts"]), threading.Lock()
        self.conversation = Conversation([name.lower().encode() for name in settings.get("main_headers") or ()])
        identity_headers = [name.lower().encode() for name in settings.get("identity_headers") or ()]
        self.askings = Askings(identity_headers, self.token, self.outgoing, settings.get("invocation_id"))
        self._numbers, self._counts, self._open = itertools.count(1), {True: 0, False: 0}, {}
        self._waits, self._waits_since, self._waited = 0, 0.0, 0.0
        self.live = {}  # seq -> Attempt: what stop() has to close
        self.timed = bool(settings.get("first_byte_timeout") or settings.get("idle_timeout") or settings.get("client_timer"))

    # -- connections -----------------------------------------------------------------------------------------------
    def prepare(self):
        """Get ready before the first request: the TLS context."""
        try:
            self.upstream.prepare()
        except UpstreamFailed:
            pass  # the first attempt will say it, in its record

    def serve(self, sock):
        serve(self, sock, self.face)

    def turn_away(self, sock):
        """No thread or descriptor for this connection: say so, record it."""
        status, block, message = refusal("no_thread", self.api)
        try:
            sock.setblocking(False)
            sock.send(block)
            sock.close()
        except OSError:
            pass  # the client did not wait for it
        self.record_refusal(None, "no_thread", status, message)

    # -- requests ------------------------------------------------------------------------------------------------
    def next_request(self):
        return next(self._numbers)

    def admit(self, request):
        """Main or auxiliary, and within the limits? -> a refusal's (rule, detail) or None."""
        with self.lock:
            request.main = main = self.conversation.is_main(request)
            if request.dialect is not None:
                self._counts[main] += 1
            over = self._over_limit(request)
            if main and not over:
                self._open[request.id] = Open(request)
        if main:
            self._told(self.limits and over and over[0])
        return over

    def uncount(self, request):
        """A repeat that the latch answers uses up no limit: a CLI that asks a failed provider on and on would end at its limit of
        requests, and that is graded."""
        with self.lock:
            self._counts[request.main] -= 1

    def _told(self, final_failure):
        """A main request was given up (its kind), or a new one has begun (None)."""
        self.given_up += bool(final_failure)
        if final_failure and self.given_up >= FUTILE and self.face.futile_since is None:
            self.face.futile_since = monotonic()
        self.face.final_answer(final_failure)

    def _over_limit(self, request):
        if request.dialect is None:
            return None
        share = 1 if request.main else 2
        limit = self.limits.get("requests")
        if limit and self._counts[request.main] > limit * share:
            return "request_limit", "%d" % (limit * share)
        for name, limit in self.token_limits:
            if (self.book.spent(request.main)[name] or 0) >= limit * share:
                return "token_limit", "%d %s" % (limit * share, name.replace("_", " "))
        return None

    def settled(self, request, record, failure):
        """Everything that is known of an answer, before its end can be seen: figures, limits, latch, what is open."""
        record["ended_at"] = monotonic() + self.epoch
        self.book.settle(record)
        if failure is None and self.latch.entries:
            with self.lock:
                self.latch.succeeded(request.fingerprint)
        self.request_ended(request, failure)

    def request_ended(self, request, final_failure=None):
        if request.id not in self._open:  # auxiliary, or ended when it was settled
            return
        with self.lock:
            was_open = self._open.pop(request.id, None)
        if final_failure and was_open:
            self._told(final_failure)
        elif was_open:
            self.given_up, self.face.futile_since = 0, None

    def opened_main(self, request):
        """Where the handler notes what an open main request is doing; None for the others."""
        return self._open.get(request.id)

    def record_refusal(self, request, rule, status, message):
        """One record for what was answered without the upstream. `request` is None where none could be read."""
        if request is None:
            request = Request(self.next_request(), Unread(self.settings.get("invocation_id")), 0.0)
        record = self.new_record(request, 0)
        record.update(decision="refused", rule=rule, status=status, fingerprint=request.fingerprint,
                      request_sha256=request.sha256,
                      error={"phase": "client", "kind": rule, "message": message[:500]})
        self.closed(record, opened=False)

    def record_abandoned(self, request, reason):
        """The client left, or the run stopped, before the request was complete: nothing was sent, nobody is answered."""
        record = self.new_record(request, 0)
        error = reason.as_record()
        record.update(decision="refused", rule=error["kind"], error=error)
        self.closed(record, opened=False)

    # -- attempts ------------------------------------------------------------------------------------------------
    def new_record(self, request, attempt):
        record = request.asking.blank.copy()
        record["seq"], record["request"], record["attempt"] = self.book.next_seq(), request.id, attempt
        record["main"], record["model"], record["request_bytes"] = request.main, request.model, request.size
        record["started_at"] = monotonic() + self.epoch
        return record

    def closed(self, record, opened=True):
        """Write a record, once: the handler and a stop may both come here."""
        if opened and self.live.pop(record["seq"], None) is None:
            return
        if record["ended_at"] is None:  # else its answer ended before: what a client or server does then is not its time
            record["ended_at"] = monotonic() + self.epoch
        self.book.write(record)

    # -- time ----------------------------------------------------------------------------------------------------
    def time_left(self, request):
        """Seconds until the run's deadline or shortly before the CLI's own timer; None without either."""
        ends = [end for end in (self.settings.get("deadline"), self.client_deadline(request)) if end is not None]
        return min(ends) - monotonic() if ends else None

    def client_deadline(self, request):
        timer = self.settings.get("client_timer")
        return None if timer is None else request.got_at + max(timer - GIVE_UP_BEFORE, timer / 2)

    def budget_left(self):
        with self.lock:
            open_now = monotonic() - self._waits_since if self._waits else 0.0
            return self.retry["budget"] - self._waited - open_now

    def wait_begins(self):
        with self.lock:
            if not self._waits:
                self._waits_since = monotonic()
            self._waits += 1

    def wait_ends(self):
        with self.lock:
            self._waits -= 1
            if not self._waits:
                self._waited += monotonic() - self._waits_since

    # -- the end -------------------------------------------------------------------------------------------------
    def open_main(self):
        """The main request that is open now (the latest), as `summary()` shows it."""
        with self.lock:
            latest = max(self._open.values(), key=lambda entry: entry.request.id, default=None)
            shown = latest and latest.as_dict(self.now)
        if shown:
            shown["last_record"] = self.book.redacted(shown["last_record"])
        return shown

    def shut_down(self):
        """After the handlers had their grace: what is still open gets its record."""
        for attempt in list(self.live.values()):
            attempt.shut_down()
        self.upstream.close()


def _random():
    """[0, 1), for jitter. The `random` module costs 3 ms and 1 MB."""
    return int.from_bytes(os.urandom(6), "big") / (1 << 48)


class Open:
    """A main request that is open. `said_at`: when something of an answer last came (keep-alives are nothing: a gateway sends
    them by its own clock, also where the model behind it has died). `last_record`: of the last attempt, also an earlier one's."""
    __slots__ = ("request", "attempt", "since", "state", "said_at", "last_record", "client")

    def __init__(self, request):
        self.request, self.attempt, self.since, self.state, self.last_record = request, 1, None, "sent", None
        self.said_at, self.client = monotonic(), None

    def idle_s(self):
        """Seconds without anything of an answer; 0 while it is the client that does not take what there is."""
        return 0.0 if self.client is not None and self.client.slow else round(max(0.0, monotonic() - self.said_at), 3)

    def as_dict(self, now):
        return {"request": self.request.id, "attempt": self.attempt, "since": self.since if self.since is not None else now(),
                "idle_s": self.idle_s(), "state": self.state, "last_record": self.last_record}

"""An upstream that answers from a recorded run instead of the network: `Recorded` stands where `Upstream` stands.

Each connection is a socket pair; a thread at its other end reads a request, finds it in the recording (replay.py), and
answers with the recorded bytes, a stream event by event. So everything before it (latch, hold, retries, records) is as with a
real endpoint. What was found stands in two headers of the answer, which the attempt record keeps: `x-replay-request`
(number of the recorded request) and `x-replay-match` (how it matches, and the first difference where one was overlooked).
A model request that is not in the recording is answered 400 `replay_mismatch` in the caller's dialect, which no CLI repeats.

The recording is a directory that an agent may have written: only regular files in it are opened, nothing is followed.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import threading

from transport import http1, replay
from transport.dialects import dialect_of
from transport.refusals import REASONS, refusal
from transport.streams import Stream
from transport.upstream import Upstream

ATTEMPTS = "model_attempts.jsonl"
PASSED = (
    "content-type",
    "content-encoding",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-request-id",
    "request-id",
    "openai-model",
)
_EVENT = re.compile(rb".+?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL)
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


SHAPES = {"bodies": list, "response_headers": dict, "method": str, "dialect": str, "request_sha256": str, "model": str,
          "failure": str, "response_bytes": int, "status": int}


def shaped(record):
    """An attempt record from a sandbox: what has not the type of its field is as if it were not there."""
    found = dict(record)
    for name, kind in SHAPES.items():
        if not isinstance(found.get(name), kind):
            found.pop(name, None)
    if not 100 <= found.get("status", 0) <= 599:
        found.pop("status", None)
    headers = found.get("response_headers", {})
    found["response_headers"] = {name: headers[name] for name in headers if isinstance(headers[name], str)}
    return found


class Unusable(Exception):
    """The directory is no recording; the sentence says why."""


class Answer:
    """One recorded answer: its status, headers and the file of its body."""

    def __init__(self, record, name):
        self.status, self.headers, self.name = record["status"], record.get("response_headers") or {}, name


class Recording:
    """The files of an outcome directory or of a directory that `proxy` wrote."""

    def __init__(self, directory, failures=False):
        self.directory, self.failures = directory, failures
        self.entries = list(self._entries(self._records()))

    def read(self, name):
        parts = name.split("/")
        if len(parts) > 2 or (len(parts) == 2 and parts[0] != "bodies") or parts[-1] in ("", ".", ".."):
            raise Unusable("%s: is no file of a recording" % name)
        folder = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if len(parts) == 2:
                inner = os.open(parts[0], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                os.close(folder)
                folder = inner
            with os.fdopen(os.open(parts[-1], READ, dir_fd=folder), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise Unusable("%s: is no regular file" % name)
                return file.read()
        finally:
            os.close(folder)

    def _records(self):
        try:
            lines = self.read(ATTEMPTS).split(b"\n")
        except OSError as error:
            raise Unusable("%s/%s cannot be read (%s)" % (self.directory, ATTEMPTS, error.strerror)) from None
        for line in lines:
            record = replay.parsed(line)
            if record and record.get("decision") not in ("latched", "refused") and isinstance(record.get("path"), str):
                yield shaped(record)

    def _entries(self, records):
        requests = {}
        for record in records:
            requests.setdefault(str(record.get("request")), []).append(record)
        for attempts in requests.values():
            first = attempts[0]
            names = [name for one in attempts for name in one.get("bodies") or () if isinstance(name, str)]
            asked = next((name for name in names if name.endswith(".request")), None)
            answers, why_not = self._answers(attempts, first.get("dialect"))
            yield replay.Entry(
                first.get("request"),
                first.get("method"),
                first["path"].partition("?")[0],
                first.get("dialect"),
                first.get("request_sha256"),
                first.get("main"),
                first.get("model"),
                lambda name=asked: self.body(name),
                answers,
                why_not,
            )

    def _answers(self, attempts, dialect):
        """The answers that may be served: the successful one; with `failures`, or where nobody's model spoke, all of them."""
        found, why_not = [], "it was never answered"
        for record in attempts:
            name = next((one for one in record.get("bodies") or () if isinstance(one, str) and one.endswith(".response")), None)
            good = record.get("failure") is None and isinstance(record.get("status"), int)
            if not isinstance(record.get("status"), int) or not (good or self.failures or not dialect):
                why_not = "it failed in the recording (%s)" % (record.get("failure") or "no answer")
            elif record.get("response_bytes") and (name is None or not self._whole(name, record["response_bytes"])):
                why_not = "its answer was not kept whole (bodies, limits.body_bytes)"
            else:
                found.append(Answer(record, name))
        return found, why_not

    def _whole(self, name, size):
        try:
            return os.stat(os.path.join(self.directory, name), follow_symlinks=False).st_size == size
        except (OSError, ValueError):
            return False

    def body(self, name):
        try:
            return self.read(name) if name else b""
        except (OSError, ValueError, Unusable):
            return b""


def recording(directory, failures, *documents):
    """(entries, *further documents of it) of a recorded run, as replay.Entry and dicts. ValueError: the sentence says why not."""
    try:
        found = Recording(directory, failures)
    except Unusable as error:
        raise ValueError(str(error)) from None
    return (found.entries, *(replay.parsed(found.body(name)) or {} for name in documents))


class Recorded(Upstream):
    """clean: blanks secrets out of a request's bytes, as they are blank in the recording."""

    def __init__(self, route, settings, clean):
        Upstream.__init__(self, route)
        self._recording = Recording(settings["directory"], settings.get("failures"))
        self._index = replay.Index(self._recording.entries, settings.get("recorded") or {}, settings.get("places") or {})
        self._clean, self._lock = clean, threading.Lock()

    def _connect(self, watch):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        threading.Thread(target=self._serve, args=(theirs,), name="replay", daemon=True).start()
        return Stream(ours)

    def _serve(self, sock):
        with sock:
            try:
                while True:
                    head, body = _read(sock)
                    if head is None:
                        return
                    for piece in self._respond(head, body):
                        sock.sendall(piece)
            except (OSError, http1.Malformed):
                return  # the proxy closed: its client left, or the run is over

    def _respond(self, head, body):
        method, target = head.first[0].decode("ascii"), head.first[1].decode("latin-1")
        path = target.partition("?")[0]
        dialect = dialect_of(method, path)
        with self._lock:
            entry, how, differs = self._index.find(method, path, dialect, _sha256(body), self._clean(body))
            if entry is not None:
                turn, entry.used = entry.used, entry.used + 1
        if entry is None:
            return _mismatch(dialect, _nothing(how, differs))
        if not entry.answers:
            return _mismatch(dialect, "recorded request %s matches, but %s" % (entry.number, entry.why_not))
        answer = entry.answers[min(turn, len(entry.answers) - 1)]
        note = how if differs is None else "%s; %s" % (how, replay.told(differs))
        return _framed(answer, self._recording.body(answer.name), entry.number, note, method == "HEAD")


def _sha256(body):
    import hashlib

    return hashlib.sha256(body).hexdigest()


def _read(sock):
    """(Head, body) of the next request; (None, b"") at the end."""
    data = b""
    while True:
        end = http1.head_end(data)
        if end >= 0:
            break
        more = sock.recv(65536)
        if not more:
            return None, b""
        data += more
    head, rest = http1.parse_request(data[:end]), data[end:]
    size, pieces = http1.content_length(head) or 0, [rest]
    size -= len(rest)
    while size > 0:
        more = sock.recv(min(size, 1 << 20))
        if not more:
            return None, b""
        pieces.append(more)
        size -= len(more)
    return head, b"".join(pieces)


def _nothing(nearest, differs):
    if nearest is None:
        return "the recording has no request of this kind"
    return "no recorded request matches; the nearest is request %s, which differs first at %s" % (
        nearest.number,
        replay.told(differs),
    )


def _mismatch(dialect, sentence):
    if dialect is None:
        body = json.dumps({"error": {"message": "replay: " + sentence, "code": "replay_mismatch"}}).encode()
        return [b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)]
    return [refusal("replay_mismatch", dialect, sentence, False)[1]]


def _framed(answer, body, number, note, head_only):
    """The recorded answer as a message: a stream in one chunk per event, anything else with its length."""
    lines = ["HTTP/1.1 %d %s" % (answer.status, REASONS.get(answer.status, "Recorded"))]
    for name in PASSED:
        value = answer.headers.get(name)
        lines += [
            "%s: %s" % (name, _printable(one)) for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)
        ]
    lines += ["x-replay-request: %s" % _printable(str(number)), "x-replay-match: %s" % _printable(note)]
    stream = "text/event-stream" in str(answer.headers.get("content-type"))
    bodiless = head_only or answer.status in (204, 304)
    framing = [] if bodiless else ["transfer-encoding: chunked"] if stream else ["content-length: %d" % len(body)]
    yield "\r\n".join(lines + framing + ["", ""]).encode("latin-1")
    if bodiless:
        return
    if not stream:
        yield body
        return
    for event in _EVENT.findall(body):
        yield b"%x\r\n%s\r\n" % (len(event), event)
    yield b"0\r\n\r\n"


def _printable(text):
    return re.sub(r"[^ -~]", "?", text)[:1000]

"""What the endpoint saw and sent: the second opinion of every check.

The endpoint's witness log has each request as it came (head, body, SHA-256) and how many bytes went out as an answer. The
bytes themselves are played again here from the plan by the endpoint's own steps, without a socket; where the number of
bytes is not the one in the log, the log is believed and reading ends with an AssertionError. Nothing of worker/ or
transport/ is used: framing is read by the few lines below, events and documents by dialects.py.
"""
from __future__ import annotations

import hashlib
import json

from tests import endpoint
from tests.conformance import dialects
from tests.conformance.dialects import NAMES


class Replay(endpoint.Exchange):
    """Collects what an exchange writes. Waiting takes no time; a stall is where the peer leaves."""

    def __init__(self, request):
        super().__init__(None, self, request)
        self.data = b""

    def sendall(self, data):
        self.data += data

    def wait(self, seconds=None, until=None):
        if seconds is None:
            raise endpoint.Left()


class Exchanged:
    """One request as the endpoint saw it, with the answer that it sent (status None: nothing was sent)."""

    def __init__(self, line, steps, harness):
        self.harness = harness
        self.number, self.at, self.method, self.path = line["request"], line["at"], line["method"], line["path"]
        self.sha256, self.size = line.get("body_sha256"), line["body_bytes"]
        self.headers = {name.lower(): value for name, value in line["headers"]}
        self.request = json.loads(line["body"]) if line["body"][:1] == "{" else {}
        self.answer = line["answer"] or {"sent_bytes": 0, "first_sent_at": None, "ended": "stopped", "at": None}
        self.first_sent_at, self.ended_at = self.answer["first_sent_at"], self.answer["at"]
        replay = Replay(line)
        try:
            replay.run(steps)
        except (endpoint.Left, endpoint.Ended):
            pass
        assert self.answer["sent_bytes"] <= len(replay.data), "request %d: the plan tells less than was sent" % self.number
        if self.answer["ended"] in ("kept", "fin", "rst"):
            assert self.answer["sent_bytes"] == len(replay.data), "request %d: sent other bytes than planned" % self.number
        self.read(replay.data[:self.answer["sent_bytes"]])
        self.thread = harness.thread(self)

    def read(self, raw):
        """Status, headers and body (framing removed) of the bytes that went out, and what they said."""
        head, _, rest = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1]) if raw else None
        fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
        self.sent_headers = dict(fields)
        self.waits_asked = {value for name, value in fields if name == "retry-after"}
        self.body = dechunked(rest) if "transfer-encoding" in self.sent_headers else rest
        stream = self.sent_headers.get("content-type") == "text/event-stream"
        self.told = dialects.told(self.harness.api, self.body, stream) if self.status == 200 else dialects.Told()

    @property
    def asks(self):
        """Whether it is a question to a model, and no probe."""
        return any(name in self.request for name in ("input", "messages", "contents"))

    @property
    def succeeded(self):
        """A whole answer that says that it is complete."""
        return self.told.ok

    def asked(self):
        """The shapes of the conversation that the model was shown."""
        return self.harness.shown(dialects.asked(self.harness.api, self.request))

    @property
    def usage(self):
        """The five figures that went out at the end of the answer; None where there were none."""
        return self.told.usage

    @property
    def asked_wait(self):
        """Seconds of a plain Retry-After, or None; several that disagree ask for nothing."""
        value = next(iter(self.waits_asked)) if len(self.waits_asked) == 1 else ""
        return float(value) if value.replace(".", "", 1).isdigit() else None

    def calls(self):
        """Tool calls that the model made in this answer."""
        return self.told.calls()

    def outputs(self):
        """{call id: text} of the tool results that this request carries."""
        return {item[1]: item[2] for item in dialects.asked(self.harness.api, self.request) if item[0].endswith("_output")}


def dechunked(data):
    whole = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        whole += data[:int(size, 16)]
        data = data[int(size, 16) + 2:]
    return whole


class Witness:
    """All exchanges of a run in order of arrival. `lines`: Endpoint.requests() or read_witness(); scenario: what was played."""

    def __init__(self, lines, scenario):
        plan, harness = scenario["plan"], scenario["harness"]
        dealt = endpoint.Plan(plan)
        self.all = []
        for line in lines:
            entry = dealt.for_request(line) or endpoint.UNPLANNED
            unplanned = bool((line["answer"] or {}).get("unplanned"))
            assert unplanned == (entry is endpoint.UNPLANNED), "the plan was dealt in another order"
            assert entry is not endpoint.UNPLANNED, "request %d was not planned: %s" % (line["request"], line["body"][-500:])
            self.all.append(Exchanged(line, entry["steps"], harness))
        self.model = [one for one in self.all if one.thread is not None]  # the CLI's own conversation
        self.side = [one for one in self.all if one.thread is None]       # probes, titles, what its tools sent

    def threads(self):
        """Thread ids in order of appearance."""
        return list(dict.fromkeys(one.thread for one in self.model))

    def of(self, thread):
        return [one for one in self.model if one.thread == thread]

    def steps(self, thread=None):
        """[[exchange, ...]]: what was asked, each with all its attempts, in order; a repeat has the very same body."""
        grouped = {}
        for one in self.model if thread is None else self.of(thread):
            grouped.setdefault((one.thread, one.sha256), []).append(one)
        return list(grouped.values())

    def usage(self, whole=False):
        """(sum over all answers that told usage or None, number of proper answers without); whole: of the conversation's own that
        ended properly."""
        told = [one.usage for one in (self.model if whole else self.all) if one.usage and (one.succeeded or not whole)]
        total = {name: added([usage[name] for usage in told]) for name in NAMES} if told else None
        return total, sum(1 for one in self.model if one.succeeded and not one.usage)


def added(figures):
    return None if None in figures else sum(figures)


def sha256(data):
    return hashlib.sha256(data).hexdigest()

"""What the endpoint saw and sent: the second opinion of every check.

The endpoint's witness log has each request as it came (head, body, SHA-256) and how many bytes went out as an answer. The
bytes themselves are played again here from the plan by the endpoint's own steps, without a socket; where the number of
bytes is not the one in the log, the log is believed and reading ends with an AssertionError. Nothing of worker/ or
transport/ is used: framing and event streams are read by the few lines below.
"""
from __future__ import annotations

import hashlib
import json

from tests import endpoint

NAMES = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")


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

    def __init__(self, line, steps):
        self.number, self.at, self.path = line["request"], line["at"], line["path"]
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

    def read(self, raw):
        """Status, headers and body (framing removed) of the bytes that went out."""
        head, _, rest = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1]) if raw else None
        fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
        self.sent_headers = dict(fields)
        self.waits_asked = {value for name, value in fields if name == "retry-after"}
        self.body = dechunked(rest) if "transfer-encoding" in self.sent_headers else rest
        self.last = last_event(self.body) if self.sent_headers.get("content-type") == "text/event-stream" else None

    @property
    def thread(self):
        return self.headers.get("thread-id")

    @property
    def metadata(self):
        return json.loads(self.headers.get("x-codex-turn-metadata", "{}"))

    @property
    def succeeded(self):
        """A whole answer that says that it is complete."""
        return self.status == 200 and (self.last or {}).get("type") == "response.completed"

    @property
    def response(self):
        return (self.last or {}).get("response") or {}

    @property
    def usage(self):
        """The five figures that went out at the end of the answer; None where there were none."""
        raw = self.response.get("usage")
        return None if not raw else {
            "input_tokens": raw["input_tokens"], "output_tokens": raw["output_tokens"], "total_tokens": raw["total_tokens"],
            "cached_input_tokens": raw["input_tokens_details"]["cached_tokens"],
            "reasoning_output_tokens": raw["output_tokens_details"]["reasoning_tokens"]}

    @property
    def asked_wait(self):
        """Seconds of a plain Retry-After, or None; several that disagree ask for nothing."""
        value = next(iter(self.waits_asked)) if len(self.waits_asked) == 1 else ""
        return float(value) if value.replace(".", "", 1).isdigit() else None

    def calls(self):
        """Tool calls that the model made in this answer."""
        return [item for item in self.response.get("output", ()) if item["type"].endswith("_call")] if self.succeeded else []


def dechunked(data):
    whole = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        whole += data[:int(size, 16)]
        data = data[int(size, 16) + 2:]
    return whole


def last_event(body):
    """The data of the last event that ended properly and is JSON."""
    found = None
    for block in body.split(b"\n\n")[:-1]:
        data = b"".join(line[6:] for line in block.split(b"\n") if line.startswith(b"data: "))
        found = json.loads(data) if data[:1] == b"{" else found
    return found


class Witness:
    """All exchanges of a run in order of arrival. `lines`: Endpoint.requests() or read_witness(); plan: the same plan."""

    def __init__(self, lines, plan):
        dealt = endpoint.Plan(plan)
        self.all = []
        for line in lines:
            entry = dealt.for_request(line) or endpoint.UNPLANNED
            unplanned = bool((line["answer"] or {}).get("unplanned"))
            assert unplanned == (entry is endpoint.UNPLANNED), "the plan was dealt in another order"
            assert entry is not endpoint.UNPLANNED, "request %d was not planned: %s" % (line["request"], line["body"][-500:])
            self.all.append(Exchanged(line, entry["steps"]))
        self.model = [one for one in self.all if one.thread]              # the CLI's own conversation
        self.side = [one for one in self.all if not one.thread]           # what its tools sent

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

    def usage(self):
        """(sum over all answers that told usage or None, number of proper answers without)."""
        told = [one.usage for one in self.model if one.usage]
        total = {name: sum(usage[name] for usage in told) for name in NAMES} if told else None
        return total, sum(1 for one in self.model if one.succeeded and not one.usage)


def sha256(data):
    return hashlib.sha256(data).hexdigest()

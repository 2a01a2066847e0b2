"""What readers of transcripts have in common: the state directory, copies in native/, lines, conversations, the evidence.

A reader opens names only below the state directory (transcript_files.py), copies each file that it uses to native/ with the
secrets blanked, and reads the copy.  What a transcript says goes into one `Agent` per invocation (the root and each of its
sub-agents); `Reading.evidence` makes of them what `collect` returns (worker/harnesses/README.md).  Items of a conversation are
made from the CLI's own records and kept in an unlinked file, so that memory does not grow with the transcript.
"""

from __future__ import annotations

import json
import os
import re

from worker import usage
from worker.conversation import Conversation, strict
from worker.gaps import Gaps
from worker.harnesses import transcript_files as files
from worker.harnesses.codex_lines import DECODER, not_utf8
from worker.harnesses.codex_rollout import bare_invocation
from worker.harnesses.tool_calls import ToolCalls
from worker.keep import Lines
from worker.observations import Records, join, link_compactions, read_attempts

IN_MEMORY = 1 << 20
MOST_IDS = 1 << 16  # records of one transcript that are known again
LARGEST_DOCUMENT = 256 << 20  # of a transcript that is one JSON document


class Items(Conversation):
    """A conversation that is made item by item; held in memory up to a bound, then in an unlinked file."""

    def __init__(self, dirfd):
        super().__init__(-1)
        self.spilled, self.kept, self.size, self.count = Lines(dirfd), [], 0, 0

    def append(self, item):
        data = strict(item)
        self.kept.append(data)
        self.count += 1
        self.size += len(data)
        full = self.size > IN_MEMORY and self.spilled.dirfd is not None
        if full and self.spilled.extend(b"".join(data + b"\n" for data in self.kept)):  # without room: memory
            self.kept, self.size = [], 0

    def __len__(self):
        return self.count

    def encoded(self):
        yield from self.spilled
        yield from self.kept

    def close(self):
        self.spilled.close()


def message(role, text):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def reasoning(text):
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def function_call(identity, name, arguments):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"type": "function_call", "call_id": identity, "name": name, "arguments": text}


def function_call_output(identity, text):
    return {"type": "function_call_output", "call_id": identity, "output": text}


class Agent:
    """One invocation: the root, or a sub-agent.  `thread`: the native id that its requests carry, or None."""

    def __init__(self, reading, invocation_id, thread, file):
        self.reading, self.invocation_id, self.thread, self.file = reading, invocation_id, thread, file
        self.parent = self.spawned_by = self.first_at = self.last_at = self.last_message = self.error = None
        self.status, self.responses, self.calls_usage, self.omitted = "unknown", [], {}, 0
        self.compactions = []
        self.conversation = Items(reading.run.get("dirfd"))
        self.tools = ToolCalls(invocation_id, file, reading.gaps, reading.records.append)
        self.unknown = {}

    def seen(self, at):
        if at is not None:
            self.first_at = at if self.first_at is None else self.first_at
            self.last_at = at if self.last_at is None else max(self.last_at, at)

    def gap(self, code, detail=None, offset=None, key=None):
        self.reading.gaps.add(code, detail, self.invocation_id, self.file, offset, key)

    def used(self, identity, figures):
        """The usage of one model call; a later record of the same call takes its place.  None: it told none."""
        self.calls_usage[identity] = figures

    def usage(self):
        """The sum over the calls that told any, or None."""
        total = None
        for figures in self.calls_usage.values():
            if figures is not None:
                total = figures if total is None else usage.add(total, figures)
        return total

    def usage_missing(self):
        return sum(1 for figures in self.calls_usage.values() if figures is None)

    def count_unknown(self, kind):
        self.unknown[str(kind)[:80]] = self.unknown.get(str(kind)[:80], 0) + 1

    def close(self):
        self.tools.close()
        for kind, count in sorted(self.unknown.items()):
            for _ in range(count):
                self.reading.gaps.add("unknown_record_type", kind, self.invocation_id, self.file, key=kind)

    def link_compactions(self, calls):
        """A compaction's model call is the one that the transcript, which names all others, leaves out."""
        for call in calls if self.compactions and self.responses else ():
            if call["response_id"] and call["response_id"] not in self.responses:
                call["request_kind"] = "compaction"
        link_compactions(self.compactions, calls, self.reading.gaps)
        for compaction in self.compactions:
            self.reading.records.append(compaction)

    def record(self, calls):
        lasted = None if self.first_at is None else round((self.last_at - self.first_at) * 1000, 3)
        return dict(
            bare_invocation(self.invocation_id, calls), parent_invocation_id=self.parent,
            spawned_by_tool_call_id=self.spawned_by, status=self.status, error_type=self.error, duration_ms=lasted,
            conversation=self.conversation,
        )  # fmt: skip


class Reading:
    """One run's evidence while it is gathered.  run: see worker/harnesses/README.md, `collect`."""

    def __init__(self, run):
        self.run, self.gaps, self.live = run, Gaps(), run["live"]
        self.records, self.budget, self.native_files = Records(run.get("dirfd")), files.MOST_BYTES, {}
        self.agents, self.root_fd = [], None
        try:
            self.root_fd = files.open_directory(run["state"])
        except (OSError, TypeError) as error:
            self.gaps.add("agent_artifact_unavailable", "the state directory cannot be opened: %s" % error)

    def find(self, top, wanted, depth):
        """Sorted paths below `top` of the state directory whose base name `wanted` accepts."""
        return [] if self.root_fd is None else files.find(self.root_fd, top, wanted, depth, self.gaps)

    def agent(self, file, thread=None, invocation_id=None):
        agent = Agent(self, invocation_id or self.run["invocation_id"], thread, file)
        self.agents.append(agent)
        return agent

    def copy(self, path, name=None, below=None):
        """A file of the state directory (or of `below`) copied to native/; its name there ("native/..."), or None."""
        name = name or os.path.basename(path)
        name = name if "native/" + name not in self.native_files else "%d-%s" % (len(self.native_files), name)
        fd, native, redactor = self.root_fd if below is None else below, self.run["native_dirfd"], self.run.get("redactor")
        target, readable = files.copy(fd, path, native, name, redactor, self.gaps, self.budget)
        if target is None:
            return None
        self.budget -= target.size
        self.native_files["native/" + name] = target.entry()
        return "native/" + name if readable else None

    def open(self, native):
        return os.fdopen(os.open(native[len("native/") :], files.OPEN_FILE, dir_fd=self.run["native_dirfd"]), "rb", 1 << 20)

    def objects(self, native):
        """(offset, JSON object) of each line of a copied file; what is none is a gap.  A record that stands there again, by its
        `uuid`, is left out: its answer was paid and its tool ran once."""
        seen = set()
        with self.open(native) as file:
            for offset, line in files.lines(file, native, self.gaps):
                text = line.strip(b"\r\n \t\0")
                if not text:
                    continue
                if not_utf8(text):
                    self.gaps.add("transcript_not_utf8", None, None, native, offset)
                try:
                    value = DECODER.decode(text.decode("utf-8", "replace"))
                    if not isinstance(value, dict):
                        raise ValueError("no JSON object")
                except (ValueError, RecursionError) as error:
                    code = "agent_artifact_record_unparseable" if line.endswith(b"\n") else "transcript_truncated"
                    self.gaps.add(code, "%s: %s" % (type(error).__name__, str(error)[:200]), None, native, offset)
                    continue
                again = hash(value["uuid"]) if isinstance(value.get("uuid"), str) else None
                if again in seen:
                    self.gaps.add("transcript_record_repeated", None, None, native, offset, key="uuid")
                    continue
                if again is not None and len(seen) < MOST_IDS:
                    seen.add(again)
                yield offset, value

    def whole(self, native):
        """The JSON object that a copied file is, or None with a gap."""
        try:
            with self.open(native) as file:
                data = file.read(LARGEST_DOCUMENT + 1)
            if len(data) > LARGEST_DOCUMENT:
                self.gaps.add("transcript_limit", "a document of more than %d bytes" % LARGEST_DOCUMENT, file=native, key="size")
                return None
            value = DECODER.decode(data.decode("utf-8-sig", "replace").strip("\0\r\n \t"))
            if not isinstance(value, dict):
                raise ValueError("no JSON object")
            return value
        except (ValueError, RecursionError) as error:
            self.gaps.add("agent_artifact_record_unparseable", str(error)[:200], file=native, offset=0)
            return None

    def calls(self, thread_of):
        """{invocation_id: its model calls}; thread_of(attempt): the thread that it names, or None."""
        if self.run.get("wire") is None or self.run.get("dirfd") is None:
            self.gaps.add("no_wire")
            self.gaps.add("model_call_join_key_unavailable", "no wire")
            return {}
        owners = {agent.thread: agent.invocation_id for agent in self.agents}
        if not self.agents:
            owners[None] = self.run["invocation_id"]
        responses = {agent.invocation_id: agent.responses for agent in self.agents}
        return join(read_attempts(self.run["dirfd"]), owners, responses, self.gaps, thread_of)

    def evidence(self, thread_of, **known):
        """What `collect` returns.  known: final_message, version, terminal, error_text, usage_events, warnings."""
        if self.root_fd is not None:
            os.close(self.root_fd)
            self.root_fd = None
        for agent in self.agents:
            agent.close()
        calls = self.calls(thread_of)
        for agent in self.agents:
            agent.link_compactions(calls.get(agent.invocation_id, []))
            self.records.append(agent.record(calls.get(agent.invocation_id, [])))
        if not self.agents:
            self.records.append(bare_invocation(self.run["invocation_id"], calls.get(self.run["invocation_id"], [])))
        base = {
            "records": self.records, "gaps": self.gaps.list(), "native_files": self.native_files, "final_message": None,
            "version": None, "terminal": None, "error_text": None, "usage_events": None, "warnings": [],
        }  # fmt: skip
        return dict(base, **dict(self.usage(), **known))

    def usage(self):
        totals = [agent.usage() for agent in self.agents]
        total = None
        for figures in totals:
            if figures is not None:
                total = figures if total is None else usage.add(total, figures)
        missing = sum(agent.usage_missing() for agent in self.agents)
        notes = {
            "omitted": missing > 0 and self.run.get("wire") is None, "partial": missing > 0 and total is not None,
            "subagents": 0, "root": None,  # these CLIs' events count sub-agents in
        }  # fmt: skip
        threads = {str(agent.thread or agent.invocation_id): dict(figures or usage.UNKNOWN)
                   for agent, figures in zip(self.agents, totals)}  # fmt: skip
        return {"usage_transcript": total, "usage_notes": notes, "threads": threads}


def number(value):
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def figures(given, output, cached=None, written=None, reasoning_tokens=None, total=None):
    """Usage in our names; None where input or output is no count, or where all are zero (that is how these CLIs write
    `unknown`)."""
    values = [number(value) for value in (given, output, cached, written, reasoning_tokens)]
    if values[0] is None or values[1] is None or not any(values):
        return None
    return usage.normalise(dict(zip(
        ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens", "reasoning_output_tokens"), values),
        total_tokens=number(total) or None))  # fmt: skip


def version_on_wire(wire, pattern):
    """The CLI's version from a user-agent that the proxy saw; pattern: a regular expression with one group."""
    for agent in (wire or {}).get("user_agents") or ():
        found = re.search(pattern, str(agent))
        if found:
            return found.group(1)
    return None


def by_response(run, owners, root, alone):
    """thread_of(attempt) for a CLI whose requests name no thread: by the response ids that its transcript names.

    owners: {response id: thread}; root: the root's thread; alone: without sub-agents every main request is the root's."""
    requests = {}
    for attempt in read_attempts(run["dirfd"]) if run.get("dirfd") is not None else ():
        if attempt.get("response_id") in owners:
            requests[str(attempt.get("request"))] = owners[attempt["response_id"]]

    def thread_of(attempt):
        return requests.get(str(attempt.get("request")), root if alone and attempt.get("main") else None)

    return thread_of


def deny_success(run):
    """A CLI that takes a refusal or a cut at the output limit for success is contradicted by the wire's last answer."""
    main = (run.get("wire") or {}).get("main") or {}
    if run["live"].terminal == "success" and main.get("ended_by"):
        run["live"].terminal = "failure"
        run["live"].message = "The model's last answer ended with %s, which the CLI took for success." % main["last"]["finish"]
        run["live"].final_message = None


def header(attempt, name):
    identity = attempt.get("identity")
    value = identity.get(name) if isinstance(identity, dict) else None
    return value if isinstance(value, str) and value else None

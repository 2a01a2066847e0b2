"""For the tests of Codex's transcripts: a CODEX_HOME on disk, a run that is over, and what `collect` makes of it."""

from __future__ import annotations

import json
import os

from worker import usage
from worker.harnesses import codex_rollout

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "rollouts")
DAY = "sessions/2026/11/30"
THREAD = "01970000-0000-7000-8000-000000000001"
ALWAYS = {"no_wire", "model_call_join_key_unavailable", "model_metadata_fallback"}  # not what these tests are about


class Home:
    """A CODEX_HOME below a temporary directory, and the session directory beside it."""

    def __init__(self, folder):
        self.path, self.session = os.path.join(str(folder), "codex home"), os.path.join(str(folder), "session")
        os.makedirs(os.path.join(self.path, DAY))
        os.makedirs(os.path.join(self.session, "native"))

    def file(self, name):
        return os.path.join(self.path, DAY, name)

    def write(self, lines, thread=THREAD, name=None, tail=b""):
        """A rollout of lines (str, bytes or values), each ended by a newline; `tail` follows without one."""
        name = name or "rollout-2026-11-30T10-00-00-%s.jsonl" % thread
        with open(self.file(name), "wb") as file:
            file.write(b"".join(as_bytes(line) + b"\n" for line in lines) + tail)
        return self.file(name)

    def collect(self, stdout=(), **run):
        """What collect returns, with the records as a list of plain dicts."""
        live = codex_rollout.Live()
        for event in stdout:
            live.feed(event if isinstance(event, dict) else json.loads(event))
        dirfd = os.open(self.session, os.O_RDONLY)
        native = os.open(os.path.join(self.session, "native"), os.O_RDONLY)
        given = {
            "state": self.path,
            "dirfd": dirfd,
            "native_dirfd": native,
            "live": live,
            "wire": None,
            "invocation_id": "inv",
            "started_at": None,
            "baseline": {},
            "redactor": None,
        }
        try:
            evidence = codex_rollout.collect(dict(given, **run))
            evidence["live"] = live
            evidence["plain"] = [
                dict(one, conversation=list(one["conversation"])) if "conversation" in one else one for one in evidence["records"]
            ]
        finally:
            os.close(native)
            os.close(dirfd)
        return evidence

    def attempts(self, records):
        with open(os.path.join(self.session, "model_attempts.jsonl"), "w") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)


def as_bytes(line):
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode("utf-8")


def record(kind, payload, second=0, **more):
    return dict({"timestamp": "2026-09-20T10:00:%02d.000Z" % second, "type": kind, "payload": payload}, **more)


def meta(thread=THREAD, **more):
    return record("session_meta", dict({"id": thread, "timestamp": "2026-09-20T10:00:00.000Z", "cli_version": "0.144.4"}, **more))


def event(kind, second=1, **more):
    return record("event_msg", dict({"type": kind}, **more), second)


def figures(given, output, cached=0, reasoning=0):
    return {
        "input_tokens": given,
        "cached_input_tokens": cached,
        "output_tokens": output,
        "reasoning_output_tokens": reasoning,
        "total_tokens": given + output,
    }


def tokens(total, last=None, second=1):
    return event("token_count", second, info={"total_token_usage": total, "last_token_usage": last or total})


def call(identity, name="exec_command", second=1, **more):
    return record(
        "response_item", dict({"type": "function_call", "name": name, "arguments": "{}", "call_id": identity}, **more), second
    )


def output(identity, text, second=2):
    return record("response_item", {"type": "function_call_output", "call_id": identity, "output": text}, second)


def exited(code, text="ok"):
    return "Chunk ID: 1\nWall time: 0.0 seconds\nProcess exited with code %d\nOriginal token count: 1\nOutput:\n%s" % (code, text)


def message(text, role="assistant", second=1):
    kind = "output_text" if role == "assistant" else "input_text"
    return record("response_item", {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}, second)


def announced(thread=THREAD):
    return {"type": "thread.started", "thread_id": thread}


def codes(gaps):
    return sorted({gap["code"] for gap in gaps} - ALWAYS)


def tools(evidence):
    return [
        [one["tool_call_id"], one["tool_name"], one["status"], one["error_type"]]
        for one in evidence["plain"]
        if one["kind"] == "tool_call"
    ]


def invocations(evidence):
    return [one for one in evidence["plain"] if one["kind"] == "agent_invocation"]


def read(folder, lines, stdout=None, tail=b"", **run):
    home = Home(folder)
    home.write(lines, tail=tail)
    return home.collect([announced()] if stdout is None else stdout, **run)


def charged(evidence, wire=None):
    chosen = usage.choose(wire, evidence)[0]["chosen"]
    return tuple(chosen[name] for name in ("input_tokens", "cached_input_tokens", "output_tokens"))


END = event("task_complete", 9, last_agent_message="done")

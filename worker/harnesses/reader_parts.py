"""What the readers of several CLIs need alike: conversation items kept on disk, the invocation record, tool records, joins.

Items are Responses API items (DESIGN 10).  They are written to an unlinked file as they are read, so memory does not grow with
the transcript.
"""

from __future__ import annotations

import json
import os

from worker.conversation import PLAIN, Conversation, strict
from worker.observations import join, read_attempts

MOST_IDS = 100000


class Items(Conversation):
    """A conversation made item by item."""

    def __init__(self, dirfd):
        name = ".items-" + os.urandom(8).hex()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        super().__init__(os.open(name, flags, 0o600, dir_fd=dirfd))
        os.unlink(name, dir_fd=dirfd)
        self.size = 0

    def put(self, item):
        data = strict(item)
        self.places.extend((PLAIN, self.size, len(data)))
        self.size += os.pwrite(self.fd, data, self.size)

    def message(self, role, text):
        if text:
            kind = "output_text" if role == "assistant" else "input_text"
            self.put({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})

    def reasoning(self, text):
        if text:
            self.put({"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]})

    def call(self, identity, name, arguments):
        self.put({"type": "function_call", "call_id": identity, "name": name,
                  "arguments": arguments if isinstance(arguments, str) else plain(arguments)})  # fmt: skip

    def output(self, identity, text):
        self.put({"type": "function_call_output", "call_id": identity, "output": text})


def plain(value):
    return strict(value).decode("utf-8") if finite(value) else json.dumps(str(value))


def finite(value):
    """No NaN, no infinity anywhere: JSON has none."""
    if isinstance(value, float):
        return value - value == 0
    if isinstance(value, dict):
        return all(finite(each) for each in value.values())
    return all(finite(each) for each in value) if isinstance(value, list) else True


def invocation(identity, conversation=(), **more):
    """An agent_invocation record; `observations` gives the root its status by the outcome."""
    return dict({
        "kind": "agent_invocation", "invocation_id": identity, "parent_invocation_id": None, "spawned_by_tool_call_id": None,
        "status": "unknown", "duration_ms": None, "error_type": None, "model_calls": [], "conversation": conversation or [],
    }, **more)  # fmt: skip


def tool_call(owner, identity, name, status, error=None, started=None, ended=None, source="artifact"):
    """A tool_call record; times in unix seconds or None."""
    if started is not None and ended is not None and ended < started:
        ended = None
    lasted = None if started is None or ended is None else round((ended - started) * 1000, 3)
    return {
        "kind": "tool_call", "invocation_id": owner, "tool_call_id": identity, "tool_name": name, "started_at": started,
        "completed_at": ended, "duration_ms": lasted, "timing_source": source if started is not None else None,
        "status": status, "error_type": error,
    }  # fmt: skip


def by_exit_code(code):
    return ("completed", None) if code == 0 else ("failed", "exit_code_%d" % code)


def join_all(run, gaps, owners, responses, thread_of):
    """{invocation id: [model calls]}; without a wire a gap says why there are none."""
    if run.get("wire") is None or run.get("dirfd") is None:
        gaps.add("no_wire")
        gaps.add("model_call_join_key_unavailable", "no wire")
        return {}
    return join(read_attempts(run["dirfd"]), owners, responses, gaps, thread_of)


def text_of(value):
    return value if isinstance(value, str) and value else None


def count_of(value):
    """A token count, or None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def loaded(text):
    """The JSON object in a text (str or bytes), or None."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None

"""OpenCode. It cannot be kept from asking again: the proxy's latch answers it, and `linger` ends it (exit code -15)."""
from __future__ import annotations

import copy
import json

from tests import endpoint
from tests.conformance.harnesses.base import Harness, limit

SMALL = {"provider": {"sandbox-worker": {"models": {"mock-model": {"limit": {"context": 8000, "output": 1000}}}}}}


class OpenCode(Harness):
    name, versions = "opencode", ("1.17.11", "1.18.33")
    thread_headers = ("x-session-id",)
    asks_again = {"model_timeout": 1, "stream_cut_first_event": 2}
    exits = dict.fromkeys(("model_timeout", "model_error", "stream_cut_first_event", "in_stream_rate_limit", "quota"), -15)
    repeats = True
    limits = (limit("steps", "the compaction's model_calls are", "its transcript has no id of an answer, so that nothing tells which"
                    " of the session's model calls compacted"),)
    beside = {"description": "run it"}
    spawns = "task"
    configured_by = "OPENCODE_CONFIG"

    def at(self, version):
        """1.17.11 does not ask again after an error in the stream."""
        here = copy.copy(self)
        if version == "1.17.11":
            here.exits = dict(self.exits, in_stream_rate_limit=1)
        return here

    def sub_agent(self):
        asked = {"description": "compute", "prompt": "Compute it.", "subagent_type": "general"}
        answers = [{"match": {"header": {"x-parent-session-id": "ses_"}}, "times": "always",
                    "steps": self.says(endpoint.message("It is 42."), usage=[500, 0, 7, 0])},
                   self.says(endpoint.function_call("task", asked, "call_task"), usage=[1000, 400, 50, 20]),
                   self.final(usage=[1200, 1000, 10, 5])]
        return {"plan": {"answers": answers}, "tools": ["completed"]}

    def compaction(self):
        plan = [self.says(self.shell("echo one"), usage=[9000, 400, 50, 20]),
                self.says(endpoint.message("What was done so far."), usage=[1100, 900, 30, 0]),
                self.final(usage=[1200, 1000, 10, 5])]
        return {"plan": plan, "tools": ["completed"], "files": {"small.json": json.dumps(SMALL)},
                "document": {"env": {self.configured_by: "small.json"}}}

    def compacts(self, exchange):
        return not exchange.request.get("tools")

    def trigger(self, exchange):
        return "automatic"


HARNESS = OpenCode()

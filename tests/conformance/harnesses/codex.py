"""The OpenAI Codex CLI: everything that conformance can ask applies to it."""
from __future__ import annotations

import json
import os

from tests import endpoint, real_cli
from tests.conformance.harnesses.base import Harness

BARE = ["codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
SPAWN = {"type": "function_call", "id": "fc_spawn", "status": "completed", "call_id": "call_spawn", "name": "spawn_agent",
         "namespace": "multi_agent_v1", "arguments": json.dumps({"message": "Compute the answer."})}


class Codex(Harness):
    name, versions, api = "codex", real_cli.CODEX, "responses"
    timeout, linger = 60, 5
    thinks = 0.35       # 0.144.4 may drop the end of a tool call from stdout when the final answer follows at once
    tool, argument = "exec_command", "cmd"
    spawns = "spawn_agent"
    events_total = "root"

    def places(self, version):
        return [os.path.dirname(real_cli.path(version))]

    def reasons(self):
        return [endpoint.reasoning("Think first.")]

    def settings(self, words):
        return {"command": BARE + words + ["-"]} if words else {}

    def sub_agent(self):
        answers = [
            {"match": {"header": {"x-openai-subagent": "collab_spawn"}}, "times": "always",
             "steps": self.says(endpoint.message("It is 42."), usage=[500, 0, 7, 0])},
            self.says(SPAWN, usage=[1000, 400, 50, 20]),
            self.says(endpoint.message("Started."), usage=[1100, 900, 30, 0], delay=1.5),
            self.final(usage=[1200, 1000, 10, 5])]
        return {"plan": {"answers": answers}, "settings": ["-c", "features.multi_agent=true"], "tools": ["completed"]}

    def compaction(self):
        plan = [self.says(self.shell("echo one"), usage=[9000, 400, 50, 20]),
                self.says(endpoint.message("What was done so far."), usage=[1100, 900, 30, 0]),
                self.final(usage=[1200, 1000, 10, 5])]
        return {"plan": plan, "settings": ["-c", "model_auto_compact_token_limit=5000"], "tools": ["completed"]}

    def thread(self, exchange):
        return exchange.headers.get("thread-id")

    @staticmethod
    def metadata(exchange):
        return json.loads(exchange.headers.get("x-codex-turn-metadata", "{}"))

    def turn(self, exchange):
        return self.metadata(exchange).get("turn_id")

    def compacts(self, exchange):
        return self.metadata(exchange).get("request_kind") == "compaction"

    def trigger(self, exchange):
        return self.metadata(exchange)["compaction"]["trigger"]

    def tool_name(self, name):
        return name.split(".")[-1]


HARNESS = Codex()

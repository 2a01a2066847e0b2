"""Gemini CLI: generateContent; its exit code is the HTTP status modulo 256."""
from __future__ import annotations

from tests import endpoint
from tests.conformance.harnesses.base import Harness


class Gemini(Harness):
    name, versions, api = "gemini", ("0.61.0",), "generate_content"
    linger = 60
    exits = {"model_error": 244, "error_after_tool": 144, "quota": 173, "model_timeout": 246, "in_stream_rate_limit": 0}
    tool, beside = "run_shell_command", {"description": "x"}
    spawns = "invoke_agent"
    events_total = "sum"
    not_applicable = {"compaction": "not measured: the token counts of scripted answers do not set it off"}

    def sub_agent(self):
        agent = endpoint.function_call("invoke_agent", {"agent_name": "generalist", "prompt": "Compute."})
        done = endpoint.function_call("complete_task", {"result": {"response": "It is 42."}})
        plan = [self.says(agent, usage=[1000, 400, 50, 20]), self.says(done, usage=[500, 0, 7, 0]),
                self.final(usage=[1200, 1000, 10, 5])]
        return {"plan": plan, "tools": ["completed"]}

    def thread(self, exchange):
        """Only a sub-agent is offered the tool that ends it."""
        offered = [one["name"] for tool in exchange.request.get("tools") or () for one in tool["functionDeclarations"]]
        return None if not offered else "sub" if "complete_task" in offered else "root"

    def call_id(self, call):
        return "%s__%s" % (call["name"], call["call_id"])

    def recorded(self, shapes):
        return [(one[0], one[1].split("__")[-1], one[2]) if one[0].startswith("function_call") else one for one in shapes]

    def shown(self, shapes):
        """The first message is the CLI's own: where it runs."""
        return [one for one in shapes if not (one[0] == "message" and one[2].startswith("<session_context>"))]


HARNESS = Gemini()

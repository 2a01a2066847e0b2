"""Qwen Code: Chat Completions; its repeats of a failed request are answered by the proxy."""
from __future__ import annotations

from tests import endpoint
from tests.conformance.harnesses.base import Harness, limit

GLUES = "it asks to go on after a broken answer; the pieces are in the request, not in its transcript"


class Qwen(Harness):
    name, versions, api = "qwen", ("0.24.4",), "chat"
    linger = 60
    asks_again = {"stream_cut_first_event": 3, "model_timeout": 1}      # the first of them with a request to go on
    repeats = True
    exits = {"detached_child": -9}                  # it waits for the child, and is ended by `linger`
    limits = (limit("history", "lacks, or has elsewhere, .'message', 'assistant', 'Half an", GLUES),)
    tool, beside = "run_shell_command", {"description": "x", "is_background": False}
    spawns = "agent"
    events_total = "sum"
    not_applicable = {"compaction": "not measured: the token counts of scripted answers do not set it off"}

    def kills(self, command):
        """Its tools run on a terminal of their own, whose end is a SIGHUP; it writes a call down while the tool runs already."""
        return "trap '' TERM HUP; sleep 3; kill -9 $PPID; " + command

    def sub_agent(self):
        agent = endpoint.function_call("agent", {"description": "sub", "prompt": "Compute.", "subagent_type": "general-purpose",
                                                 "run_in_background": False})
        plan = [self.says(agent, usage=[1000, 400, 50, 20]), self.says(endpoint.message("It is 42."), usage=[500, 0, 7, 0]),
                self.final(usage=[1200, 1000, 10, 5])]
        return {"plan": plan, "tools": ["completed"]}

    def thread(self, exchange):
        """Only the root has a goal."""
        offered = [one["function"]["name"] for one in exchange.request.get("tools") or ()]
        return None if not offered else "root" if "get_goal" in offered else "sub"

    def shown(self, shapes):
        """Reminders are the CLI's own, put before the user's message."""
        return [one for one in shapes if not (one[0] == "message" and one[2].startswith("<system-reminder>"))]


HARNESS = Qwen()

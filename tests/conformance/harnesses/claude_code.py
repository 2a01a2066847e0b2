"""Claude Code: Messages; its sub-agents carry an id of their own in a header."""
from __future__ import annotations

from tests import endpoint
from tests.conformance.harnesses.base import Harness


class ClaudeCode(Harness):
    name, versions, api = "claude_code", ("2.1.332",), "messages"
    linger = 60
    tool, beside = "Bash", {"description": "x"}
    spawns = "Agent"
    thread_headers = ("x-claude-code-agent-id", "x-claude-code-session-id")
    events_total = "sum"

    def sub_agent(self):
        agent = endpoint.function_call("Agent", {"description": "sub", "prompt": "Compute.", "subagent_type": "general-purpose"})
        plan = [self.says(agent, usage=[1000, 400, 50, 0]), self.says(endpoint.message("It is 42."), usage=[500, 0, 7, 0]),
                self.final(usage=[1200, 1000, 10, 0])]
        return {"plan": plan, "tools": ["completed"]}

    def compaction(self):
        """A window that the CLI is told of, since it does not know the model, and of which it may use a tenth."""
        plan = [self.says(self.shell("echo one"), usage=[195000, 400, 50, 0]),
                self.says(endpoint.message("<summary>What was done so far.</summary>"), usage=[1100, 900, 30, 0]),
                self.final(usage=[1200, 1000, 10, 0])]
        env = {"CLAUDE_CODE_MAX_CONTEXT_TOKENS": "200000", "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000",
               "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "10"}
        return {"plan": plan, "tools": ["completed"], "document": {"env": env}, "transcript": None}

    def compacts(self, exchange):
        said = exchange.asked()
        return bool(said) and said[-1][0] == "message" and said[-1][2].startswith("CRITICAL: Respond with TEXT ONLY.")

    def trigger(self, exchange):
        return "auto"

    def counted(self, version):
        return ("input_tokens", "cached_input_tokens", "output_tokens", "total_tokens")

    def shown(self, shapes):
        """Reminders and what it says of its surroundings are the CLI's own instructions."""
        return [one for one in shapes if not (one[0] == "message" and (one[1] == "system" or one[2].startswith("<system-reminder>")))]


HARNESS = ClaudeCode()

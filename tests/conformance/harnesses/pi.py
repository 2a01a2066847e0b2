"""Pi."""
from __future__ import annotations

import json

from tests import endpoint
from tests.conformance import dialects
from tests.conformance.harnesses.base import Harness, limit


class Pi(Harness):
    name, versions = "pi", ("0.80.2", "1.6.0")
    fails = 0           # `--mode json`: whatever happened
    thread_headers = ("x-client-request-id", "x-session-affinity")
    limits = (limit("steps", "the compaction's model_calls are", "its request for a summary names no session, so that nothing tells"
                    " whose it is"),)
    not_applicable = {"sub_agent": "the CLI has no sub-agents"}

    def counted(self, version):
        return tuple(name for name in dialects.NAMES if version != "0.80.2" or name != "reasoning_output_tokens")

    def compaction(self):
        """It looks at the size when the turn has ended; a caller's own settings.json says from which size on."""
        plan = [self.says(self.shell("echo one"), usage=[1000, 400, 50, 20]), self.final(usage=[9000, 400, 50, 20]),
                self.says(endpoint.message("What was done so far."), usage=[1100, 900, 30, 0])]
        settings = {"compaction": {"enabled": True, "reserveTokens": 123000, "keepRecentTokens": 1}}
        return {"plan": plan, "tools": ["completed"], "files": {"settings.json": json.dumps(settings)},
                "document": {"env": {"PI_CODING_AGENT_DIR": "."}}}

    def compacts(self, exchange):
        return not exchange.request.get("tools")


HARNESS = Pi()

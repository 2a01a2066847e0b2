"""Hermes Agent."""
from __future__ import annotations

import sys

from tests import endpoint
from tests.conformance.harnesses.base import Harness, limit

DETACH = ("import subprocess as s; s.Popen([\"sh\", \"-c\", \"\"\"%s\"\"\"], start_new_session=True, stdin=s.DEVNULL, "
          "stdout=s.DEVNULL, stderr=s.DEVNULL)")


class Hermes(Harness):
    name, versions = "hermes", ("0.19.0",)
    tool = "terminal"
    goes_on = 3
    exits = {"stream_cut_first_event": 2, "in_stream_rate_limit": 2}
    fails = 0           # for nearly every failure of the model
    limits = (limit("steps", "the compaction's model_calls are", "its request for a summary names no session, so that nothing tells"
                    " whose it is"),)
    not_applicable = {"sub_agent": "the toolsets `terminal,file` have no tool that starts one"}

    def detached(self, command):
        """The tool refuses `&` and `setsid`."""
        program = DETACH % ("trap \"\" TERM INT HUP; touch up; " + command,)
        return self.shell("%s -c '%s'; until [ -e up ]; do sleep 0.05; done; echo started" % (sys.executable, program))

    def compaction(self):
        """It compresses from half of its context on, and only what lies between the first and the last messages."""
        plan = [self.says(self.shell("echo %d" % number), usage=[1000, 400, 50, 20]) for number in range(14)]
        plan += [self.says(self.shell("echo one"), usage=[100000, 400, 50, 20]),
                 self.says(endpoint.message("What was done so far."), usage=[1100, 900, 30, 0]),
                 self.final(usage=[1200, 1000, 10, 5])]
        probe = {"match": {"path": "/api/show"}, "times": "always", "steps": {"status": 404, "json": {}}}
        return {"plan": {"answers": [probe] + plan}, "tools": ["completed"] * 15}

    def compacts(self, exchange):
        return not exchange.request.get("tools")


HARNESS = Hermes()

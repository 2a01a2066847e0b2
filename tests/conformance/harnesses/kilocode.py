"""Kilocode: a fork of OpenCode, which asks again once."""
from __future__ import annotations

from tests.conformance.harnesses.opencode import OpenCode


class Kilocode(OpenCode):
    name, versions = "kilocode", ("7.7.7",)
    asks_again = {"model_timeout": 1, "stream_cut_first_event": 1}
    exits = {}
    configured_by = "KILO_CONFIG"

    def shown(self, shapes):
        """It appends a block of its own to each of the user's messages, which its transcript lacks."""
        return [one for one in shapes if not (one[0] == "message" and one[2].lstrip().startswith("<environment_details>"))]


HARNESS = Kilocode()

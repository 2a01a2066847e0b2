"""Any command: a small scripted agent in each of the four dialects, which stand where other CLIs have versions."""
from __future__ import annotations

import os
import sys

from tests.conformance.harnesses.base import Harness

AGENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "generic_agent.py")
NO_TRANSCRIPT = "the harness knows no transcript of such a command"


class Generic(Harness):
    name, versions = "generic", ("responses", "chat", "messages", "generate_content")
    timeout, tool = 60, "shell"
    lacks = {"history": NO_TRANSCRIPT, "tools": NO_TRANSCRIPT}
    not_applicable = {"sub_agent": "whatever the command does is one conversation", "compaction": NO_TRANSCRIPT}

    def __init__(self, api="chat"):
        self.api = api

    def at(self, version):
        return Generic(version)

    def counted(self, version):
        return ()

    def places(self, version):
        return []

    def document(self, url):
        return dict(super().document(url), command=[sys.executable, AGENT, self.api], retry={"hold": "answer"})


HARNESS = Generic()

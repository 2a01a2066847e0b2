"""Hermes Agent."""
from __future__ import annotations

from tests import real_harnesses as real
from tests.conformance.harnesses.base import Harness


class Hermes(Harness):
    name, versions = "hermes", ("0.19.0",)
    fails = 0           # for nearly every failure of the model
    not_applicable = {"sub_agent": "the toolsets `terminal,file` have no tool that starts one", "compaction": "its thresholds stand in the configuration that the worker writes: 65,536 tokens and many messages"}

    def places(self, version):
        return real.places(self.name, version)

    def shell(self, command):
        return real.shell(self.name, command)


HARNESS = Hermes()

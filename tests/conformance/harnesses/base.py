"""What conformance must know of a harness, with the answers that most of them give. A harness is a subclass in a file of its own.

Data: `name`, `versions`, `api`, and below. Methods: where its programs are, how a tool call is written for it, which requests
are its own conversation's, and what in a scenario is different for it. What the CLI itself cannot do stands in two tables:

    not_applicable   {scenario: reason}     there is nothing to play
    lacks            {evidence: reason}     it has nothing of the kind
    limits           [Limit]                a check that fails because of the CLI itself; the reason names what it does

A Limit excuses only the sentences that its pattern matches, and one that excuses nothing in a whole run is reported: the CLI
has learned it, or it was never so.
"""
from __future__ import annotations

import re
from collections import namedtuple

from tests import endpoint, real_harnesses
from tests.conformance import dialects

# evidence: a name of checks.CHECKS; pattern: of the whole sentence (searched); reason; versions: of the CLI, None: all
Limit = namedtuple("Limit", "evidence pattern reason versions")


def limit(evidence, pattern, reason, versions=None):
    return Limit(evidence, re.compile(pattern), reason, versions)


class Harness:
    name = ""
    versions = ()
    api = "chat"
    timeout = 900                   # s, of a run: a hang guard
    linger = 15                     # s: a CLI that has said its last word may take that long to exit on a busy machine
    thinks = 0                      # s before a final answer
    fails = 1                       # the CLI's exit code after a failure of the model
    exits = {}                      # {scenario: exit code} where it is another one
    asks_again = {}                 # {scenario: how often the endpoint sees the CLI's own repeat of a failed request}
    goes_on = 0                     # how often it asks the model, in a new request, to go on after an answer that broke off
    repeats = False                 # whether it asks again by itself, whatever is set
    spawns = None                   # the tool that starts a sub-agent
    tool, argument, beside = "bash", "command", {}     # its shell tool: name, argument with the command, other arguments
    thread_headers = ()             # request headers that carry the id of the conversation or sub-agent; none: all are one
    lacks = {}                      # {evidence: reason} that it cannot leave in any scenario
    events_total = None             # "root": the events tell the root thread's total at the end; "sum": that of all; None: none
    not_applicable = {}
    limits = ()

    def at(self, version):
        """This harness as it is in one version."""
        return self

    # -- where it is --------------------------------------------------------------------------------------------------

    def places(self, version):
        """Entries of PATH; installs what is missing; OSError with the reason where it cannot be had."""
        return real_harnesses.places(self.name, version)

    # -- what is sent to it -------------------------------------------------------------------------------------------

    def shell(self, command, call_id=None):
        """A call of its shell tool."""
        return endpoint.function_call(self.tool, dict(self.beside, **{self.argument: command}), call_id)

    def detached(self, command):
        """A tool call that leaves `command` (a shell script) behind in a session of its own, deaf to signals."""
        return self.shell("setsid sh -c 'trap \"\" TERM INT HUP; touch up; %s' >/dev/null 2>&1 </dev/null & "
                          "until [ -e up ]; do sleep 0.05; done; echo started" % command)

    def kills(self, command):
        """The words of a tool that kills the CLI with SIGKILL, then does `command`."""
        return "trap '' TERM; kill -9 $PPID; " + command

    def says(self, *items, usage, **more):
        """An answer of the model."""
        return {self.api: dict({"items": list(items), "usage": usage}, **more)}

    def final(self, text="All done.", usage=None, **more):
        """The answer after which the CLI ends."""
        return self.says(endpoint.message(text), usage=usage, **dict({"delay": self.thinks}, **more))

    def reasons(self):
        """An item of thought, where dialect and CLI have one."""
        return []

    def sub_agent(self):
        """{"plan", "settings", "document", "tools"} of the scenario `sub_agent`; not asked for where it is not applicable."""
        raise NotImplementedError("%s: no scenario sub_agent" % self.name)

    def compaction(self):
        """Likewise for `compaction`."""
        raise NotImplementedError("%s: no scenario compaction" % self.name)

    def settings(self, words):
        """The input document's fields that put these words on the CLI's command line."""
        assert not words, "%s: no settings known" % self.name
        return {}

    def document(self, url):
        """Fields of the input document beyond the common ones."""
        path = "/v1" if self.api in ("responses", "chat") else ""
        return {"harness": self.name, "timeout": self.timeout, "linger": self.linger,
                "model": {"base_url": url + path, "api": self.api}}

    # -- what is seen of it -------------------------------------------------------------------------------------------

    def thread(self, exchange):
        """The id of the conversation that a request belongs to, "" where requests name none, None for side requests."""
        if not self.thread_headers:
            return "" if exchange.request.get("tools") else None
        return next((exchange.headers[header] for header in self.thread_headers if exchange.headers.get(header)), None)

    def counted(self, version):
        """The figures of usage that its transcript has."""
        return dialects.NAMES

    def turn(self, exchange):
        """The id of its turn, or None."""

    def compacts(self, exchange):
        """Whether it asks for a summary of the conversation."""
        return False

    def trigger(self, exchange):
        """What set off a compaction, as the record must say."""

    def shown(self, shapes):
        """The shapes of a request that must be in the conversation record."""
        return shapes

    def recorded(self, shapes):
        """The shapes of the conversation record, with the call ids of requests."""
        return shapes

    def call_id(self, call):
        """The id under which its records have a tool call."""
        return call["call_id"]

    def tool_name(self, name):
        """The model's tool name of a record's."""
        return name

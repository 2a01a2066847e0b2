"""mini-swe-agent: Chat Completions without streams; it ends by a command that submits, and its record is one file."""
from __future__ import annotations

from tests import endpoint
from tests.conformance.harnesses.base import Harness, limit

NO_STREAMS = "it asks for no streams"
NO_RECORD = "it writes its trajectory after each step; killed in the first, it leaves none"


class Mini(Harness):
    name, versions, api = "mini", ("2.4.6",), "chat"
    linger = 150                    # its account of a failure takes long to be printed on a busy machine
    not_applicable = {
        "stream_cut_answer": NO_STREAMS, "stream_cut_first_event": NO_STREAMS, "in_stream_rate_limit": NO_STREAMS,
        "sub_agent": "it has no sub-agents", "compaction": "it never compacts",
    }
    limits = (
        limit("history", "lacks, or has elsewhere, .'message', 'user'", NO_RECORD),
        limit("tools", "^tool call .* is not recorded", NO_RECORD),
    )

    def final(self, text="All done.", usage=None, **more):
        """Words alone do not end it."""
        submit = self.shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; printf '%s' '" + text + "'")
        return self.says(endpoint.message(text), submit, usage=usage, **more)


HARNESS = Mini()

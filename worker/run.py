"""One run, as guard and worker each know it."""
from __future__ import annotations


class Run:
    """What one run consists of while it lasts; filled in the order of the story."""

    def __init__(self, job, harness, session, token, link, marker):
        self.job, self.harness, self.session, self.token, self.link = job, harness, session, token, link
        self.transport = self.agent = self.launch_error = None
        self.launch, self.warnings, self.source, self.unsaid = {}, [], job["source"], b""
        self.started_at = session.clock.wall0
        self.marker = marker  # what every descendant carries in its environment

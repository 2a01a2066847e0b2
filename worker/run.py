"""One run, as guard and worker each know it."""
from __future__ import annotations

import os


class Run:
    """What one run consists of while it lasts; filled in the order of the story."""

    def __init__(self, job, harness, session, token, link):
        self.job, self.harness, self.session, self.token, self.link = job, harness, session, token, link
        self.transport = self.agent = self.launch_error = None
        self.launch, self.warnings, self.source = {}, [], job["source"]
        self.started_at = session.clock.wall0
        # Unguessable: `recover` kills who carries it, and an agent may have written the file that it reads it from.
        self.marker = "%s/%s" % (job["invocation_id"], os.urandom(8).hex())

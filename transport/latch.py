"""What is known about requests that come again. Pure: the caller holds a lock and passes the clock.

Rules of this file (DESIGN 11, "fingerprint and latch")
- A fingerprint is method, target and SHA-256 of the body. CLIs repeat a failed call byte for byte (facts/codex.md
  section 8), so the count of attempts belongs to the fingerprint, not to one request of the CLI; success resets it.
- An entry is `latched` when its attempts are used up, when it failed in a way that cannot heal, or when a Retry-After
  that was too long to wait for has not passed. A latched request is answered at once with the last real answer.
- A repeat while a wait is open joins that wait: it sleeps until the same moment, it does not send earlier.
- Success keeps no entry, so while nothing fails there are none, and no fingerprint is needed before a request goes out.
- What the client abandoned itself decides nothing: neither a failure nor a success is noted for it.
"""
from __future__ import annotations

MAX_ENTRIES = 512


def fingerprint(method, target, sha256):
    return "%s %s %s" % (method, target, sha256)


class Entry:
    failures = 0        # attempts that failed since the last success
    ambiguous = 0       # of them: sent, and no answer; each may have been a paid generation
    answer = None       # the last real answer
    rule = None         # why it is latched for good
    until = None        # monotonic: latched until then
    wait_until = None   # monotonic: a wait is open until then
    failure = None      # kind of the last failure
    record = None       # of that attempt
    said = None         # the provider's words in it (`provider_error` of the record)
    status = None       # the upstream's status in it, also where the answer broke off
    refusal = None      # our own answer where there is no real one, and its words
    detail = ""

    def keep(self, answer):
        """`answer` has a body to be closed; the older one goes."""
        if self.answer is not None and self.answer is not answer:
            self.answer.body.close()
        self.answer = answer


class Latch:
    def __init__(self, max_attempts):
        self.max_attempts, self.entries = max_attempts, {}

    def find(self, key):
        return self.entries.get(key)

    def enter(self, key, fresh):
        """The entry of a fingerprint that failed: the known one, else `fresh`."""
        entry = self.entries.pop(key, None) or fresh
        self.entries[key] = entry  # most recently used last
        while len(self.entries) > MAX_ENTRIES:
            del self.entries[next(iter(self.entries))]
        return entry

    def latched(self, entry, now):
        """The rule by which a request is answered at once, or None."""
        if entry.rule:
            return entry.rule
        if entry.until is not None and entry.until > now:
            return "retry_after_not_passed"
        entry.until = None
        return "attempts_used_up" if entry.failures >= self.max_attempts else None

    def succeeded(self, key):
        self.entries.pop(key, None)

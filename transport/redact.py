"""Blanking secrets. Pure: bytes in, bytes of the same length out.

- A secret becomes asterisks of the same length, so offsets and lengths in evidence stay true.
- Each secret is looked for as it is and as JSON writers escape it. Compressed or otherwise encoded secrets are
  outside the promise (DESIGN 14).
- A stream may cut a secret anywhere. `feed` holds back only a tail that is a proper prefix of a secret, never more;
  without secrets nothing is copied.
"""
from __future__ import annotations


def _forms(secret):
    """A secret as it may stand in evidence: plain, and as JSON writers escape it (ASCII or not, with `\\/` or not)."""
    import json
    text = secret.decode("utf-8", "surrogateescape")
    escaped = [json.dumps(text, ensure_ascii=only)[1:-1].encode("utf-8", "surrogateescape") for only in (True, False)]
    return {secret, *escaped, *(form.replace(b"/", b"\\/") for form in escaped)}


class Redactor:
    """Blanks secrets: `clean` for a whole text, `feed` and `flush` for a stream (one Redactor per stream)."""
    __slots__ = ("_secrets", "_raw", "_done")

    def __init__(self, secrets):
        forms = [secrets._secrets] if isinstance(secrets, Redactor) else [_forms(s) for s in secrets if s]
        self._secrets = sorted(set().union(*forms), key=len, reverse=True)
        self._raw = self._done = b""  # the tail held back: as it came, and with what is already blanked

    def fresh(self):
        """Another stream with the same secrets."""
        return Redactor(self)

    def clean(self, data):
        out = None
        for secret in self._secrets:
            at = data.find(secret)
            while at >= 0:
                out = out if out is not None else bytearray(data)
                out[at:at + len(secret)] = b"*" * len(secret)
                at = data.find(secret, at + 1)  # +1: occurrences may overlap
        return data if out is None else bytes(out)

    def feed(self, chunk):
        if not self._secrets:
            return chunk
        raw = self._raw + chunk if self._raw else chunk
        done = self.clean(raw)
        if b"*" in self._done:  # a secret that ended inside the held tail stays blanked
            done = bytes(42 if old == 42 else new for old, new in zip(self._done, done)) + done[len(self._done):]
        keep = max(self._prefix_at_end(raw, secret) for secret in self._secrets)
        cut = len(raw) - keep
        self._raw, self._done = raw[cut:], done[cut:]
        return done[:cut] if keep else done

    def flush(self):
        done, self._raw, self._done = self._done, b"", b""
        return done

    @staticmethod
    def _prefix_at_end(data, secret):
        at = max(0, len(data) - len(secret) + 1)
        while (at := data.find(secret[:1], at)) >= 0:
            if secret.startswith(data[at:]):
                return len(data) - at
            at += 1
        return 0

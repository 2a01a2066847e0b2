"""What can end an exchange early. The name says who; the fields are those of the attempt record (DESIGN 8).

Pure. Each exception carries what the record needs, so that no handler has to guess afterwards.
"""
from __future__ import annotations


class UpstreamFailed(Exception):
    """The model endpoint or the way to it. `phase`: resolve, connect, tls, send, head, body.

    `kind` is the word that decisions.py knows, `failure` a kind of DESIGN 9, `rule` the refusal that the client gets where
    there is no real answer.
    """

    def __init__(self, phase, kind, message, failure="connection", rule="no_answer"):
        Exception.__init__(self, "%s: %s" % (phase, message))
        self.phase, self.kind, self.message = phase, kind, message
        self.failure, self.rule = failure, rule

    def as_record(self):
        return {"phase": self.phase, "kind": self.kind, "message": self.message}


class ClientLeft(Exception):
    """The client closed its socket or reset it. Nobody is there to be answered."""

    def as_record(self):
        return {"phase": "client", "kind": "client_left", "message": str(self) or "the client closed the connection"}


class Stopped(Exception):
    """The run is being stopped."""

    def as_record(self):
        return {"phase": "shutdown", "kind": "shutdown", "message": "the run is being stopped"}


class Refused(Exception):
    """The request is answered by the proxy itself. `rule` is a row of refusals.REFUSALS; `request` what is known of it."""

    def __init__(self, rule, detail="", request=None):
        Exception.__init__(self, rule)
        self.rule, self.detail, self.request = rule, detail, request


class SpoolFull(Exception):
    """The disk takes no more of a body."""


def from_os_error(phase, error):
    """An OSError met in a phase -> UpstreamFailed. The kind is the errno's name where there is one."""
    import errno
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    kinds = {"ECONNREFUSED": "refused", "ECONNRESET": "reset", "EPIPE": "reset", "ETIMEDOUT": "timeout"}
    failure = "stream_interrupted" if phase == "body" else "connection"
    return UpstreamFailed(phase, kinds.get(name, name.lower()), error.strerror or str(error) or name, failure)

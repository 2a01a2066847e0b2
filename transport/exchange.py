"""A client's connection: requests are read, checked and handed to `Delivery`, one after the other.

Deny by default. A request that is malformed, has another target than this origin, a method other than four, an upgrade,
or no token, is answered by the proxy, recorded as `refused`, and nothing goes upstream. The order of the checks is the
order of CHECKS; framing comes before the token, because a body that cannot be framed cannot be skipped either.
No exception leaves `serve`: a failure of ours is recorded and answered 502.
"""
from __future__ import annotations

import hashlib

from transport import http1
from transport.client import Client
from transport.delivery import Delivery
from transport.dialects import dialect_of
from transport.errors import ClientLeft, Refused, SpoolFull, Stopped
from transport.refusals import refusal
from transport.request import Request, find_token
from transport.spool import Spool
from transport.waits import monotonic

METHODS = (b"POST", b"GET", b"HEAD", b"OPTIONS")
REQUEST_BYTES = 1024 * 1024 * 1024


def serve(engine, sock, face):
    """Until the client closes, breaks the rules, or the run stops. Closes the socket."""
    client = Client(sock, engine.stop_fd, face.touch)
    try:
        while _serve_one(engine, client):
            pass
    except (ClientLeft, Stopped):
        pass
    finally:
        sock.close()


def _serve_one(engine, client):
    request = None
    try:
        engine.reception.idle(client.sock, True)
        try:
            data = client.read_head()
        finally:
            engine.reception.idle(client.sock, False)
        if data is None:
            return False
        request, body = _checked(engine, client, http1.parse_request(data))
        _read_body(engine, client, request, body)
        return Delivery(engine, client, request).deliver()
    except http1.Malformed as error:
        rule = "head_too_large" if error.status == 431 else "bad_request"
        _refuse(engine, client, request, rule, error.message, error.status)
    except Refused as refused:
        _refuse(engine, client, request or refused.request, refused.rule, refused.detail)
    except (ClientLeft, Stopped):
        raise
    except Exception as error:  # ours: said, recorded, answered; the next request is served
        _refuse(engine, client, request, "handler", "%s: %s" % (type(error).__name__, error))
    finally:
        if request is not None and request.spool is not None:
            request.spool.close()
    return False


def _refuse(engine, client, request, rule, detail, status=None):
    """Record and answer; the connection ends, since what follows on it is not known."""
    dialect = request.dialect if request is not None else None
    own_status, block, message = refusal(rule, dialect, detail, True, request is not None and request.method == "HEAD", status)
    engine.record_refusal(request, rule, own_status, message)
    if client.sent:  # something of an answer is out: adding to it would corrupt it
        client.abort(reset=True)
        return
    client.send(block)
    client.linger()


def _checked(engine, client, head):
    method, target, version = head.first
    client.http10, client.sent = version == b"HTTP/1.0", 0
    request = Request(engine.next_request(), head, None, engine.identity_headers)
    request.got_at = monotonic()
    request.dialect = dialect_of(request.method, request.path)

    def refuse(rule, detail=""):
        raise Refused(rule, detail, request)

    if method == b"CONNECT" or not target.startswith(b"/") or target.startswith(b"//"):
        refuse("foreign_target")
    if method not in METHODS:
        refuse("method")
    if b"upgrade" in head.listed(b"connection") and b"websocket" in head.listed(b"upgrade"):
        refuse("upgrade")
    hosts = head.names.get(b"host", ())
    if len(hosts) > 1 or (not hosts and not client.http10):
        refuse("bad_request", "one Host header")
    body = http1.request_body(head)
    request.token_places = find_token(head, request.target, engine.token)
    if not request.token_places:
        refuse("token")
    limit = engine.limits.get("request_bytes") or REQUEST_BYTES
    if isinstance(body, http1.Sized) and body.length > limit:
        refuse("request_too_large", str(limit))
    if not body.done and not client.buffer and b"100-continue" in head.listed(b"expect") and not client.http10:
        client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.sent = 0
    return request, body


def _read_body(engine, client, request, body):
    """Into the request's spool, hashed on the way."""
    spool = request.spool = Spool(engine.dirfd)
    digest = hashlib.sha256()
    limit = engine.limits.get("request_bytes") or REQUEST_BYTES
    try:
        while not body.done:
            piece = client.read_body(body)
            digest.update(piece)
            spool.write(piece)
            if spool.size > limit:
                raise Refused("request_too_large", str(limit))
    except SpoolFull as error:
        raise Refused("no_room", str(error))
    request.size, request.sha256 = spool.size, digest.hexdigest()

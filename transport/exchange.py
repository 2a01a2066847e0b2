"""A client's connection: requests are read, checked and handed to `Delivery`, one after the other.

Deny by default. A request that is malformed, has another target than this origin, a method other than four, an upgrade,
or no token (request.py), is answered by the proxy, recorded as `refused`, and nothing goes upstream. Framing comes before
the token, because a body that cannot be framed cannot be skipped either.
No exception leaves `serve`: a failure of ours is recorded and answered 502.
"""
from __future__ import annotations

from transport import http1
from transport.client import Client
from transport.delivery import Delivery
from transport.errors import ClientLeft, Refused, SpoolFull, Stopped
from transport.refusals import refusal
from transport.request import Request
from transport.spool import Spool
from transport.waits import monotonic

REQUEST_BYTES = 1024 * 1024 * 1024


def serve(engine, sock, face):
    """Until the client closes, breaks the rules, or the run stops. Closes the socket."""
    client, clients = Client(sock, engine.stop_fd, face), engine.reception.clients
    clients.add(client)
    try:
        while _serve_one(engine, client) and not engine.reception.stopping:
            pass
    except (ClientLeft, Stopped):
        pass
    finally:
        clients.discard(client)
        sock.close()


def _serve_one(engine, client):
    request, client.sent = None, 0
    try:
        data = client.read_head()
        if data is None:
            return False
        asking, body = engine.askings.read(data)
        client.http10 = asking.http10
        request = Request(engine.next_request(), asking, monotonic())
        if asking.refusal is not None:
            raise Refused(*asking.refusal)
        _read_body(engine, client, request, body)
        return Delivery(engine, client, request).deliver()
    except http1.Malformed as error:
        rule = "head_too_large" if error.status == 431 else "bad_request"
        _refuse(engine, client, request, rule, error.message, error.status)
    except Refused as refused:
        _refuse(engine, client, request, refused.rule, refused.detail)
    except (ClientLeft, Stopped) as reason:
        if request is not None and not request.complete:
            engine.record_abandoned(request, reason)
        raise
    except Exception as error:  # ours: said, recorded, answered; the next request is served
        _refuse(engine, client, request, "handler", "%s: %s" % (type(error).__name__, error))
    finally:
        if request is not None and request.spool is not None:
            request.spool.close()
    return False


def _refuse(engine, client, request, rule, detail, status=None):
    """Record and answer; the connection ends, since what follows on it is not known."""
    dialect, head_only = (request.dialect, request.asking.method == "HEAD") if request is not None else (None, False)
    own_status, block, message = refusal(rule, dialect, detail, True, head_only, status)
    engine.record_refusal(request, rule, own_status, message)
    if client.sent:  # something of an answer is out: adding to it would corrupt it
        client.abort(reset=True)
        return
    client.send(block)
    client.linger()


def _read_body(engine, client, request, body):
    """Into the request's spool."""
    limit = engine.limits.get("request_bytes") or REQUEST_BYTES
    if body.framing == "length" and body.length > limit:
        raise Refused("request_too_large", str(limit))
    if request.asking.expects and not body.done and not client.buffer:
        client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.sent = 0
    spool = Spool(engine.dirfd)
    try:
        while not body.done:
            if engine.reception.stopping:  # a client that sends without a pause is never waited for, so nothing else tells
                raise Stopped()
            spool.write(client.read_body(body))
            if spool.size > limit:
                raise Refused("request_too_large", str(limit))
    except SpoolFull as error:
        raise Refused("no_room", str(error))
    finally:
        request.spool, request.size, request.complete = spool, spool.size, body.done

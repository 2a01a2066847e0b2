"""`proxy`: the transport alone, for harnesses that somebody else launches.

    proxy (--upstream URL | --replay OUT) --dir DIR [--api A] [--key-file F | --key-env V] [--hold H] [--bodies B] [...]

Writes DIR/info.json ({"port", "pid", "token", "base_url"}, in one step, when it listens), one line per attempt to
DIR/model_attempts.jsonl, and at the end DIR/summary.json. Ends on SIGTERM, SIGINT, SIGHUP, or with --watch-stdin when
stdin closes; exit 0. The options are fields of `run`'s input document and are checked by the same rules.
"""
from __future__ import annotations

import json
import os
import select

from transport.sandbox_transport import Transport
from worker import cli, documents, fence, kernel
from worker.contract import BadInput, load
from worker.control import PROXY_TEXT, Control
from worker.host.arguments import Misuse, parse
from worker.intake import NotUsable, claim, marker_of, remove_key, take_directory
from worker.supervise import Wakeup

INFO, SUMMARY = "info.json", "summary.json"  # control.py knows by the claim that there will be no result
FLAGS = {"--watch-stdin": "watch_stdin", "--use-proxy": "model.use_proxy", "--keep-key-file": "model.keep_key_file",
         "--replay-failures": "model.replay_failures"}
TEXTS = {"--upstream": "model.base_url", "--socket": "model.socket", "--replay": "model.replay", "--dir": "directory",
         "--api": "model.api", "--key-file": "model.api_key_file", "--key-env": "model.api_key_env", "--auth": "model.auth",
         "--ca-file": "model.ca_file", "--hold": "retry.hold", "--bodies": "bodies", "--invocation-id": "invocation_id"}
NUMBERS = {"--max-attempts": "retry.max_attempts", "--max-wait": "retry.max_wait", "--budget": "retry.budget",
           "--requests": "limits.requests", "--total-tokens": "limits.total_tokens",
           "--first-byte-timeout": "model.first_byte_timeout", "--idle-timeout": "model.idle_timeout"}


def main(words):
    try:
        _, given = parse(words, 0, tuple(TEXTS) + tuple(NUMBERS), tuple(FLAGS))
        job = load("-", json.dumps(document(given)).encode())
        token = os.urandom(16).hex()
        session = take_directory(job, token)
        remove_key(job, session)
    except Misuse as error:
        return cli.misuse("proxy", str(error))
    except (BadInput, NotUsable) as error:
        cli.say(str(error))
        return cli.BAD_INPUT if isinstance(error, BadInput) else cli.NO_DIRECTORY
    claim(session, marker_of(job), PROXY_TEXT)
    kernel.set_not_dumpable()
    kernel.share_one_heap()
    return serve(job, session, token)


def document(given):
    """The input document that the options stand for."""
    found = {}
    for option, text in given.items():
        path = {**TEXTS, **NUMBERS, **FLAGS}[option].split(".")
        value = True if option in FLAGS else _number(text) if option in NUMBERS else text
        (found if len(path) == 1 else found.setdefault(path[0], {}))[path[-1]] = value
    if "replay" not in found.setdefault("model", {}):
        found["model"].setdefault("api", "responses")
    return found


def _number(text):
    try:
        return json.loads(text)
    except ValueError:
        return text  # the contract names the field and says that it must be a number


def serve(job, session, token):
    wakeup = Wakeup()
    transport = Transport(dict(
        job["model"], retry=dict(job["retry"], hold=job["retry"]["hold"] or "first_event"), limits=job["limits"],
        bodies=job["bodies"], secrets=session.secrets, dirfd=session.fd, now=session.clock.now, token=token,
        invocation_id=job["invocation_id"], main_headers=(), identity_headers=(), client_timer=None, deadline=None,
        notify=wakeup.poke))
    transport.listen()
    transport.start()
    transport.warm()
    info = {"port": transport.port, "pid": os.getpid(), "token": token, "base_url": transport.base_url}
    documents.atomic_write(session.fd, INFO, documents.strict_json(info) + b"\n")  # the token is what it is for
    control = Control(fence.listen(session.fd), os.getpid(), 10)  # so that `stop` ends it
    wait(wakeup, transport, job["watch_stdin"], control)
    transport.stop()
    documents.write_json(session, SUMMARY, transport.summary())
    return cli.FAILED if transport.dead else 0


def wait(wakeup, transport, watch_stdin, control):
    """Until a signal, a `stop`, the end of stdin (where asked), or the listener's death."""
    poller = select.poll()
    for fd in control.fds():
        poller.register(fd, select.POLLIN)
    poller.register(wakeup.fd, select.POLLIN)
    if watch_stdin:
        poller.register(0, select.POLLIN)
    while not transport.dead:
        for fd, _ in poller.poll():
            if fd == 0 and not os.read(0, 65536):
                return
            if fd == wakeup.fd:
                if wakeup.read() - {0}:  # 0 is the proxy's own poke
                    return
            elif fd != 0:
                opened, closed, asked = control.handle(fd)
                for new in opened:
                    poller.register(new, select.POLLIN)
                for old in closed:
                    poller.unregister(old)
                if asked:
                    return

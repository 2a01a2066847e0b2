"""`run`: one agent CLI on one task, told in order.

    read the input  ->  claim the directory  ->  guard | worker
    worker: listen  ->  prepare the command  ->  start the agent  ->  watch it
            ->  nothing is left alive  ->  collect, classify, write the result

Up to the agent's first instruction only small modules are loaded (the launch
path, at most 1,200 lines); everything else is imported while the agent boots.
The guard is this process; the worker is its child, so that whatever happens to
one, the other cleans up and leaves an outcome (DESIGN 12).
"""

from __future__ import annotations

import os
import sys

from worker import cli, harnesses, keys, launch
from worker.contract import BadInput, load, read_file
from worker.session import NotUsable, PROMPT, STATE, Session
from worker.supervise import fork_worker, guard, spawn
from transport.sandbox_transport import Transport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any
    from worker.supervise import Agent, Link

# Standard library that the worker needs after the launch, loaded before it where the agent could rewrite it.
NEEDED_LATER = ("hashlib", "hmac", "re", "base64", "zlib", "calendar", "queue")


def main(arguments: "list[str]") -> int:
    """Run the input document named by the arguments; returns the exit code of DESIGN 5."""
    if len(arguments) != 1:
        cli.say("run takes one argument: the input document, or - for one line on stdin")
        return cli.USAGE
    try:
        job, harness = read_job(arguments[0])
        token = os.urandom(16).hex()
        session = Session(job, keys.secrets_of(job, token))
    except BadInput as error:
        cli.say(str(error))
        return cli.BAD_INPUT
    except NotUsable as error:
        cli.say(str(error))
        return cli.NO_DIRECTORY
    keys.wipe(job)
    complaint_in, complaint_out = os.pipe()
    link = fork_worker()  # two processes from here on: the worker, and the guard that waits for it
    run = Run(job, harness, session, token, link)
    if not link.is_guard:
        os.close(complaint_in)
        os._exit(in_worker(run, complaint_out))
    os.close(complaint_out)
    return guard(link, lambda info: after_worker_death(run, complaint_in, info), session.finished, job["cleanup_timeout"])


def read_job(source: str) -> "tuple[dict[str, Any], ModuleType]":
    job = load(source, read_line() if source == "-" else read_file(source, "the input document"))
    harness = harnesses.find(job["harness"], job["command"])
    if harness is None:
        raise BadInput("harness: must be one of %s" % ", ".join(sorted(harnesses.TABLE)))
    if harness.NAME == "generic" and not job["command"]:
        raise BadInput("command: is required for the harness generic")
    if job["model"]:
        job["model"]["api"] = job["model"]["api"] or harness.APIS[0]
        if job["model"]["api"] not in harness.APIS:
            raise BadInput("model.api: %s speaks only %s" % (harness.NAME, ", ".join(harness.APIS)))
    job["cwd"] = os.path.abspath(job["cwd"] or os.getcwd())
    job["retry"]["hold"] = job["retry"]["hold"] or harness.HOLD
    job["grace"] = job["grace"] or harness.GRACE
    job["user"] = user_of(job["agent_user"])
    return job, harness


def read_line() -> bytes:
    """One line of stdin, and not a byte more: with `watch_stdin` the rest is waited for."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            break
        line += piece
    return bytes(line)


def user_of(text: "str | None") -> "tuple[int, int] | None":
    if text is None:
        return None
    if os.geteuid() != 0:
        raise BadInput("agent_user: the worker must be root to start the agent as another user")
    uid, _, gid = text.partition(":")
    return int(uid), int(gid or uid)


class Run:
    """What one run consists of while it lasts; filled in the order of the story."""

    def __init__(self, job: "dict[str, Any]", harness: "ModuleType", session: Session, token: str, link: "Link") -> None:
        self.job, self.harness, self.session, self.token, self.link = job, harness, session, token, link
        self.transport: "Transport | None" = None
        self.launch: "dict[str, Any]" = {}
        self.agent: "Agent | None" = None
        self.launch_error: "Any" = None
        self.warnings: "list[dict[str, Any]]" = []
        self.started_at = session.clock.now()


def in_worker(run: Run, complaint: int) -> int:
    """The worker's whole life.  Whatever escapes is told to the guard, which cleans up and says worker_error."""
    try:
        start(run)
        from worker.finish import finish  # the agent runs now (or never will)

        return finish(run)
    except BaseException as error:  # the guard's outcome must name it, whatever it was
        trace, where = error.__traceback__, "?"
        while trace is not None:
            where = "%s:%d" % (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
            trace = trace.tb_next
        os.write(complaint, ("%s: %s (%s)" % (type(error).__name__, error, where)).encode("utf-8", "replace")[:4000])
        return cli.FAILED


def start(run: Run) -> None:
    """From the listening proxy to the agent's first instruction."""
    job, session = run.job, run.session
    state = os.path.join(session.path, STATE)
    os.close(session.make_directory(STATE))
    if job["model"]:
        run.transport = Transport(transport_settings(run))
        run.transport.listen()
    base_url = run.transport.base_url if run.transport else None
    run.launch = run.harness.prepare(job, base_url, run.token, state)
    env = launch.environment(job, run.launch["env"], run.token if job["model"] else None)
    run.launch["home"] = launch.home(env, job["user"], state)
    run.launch["env_names"] = sorted(env)
    if job["prompt"] is not None:
        session.write_new(PROMPT, job["prompt"])  # a file that becomes stdin: any size, in no environment (E05)
    if job["user"]:
        launch.give(state, job["user"])
    check_keys(run)
    if agent_may_write(os.path.dirname(os.__file__), job["user"]):
        for name in NEEDED_LATER:
            __import__(name)
    stdin = launch.open_stdin(session, run.launch["stdin"])
    run.agent = spawn(run.launch["argv"], env, job["cwd"], stdin, job["user"], job["no_new_privs"])
    os.close(stdin)
    if run.launch_error:
        run.agent.abort()
        return
    if run.transport:
        run.transport.start()
    run.launch_error = run.agent.go()


def check_keys(run: Run) -> None:
    key = run.job["model"] and run.job["model"]["key"]
    places = keys.exposed([key.encode()], run.session.fd) if key and len(key) >= keys.SHORTEST else []
    if places:
        run.warnings.append({"code": "key_exposed", "detail": "; ".join(places)})
        if run.job["strict_key"]:
            run.launch_error = KeyExposed("the key can be read in " + places[0])


class KeyExposed:
    """Looks like a LaunchError: the run is not started."""

    kind = "key_exposed"

    def __init__(self, message: str) -> None:
        self.message = message


def agent_may_write(path: str, user: "tuple[int, int] | None") -> bool:
    return os.access(path, os.W_OK) if user is None else os.stat(path).st_uid == user[0]


def transport_settings(run: Run) -> "dict[str, Any]":
    """The proxy's settings: the input document's model, retry and limits, and what the harness knows of its CLI."""
    job, session, harness = run.job, run.session, run.harness
    return dict(
        job["model"], retry=job["retry"], limits=job["limits"], bodies=job["bodies"],
        secrets=keys.secrets_of(job, run.token), dirfd=session.fd, now=session.clock.now, token=run.token,
        invocation_id=job["invocation_id"], main_headers=harness.MAIN_HEADERS,
        identity_headers=harness.IDENTITY_HEADERS, client_timer=harness.CLIENT_TIMER,
        deadline=session.clock.mono0 + job["timeout"], notify=run.link.wakeup.poke)


def after_worker_death(run: Run, complaint: int, info: "dict[str, Any]") -> int:
    """The guard's part when the worker is gone: the same ending, from what is on disk."""
    from worker.finish import finish_for_dead_worker

    os.set_blocking(complaint, False)
    try:
        info["complaint"] = os.read(complaint, 4096).decode("utf-8", "replace")
    except OSError:
        info["complaint"] = ""
    return finish_for_dead_worker(run, info)


if __name__ == "__main__":  # the reference runner is started as a file with one argument
    sys.exit(main(sys.argv[1:]))

"""`run`: one agent CLI on one task, told in order.

    read the input  ->  claim the directory  ->  guard | worker
    worker: listen  ->  prepare the command  ->  start the agent  ->  finish.py: watch it, prove that nothing is left
            alive, collect, classify, write the result

Up to the agent's first instruction only small modules are loaded (at most 1,200 lines). The guard is this process, the
worker its child: whatever happens to one of them, the other cleans up and leaves an outcome (DESIGN 12).
"""
from __future__ import annotations

import os

from transport.sandbox_transport import Transport
from worker import cli, harnesses, launch
from worker.contract import BadInput, load, read_file
from worker.session import PROMPT, STATE, NotUsable, Session
from worker.supervise import fork_worker, spawn

# Standard library that is needed after the launch, loaded before it where the agent could rewrite it; some only for some runs.
NEEDED_LATER = ("array", "hashlib", "re", "resource", "select", "stat", "struct", "zlib")


def main(arguments):
    """Run the input document named by the arguments; returns the exit code of DESIGN 5."""
    if len(arguments) != 1:
        return cli.misuse("run", "takes one argument: the input document, or - for one line on stdin")
    try:
        job, harness = read_job(arguments[0])
        token = os.urandom(16).hex()
        session = Session(job, launch.secrets_of(job, token))
    except (BadInput, NotUsable) as error:
        cli.say(str(error))
        return cli.BAD_INPUT if isinstance(error, BadInput) else cli.NO_DIRECTORY
    launch.wipe_key(job)
    run = Run(job, harness, session, token, None if arguments[0] == "-" else os.path.abspath(arguments[0]))
    run.complaint_in, run.complaint_out = os.pipe()
    run.link = fork_worker()  # two processes from here on
    if not run.link.is_guard:
        os._exit(in_worker(run))
    from worker.guarding import guard_run  # after the fork: the worker need not carry it

    return guard_run(run)


def read_job(source):
    """(job, harness module) of the input document `source`. Raises BadInput."""
    if source == "-":  # one line and not a byte more: with `watch_stdin` the rest is waited for
        text = b"".join(iter(lambda: os.read(0, 1).replace(b"\n", b""), b""))
    else:
        text = read_file(source, "the input document")
    job = load(source, text)
    if job["harness"] not in (None, *harnesses.TABLE):
        raise BadInput("harness: must be one of %s" % ", ".join(sorted(harnesses.TABLE)))
    harness = harnesses.find(job["harness"], job["command"])
    if harness.NAME == "generic" and not job["command"]:
        raise BadInput("command: is required for the harness generic")
    if job["model"]:
        job["model"]["api"] = job["model"]["api"] or harness.APIS[0]
        if job["model"]["api"] not in harness.APIS:
            raise BadInput("model.api: %s speaks only %s" % (harness.NAME, ", ".join(harness.APIS)))
    job["cwd"] = os.path.abspath(job["cwd"] or os.getcwd())
    job["retry"]["hold"] = job["retry"]["hold"] or harness.HOLD
    job["grace"] = job["grace"] or harness.GRACE
    return job, harness


class Run:
    """What one run consists of while it lasts; filled in the order of the story."""

    def __init__(self, job, harness, session, token, source=None):
        self.job, self.harness, self.session, self.token, self.source = job, harness, session, token, source
        self.link = self.transport = self.agent = self.launch_error = self.complaint_in = self.complaint_out = None
        self.launch, self.warnings, self.words = {}, [], b""
        self.started_at = session.clock.now()
        # Unguessable: `recover` kills who carries it, and an agent may have written the file that it reads it from.
        self.marker = "%s/%s" % (job["invocation_id"], os.urandom(8).hex())


def in_worker(run):
    """The worker's whole life. Whatever escapes is told to the guard, which cleans up and says worker_error."""
    try:
        os.close(run.complaint_in)
        start(run)
        from worker.finish import finish  # the agent runs now, or never will

        return finish(run)
    except BaseException as error:  # the guard's outcome must name it, whatever it was
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        where = "%s:%d" % (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        os.write(run.complaint_out, ("%s: %s (%s)" % (type(error).__name__, error, where)).encode("utf-8", "replace")[:4000])
        return cli.FAILED


def start(run):
    """From the listening proxy to the agent's first instruction."""
    job, session = run.job, run.session
    state = os.path.join(session.path, STATE)
    os.close(session.make_directory(STATE))
    if job["model"]:
        run.transport = Transport(transport_settings(run))
        run.transport.listen()
    run.launch = run.harness.prepare(job, run.transport and run.transport.base_url, run.token, state)
    env = launch.environment(job, run.launch["env"], run.token, run.marker)
    run.launch.update(home=launch.home(env, job["user"], state), env_names=sorted(env))
    if job["prompt"] is not None:
        session.write_new(PROMPT, job["prompt"])  # a file that becomes stdin: any size, in no environment (E05)
    if job["user"]:
        from worker.agent_user import give

        give(state, job["user"])
    if launch.writable(os.path.dirname(os.__file__), job["user"]):
        https = job["model"] and (job["model"]["base_url"] or "").lower().startswith("https:")
        needs = getattr(run.harness, "NEEDS", ())  # such as sqlite3, for a CLI that keeps its transcript there
        for name in (*NEEDED_LATER, *needs, *(("ssl",) if https else ()), *(("hmac",) if job["seal_key"] else ())):
            __import__(name)
    if job["expect"]:
        from worker import expect

        run.launch_error = expect.unmet(run, env)
    stdin = launch.open_stdin(session, run.launch["stdin"])
    run.agent = spawn(run.launch["argv"], env, job["cwd"], stdin, job["user"], job["no_new_privs"])
    os.close(stdin)
    # What the guard found meanwhile (guarding.py): one line, empty when the key shows nowhere.
    exposed = os.read(run.link.fd, 65536).partition(b"\n")[0].decode("utf-8", "replace") if launch.real_key(job) else ""
    if exposed:
        run.warnings.append({"code": "key_exposed", "detail": exposed})
        if job["strict_key"]:
            run.launch_error = {"kind": "key_exposed", "message": "strict_key: the key can be read in " + exposed}
    if run.launch_error:
        return run.agent.abort()
    if run.transport:
        run.transport.start()
    run.launch_error = run.agent.go()


def transport_settings(run):
    """The proxy's settings: the input document's model, retry and limits, and what the harness knows of its CLI."""
    job, session, harness = run.job, run.session, run.harness
    return dict(
        job["model"], retry=job["retry"], limits=job["limits"], bodies=job["bodies"], secrets=session.secrets,
        dirfd=session.fd, now=session.clock.now, token=run.token, invocation_id=job["invocation_id"],
        main_headers=harness.MAIN_HEADERS, identity_headers=harness.IDENTITY_HEADERS, client_timer=harness.CLIENT_TIMER,
        deadline=session.clock.mono0 + job["timeout"], notify=run.link.wakeup.poke)

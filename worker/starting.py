"""The worker's first half: from the job that the guard tells to the agent's first instruction."""
from __future__ import annotations

import json
import os

from transport.sandbox_transport import Transport
from worker import cli, fence, harnesses, kernel, launch
from worker.run import Run
from worker.session import DONE, EVENTS, STATE, STDERR, Clock, Session
from worker.supervise import LATE, spawn

# Standard library that is needed after the launch, loaded before it where the agent could rewrite it; some only for some runs.
NEEDED_LATER = ("array", "hashlib", "re", "resource", "select", "stat", "struct", "zlib")


def in_worker(link, complaint):
    """The worker's whole life. Whatever escapes is told to the guard, which cleans up and says worker_error."""
    try:
        told = link.receive()
        if not told:
            return cli.FAILED  # the input was refused
        run = run_of(json.loads(told), link)
        run.done = lambda: last_words(complaint, DONE)
        if not start(run):
            return cli.FAILED  # a `stop` was faster
        from worker.finish import finish  # the agent runs now, or could not be started

        return finish(run)
    except BaseException as error:  # the guard's outcome must name it, whatever it was
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        where = "%s:%d" % (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        last_words(complaint, ("%s: %s (%s)" % (type(error).__name__, error, where)).encode("utf-8", "replace")[:4000])
        return cli.FAILED


def last_words(complaint, words):
    """Tell the guard, if there is one left."""
    try:
        os.write(complaint, words)
    except OSError:
        pass


def run_of(told, link):
    """The run that the guard told of (intake.for_worker), with this process's own hold on the directory."""
    job = told["job"]
    job["user"] = job["user"] and tuple(job["user"])
    session = Session(told["path"], job, launch.secrets_of(job, told["token"]), Clock(*told["clock"]), told["before"])
    session.share_lock()
    session.sockets = fence.listen(session.fd)
    launch.wipe_key(job)
    if job["prompt"]:
        job["prompt"] = launch.read_prompt(session)
    return Run(job, harnesses.find(job["harness"], None), session, told["token"], link, told["marker"])


def start(run):
    """From the listening proxy to the agent's first instruction; False where the guard says that it may not be."""
    job, session = run.job, run.session
    state = os.path.join(session.path, STATE)
    os.close(session.make_directory(STATE))
    session.open_live(EVENTS)
    session.open_live(STDERR)
    if job["model"]:
        run.transport = Transport(transport_settings(run))
        run.transport.listen()
    run.launch = run.harness.prepare(job, run.transport and run.transport.base_url, run.token, state)
    env = launch.environment(job, run.launch["env"], run.token, run.marker)
    run.launch.update(home=launch.home(env, job["user"], state), env_names=sorted(env))
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
    file = session.unlinked_file() if getattr(run.harness, "STDOUT", "pipe") == "file" else None
    run.agent = spawn(run.launch["argv"], env, job["cwd"], stdin, job["user"], job["no_new_privs"], file)
    os.close(stdin)
    run.link.send(b"ready")
    answer = json.loads(run.link.receive() or "null")  # what the guard found meanwhile, and whether the claim is ours
    if answer is None:
        run.agent.abort()
        return False
    session.files.update(answer["files"])
    if answer["exposed"]:
        run.warnings.append({"code": "key_exposed", "detail": answer["exposed"]})
        if job["strict_key"]:
            run.launch_error = {"kind": "key_exposed", "message": "strict_key: the key can be read in " + answer["exposed"]}
    if run.launch_error:
        run.agent.abort()
        return True
    if run.transport:
        run.transport.start()
    kernel.continue_in(job["timeout"] + LATE)
    run.launch_error = run.agent.go()
    return True


def transport_settings(run):
    """The proxy's settings: the input document's model, retry and limits, and what the harness knows of its CLI."""
    job, session, harness = run.job, run.session, run.harness
    return dict(
        job["model"], retry=job["retry"], limits=job["limits"], bodies=job["bodies"], secrets=session.secrets,
        dirfd=session.fd, now=session.clock.now, token=run.token, invocation_id=job["invocation_id"],
        main_headers=harness.MAIN_HEADERS, identity_headers=harness.IDENTITY_HEADERS, client_timer=harness.CLIENT_TIMER,
        deadline=session.clock.mono0 + job["timeout"], notify=run.link.wakeup.poke)

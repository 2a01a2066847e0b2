"""From the arguments of `run` to a job for the worker and a directory that is this run's alone. The guard does this, while
the worker loads what it needs; nothing has been started or written when a document is refused.

A directory is created 0700, refused when a name that a run writes is there already, and claimed in one atomic step, the
symlink `launch.claim`, which `stop` may win. The order is: lock, listen (the worker), claim, launch. So a `stop` that loses
the claim finds somebody listening, and one that wins it finds that nothing was launched.
"""
from __future__ import annotations

import errno
import json
import os
import select

from worker import harnesses, launch
from worker import session as names
from worker.contract import BadInput, load, read_file
from worker.session import Clock, Session
from worker.supervise import STOP_SIGNALS

# Freed when the disk is full (B22): for receipt and result of a run with thousands of calls. Several, as a disk may run out of
# files, too, and so that launch.json takes no more than it needs: the agent lives then.
RESERVED_BYTES = (256 << 10,) + (8 << 10,) * (len(names.RESERVE) - 1)


NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # flock(2) on Lustre without its mount option, on some FUSE and NFS


class NotUsable(Exception):
    """The directory cannot be written, is not fresh, or was used before: exit code 73."""


class Interrupted(Exception):
    """A signal came before there was anything to stop."""


def read_job(source, wakeup):
    """(job, harness module) of the input document `source`. Raises BadInput, or Interrupted where a stop signal came."""
    job = load(source, read_line(wakeup) if source == "-" else read_file(source, "the input document"))
    if wakeup.read().intersection(STOP_SIGNALS):
        raise Interrupted  # one that comes later stops a run that has begun
    if job["harness"] not in (None, *harnesses.TABLE):
        raise BadInput("harness: must be one of %s" % ", ".join(sorted(harnesses.TABLE)))
    harness = harnesses.find(job["harness"], job["command"])
    if job["policy"]:
        from worker.policy import TABLE

        for kind in sorted(set(job["policy"]).difference(TABLE)):
            raise BadInput("policy.%s: is no kind of outcome" % kind)
    if harness.NAME == "generic" and not job["command"]:
        raise BadInput("command: is required for the harness generic")
    if job["model"]:
        job["model"]["api"] = job["model"]["api"] or harness.APIS[0]
        if job["model"]["api"] not in harness.APIS:
            raise BadInput("model.api: %s speaks only %s" % (harness.NAME, ", ".join(harness.APIS)))
    getattr(harness, "check", lambda job: None)(job)  # what its CLI cannot take, such as a prompt over the limit of one argument
    job["harness"], job["cwd"] = harness.NAME, absolute(job["cwd"])
    job["retry"]["hold"] = job["retry"]["hold"] or harness.HOLD
    job["grace"] = job["grace"] or harness.GRACE
    job["source"] = None if source == "-" else os.path.abspath(source)
    return job, harness


def absolute(cwd):
    try:
        return os.path.abspath(cwd or os.getcwd())
    except OSError as error:
        raise BadInput("cwd: the worker's own does not exist any more (%s)" % error.strerror) from None


def read_line(wakeup):
    """One line of stdin. What comes behind it means nothing; `watch_stdin` waits for the end alone."""
    line, poller = bytearray(), select.poll()
    poller.register(0, select.POLLIN)
    poller.register(wakeup.fd, select.POLLIN)
    while True:
        ready = dict(poller.poll())
        if wakeup.fd in ready and wakeup.read().intersection(STOP_SIGNALS):
            raise Interrupted
        if 0 in ready:
            piece = os.read(0, 1 << 16)
            line += piece
            if not piece or b"\n" in piece:
                return bytes(line.partition(b"\n")[0])


def take_directory(job, token):
    """The guard's Session in a fresh directory. Raises NotUsable."""
    path = os.path.abspath(job["directory"])
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        before = os.listdir(path)
        refuse_used(path, before)
        session = Session(path, job, launch.secrets_of(job, token), Clock(), before)
    except OSError as error:
        raise NotUsable("%s: %s" % (path, os.strerror(error.errno or errno.EIO))) from None
    try:
        os.close(os.open(names.LOCK, names.NEW, 0o600, dir_fd=session.fd))  # of two runs at once, one fails here
        session.share_lock()
        for name, size in zip(names.RESERVE, RESERVED_BYTES):
            write_new(session, name, bytes(size))
        if job["prompt"] is not None:
            write_new(session, names.PROMPT, job["prompt"])  # becomes stdin: any size, in no environment (E05)
        if job["user"]:
            os.fchmod(session.fd, 0o711)  # the agent must reach state/ through it, but not list it
        return session
    except OSError as error:
        if error.errno != errno.EEXIST:  # then it is another run's
            give_back(session)
        words = "no file can be locked there (%s)" if error.errno in NO_LOCKS else "%s"
        raise NotUsable("%s: %s" % (path, words % os.strerror(error.errno or errno.EIO))) from None


def refuse_used(path, before):
    found = sorted(set(before).intersection(names.WRITES))
    if names.CLAIM in found and os.path.islink(path + "/" + names.CLAIM) and os.readlink(path + "/" + names.CLAIM) == "stop":
        raise NotUsable("%s: was stopped before it started" % path)
    if found:
        raise NotUsable("%s: is not fresh, it has %s" % (path, ", ".join(found)))


def write_new(session, name, data):
    fd, view = os.open(name, names.NEW, 0o600, dir_fd=session.fd), memoryview(data)
    while view:
        view = view[os.write(fd, view):]
    os.close(fd)


def give_back(session):
    """Remove what guard and worker have made: nothing was started here, and a corrected run may use the directory. The names
    that are left out may be those of a `stop`."""
    for name in set(names.WRITES).difference((names.CLAIM, names.CLEANUP, names.RESULT), session.before):
        path = os.path.join(session.path, name)
        try:
            for folder, _, files in os.walk(path, topdown=False):
                for file in files:
                    os.unlink(os.path.join(folder, file))
                os.rmdir(folder)
            os.unlink(path)
        except OSError:
            pass


def remove_key(job, session):
    """Wipe the key where it came from. Raises BadInput, and gives the directory back, where the file cannot be removed."""
    try:
        launch.wipe_key(job, remove=True)
    except OSError as error:
        give_back(session)
        reason = "%s cannot be removed (%s); set keep_key_file" % (job["model"]["api_key_file"], error.strerror)
        raise BadInput("model.api_key_file: " + reason) from None


def marker_of(job):
    """What every descendant carries. Unguessable: `recover` kills who has it, and reads it from files that an agent can write."""
    return "%s/%s" % (job["invocation_id"], os.urandom(8).hex())


def claim(session, marker, word="run"):
    """Raises NotUsable where a `stop` was faster."""
    try:
        os.symlink(word + " " + marker, names.CLAIM, dir_fd=session.fd)
    except FileExistsError:
        raise NotUsable("%s: was stopped before it started" % session.path) from None
    except OSError as error:  # a file system without symlinks, or with no inode left
        give_back(session)
        raise NotUsable("%s: no symlink can be made there (%s)" % (session.path, error.strerror)) from None


def for_worker(job, session, token, marker):
    """The job as one line of JSON for the worker; the prompt stays in its file."""
    told = {"job": dict(job, prompt=None if job["prompt"] is None else True), "token": token, "path": session.path,
            "before": sorted(session.before), "clock": [session.clock.wall0, session.clock.mono0], "marker": marker}
    return json.dumps(told).encode()

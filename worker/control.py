"""`stop`: ask a run to end, or make sure that it never begins; and the worker's side of the asking.

Who connects to a control socket and sends "stop" is heard, unless it is another user or descends from the agent
(SO_PEERCRED and the parents in /proc; without /proc the session tells). The answer is one line, {"wait_s": seconds};
then the connection stays open until the worker ends.

`stop` never signals anybody. It claims the directory if nobody has; else asks, and waits in the kernel for run.lock,
which guard and worker hold together. What an agent can forge in the directory can make it wait or fail, no more.
"""
from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct

from worker import processes
from worker.fence import SOCKET, abstract_name

CLAIM, LOCK, RESULT = "launch.claim", "run.lock", "result.json"
STOP_TEXT, PROXY_TEXT = "stop", "proxy"
CONNECTIONS = 16
MARGIN = 60.0  # seconds over what the worker promised, for writing the result


class Control:
    """The listening sockets and connections of one run; `handle` is called when one of `fds()` is readable."""

    def __init__(self, listening, agent_pid, wait_s):
        self.listening = {sock.fileno(): sock for sock in listening}
        self.connections: dict = {}
        self.agent_pid, self.wait_s = agent_pid, wait_s
        self.refused = 0

    def fds(self):
        return list(self.listening) + list(self.connections)

    def handle(self, fd):
        """(new descriptors, closed descriptors, whether a stop was asked)."""
        if fd in self.listening:
            return self._accept(self.listening[fd]), [], False
        connection = self.connections[fd]
        try:
            asked = connection.recv(64)
        except OSError:
            asked = b""
        if asked.startswith(b"stop"):
            connection.send(b'{"wait_s": %d}\n' % self.wait_s)
            return [], [], True
        del self.connections[fd]
        connection.close()
        return [], [fd], False

    def _accept(self, listening):
        try:
            connection, _ = listening.accept()
        except OSError:  # it left again, or no descriptor
            return []
        if len(self.connections) >= CONNECTIONS or not self._may_ask(connection):
            self.refused += 1
            connection.close()
            return []
        connection.setblocking(False)
        self.connections[connection.fileno()] = connection
        return [connection.fileno()]

    def _may_ask(self, connection):
        try:
            pid, uid, _ = _credentials(connection)
        except OSError:
            return False
        if uid not in (0, os.getuid()):
            return False
        if pid in (0, os.getpid()):  # from outside this pid namespace; or gVisor of 2022, which names the listener itself
            return True
        related = processes.descends_from(pid, os.getpid())
        if related is None:  # no /proc
            try:
                related = os.getsid(pid) == self.agent_pid
            except OSError:  # gone already: `stop` would wait
                related = True
        return not related

    def close(self):
        """Listen no more. Connections stay open: who asked learns by their end that this process is gone."""
        for sock in self.listening.values():
            sock.close()


def _credentials(sock):
    """(pid, uid, gid) of who is at the other end: who connected, or who listens."""
    return struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))


def claim(dirfd, text=STOP_TEXT):
    """Take the fence; False when somebody has it."""
    try:
        os.symlink(text, CLAIM, dir_fd=dirfd)
    except FileExistsError:
        return False
    return True


def claimed_by(dirfd):
    """The text of the claim; None when something else has its name."""
    try:
        return os.readlink(CLAIM, dir_fd=dirfd)
    except OSError:
        return None


def stop(directory, write_outcome, say):
    """Returns an exit code: 0 when a receipt confirms that nothing is left (or nothing began), 66 when there is no such
    directory, 70 otherwise. `write_outcome(dirfd)` writes the documents of a run that was never started; `say(text)`
    prints one sentence. Any number of calls, before, during and after the run, give the same answer."""
    try:
        dirfd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as problem:
        say("%s: %s" % (directory, problem.strerror))
        return 66
    try:
        fenced = claim(dirfd)
        heard = _result(dirfd) is None and _ask(dirfd)  # whatever the claim says: the agent may have taken it away
        lock = _take_lock(dirfd)
        try:
            if _result(dirfd) is None and not heard and (fenced or claimed_by(dirfd) == STOP_TEXT):
                write_outcome(dirfd)  # under the lock: of two `stop`s one writes
        finally:
            os.close(lock)
    except OSError as problem:
        say("%s: %s" % (directory, problem.strerror or problem))
        return 70
    return _verdict(dirfd, say)


def _result(dirfd):
    try:
        fd = os.open(RESULT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dirfd)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            return json.loads(file.read().decode())
        except ValueError:
            return None


def _ask(dirfd):
    """True when a worker heard it, and is gone now; False when nobody listens (any more)."""
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, 3 * MARGIN)
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return any(_ask_at(address, dirfd, here) for address in (abstract_name(dirfd), SOCKET))
    finally:
        os.close(here)


def _ask_at(address, dirfd, here):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchdir(dirfd)
        sock.connect(address)
        os.fchdir(here)
        sock.sendall(b"stop\n")
        told = _heard(sock)
        if told:
            signal.setitimer(signal.ITIMER_REAL, json.loads(told.decode())["wait_s"] + MARGIN)
        while told and _heard(sock):  # the worker closes it by its own end
            pass
        return bool(told)
    except OSError as problem:
        if problem.errno == errno.ETIMEDOUT:
            raise
        return False
    except (ValueError, KeyError, TypeError):  # not our worker's answer
        return False
    finally:
        os.fchdir(here)
        sock.close()


def _heard(sock):
    """What the worker says, or b"" at its end. An agent may have stopped it: every second it is continued, by the number that the
    kernel has for who listens there. Whoever else that should be, SIGCONT does no harm."""
    poller, pid = select.poll(), _credentials(sock)[0]
    poller.register(sock, select.POLLIN)
    while not poller.poll(1000):
        try:
            if pid > 0:  # not of another pid namespace
                os.kill(pid, signal.SIGCONT)
        except OSError:  # gone, and the socket will say so; or another user's
            pass
    return sock.recv(256)


def _late(signum, frame):
    raise OSError(errno.ETIMEDOUT, "the run did not end in the time that it had promised")


def _take_lock(dirfd):
    fd = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=dirfd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        os.close(fd)
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return fd


def _verdict(dirfd, say):
    result = _result(dirfd)
    if result is None and str(claimed_by(dirfd)).startswith(PROXY_TEXT + " "):
        say("the proxy is over")  # it starts nobody, and its lock could be had: it is gone
        return 0
    if result is None:
        say("guard and worker are gone without an outcome: run `recover`")
        return 70
    if result.get("cleanup_confirmed") is True:
        not_run = isinstance(result.get("outcome"), dict) and result["outcome"].get("status") == "not_run"
        say("nothing was started here, and nothing will be" if not_run else "the run is over and nothing of it is left")
        return 0
    say("the run is over, but it is not confirmed that nothing of it is left")
    return 70

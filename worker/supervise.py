"""Guard, worker, launcher: who forks whom, and who dies with whom (DESIGN 12).

    guard -- worker -- agent            guard and worker are subreapers and not dumpable

`fork_worker` splits `run`, `spawn` forks the launcher, both before any thread exists. Nobody polls: signals are bytes on a pipe
(`Wakeup`). Only own un-reaped children are signalled, and whom a pidfd holds (tree.py): no number is a stranger's by now.
"""
from __future__ import annotations

import os
import signal
import time

from worker import kernel

STOP_SIGNALS = tuple(getattr(signal, "SIG" + name) for name in "TERM INT HUP QUIT USR1 USR2 XCPU".split())  # why: watch.py
CAUGHT = (signal.SIGCHLD,) + STOP_SIGNALS
LATE = 2.0  # seconds after the deadline: who is not awake by then was stopped, and is continued (kernel.continue_in)
OOM_SCORE_ADJ = 500  # the kernel should take the agent before its worker
# What a container shows of its own control group, v2 and v1: read before the agent can make a counter rise (resources.py).
COUNTERS = tuple("/sys/fs/cgroup/" + name for name in ("pids.events", "memory.events", "memory.peak", "pids/pids.events",
                                                       "memory/memory.oom_control", "memory/memory.max_usage_in_bytes"))


class Wakeup:
    """Signals as bytes on a pipe. `fd` goes into a poll set; `read` gives the numbers that came since the last call."""

    def __init__(self):
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.seen: set = set()  # every number that ever came
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for signum in CAUGHT:
            if signal.getsignal(signum) != signal.SIG_IGN:  # nohup, or a shell's background job: meant so
                signal.signal(signum, lambda signum, frame: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)  # what came since the bundle's first lines comes now

    def read(self):
        try:
            came = set(os.read(self.fd, 65536))
        except BlockingIOError:
            return set()
        self.seen |= came
        return came

    def poke(self, number=0):
        """Wake the loop, from any thread."""
        try:
            os.write(self._write_fd, bytes((number,)))
        except OSError:  # full: it is awake; closed: it is over
            pass


class Link:
    """One end of the pair of pipes between guard and worker. End of file on `fd` says that the other one is gone."""

    def __init__(self, peer, fd, write_fd, is_guard):
        self.peer, self.fd, self.write_fd, self.is_guard = peer, fd, write_fd, is_guard
        self.wakeup = Wakeup()
        kernel.become_subreaper()  # not inherited by a fork
        kernel.set_not_dumpable()
        kernel.share_one_heap()

    def send(self, line):
        """A line of any length; where the other one is gone, `fd` tells."""
        try:
            line = memoryview(line + b"\n")
            while line:
                line = line[os.write(self.write_fd, line):]
        except BrokenPipeError:
            pass

    def receive(self):
        """The next line, without its end; what comes after it is not expected. Empty at the end of file."""
        line = b""
        while not line.endswith(b"\n"):
            piece = os.read(self.fd, 65536)
            if not piece:
                return b""
            line += piece
        return line[:-1]

    def close(self):
        os.close(self.fd)
        os.close(self.write_fd)


def fork_worker():
    """Split in two; `link.is_guard` tells which one returns. The worker gets SIGTERM when the guard dies.
    Raises OSError where the kernel has no process left."""
    kernel.set_not_dumpable()
    kernel.drop_from_bounding_set()
    down, up, guard_pid = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC), os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)  # none may land in the other one's pipe; Wakeup lets them come
    pid = os.fork()
    ends = (up[0], down[1], down[0], up[1]) if pid else (down[0], up[1], up[0], down[1])
    os.close(ends[2])
    os.close(ends[3])
    link = Link(pid or guard_pid, ends[0], ends[1], bool(pid))
    if not pid:
        kernel.set_death_signal(signal.SIGTERM)
        if os.getppid() != guard_pid:  # it died before the line above
            link.wakeup.poke(signal.SIGTERM)
    return link


def exit_status(raw):
    """Exit code, or minus the signal (os.waitstatus_to_exitcode came with 3.9)."""
    return -os.WTERMSIG(raw) if os.WIFSIGNALED(raw) else os.WEXITSTATUS(raw)


class Agent:
    """The launcher, and from `go` on the agent: `pid`, `stdout` and `stderr` (non-blocking descriptors; stdout may be a
    file), `started` (monotonic), `status` (None until reaped, then exit code or minus the signal)."""

    def __init__(self, pid, command, stdout, stderr, go, error):
        self.pid, self.command, self.stdout, self.stderr = pid, command, stdout, stderr
        self._go, self._error, self.started, self.status, self.counters = go, error, 0.0, None, {}
        os.set_blocking(stdout, False)
        os.set_blocking(stderr, False)

    def go(self):
        """Let it exec; None when the new program is in place, else a LaunchError (and the launcher is reaped)."""
        self.counters = {path: read_file(path) for path in COUNTERS}
        self.started, failure = time.monotonic(), b"exec 2"
        if self.command["program"]:
            try:
                os.write(self._go, b"g")
                failure = os.read(self._error, 64)
            except BrokenPipeError:  # somebody killed the launcher
                failure = b"start 0"
        os.close(self._go)
        os.close(self._error)
        if not failure:
            raise_oom_score(self.pid)
            return None
        self.status = exit_status(os.waitpid(self.pid, 0)[1])
        from worker import launch_errors

        return launch_errors.diagnose(self.command, *failure.decode().split())

    def abort(self):
        """End a launcher that was not let go: it exits at the end of file."""
        os.close(self._go)
        os.close(self._error)
        self.status = exit_status(os.waitpid(self.pid, 0)[1])


def read_file(path):
    """Its beginning; nothing where it cannot be read or is none. A FIFO is not waited for."""
    try:
        with open(path, "rb", 0, opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
            return file.read(4096) or b""
    except OSError:
        return b""


def spawn(argv, env, cwd, stdin_fd, user=None, no_new_privs=False, file=None):
    """Fork the launcher of `argv`; `user` is (uid, gid). It waits for `go`. Raises OSError where no process is left.
    argv[0] is looked up in the agent's own PATH and working directory. file: a descriptor that is its stdout, not a pipe."""
    command = {"argv": argv, "env": env, "cwd": cwd, "user": user, "program": which(argv[0], env, cwd)}
    go, error, err = (_pipe() for _ in range(3))
    out = _pipe() if file is None else (file, os.dup(file))
    if user:
        os.fchown(out[1], user[0], user[1])  # else it could not open /dev/stdout
        os.fchown(err[1], user[0], user[1])
    parent, pid = os.getpid(), os.fork()
    if not pid:
        os.close(go[1])
        _launch(command, parent, go[0], error[1], (stdin_fd, out[1], err[1]), no_new_privs)
    for fd in (go[0], error[1], out[1], err[1]):
        os.close(fd)
    return Agent(pid, command, out[0], err[0], go[1], error[0])


def _pipe():
    pair = os.pipe2(os.O_CLOEXEC)
    while min(pair) <= 2:  # started without stdin, stdout or stderr: those places stay taken
        pair = os.pipe2(os.O_CLOEXEC)
    return pair


def which(name, env, cwd):
    """The program's path, or None. One that exists but may not be executed is given too: exec tells why not."""
    folders = [""] if "/" in name else env.get("PATH", os.defpath).split(":")
    found = [path for path in (os.path.join(cwd or "", folder, name) for folder in folders) if os.path.exists(path)]
    found.sort(key=lambda path: os.path.isdir(path) or not os.access(path, os.X_OK))
    return found[0] if found else None


def _launch(command, parent, go, error, stdio, no_new_privs):
    """In the child. What goes wrong goes to the close-on-exec pipe as "STAGE ERRNO"; it never returns or raises."""
    stage = b"start"
    try:
        if os.read(go, 1) != b"g":
            os._exit(127)
        os.setsid()
        _reset_signals()
        raise_oom_score("self")
        for target, fd in enumerate(stdio):
            os.dup2(fd, target)
            os.set_inheritable(target, True)  # dup2 onto itself changes nothing
        _close_all_but(error)
        if command["user"]:
            stage = b"user"
            os.setgroups([])
            os.setgid(command["user"][1])
            os.setuid(command["user"][0])
        if command["cwd"]:
            stage = b"cwd"
            os.chdir(command["cwd"])
        if no_new_privs:
            kernel.set_no_new_privs()
        kernel.set_death_signal(signal.SIGKILL)  # setuid would have cleared it
        if os.getppid() == parent:
            stage = b"exec"
            os.execve(command["program"], command["argv"], command["env"])
    except OSError as problem:
        os.write(error, b"%s %d" % (stage, problem.errno or 0))
    except ValueError:  # a NUL in a word, a name with "="
        os.write(error, b"%s 22" % stage)
    finally:
        os._exit(127)  # nothing may run on in this copy of the worker


def _reset_signals():
    for signum in range(1, signal.NSIG):  # exec keeps what is ignored: by Python (PIPE, XFSZ), or by who started us
        try:
            signal.signal(signum, signal.SIG_DFL)
        except (OSError, ValueError):  # KILL, STOP and those of the thread library
            pass
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _close_all_but(keep):
    try:
        fds = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # no /proc
        fds = list(range(3, min(os.sysconf("SC_OPEN_MAX"), 65536)))
    for fd in fds:
        if fd > 2 and fd != keep:
            os.closerange(fd, fd + 1)  # ignores that it is not open


def raise_oom_score(pid):
    """Best effort. The file is root's until exec has made the process dumpable: root does it before, others after."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):  # another pid namespace's /proc: `pid` is a stranger there
            return
        fd = os.open("/proc/%s/oom_score_adj" % pid, os.O_RDWR | os.O_CLOEXEC)
        if int(os.read(fd, 16)) < OOM_SCORE_ADJ:
            os.pwrite(fd, b"%d" % OOM_SCORE_ADJ, 0)
        os.close(fd)
    except (OSError, ValueError):
        pass

"""Programs that try to outlive their run: `python3 programs.py NAME TOKEN`, or a number for a random tree of processes. No imports from the project: it is the agent.

Each function starts what is to survive and returns when all of it is in place (one byte each on a pipe, never a sleep);
then the main program prints one event and exits 0. TOKEN stands in every command line, so a test can look for survivors.
A survivor waits in `hold`: 600 seconds, so that a failing test leaves nothing for ever.
"""
import os
import signal
import sys
import time

READY_READ, READY_WRITE = os.pipe()
PROGRAMS = {}


def program(expected):
    """expected: how many survivors the receipt must at least name."""
    def keep(function):
        PROGRAMS[function.__name__] = (function, expected)
        return function
    return keep


def ready():
    os.write(READY_WRITE, b"x")


def await_ready(count):
    while count:
        count -= len(os.read(READY_READ, count))


def hold():
    ready()
    while True:
        time.sleep(600)


def child(action):
    """Fork; the child does `action` and never returns."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(1)
    return pid


def quiet():
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)


@program(1)
def background():
    child(hold)
    await_ready(1)


@program(1)
def setsid():
    child(lambda: (os.setsid(), quiet(), hold()))
    await_ready(1)


@program(1)
def new_process_group():
    child(lambda: (os.setpgid(0, 0), hold()))
    await_ready(1)


@program(1)
def double_fork():
    middle = child(lambda: (os.setsid(), child(lambda: (quiet(), hold())), os._exit(0)))
    os.waitpid(middle, 0)
    await_ready(1)


@program(1)
def nohup():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    child(lambda: (quiet(), hold()))
    await_ready(1)


@program(1)
def proof_against_signals():
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)
    child(lambda: (os.setsid(), hold()))
    await_ready(1)


@program(1)
def stopped():
    pid = child(hold)
    await_ready(1)
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)


@program(2)
def traced():
    """One survivor is the tracer of another (PTRACE_SEIZE, which does not stop it)."""
    target = child(lambda: (os.setsid(), hold()))
    await_ready(1)

    def trace():
        import ctypes
        os.setsid()
        ctypes.CDLL(None).ptrace(0x4206, target, None, None)
        hold()
    child(trace)
    await_ready(1)


@program(100)
def chain_of_100():
    """Each in a session of its own, parent of the next."""
    def link(depth):
        os.setsid()
        if depth:
            child(lambda: link(depth - 1))
        hold()
    child(lambda: link(99))
    await_ready(100)


@program(500)
def five_hundred():
    for _ in range(500):
        child(lambda: (os.setsid(), hold()))
    await_ready(500)


@program(1)
def forking_on():
    """Forks a successor and dies, every few milliseconds."""
    def generation():
        os.setsid()
        ready()
        while True:
            time.sleep(0.003)
            if os.fork():
                os._exit(0)
    child(generation)
    await_ready(1)


@program(3)
def forking_all_at_once():
    """Three that start short-lived children as fast as they can."""
    def storm():
        os.setsid()
        ready()
        while True:
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
    for _ in range(3):
        child(storm)
    await_ready(3)


@program(1)
def holding_stdout():
    child(lambda: (os.setsid(), hold()))
    await_ready(1)


@program(1)
def writing_to_stdout():
    """Floods the agent's stdout after the agent's end."""
    def flood():
        os.setsid()
        ready()
        while True:
            os.write(1, b'{"type":"noise"}\n' * 1000)
    child(flood)
    await_ready(1)


@program(1)
def empty_environment():
    os.set_inheritable(READY_WRITE, True)
    code = "import os,sys,time; os.setsid(); os.write(int(sys.argv[1]), b'x'); time.sleep(600)"
    child(lambda: os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code, str(READY_WRITE), sys.argv[2]], {}))
    await_ready(1)


@program(1)
def own_subreaper():
    """A supervisor of its own between the survivor and us."""
    def supervisor():
        import ctypes
        os.setsid()
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        middle = child(lambda: (child(lambda: (os.setsid(), hold())), os._exit(0)))
        os.waitpid(middle, 0)
        hold()
    child(supervisor)
    await_ready(2)


@program(1)
def other_thread():
    """Forked by a thread that is gone."""
    import threading
    thread = threading.Thread(target=lambda: child(lambda: (os.setsid(), hold())))
    thread.start()
    thread.join()
    await_ready(1)


@program(1)
def until_the_limit():
    """Fills what the pids limit leaves; nobody can fork any more, the worker neither."""
    try:
        for _ in range(200):
            child(lambda: (os.setsid(), hold()))
    except OSError:
        pass


# -- a tree that a number describes ---------------------------------------------------------------------------------------

def numbers(seed):
    """A linear congruential generator (Knuth, MMIX): the module random would cost an agent more than all the rest."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield seed >> 33


def deaf():
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)


def stop_itself():
    ready()
    os.kill(os.getpid(), signal.SIGSTOP)
    hold()


def fork_on():
    ready()
    while True:
        time.sleep(0.003)
        if os.fork():
            os._exit(0)


def leave():
    ready()
    os._exit(0)


WAYS = (os.setsid, lambda: os.setpgid(0, 0), quiet, deaf, os.environ.clear, lambda: os.chdir("/"))
ENDS = (hold, hold, hold, stop_itself, fork_on, leave, leave)


def planned(number, depth):
    """{"ways", "end", "children"} of one process; up to three children each, down to `depth`."""
    count = next(number) % 4 if depth else 0
    return {"ways": [way for way in WAYS if next(number) % 3 == 0], "end": ENDS[next(number) % len(ENDS)],
            "children": [planned(number, depth - 1) for _ in range(count)]}


def counted(node, ends=ENDS):
    """How many processes of a plan end so."""
    return int(node["end"] in ends) + sum(counted(below, ends) for below in node["children"])


def grow(node):
    """One process of the plan: never returns."""
    for way in node["ways"]:
        try:
            way()
        except OSError:  # it leads a session or group already
            pass
    for below in node["children"]:
        child(lambda below=below: grow(below))
    node["end"]()


def tree(seed):
    """The plan of `seed`: at least one process, at most forty."""
    return planned(numbers(seed), 3)


def random_tree(seed):
    plan = tree(seed)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the kernel sends it to an orphaned group in which somebody is stopped
    child(lambda: grow(plan))
    await_ready(counted(plan))


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        random_tree(int(sys.argv[1]))
    else:
        PROGRAMS[sys.argv[1]][0]()
    os.write(1, b'{"type":"done"}\n')
    os._exit(0)

"""What runs inside before anything is staged there: requests on stdin, answers on stdout.  sandboxctl sends it as text.

    request: a line with a length, then so many bytes of ASCII JSON, {"do": one of DEEDS, ...}
    answer:  one line of JSON, {...} or {"error": sentence, "code": exit code of DESIGN 5}

Paths are UTF-8 with surrogate escapes, so that any name passes any channel.  Only what was written whole and has the
hash that the host told gets its final name.  Standard library, no module of the bundle.
"""
import base64
import fcntl
import hashlib
import json
import os
import signal
import stat
import sys

PLACES = ("/var/tmp", "/tmp", "/run", "/dev/shm", "~", ".")
BUNDLES = ("sandbox-worker.pyz", "sandbox_worker.py")
UNFINISHED = ("%s.part-", ".%s.new-", ".%s-")  # of `put`; of the worker's writes, and what it moved aside
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LINE = 1 << 20
PYTHON = sys.executable or os.path.realpath("/proc/self/exe")  # without a PATH it does not know where it is


class Refused(Exception):
    """args: sentence, exit code."""


def raw(path):
    return path.encode("utf-8", "surrogateescape")


def text(path):
    return path.decode("utf-8", "surrogateescape")


def place(asked):
    """The directory to work in: the one that is asked for ({"dir"}), or a new one ({"name"}) where one can be written."""
    if asked.get("dir"):
        path = os.path.abspath(os.path.expanduser(raw(asked["dir"])))
        try:
            os.makedirs(path, 0o700, exist_ok=True)
        except OSError as error:
            raise Refused("%s: %s" % (asked["dir"], error.strerror), 73)
        if not os.access(path, os.W_OK | os.X_OK):
            raise Refused("%s: cannot be written by uid %d" % (asked["dir"], os.getuid()), 73)
        return {"dir": text(path)}
    for base in PLACES:
        path = os.path.join(os.path.abspath(os.path.expanduser(base)), asked["name"])
        try:
            os.mkdir(path, 0o700)
            return {"dir": path}
        except OSError:
            continue
    raise Refused("no directory can be written there (tried %s); name one with --dir" % ", ".join(PLACES), 73)


def put(asked):
    """One piece of a file, {"path", "data"}; the last one has "sha256" and "mode", and only then the file gets its name."""
    path = raw(asked["path"])
    path = path if os.path.isabs(path) else os.path.join(raw(asked["dir"]), path)
    partial = path + b".part-" + raw(asked["id"])
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        fd = os.open(partial, NEW if asked["first"] else os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "ab") as file:
            file.write(base64.b64decode(asked["data"]))
        if "sha256" in asked:
            if digest(partial) != asked["sha256"]:
                os.unlink(partial)
                raise Refused("%s: did not arrive as it was sent" % asked["path"], 65)
            os.chmod(partial, asked["mode"])
            os.replace(partial, path)
    except OSError as error:
        raise Refused("%s: %s" % (asked["path"], error.strerror), 73)
    return {}


def digest(path):
    """SHA-256 (hex) of a regular file; None where there is none."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                sha256 = hashlib.sha256()
                for piece in iter(lambda: file.read(1 << 20), b""):
                    sha256.update(piece)
                return sha256.hexdigest()
    except OSError:
        pass
    return None


def look(asked):
    """The hash of the bundle in the directory, by name: an agent may have rewritten it since."""
    directory = os.path.abspath(os.path.expanduser(raw(asked["dir"])))
    return {"dir": text(directory), "there": os.path.isdir(directory),
            "bundles": {name: digest(os.path.join(directory, raw(name))) for name in BUNDLES}}


def leave(asked):
    """Become the command {"argv"} of the Python that runs here; stdin and stdout are its own from now on."""
    os.execv(PYTHON, command(asked))


def command(asked):
    if asked["argv"][1:2] == ["run"]:  # it has an answer to these, and they wait until it can give it (worker/__main__.py)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT))
    return [os.fsencode(PYTHON), b"-I", b"-S", *map(raw, asked["argv"])]


def launch(asked):
    """Start a command that outlives this connection; {"stdin"} is its standard input.

    Answers with the first line that it printed, or with its exit code and its words when it ended without one.
    """
    told, out, said = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for fd, to in ((told[0], 0), (out[1], 1), (said[1], 2)):
            os.dup2(fd, to)
        os.closerange(3, max(told + out + said) + 1)
        os.execv(PYTHON, command(asked))
    for fd in (told[0], out[1], said[1]):
        os.close(fd)
    feed(told[1], raw(asked["stdin"]))
    with os.fdopen(out[0], "rb") as file:
        line = file.readline(LINE)
    if line:
        return {"line": line.decode("utf-8", "replace")}
    with os.fdopen(said[0], "rb") as file:
        words = file.read(LINE)
    status = os.waitpid(child, 0)[1]
    return {"line": "", "code": status >> 8 or 70, "stderr": words.decode("utf-8", "replace")}


def feed(fd, data):
    """Write in a process of its own: the reader may be slow, and this one must answer."""
    if os.fork() == 0:
        try:
            while data:
                data = data[os.write(fd, data):]
        finally:
            os._exit(0)
    os.close(fd)


def clean(asked):
    """Remove what was staged and what the run wrote: {"names"} in {"dir"}, whole or not; with {"all"} the whole
    directory. The bundle goes first, so that a launch that is still on its way finds nothing to start."""
    directory = raw(asked["dir"])
    try:
        top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        lock = os.open("run.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=top)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refused("%s: a run is still going on there" % asked["dir"], 73)
    except OSError:
        pass  # no such directory, or nothing was run there
    left = []
    found = os.listdir(directory) if os.path.isdir(directory) else []
    for name in sorted(found, key=lambda name: (text(name) not in BUNDLES, name)):
        if asked["all"] or text(name) in asked["names"] or any(
                text(name).startswith(form % one) for one in asked["names"] for form in UNFINISHED):
            remove(os.path.join(directory, name))
        if os.path.lexists(os.path.join(directory, name)):
            left.append(name)
    if not left and os.path.isdir(directory) and asked["all"]:
        os.rmdir(directory)
    return {"left": [text(name) for name in left]}


def remove(path):
    import shutil  # removes a tree without following a link, whatever an agent planted

    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except OSError:
        pass  # the answer names what is left


DEEDS = {"place": place, "put": put, "look": look, "leave": leave, "launch": launch, "clean": clean}


def exactly(count):
    """`count` bytes of stdin and not one more: what follows may belong to a command."""
    data = bytearray()
    while len(data) < count:
        piece = os.read(0, min(1 << 20, count - len(data)))
        if not piece:
            sys.exit(0)  # the host has left
        data += piece
    return bytes(data)


def answer(words):
    line = json.dumps(words).encode() + b"\n"
    while line:
        line = line[os.write(1, line):]


def serve():
    answer({"version": list(sys.version_info[:3]), "uid": os.getuid()})
    while True:
        head = exactly(1)
        while not head.endswith(b"\n"):
            head += exactly(1)
        asked = json.loads(exactly(int(head)).decode())
        try:
            answer(DEEDS[asked["do"]](asked))
        except Refused as refused:
            answer({"error": refused.args[0], "code": refused.args[1]})
        except OSError as error:
            answer({"error": str(error), "code": 70})

"""A connection into the sandbox: `with Channel("docker exec -i NAME") as channel: channel.ask("place", name="x")`.

All that is known about an engine is a command that runs a command inside and passes stdin and stdout. It is given one word,
`sh`; everything else goes over stdin, because ssh joins words and lets a remote shell split them again and docker does not.
The shell reads first_words.sh, finds a Python and becomes inside.py, which says so; nothing more is sent before that, so
a shell that reads ahead takes nothing that is not its own. Lines that a login prints before are skipped.

What comes back is not trusted: lines have a length, waits have an end, text is made plain before a terminal sees it.
"""
from __future__ import annotations

import base64
import hashlib
import json
import os
import select
import signal
import sys
import time

from worker import cli
from worker.host.show import plain
from worker.version import FILES

PYTHONS = ("python3", *("python3.%d" % minor for minor in range(16, 7, -1)), "python", "/usr/local/bin/python3",
           "/usr/bin/python3", "/opt/python/bin/python3")
CHECK = """
import sys
if sys.version_info < (3, 8): sys.exit("is Python %d.%d, 3.8 or later is needed" % sys.version_info[:2])
try: import json, base64, hashlib, fcntl, socket, threading, struct, select, signal, zlib, array, hmac
except ImportError as error: sys.exit("%s (Debian's python3-minimal is not enough, install python3)" % error)
"""
CONNECT = 60.0  # s until the other side has said its first word
LOOK = 1.0  # s between two looks at what does not wake us
ANSWER = 120.0  # s for one answer of inside.py
LINE = 8 << 20
TERMINAL = "the channel %s (is it a terminal? leave -t out of --via)"
PIECE = 1 << 20
STDERR_KEPT = 8192


class Lost(Exception):
    """The connection cannot be had or has ended; the sentence says what the engine said."""


class NoPython(Exception):
    """The channel works, but nothing there can run the worker."""


class Refused(Exception):
    """args: sentence, exit code: what inside.py answered."""


def quoted(word):
    """As a word for a POSIX shell."""
    return "'" + word.replace("'", "'\\''") + "'"


def own_file(name):
    if FILES:
        return FILES["worker/host/" + name].decode()
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), encoding="utf-8") as file:
        return file.read()


class Reader:
    """Bytes of a descriptor, in lines or counted; every wait has an end (monotonic time). beside: another Reader, which is kept
    empty meanwhile, but for its tail: who writes to both (an engine that is told to be verbose) must not wait for us."""

    def __init__(self, fd, beside=None):
        self.fd, self.data, self.ended, self.beside = fd, bytearray(), False, beside
        os.set_blocking(fd, False)

    def more(self, wait):
        """Take what there is, waiting up to `wait` seconds; False where nothing came."""
        if self.ended or not self.ready(time.monotonic() + max(0, wait)):
            return False
        try:
            piece = os.read(self.fd, PIECE)
        except BlockingIOError:
            return False
        self.ended = not piece
        self.data += piece
        return bool(piece)

    def ready(self, until):
        beside = self.beside
        while True:
            both = [self.fd, beside.fd] if beside and not beside.ended else [self.fd]
            found = select.select(both, [], [], max(0, until - time.monotonic()))[0]
            if found and found != [self.fd]:
                beside.more(0)
                del beside.data[:-STDERR_KEPT]
            if self.fd in found or time.monotonic() >= until:
                return self.fd in found

    def taken(self):
        """The next whole line that is here already, or None."""
        at = self.data.find(b"\n")
        if at < 0:
            if len(self.data) > LINE:
                raise Lost("a line of more than %d bytes came" % LINE)
            return None
        line = bytes(self.data[:at])
        del self.data[:at + 1]
        return line

    def line(self, wait):
        until = time.monotonic() + wait
        while True:
            found = self.taken()
            if found is not None:
                return found
            if self.ended:
                raise Lost("the connection ended")
            if not self.more(until - time.monotonic()) and time.monotonic() >= until:
                raise Lost("nothing came for %d s" % wait)

    def exactly(self, count, wait):
        """`count` bytes."""
        while len(self.data) < count:
            if self.ended:
                raise Lost("the connection ended")
            if not self.more(wait) and not self.ended:
                raise Lost("nothing came for %d s" % wait)
        found = bytes(self.data[:count])
        del self.data[:count]
        return found


class Channel:
    """One run of the --via command. python: a name or path inside that is tried first."""

    def __init__(self, via, python=None):
        import subprocess

        self.said, self.attached = bytearray(), False
        # A session of its own: a Ctrl-C on the terminal is ours to decide about, not the engine's client's.
        self.process = subprocess.Popen(["/bin/sh", "-c", via + " sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, start_new_session=True)
        self.errors = Reader(self.process.stderr.fileno())
        self.reader = Reader(self.process.stdout.fileno(), self.errors)
        try:
            self.version = self.become(python)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def become(self, python):
        mark = "sandboxctl-" + os.urandom(8).hex()
        words = {"@PYTHONS@": " ".join(map(quoted, ([python] if python else []) + list(PYTHONS))), "@CHECK@": quoted(CHECK),
                 "@LOADER@": quoted(own_file("inside.py") + "\nserve()\n"), "@MARK@": mark}
        script = "".join(line for line in own_file("first_words.sh").splitlines(True) if not line.startswith("#"))
        for name, value in words.items():
            script = script.replace(name, value)
        self.send(script.encode())
        found = self.marked(mark.encode(), CONNECT)
        if found.startswith(b"none"):
            raise NoPython(plain(found[4:].decode("utf-8", "replace").strip() or "none was found", 600))
        return self.heard(CONNECT)

    def marked(self, mark, wait):
        """The rest of the line that begins with `mark`; others are skipped, and the last of them is told where none comes."""
        until, line = time.monotonic() + wait, b""
        while True:
            try:
                line = self.reader_line(until - time.monotonic())
            except Lost as lost:
                skipped = plain(line.decode("utf-8", "replace").strip(), 200)
                raise Lost("%s; it had said: %s" % (lost, skipped) if skipped else str(lost)) from None
            if line.startswith(mark):
                if line.endswith(b"\r"):
                    raise Lost(TERMINAL % "changes the ends of lines")
                return line[len(mark):].strip()

    def reader_line(self, wait):
        try:
            return self.reader.line(wait)
        except Lost as lost:
            raise Lost(self.why(str(lost))) from None

    def why(self, sentence, ended=False):
        """The sentence with the engine's own words and exit code."""
        if self.reader.ended or ended:
            try:
                self.process.wait(5)
            except Exception as error:  # TimeoutExpired: subprocess is imported lazily
                sentence += " (%s)" % type(error).__name__
        self.read_errors()
        words = self.said.decode("utf-8", "replace").strip()
        code = "" if self.process.returncode is None else ", exit code %d" % self.process.returncode
        return plain(sentence + code + (": " + words if words else ""), 600)

    def read_errors(self):
        """What has come on stderr so far; the end of it is kept."""
        while self.errors.data or self.errors.more(0):
            self.said += self.errors.data
            del self.errors.data[:]
            del self.said[:-STDERR_KEPT]

    def send(self, data):
        """Write to the other side, reading its stderr meanwhile, so that neither waits for the other."""
        fd = self.process.stdin.fileno()
        os.set_blocking(fd, False)
        view, until = memoryview(data), time.monotonic() + ANSWER
        while view:
            if time.monotonic() > until:
                raise Lost(self.why("the other side takes nothing"))
            if select.select([self.errors.fd] if not self.errors.ended else [], [fd], [], 1.0)[1]:
                try:
                    view, until = view[os.write(fd, view[:65536]):], time.monotonic() + ANSWER
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    raise Lost(self.why("the connection ended", ended=True)) from None
            self.read_errors()

    def request(self, do, **fields):
        text = json.dumps(dict(fields, do=do)).encode()
        self.send(b"%d\n%s" % (len(text), text))

    def heard(self, wait):
        try:
            words = json.loads(self.reader_line(wait).decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            words = None
        if not isinstance(words, dict):
            raise Lost(TERMINAL % "gave back what is no answer")
        if "error" in words:
            code = words.get("code")
            raise Refused(plain(words["error"], 400), code if code in (64, 65, 66, 69, 70, 73) else cli.FAILED)
        return words

    def ask(self, do, wait=ANSWER, **fields):
        """What inside.py answers. Raises Refused, Lost."""
        self.request(do, **fields)
        return self.heard(wait)

    def put(self, directory, path, data, mode=0o600):
        """A file there: under a temporary name, its hash checked, then renamed."""
        identity = os.urandom(6).hex()
        for at in range(0, len(data) or 1, PIECE):
            last = at + PIECE >= len(data)
            self.ask("put", dir=directory, path=path, id=identity, first=at == 0,
                     data=base64.b64encode(data[at:at + PIECE]).decode(),
                     **({"sha256": hashlib.sha256(data).hexdigest(), "mode": mode} if last else {}))

    def become_command(self, *argv):
        """From now on stdin and stdout are those of this command of the bundle."""
        self.request("leave", argv=list(argv))

    def drain(self, wait):
        """Read stdout to its end and keep none of it; of stderr the end. Raises Lost after `wait` seconds."""
        until = time.monotonic() + wait
        while not self.reader.ended:
            if time.monotonic() > until:
                raise Lost("it does not end within %d s" % wait)
            self.reader.more(LOOK)
            del self.reader.data[:]
            self.read_errors()

    def end(self, wait=30.0):
        """Close stdin and wait; the exit code of the --via command."""
        import subprocess

        if not self.process.stdin.closed:
            try:
                self.process.stdin.close()
            except OSError:
                pass
        try:
            self.process.wait(wait)
        except subprocess.TimeoutExpired:
            self.close()
        self.read_errors()
        return self.process.returncode

    def close(self):
        """Hang up: what runs inside sees its stdin close. The client is ended with all its children, unless it is `attached`:
        then a run may be among them (--via ''). A second time it does nothing."""
        import subprocess

        if self.process.stdout.closed:
            return
        try:
            self.process.stdin.close()
        except OSError:
            pass
        if not self.attached:
            try:
                self.process.wait(0.5)  # a client that only waited for its stdin
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except OSError:
                pass
            self.process.wait()
            self.read_errors()
        for file in (self.process.stdout, self.process.stderr):
            file.close()
        self.reader.ended = self.errors.ended = True


def complain(text):
    """Another's words on our stderr, plain, a line each."""
    for line in text.strip().splitlines()[-20:]:
        try:
            os.write(2, (plain(line, 400) + "\n").encode("utf-8", "replace"))
        except OSError:
            return


def on_terminal():
    return sys.stderr is not None and sys.stderr.isatty()

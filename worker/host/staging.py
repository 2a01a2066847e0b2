"""Staging: a directory inside, the bundle in it, and on request further files and a portable Python; all over stdin."""
from __future__ import annotations

import hashlib
import os
import stat
import sys

from worker.host.arguments import Misuse
from worker.host.channel import ANSWER, CONNECT, Channel, Lost, Refused, quoted

BINARY, TEXT = "sandbox-worker.pyz", "sandbox_worker.py"
GONE = "%s: is not there; what was staged is gone (does the sandbox keep its files between two commands? then say --dir)"
BUNDLES = (BINARY, TEXT)
PORTABLE = "python"
PLACES = "/var/tmp /tmp /run /dev/shm ."


def bundle(handle):
    """(name, content) of the form of the bundle that is to be staged; it lies beside the one that runs here."""
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    name = TEXT if handle["text"] else BINARY
    if not os.path.exists(os.path.join(folder, name)) and not handle["text"]:
        name = TEXT
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return name, file.read()
    except OSError as error:
        raise Misuse("%s: %s; run `python3 build.py`" % (os.path.join(folder, name), error.strerror)) from None


def stage(channel, handle, files=()):
    """Choose or make the directory, put the bundle and the (source, target) `files` there."""
    handle.placing = "sandbox-worker-" + os.urandom(6).hex()
    found = channel.ask("place", dir=handle["dir"], name=handle.placing)
    if not isinstance(found.get("dir"), str) or not found["dir"].startswith("/"):
        raise Lost("what came back names no directory")
    handle.update(dir=found["dir"], own=handle["own"] or not handle["dir"])
    name, content = bundle(handle)
    channel.put(handle["dir"], name, content, 0o700)
    for source, target in files:
        channel.put(handle["dir"], target, read(source))


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Misuse("%s: %s" % (path, error.strerror)) from None


def staged(channel, handle):
    """The bundle's path inside, once more as it was built here: an agent may have rewritten it. Raises Refused."""
    if not handle["dir"]:
        raise Misuse("--dir is required (or --out of a run that was begun)")
    name, content = bundle(handle)
    found = channel.ask("look", dir=handle["dir"])
    if not found.get("there"):
        raise Refused(GONE % handle["dir"], 66)
    if not handle["dir"].startswith("/") and str(found.get("dir")).startswith("/"):
        handle.update(dir=found["dir"])
    bundles = found.get("bundles")
    if not isinstance(bundles, dict) or bundles.get(name) != hashlib.sha256(content).hexdigest():
        channel.put(handle["dir"], name, content, 0o700)
    return os.path.join(handle["dir"], name)


def is_portable(python):
    """Whether --python names a directory here with a Python to bring along, not one that is there."""
    return bool(python) and os.path.isdir(python)


def bring_python(handle, source):
    """Copy the tree `source` (bin/python3 in it) inside with the shell alone; returns the path of its interpreter there.

    Each file is sent after its command was read, so that no shell can read ahead into it (`head -c` takes what it needs);
    then `sha256sum -c`, then the rename that makes it one.
    """
    tree = sorted(entries(source))
    if not any(name in ("bin/python3", "bin/python") for name, _ in tree):
        raise Misuse("--python: %s has no bin/python3" % source)
    with ShellThere(handle["via"]) as shell:
        handle.placing = "sandbox-worker-" + os.urandom(6).hex()
        base = shell.place(handle["dir"], handle.placing)
        handle.update(dir=base, own=not handle["dir"])
        partial = "%s/%s.part-%s" % (base, PORTABLE, os.urandom(6).hex())
        folders = sorted({os.path.dirname(name) for name, _ in tree} | {"bin"})
        for at in range(0, len(folders), 100):
            shell.do("mkdir -p " + " ".join(quoted("%s/%s" % (partial, name)) for name in folders[at:at + 100]))
        sums = []
        for name, path in tree:
            if os.path.islink(path):
                shell.do("ln -s %s %s" % (quoted(os.readlink(path)), quoted(partial + "/" + name)))
                continue
            content = read(path)
            shell.give("%s/%s" % (partial, name), content, bool(os.stat(path).st_mode & stat.S_IXUSR))
            sums.append("%s  %s\n" % (hashlib.sha256(content).hexdigest(), name))
        shell.give(partial + "/.sums", "".join(sums).encode(), False)
        shell.do("cd %s && sha256sum -c .sums >/dev/null" % quoted(partial), "the Python did not arrive as it was sent")
        shell.do("rm -rf {0} && mv {1} {0}".format(quoted(base + "/" + PORTABLE), quoted(partial)))
    return "%s/%s/bin/%s" % (base, PORTABLE, "python3" if any(name == "bin/python3" for name, _ in tree) else "python")


def entries(source):
    """(name, path) of every file and link below `source`; names that a line of sha256sum cannot hold are refused."""
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if name != "__pycache__"]
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = [name for name in folders if name not in links]
        for name in files + links:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, source)
            if "\n" in relative or "\\" in relative:
                raise Misuse("--python: %r cannot be brought" % relative)
            if os.path.islink(path) or os.path.isfile(path):
                yield relative, path


class ShellThere(Channel):
    """The same connection where there is no Python yet: commands for the shell, each with its answer."""

    def become(self, python):
        self.mark = "sandboxctl-" + os.urandom(8).hex()
        self.send(b"umask 077; echo; echo %s ready\n" % self.mark.encode())
        self.marked(self.mark.encode(), CONNECT)

    def do(self, command, failure=None):
        """Run it; what it printed. Raises Refused."""
        self.send(("said=$(%s 2>&1) && echo %s ok $said || echo %s no $said\n" % (command, self.mark, self.mark)).encode())
        found = self.marked(self.mark.encode(), ANSWER).decode("utf-8", "replace")
        if not found.startswith("ok"):
            raise Refused("%s (%s)" % (failure or "the shell there refuses", found[2:].strip()[:300]), 69)
        return found[2:].strip()

    def place(self, asked, name):
        if asked:
            if any(c < " " or c == "\x7f" for c in asked):
                raise Misuse("--python DIR cannot be brought into a directory with such a name")
            self.do("mkdir -p %s" % quoted(asked))
            return asked
        return self.do('for base in %s; do mkdir -m 700 "$base/%s" 2>/dev/null && cd "$base/%s" && pwd && break; done'
                       % (PLACES, name, name), "no directory can be written there")

    def give(self, path, content, executable):
        name = quoted(path)
        mode = "; chmod 700 " + name if executable else ""
        if not content:
            self.do(": >%s%s" % (name, mode))
            return
        self.send(("echo {0} go; head -c {1} >{2}{3}; echo {0} got\n".format(self.mark, len(content), name, mode)).encode())
        for data in (content, b""):  # nothing is sent while anybody could read ahead into it
            self.marked(self.mark.encode(), ANSWER)
            self.send(data)

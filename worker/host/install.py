"""`install NAME`: one agent CLI in a tested version, in a directory of its own, from the registries or from an archive.

    install NAME [--version V] [--prefix DIR] [--archive FILE] [--node FILE] [--python FILE] [--machine M]

--prefix DIR gets DIR/NAME-VERSION/ and a link DIR/bin/COMMAND; put DIR/bin on the agent's PATH (`env`). Nothing outside is
touched: a CLI on Node gets a Node of its own (or --node FILE), one on Python an environment of its own made from --python FILE
(this one), and neither is on PATH, so that the task's own stay what they are. --archive FILE is used instead of the network where
it exists, and made where it does not; without --prefix it is only made. Checksums stand in locks/ beside this file and are held
against every package, wherever it came from. --machine x86_64 or aarch64: for an archive that is made on another machine.
Exit code: 0; 64; 65 a package is not the one that was locked; 66 a package could not be had; 73 DIR cannot be written.
"""
from __future__ import annotations

import json
import os
import sys

from worker import cli
from worker.host import terminal
from worker.host.arguments import Misuse, parse
from worker.host.install_rules import Failed
from worker.version import FILES

LOCKS = "worker/host/locks/"
CPUS = {"x86_64": "x64", "aarch64": "arm64"}  # uname's name -> npm's


def main(words):
    try:
        (name,), given = parse(words, 1, ("--version", "--prefix", "--archive", "--node", "--python", "--machine"))
        there = versions()
        if name not in there:
            raise Misuse("%r cannot be installed; there are %s" % (name, ", ".join(sorted(there))))
        version = given.get("--version", there[name][-1])
        if version not in there[name]:
            raise Misuse("%s %s is not known; there are %s" % (name, version, ", ".join(there[name])))
        if not given.get("--prefix") and not given.get("--archive"):
            raise Misuse("needs --prefix DIR, --archive FILE, or both")
        lock = read_lock(name, version)
        target = target_of(lock, given)
    except Misuse as error:
        return cli.misuse("install", str(error))
    except OSError as error:
        cli.say("install: %s: %s" % (error.filename, error.strerror))
        return cli.NO_OUTCOME
    from worker.host import packages

    source = None
    try:
        wanted = packages.chosen(lock, target)
        source = packages.Source(lock["from"], given.get("--archive"), wanted)
        lines = put_down(lock, target, wanted, source, given["--prefix"]) if given.get("--prefix") else source.fetch_all()
    except Failed as error:
        cli.say("install: %s" % error)
        return error.code
    except OSError as error:
        cli.say("install: %s: %s" % (error.filename or given.get("--prefix"), error.strerror or error))
        return cli.NO_DIRECTORY
    finally:
        if source:
            source.abandon()
    terminal.write("".join(line + "\n" for line in lines))
    return 0


def versions():
    """{harness: [locked versions, the usual one last]}"""
    if FILES:
        names = [name for name in FILES if name.startswith(LOCKS)]
    else:
        names = os.listdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "locks"))
    found = {}
    for stem in sorted(name.rpartition("/")[2][: -len(".json")] for name in names):
        harness, _, version = stem.partition("-")
        found.setdefault(harness, []).append(version)
    return {name: sorted(each, key=lambda one: [int(part) for part in one.split(".")]) for name, each in found.items()}


def read_lock(name, version):
    """{"harness", "version", "from": npm or pypi, "programs": {command: file}, "node" or "targets", "packages": rows}."""
    file = "%s-%s.json" % (name, version)
    if FILES:
        return json.loads(FILES[LOCKS + file].decode())
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "locks", file), encoding="ascii") as text:
        return json.load(text)


def target_of(lock, given):
    """{"machine", "cpu", "libc", "triple", "python" (path or None), "python_version", "node" (path or None)}. Raises Misuse."""
    machine = given.get("--machine", os.uname().machine)
    if machine not in CPUS:
        raise Misuse("there are packages for %s only, not for %s" % (" and ".join(CPUS), machine))
    musl = os.path.isdir("/lib") and any(name.startswith("ld-musl-") for name in os.listdir("/lib"))
    target = {"machine": machine, "cpu": CPUS[machine], "libc": "musl" if musl else "glibc", "python": None, "node": None,
              "python_version": None}
    if given.get("--node"):
        target["node"] = os.path.realpath(given["--node"])
        if not os.access(target["node"], os.X_OK):
            raise Misuse("--node: %s is no program" % given["--node"])
    if lock["from"] == "pypi":
        target["python_version"], target["python"] = ask_python(given.get("--python") or sys.executable)
        fit = sorted({place.partition("-")[0] for place in lock["targets"] if place.endswith("-" + machine)})
        if target["python_version"] not in fit:
            raise Misuse("%s needs Python %s; %s is %s: name another with --python" % (
                lock["harness"], " or ".join(fit), target["python"], target["python_version"]))
    return target


def ask_python(path):
    """(its version, the program that it really is): `path` may be a script of a version manager, or of a virtual environment."""
    import subprocess

    code = "import sys; print('%d.%d' % sys.version_info[:2], getattr(sys, '_base_executable', None) or sys.executable)"
    try:
        done = subprocess.run([path, "-I", "-S", "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except OSError as error:
        raise Misuse("--python: %s: %s" % (path, error.strerror)) from None
    version, _, program = os.fsdecode(done.stdout).strip().partition(" ")
    if not os.path.isabs(program):
        raise Misuse("--python: %s is no Python 3 that starts" % path)
    return version, os.path.realpath(program)


def put_down(lock, target, wanted, source, prefix):
    """Install into PREFIX; the lines to print. What is there already in this version is replaced only by a whole one."""
    import shutil

    prefix = os.path.abspath(prefix)
    home = os.path.join(prefix, "%s-%s" % (lock["harness"], lock["version"]))
    os.makedirs(os.path.join(prefix, "bin"), exist_ok=True)
    partial = "%s.partial-%d" % (home, os.getpid())
    from worker.host import npm_packages, wheels

    try:
        kind = {"npm": npm_packages, "pypi": wheels}[lock["from"]]
        programs = kind.unpack(lock, target, wanted, source, partial, home)
        old = "%s.old-%d" % (home, os.getpid())
        if os.path.lexists(home):
            os.rename(home, old)
        os.rename(partial, home)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    source.close()
    lines = []
    for command, file in sorted(programs.items()):
        link(os.path.join(prefix, "bin", command), os.path.relpath(os.path.join(home, file), os.path.join(prefix, "bin")))
        lines.append("%s %s: %s" % (lock["harness"], lock["version"], os.path.join(prefix, "bin", command)))
    return lines


def link(path, to):
    """A symlink, put in place in one step."""
    partial = "%s.partial-%d" % (path, os.getpid())
    os.symlink(to, partial)
    os.replace(partial, path)

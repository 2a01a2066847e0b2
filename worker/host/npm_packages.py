"""npm packages, unpacked as npm would, without npm: each tarball to its place, no script of theirs is run.

A program that names `node` in its first line gets the path of its own Node there, so that the task's Node is not used and need
not exist. (How pip treats the scripts of Python packages.)
"""
from __future__ import annotations

import os

from worker import cli
from worker.host.install_rules import Failed, shebang

TRIPLES = {"x64": "x86_64", "arm64": "aarch64"}
MOST_FILES, LARGEST = 200000, 4 << 30  # of one package: names, bytes unpacked


def unpack(lock, target, wanted, source, partial, home):
    """Make `partial`, which will be renamed to `home`; -> {command: file below it}."""
    for package in wanted:
        extract(source.get(package), os.path.join(partial, package["path"]), package["file"])
    words = {"cpu": target["cpu"], "triple": TRIPLES[target["cpu"]], "libc": "-musl" if target["libc"] == "musl" else ""}
    programs = {command: file.format(**words) for command, file in lock["programs"].items()}
    own = lock["node"].format(**words) if lock["node"] and not target["node"] else None
    node = os.path.join(home, own) if own else target["node"]
    for file in [*programs.values(), *([own] if own else [])]:
        path = os.path.join(partial, file)
        if not os.path.isfile(path):
            raise Failed(cli.BAD_INPUT, "%s: is not in its package" % file)
        os.chmod(path, 0o755)
        if node and file != own:
            name_interpreter(path, node)
    return programs


def extract(data, folder, name):
    """The regular files of a package tarball, below its one top directory. Anything else in it is refused or left out."""
    import io
    import tarfile

    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for number, member in enumerate(archive):
                parts = member.name.split("/")[1:]
                size += member.size
                if number > MOST_FILES or size > LARGEST:
                    raise Failed(cli.BAD_INPUT, "%s: is larger than a package can be" % name)
                if not member.isreg() or not parts or any(part in ("", ".", "..") for part in parts):
                    continue
                path = os.path.join(folder, *parts)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                write(path, archive.extractfile(member), 0o755 if member.mode & 0o111 else 0o644)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise Failed(cli.BAD_INPUT, "%s: is no package (%s)" % (name, error)) from None


def write(path, stream, mode):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode)
        for piece in iter(lambda: stream.read(1 << 20), b""):
            file.write(piece)


def name_interpreter(path, node):
    """`#!/usr/bin/env node` becomes `#!NODE`."""
    with open(path, "rb") as file:
        first, _, rest = file.read().partition(b"\n")
    if first.startswith(b"#!"):
        with open(path, "wb") as file:
            file.write(shebang(node) + rest)

"""npm packages, unpacked as npm would, without npm: each tarball to its place, no script of theirs is run.

A program that names `node` in its first line gets the path of its own Node there, so that the task's Node is not used and need
not exist. (How pip treats the scripts of Python packages.)
"""
from __future__ import annotations

import os

from worker import cli
from worker.host.install_rules import Failed, inner, name_interpreter, write

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
                if member.isreg() and inner(parts):
                    write(os.path.join(folder, *parts), archive.extractfile(member), member.mode & 0o111)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise Failed(cli.BAD_INPUT, "%s: is no package (%s)" % (name, error)) from None

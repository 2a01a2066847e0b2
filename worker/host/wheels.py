"""Wheels, unpacked as pip would into a virtual environment, without pip (PEP 427, PEP 405).

The environment is a directory with pyvenv.cfg and a link to the Python that it was made from. Only the CLI's own commands are
linked to PREFIX/bin, so that the task's `python` and `pip` stay the task's.
"""
from __future__ import annotations

import os

from worker import cli
from worker.host.install_rules import Failed, inner, name_interpreter, shebang, write

SCRIPT = """%simport sys
from %s import %s
if __name__ == "__main__":
    sys.exit(%s())
"""


def unpack(lock, target, wanted, source, partial, home):
    """Make `partial`, which will be renamed to `home`; -> {command: file below it}."""
    import subprocess

    packages = os.path.join("lib", "python" + target["python_version"], "site-packages")
    os.makedirs(os.path.join(partial, packages))
    os.makedirs(os.path.join(partial, "bin"))
    for name in ("python3", "python"):
        os.symlink(target["python"], os.path.join(partial, "bin", name))
    with open(os.path.join(partial, "pyvenv.cfg"), "w", encoding="utf-8") as file:
        file.write("home = %s\ninclude-system-site-packages = false\nversion = %s\n" % (
            os.path.dirname(target["python"]), target["python_version"]))
    for package in wanted:
        extract(source.get(package), partial, packages, package["file"], os.path.join(home, "bin", "python3"))
    missing = [file for file in lock["programs"].values() if not os.path.isfile(os.path.join(partial, "bin", file))]
    if missing:
        raise Failed(cli.BAD_INPUT, "%s: no package has such a command" % ", ".join(missing))
    # Compiled now, for the home to come: a read-only or foreign prefix could never be, and each start would take seconds longer.
    subprocess.run([target["python"], "-I", "-m", "compileall", "-q", "-s", partial, "-p", home, os.path.join(partial, packages)],
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {command: "bin/" + file for command, file in lock["programs"].items()}


def extract(data, top, packages, name, python):
    """One wheel: its files to site-packages, those of NAME.data where the kind says, its console scripts to bin."""
    import io
    import zipfile

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as wheel:
            for member in wheel.infolist():
                parts = member.filename.split("/")
                place, script = place_of(parts, packages)
                if member.is_dir() or not inner(parts) or place is None:
                    continue
                with wheel.open(member) as stream:
                    write(os.path.join(top, place), stream, script or member.external_attr >> 16 & 0o111)
                if script:
                    name_interpreter(os.path.join(top, place), python, b"#!python")
                if len(parts) == 2 and parts[0].endswith(".dist-info") and parts[1] == "entry_points.txt":
                    scripts(wheel.read(member).decode("utf-8"), os.path.join(top, "bin"), python)
    except (zipfile.BadZipFile, ValueError, KeyError) as error:
        raise Failed(cli.BAD_INPUT, "%s: is no wheel (%s)" % (name, error)) from None


def place_of(parts, packages):
    """(path below the environment or None, is it a script) of a member."""
    if not parts[0].endswith(".data") or len(parts) < 3:
        return os.path.join(packages, *parts), False
    top = {"purelib": packages, "platlib": packages, "data": "", "scripts": "bin"}.get(parts[1])
    return (None if top is None else os.path.join(top, *parts[2:])), parts[1] == "scripts"


def scripts(text, folder, python):
    """The console scripts of an entry_points.txt."""
    from configparser import ConfigParser

    parser = ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(text)
    for command, where in parser.items("console_scripts") if parser.has_section("console_scripts") else ():
        module, _, function = where.partition("[")[0].strip().partition(":")
        if "/" in command or not function.split(".")[0].isidentifier():
            continue
        path = os.path.join(folder, command)
        with open(path, "w", encoding="utf-8") as file:
            file.write(SCRIPT % (os.fsdecode(shebang(python)), module, function.split(".")[0], function))
        os.chmod(path, 0o755)

#!/usr/bin/env python3
"""Builds the bundle: the same bytes from the same tree, whatever Python builds it, wherever and whenever.

    dist/sandbox-worker.pyz   one stored zip: __main__.py, MANIFEST, worker/, transport/
    dist/sandbox_worker.py    the same files as plain ASCII text (worker/text_form.py)
    dist/sandboxctl           the host side, as it stands in worker/host/
    dist/SHA256SUMS           of the three

`build.py` writes them and prints their sizes; `--out DIR` writes elsewhere; `--check` builds twice, in two processes
with different hash seeds, compares, and fails when an existing dist/ is not what the tree builds now.
The zip is written here and not by `zipfile`, whose header fields differ between Python versions: sorted names,
no compression, one fixed time, no extra fields (APPNOTE 4.3.7, 4.3.12, 4.3.16).
MANIFEST: "VERSION SHA256" (over "SHA256  NAME" lines of all files), then "NAME CRC32-SIZE" lines.
"""
from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ("transport", "worker")
NOT_SHIPPED = ("worker/__main__.py", "worker/text_form.py")     # the one becomes __main__.py, the other a form
SHIPPED = (".py", ".sh", ".json", ".html", ".css", ".js", ".txt")
PYZ, TEXT, CTL, SUMS = "sandbox-worker.pyz", "sandbox_worker.py", "sandboxctl", "SHA256SUMS"
# Python finds a zip by its end. What lost its end is read as source, up to the string on line 2 that does not end: the message
# shows that line.
HEAD = b"#!/usr/bin/env python3\n\"sandbox-worker: this bundle is cut off, copy it again\n"
DOS_TIME, DOS_DATE = 0, (2020 - 1980) << 9 | 1 << 5 | 1
MODE = 0o100644 << 16
UNIX = 3 << 8 | 20


def read(name: str) -> bytes:
    with open(os.path.join(ROOT, name), "rb") as file:
        return file.read()


def source_names() -> "list[str]":
    names = []
    for package in PACKAGES:
        for folder, folders, files in os.walk(os.path.join(ROOT, package)):
            folders[:] = [f for f in folders if f != "__pycache__"]
            names += [os.path.relpath(os.path.join(folder, f), ROOT) for f in files if f.endswith(SHIPPED)]
    return sorted(name.replace(os.sep, "/") for name in names)


def collect() -> "dict[str, bytes]":
    """-> {name in the bundle: content}, MANIFEST included."""
    files = {name: read(name) for name in source_names() if name not in NOT_SHIPPED}
    files["__main__.py"] = read("worker/__main__.py")
    for name, content in files.items():
        if content and not content.endswith(b"\n"):
            sys.exit("build.py: %s does not end with a newline" % name)
    files["MANIFEST"] = manifest(files)
    return {name: files[name] for name in sorted(files)}


def version() -> str:
    found = re.search(rb'^VERSION = "(.+)"$', read("worker/version.py"), re.M)
    assert found, "worker/version.py has no VERSION"
    return found.group(1).decode()


def manifest(files: "dict[str, bytes]") -> bytes:
    sums = "".join("%s  %s\n" % (hashlib.sha256(files[name]).hexdigest(), name) for name in sorted(files))
    lines = ["%s %s" % (version(), hashlib.sha256(sums.encode()).hexdigest())]
    lines += ["%s %08x-%d" % (name, zlib.crc32(files[name]), len(files[name])) for name in sorted(files)]
    return ("\n".join(lines) + "\n").encode()


def zipped(files: "dict[str, bytes]") -> bytes:
    out, directory = bytearray(HEAD), bytearray()
    for name, content in files.items():
        common = struct.pack("<HHHHHLLLHH", 20, 0, 0, DOS_TIME, DOS_DATE, zlib.crc32(content), len(content),
                             len(content), len(name), 0)
        directory += b"PK\1\2" + struct.pack("<H", UNIX) + common
        directory += struct.pack("<HHHLL", 0, 0, 0, MODE, len(out)) + name.encode()
        out += b"PK\3\4" + common + name.encode() + content
    end = struct.pack("<HHHHLLH", 0, 0, len(files), len(files), len(directory), len(out), 0)
    return bytes(out + directory + b"PK\5\6" + end)


def as_text(files: "dict[str, bytes]") -> bytes:
    parts = [read("worker/text_form.py").rstrip(b"\n")]
    for name, content in files.items():
        lines = content.split(b"\n")[:-1]
        plain = content.isascii() and not any(line.startswith(b"@ ") or line.endswith(b"\r") for line in lines)
        parts.append(b"#@ " + name.encode() + (b"" if plain else b" base64"))
        parts += [b"#" + line for line in (lines if plain else base64.encodebytes(content).split(b"\n")[:-1])]
    whole = b"\n".join(parts)
    return b"%s\n#@ end %d %s\n" % (whole, len(whole), hashlib.sha256(whole).hexdigest().encode())


def build() -> "dict[str, bytes]":
    files = collect()
    built = {PYZ: zipped(files), TEXT: as_text(files)}
    built[CTL] = read("worker/host/" + CTL)
    sums = ["%s  %s\n" % (hashlib.sha256(built[name]).hexdigest(), name) for name in sorted(built)]
    built[SUMS] = "".join(sums).encode()
    return built


def write(built: "dict[str, bytes]", out: str) -> None:
    os.makedirs(out, exist_ok=True)
    for name, content in built.items():
        partial = os.path.join(out, ".%s.%d" % (name, os.getpid()))
        with open(partial, "wb") as file:
            file.write(content)
        os.chmod(partial, 0o644 if name == SUMS else 0o755)
        os.replace(partial, os.path.join(out, name))


def stale(built: "dict[str, bytes]", out: str) -> "list[str]":
    """The names in `out` that differ from `built`, and those that are missing or too many."""
    there = set(os.listdir(out))
    bad = [name for name in built if name not in there]
    for name in sorted(there & set(built)):
        with open(os.path.join(out, name), "rb") as file:
            bad += [name] if file.read() != built[name] else []
    return bad + sorted(there - set(built))


def report(built: "dict[str, bytes]") -> None:
    files = collect()
    lines = sum(content.count(b"\n") for name, content in files.items() if name.endswith(".py"))
    print("%d files, %d lines of Python, version %s" % (len(files) - 1, lines, version()))
    for name, content in built.items():
        print("%9d bytes  %s  %s" % (len(content), hashlib.sha256(content).hexdigest()[:16], name))


def check(out: str) -> int:
    built = build()
    for seed in ("0", "1"):
        with tempfile.TemporaryDirectory() as again:
            env = dict(os.environ, PYTHONHASHSEED=seed)
            subprocess.run([sys.executable, __file__, "--out", again], check=True, env=env, stdout=subprocess.DEVNULL)
            if stale(built, again):
                print("build.py: two builds of this tree differ in: %s" % ", ".join(stale(built, again)))
                return 1
    if os.path.isdir(out) and stale(built, out):
        print("build.py: %s is stale (%s): run `make build`" % (out, ", ".join(stale(built, out))))
        return 1
    report(built)
    return 0


def main(arguments: "list[str]") -> int:
    out = os.path.join(ROOT, "dist")
    if arguments[:1] == ["--out"] and len(arguments) == 2:
        out = arguments[1]
    elif arguments == ["--check"]:
        return check(out)
    elif arguments:
        print(__doc__)
        return 64
    built = build()
    write(built, out)
    report(built)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

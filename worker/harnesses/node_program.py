"""A CLI that is a JavaScript file: which Node runs which file, and the few things that such harnesses prepare alike.

Launch path (budget 70 lines), loaded by the harnesses of such CLIs.  The npm `bin` entry is replaced by `node FILE`, so that
the process that is started, signalled and waited for is the CLI itself and no launcher.
"""

from __future__ import annotations

import binascii
import json
import os

from worker import harnesses


def resolve(given, path, cwd, which, entry, real=None):
    """(node, script, the caller's arguments, notes) of the words `given`; script None where they name no such file.

    entry: base name of the file of the npm bin entry; real: that of the CLI itself beside it, where the entry is a launcher."""
    interpreted = len(given) > 1 and os.path.basename(given[0]) in harnesses.INTERPRETERS
    found = os.path.join(cwd, given[1]) if interpreted else which(given[0], path, cwd)
    rest = given[2:] if interpreted else given[1:]
    file = os.path.realpath(found) if found else None
    node = given[0] if interpreted else named_in(file) or which("node", path, cwd) or "node"
    if file is None or os.path.basename(file) not in (entry, real):
        return found or given[0], None, given[1:], []
    own = os.path.join(os.path.dirname(file), real) if real else file
    if not os.path.isfile(own):
        return node, file, rest, ["no %s beside %s" % (real, file)]
    return node, own, rest, [] if own == file else ["launcher %s replaced by %s" % (file, own)]


def named_in(file):
    """The Node that the script's first line names by its path (as `install` writes it); None for `env node`."""
    words = os.fsdecode(harnesses.beginning(file or os.devnull).partition(b"\n")[0][2:]).split()
    return words[0] if words and os.path.basename(words[0]) in harnesses.INTERPRETERS and os.path.isabs(words[0]) else None


def lacking(switches, words):
    """Those switches, ((word, value or None, other words that say it), ...), that the caller's words lack, as words.  They
    are put first, so that a later word of the caller's wins."""
    end = words.index("--") if "--" in words else len(words)
    there = {word.split("=")[0] for word in words[:end]}
    missing = [one for one in switches if not there.intersection((one[0],) + one[2])]
    return [word for one in missing for word in one[:2] if word is not None]


def write_json(path, value):
    """A configuration file for the CLI, readable by its user (and given to it with the state directory)."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)


def uuid():
    """A random UUID, version 4 (RFC 9562, 5.4)."""
    raw = bytearray(os.urandom(16))
    raw[6], raw[8] = raw[6] & 15 | 64, raw[8] & 63 | 128
    text = binascii.hexlify(bytes(raw)).decode()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def baseline(top, suffix=".jsonl"):
    """{path relative to `top`: size} of the files below it that are there before the run (a directory of the caller's)."""
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(suffix) and os.path.isfile(path):
                found[os.path.relpath(path, top)] = os.path.getsize(path)
    return found

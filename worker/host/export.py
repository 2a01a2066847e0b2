"""`export OUT --format atif|otel|responses|bundle [-o FILE]`: an outcome in the formats of others.

An outcome that is not as the worker wrote it is refused (65, one sentence per fault); with `--unverified` it is exported all the
same, the sentences go to stderr and into the export.  What is missing or unreadable is a gap in the export.  The same outcome
gives the same bytes, whatever host and Python.
"""
from __future__ import annotations

import json
import os
import sys

from worker import cli, stdout
from worker.documents import strict_json
from worker.exports import evidence
from worker.gaps import gap
from worker.host.arguments import ODD, Misuse, parse
from worker.host.outcome_directory import LARGEST_DOCUMENT, NotReadable, faults, open_regular, read_document, read_result
from worker.host.show import plain
from worker.host.unpack import remove
from worker.host.verify import key, manifest_of
from worker.session import ATTEMPTS, OBSERVATIONS

FORMATS = {name: "worker.exports." + name for name in ("atif", "otel", "responses", "bundle")}
NEEDS_BODIES = ("atif",)
OPTIONS = ("--format", "-o", "--nonce", "--manifest", "--seal-key-file")
LARGEST_BODY = 64 << 20         # of one answer that is searched for ids
PIECE = 1 << 20


def main(words):
    try:
        (directory,), given = parse(words, 1, OPTIONS, ("--unverified",))
        if given.get("--format") not in FORMATS:
            raise Misuse("--format must be one of %s" % ", ".join(FORMATS))
        result = read_result(directory)
        manifest, seal_key = manifest_of(given.get("--manifest")), key(given.get("--seal-key-file"))
        found = faults(directory, result, given.get("--nonce"), manifest, seal_key)
        for sentence in found:
            cli.say(plain(sentence, 400))
        if found and "--unverified" not in given:
            return cli.BAD_INPUT
        text = exported(given["--format"], directory, result, found)
    except Misuse as error:
        return cli.misuse("export", str(error))
    except NotReadable as error:
        cli.say(str(error))
        return cli.NO_OUTCOME
    except ODD as error:
        cli.say("%s: cannot be exported, it is not in its shape (%s: %s)" % (directory, type(error).__name__, plain(error)))
        return cli.NO_OUTCOME
    return write(given.get("-o", "-"), text)


def exported(name, directory, result, found=()):
    """The bytes of an export.  Raises NotReadable, and ODD for what no exporter can take."""
    missing = []
    observations, attempts = optional(directory, OBSERVATIONS, missing), lines(directory, ATTEMPTS, missing)
    answers = bodies(directory, attempts) if name in NEEDS_BODIES else {}
    known = evidence.Evidence(result, observations, attempts, answers, found)
    known.gaps += [gap("agent_artifact_unavailable", sentence) for sentence in missing]
    __import__(FORMATS[name])
    return strict_json(sys.modules[FORMATS[name]].export(known)) + b"\n"


def optional(directory, name, missing):
    try:
        return read_document(directory, name)
    except NotReadable as error:
        missing.append(str(error))
        return {}


def lines(directory, name, missing):
    """The objects of a JSONL file; what is none is left out and counted in `missing`."""
    try:
        with os.fdopen(open_regular(directory, name), "rb") as file:
            text = file.read(LARGEST_DOCUMENT + 1)
    except NotReadable as error:
        if "No such file" not in str(error):        # without a proxy there is none
            missing.append(str(error))
        return []
    found, bad = [], int(len(text) > LARGEST_DOCUMENT)
    for line in text.split(b"\n"):
        try:
            if line:
                found.append(json.loads(line.decode("utf-8", "replace")))
        except (ValueError, RecursionError):
            bad += 1
    if bad:
        missing.append("%s: %d lines cannot be read" % (name, bad))
    return found


def bodies(directory, attempts):
    """{seq: ids in the recorded answer}, for the answers that were kept."""
    found = {}
    for one in evidence.objects(attempts):
        names = one.get("bodies") if isinstance(one.get("bodies"), list) else []
        for name in names:
            if isinstance(name, str) and name.endswith(".response") and isinstance(one.get("seq"), int):
                found[one["seq"]] = body_ids(directory, name)
    return found


def body_ids(directory, name):
    try:
        with os.fdopen(open_regular(directory, name), "rb") as file:
            return evidence.identifiers(iter(lambda: file.read(PIECE) if file.tell() < LARGEST_BODY else b"", b""))
    except (NotReadable, OSError):
        return set()


def write(path, text):
    """To stdout, or to `path` as a whole or not at all."""
    try:
        if path == "-":
            stdout.put(1, text)
            return 0
        temporary = "%s.new-%s" % (path, os.urandom(4).hex())
        try:
            with open(temporary, "xb") as file:
                file.write(text)
            os.replace(temporary, path)
        except OSError:
            remove(temporary)
            raise
    except BrokenPipeError:
        return 0
    except (OSError, ValueError) as error:
        cli.say("%s: cannot be written (%s)" % (path, getattr(error, "strerror", None) or error))
        return cli.NO_DIRECTORY
    return 0

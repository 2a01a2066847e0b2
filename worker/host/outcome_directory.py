"""Reading an outcome directory on the host.  Nothing in it is trusted: it came out of a sandbox.

Only regular files are opened, symlinks are never followed, documents have a
size limit, and what does not hold is a sentence in `NotReadable` (exit 66) or in
the list of faults that `faults` returns.
"""
from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat

from worker.seal import seal
from worker.session import RESULT

LARGEST_DOCUMENT = 256 << 20
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
OUTCOME_FIELDS = ("status", "kind", "fault", "message")
DISPOSITION_FIELDS = ("action", "reason", "verify_allowed")


class NotReadable(Exception):
    """There is no outcome here that can be read; the sentence says why."""


def open_regular(directory, name):
    """A descriptor of regular file `name` (relative, no `..`) below `directory`.  Raises NotReadable."""
    parts = name.split("/")
    if name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise NotReadable("%s: is no name inside the directory" % name)
    place = os.path.join(directory, *parts[:-1])
    try:
        if len(parts) > 1 and os.path.realpath(place) != os.path.join(os.path.realpath(directory), *parts[:-1]):
            raise NotReadable("%s: is reached through a symlink" % name)
        fd = os.open(os.path.join(place, parts[-1]), READ)
    except (OSError, ValueError) as error:
        raise NotReadable("%s: %s" % (name, getattr(error, "strerror", None) or error)) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotReadable("%s: is no regular file" % name)
    return fd


def read_document(directory, name, largest=LARGEST_DOCUMENT):
    """The JSON object in file `name` of at most `largest` bytes.  Raises NotReadable."""
    with os.fdopen(open_regular(directory, name), "rb") as file:
        text = file.read(largest + 1) if os.fstat(file.fileno()).st_size <= largest else None
    if text is None or len(text) > largest:
        raise NotReadable("%s: is larger than %d bytes" % (name, largest))
    try:
        document = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise NotReadable("%s: is not JSON (%s)" % (name, str(error)[:100])) from None
    if not isinstance(document, dict):
        raise NotReadable("%s: is no object" % name)
    return document


def read_result(directory, largest=LARGEST_DOCUMENT):
    """The result document with outcome and disposition in their shape.  Raises NotReadable."""
    result = read_document(directory, RESULT, largest)
    for field, names in (("outcome", OUTCOME_FIELDS), ("disposition", DISPOSITION_FIELDS), ("files", ())):
        part = result.get(field)
        if not isinstance(part, dict) or any(name not in part for name in names):
            raise NotReadable("%s: has no usable %s" % (RESULT, field))
    return result


def digest(directory, name):
    size, sha256 = 0, hashlib.sha256()
    with os.fdopen(open_regular(directory, name), "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            size += len(chunk)
            sha256.update(chunk)
    return {"size": size, "sha256": sha256.hexdigest()}


def faults(directory, result, nonce = None,
           manifest = None, seal_key = None):
    """What does not hold, one sentence each; an empty list means that the outcome is what the worker wrote.

    nonce: the host's name of the run.  manifest: {file: SHA-256} as the run printed it on its own
    stdout, which an agent cannot reach.  seal_key: the key given to the run.
    """
    found = []
    if nonce is not None and result.get("nonce") != nonce:
        found.append("nonce: this outcome belongs to another run")
    if seal_key is not None and not hmac.compare_digest(str(result.get("seal")), seal(result, seal_key)):
        found.append("seal: does not match the result")
    listed = dict(result["files"])
    found += ["%s: was announced by the run but is not in the result" % name
              for name in manifest or () if name not in listed and name != RESULT]
    for name in sorted(listed) + ([RESULT] if manifest else []):
        found += _file_fault(directory, name, listed.get(name), (manifest or {}).get(name))
    return found


def _file_fault(directory, name, listed, announced):
    try:
        found = digest(directory, name)
    except NotReadable as error:
        return [str(error)]
    if listed is not None and listed != found:
        return ["%s: is not as the result lists it" % name]
    if announced is not None and announced != found["sha256"]:
        return ["%s: is not as the run announced it" % name]
    return []

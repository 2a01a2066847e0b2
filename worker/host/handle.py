"""What the host keeps about one run, in OUT/.sandboxctl/: enough to find it again, to end it and to know its outcome.

    run.json   how to get there (via, dir, python), the nonce, how far it is
    seal.key   the key that the outcome is sealed with; 0600, and only ever sent on the run's stdin
    run.out    what the run printed on its own stdout, where it was attached to its end

Nothing from a sandbox is ever written there: `unpack` creates no name with a dot in front.
"""
from __future__ import annotations

import json
import os

from worker.bare_outcome import documents
from worker.complaints import sentence
from worker.contract import INPUT, BadInput, parse, read_file, violation
from worker.documents import strict_json
from worker.host.arguments import Misuse
from worker.host.outcome_directory import NotReadable, read_document
from worker.session import RESULT

FOLDER, RECORD, SEAL, PRINTED, NEW = ".sandboxctl", "run.json", "seal.key", "run.out", ".new"
BLANK = {"via": None, "dir": None, "own": False, "python": None, "text": False, "nonce": None, "invocation_id": None,
         "launched_at": None, "stopped": False, "finished": False, "limit": None, "attempt": [1, None]}
TEXT, NUMBER = (str, type(None)), (int, float, type(None))
KINDS = {"via": TEXT, "dir": TEXT, "python": TEXT, "nonce": TEXT, "invocation_id": TEXT, "launched_at": NUMBER, "limit": NUMBER,
         "attempt": (list,)}
LARGEST_RECORD = 1 << 20
MARGIN = 120.0  # s over what the input document allows, before the host believes that a run hangs


class NotFresh(Exception):
    """The directory for the outcome has something in it already, or cannot be written: exit code 73."""


class Handle:
    """One run as the host knows it. `given`: the options of this command, which go before what is on disk."""

    def __init__(self, given):
        self.given, self.out, self.quiet, self.fresh = given, given.get("--out"), False, False
        self.placing = None  # what a directory inside is to be called, once this command has asked for it
        self.known = dict(BLANK)
        if self.begun and self.out:
            self.known.update(remembered(self.path()))
        for option in ("via", "dir", "python"):
            if given.get("--" + option) is not None:
                self.known[option] = given["--" + option]
        self.known["text"] = self.known["text"] or "--text" in given
        if self.known["via"] is None:
            unknown = "no run is remembered in %s; " % self.out if self.out else ""
            raise Misuse(unknown + "--via is required (the command that runs a command inside; '' for none)")

    @property
    def begun(self):
        return not self.out or os.path.exists(self.path(RECORD))

    def __getitem__(self, name):
        return self.known[name]

    def path(self, *names):
        return os.path.join(self.out, FOLDER, *names)

    def update(self, **fields):
        self.known.update(fields)
        if self.out:
            write(self.path(RECORD), strict_json(self.known) + b"\n")

    def begin(self):
        """A new run. Raises NotFresh where OUT has anything in it: another run's outcome must not be taken for this one's."""
        try:
            os.makedirs(self.out, 0o700, exist_ok=True)
            if os.listdir(self.out):
                raise NotFresh("%s: is not empty; give --out a new directory" % self.out)
            os.mkdir(self.path(), 0o700)
            self.fresh = True
            self.update()
        except OSError as error:
            self.forget()
            raise NotFresh("%s: %s" % (self.out, error.strerror)) from None

    def name(self, document):
        """Names for a run whose document has none, a key for its seal, and its end in time."""
        asked = document.get("directory")
        if asked and self.given.get("--dir") not in (None, asked):
            raise Misuse("--dir is not the `directory` of the input document; give one of them")
        if any("\ud800" <= c <= "\udfff" for c in self["dir"] or ""):
            raise Misuse("--dir is no UTF-8, so no input document can name it")
        if self.out:
            write(self.path(SEAL), (document.get("seal_key") or os.urandom(32).hex()).encode())
        self.update(
            dir=self["dir"] or asked, nonce=document.get("nonce") or os.urandom(16).hex(),
            invocation_id=document.get("invocation_id") or "run-" + os.urandom(8).hex(),
            limit=document.get("timeout", 1800) + document.get("grace", 10) + 2 * document.get("cleanup_timeout", 10) + MARGIN,
            attempt=[document.get("run_attempt", 1), document.get("run_max_attempts")])

    def forget(self):
        """Nothing was started: a corrected run may use the same directory. One that an earlier command began stays."""
        if not self.fresh:
            return
        for name in (RECORD, SEAL, PRINTED):
            for path in (self.path(name), self.path(name) + NEW):
                if os.path.lexists(path):
                    os.unlink(path)
        try:
            os.rmdir(self.path())
            os.rmdir(self.out)
        except OSError:
            pass

    def seal_key(self):
        if not self.out or not os.path.exists(self.path(SEAL)):
            return None
        with open(self.path(SEAL), "rb") as file:
            return file.read()

    def printed(self, lines):
        write(self.path(PRINTED), b"".join(line + b"\n" for line in lines))

    def conclude(self, facts, confirmed):
        """The host's own receipt and result, where the sandbox gave none that can be believed; returns the result."""
        if not self.out:
            return None
        identity = {name: self[name] or "" for name in ("nonce", "invocation_id")}
        found = documents(facts, confirmed, identity, tuple(self["attempt"]))
        if os.path.lexists(os.path.join(self.out, RESULT)):
            os.replace(os.path.join(self.out, RESULT), os.path.join(self.out, RESULT + ".unverified"))
        for name, text in found.items():
            write(os.path.join(self.out, name), text)
        return json.loads(found[RESULT])


def remembered(folder):
    """What an earlier command wrote about the run. Raises NotReadable, also for what is not in its shape."""
    found = read_document(folder, RECORD, LARGEST_RECORD)
    for name, kinds in KINDS.items():
        value = found.get(name, BLANK[name])
        if not isinstance(value, kinds) or (name == "attempt" and len(value) != 2):
            raise NotReadable("%s: %s is not in its shape" % (os.path.join(folder, RECORD), name))
    return found


def write(path, data):
    """In one step, 0600, never through a link."""
    partial = path + NEW
    if os.path.lexists(partial):
        os.unlink(partial)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
    os.replace(partial, path)


def read_input(path):
    """The input document; what the worker would refuse without looking at the sandbox is refused here. Raises BadInput."""
    document = parse(read_file(path, "the input document"))
    broken = violation(INPUT, document)
    if broken:
        raise BadInput(sentence(*broken))
    return document


def job_line(handle, document, key_file, watch):
    """The document as the run reads it, one line on its stdin: names, seal and key never touch the sandbox's disk."""
    document = dict(document, directory=handle["dir"], nonce=handle["nonce"], invocation_id=handle["invocation_id"])
    if handle.seal_key():
        document["seal_key"] = handle.seal_key().decode("utf-8", "replace")
    if watch:
        document["watch_stdin"] = True
    if key_file:
        model = document.get("model")
        if not model:
            raise BadInput("model: is required where --key is given")
        model = {name: value for name, value in model.items() if name not in ("api_key_file", "api_key_env", "keep_key_file")}
        key = read_file(key_file, "--key").decode("utf-8", "replace").strip()
        if not key:
            raise BadInput("--key: %s is empty" % key_file)
        document["model"] = dict(model, api_key=key)
    return json.dumps(document).encode() + b"\n"

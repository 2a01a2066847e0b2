"""Running the built bundle as a host does, and reading what it left: `done = run(bundle, tmp_path, command=[...])`."""
from __future__ import annotations

import json
import os
import subprocess
import sys

from worker import contract, schemas

HANG = 120.0  # seconds: a guard against a hang, never a measure


class Done:
    """One ended run: exit code, the JSON lines of stdout, and the documents of the session directory."""

    def __init__(self, directory, code, stdout, stderr):
        self.directory, self.code, self.stderr = str(directory), code, stderr.decode("utf-8", "replace")
        self.lines = [json.loads(line) for line in stdout.decode().splitlines()]
        self.result, self.receipt = self.document("result.json"), self.document("cleanup.json")
        self.outcome = (self.result or {}).get("outcome") or {}
        self.action = ((self.result or {}).get("disposition") or {}).get("action")

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def read(self, *names):
        with open(self.path(*names), "rb") as file:
            return file.read()

    def document(self, name):
        """The JSON document, or None where there is none (or something else has its name)."""
        try:
            return strict(self.read(name))
        except (OSError, ValueError):
            return None

    def jsonl(self, name):
        return [strict(line) for line in self.read(name).split(b"\n")[:-1]] if os.path.exists(self.path(name)) else []

    @property
    def attempts(self):
        """In their order; a line may be written after that of a later one."""
        return sorted(self.jsonl("model_attempts.jsonl"), key=lambda record: record["seq"])

    @property
    def events(self):
        return [event for _, event in self.jsonl("events.jsonl")]

    @property
    def observations(self):
        return self.document("observations.json")

    def records(self, kind):
        return [record for record in self.observations["records"] if record["kind"] == kind]

    def gaps(self):
        return {gap["code"]: gap for gap in self.observations["gaps"]}

    def warnings(self):
        return [warning["code"] for warning in self.result["warnings"]]

    def everything(self):
        """{relative name: bytes} of every file below the directory but the agent's own state."""
        found = {}
        for folder, directories, names in os.walk(self.directory):
            directories[:] = [name for name in directories if name != "state"]
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(path, "rb") as file:
                        found[os.path.relpath(path, self.directory)] = file.read()
        return found


def strict(text):
    """JSON as the strictest reader takes it: UTF-8, no NaN, no lone surrogate."""
    def refuse(word):
        raise AssertionError("not strict JSON: " + word)

    value = json.loads(text.decode("utf-8"), parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def start(bundle, tmp_path, python=sys.executable, environ=None, wrapper=(), stdin=None, **document):
    """The process of a run, and its session directory. document: fields of the input document."""
    directory = tmp_path / "run"
    directory.mkdir(exist_ok=True)
    (directory / "input.json").write_text(json.dumps(dict({"timeout": 60}, **document)))
    process = subprocess.Popen(
        [*wrapper, python, "-I", "-S", str(bundle), "run", str(directory / "input.json")],
        stdin=stdin if stdin is not None else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=None if environ is None else dict(os.environ, **environ))
    return process, directory


def run(bundle, tmp_path, **options):
    """A whole run; its documents have been held against their schemas."""
    process, directory = start(bundle, tmp_path, **options)
    return finish(process, directory)


def finish(process, directory, hang=None):
    """hang: seconds, a guard like HANG for runs that may take longer."""
    try:
        stdout, stderr = process.communicate(timeout=hang or HANG)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    done = Done(directory, process.returncode, stdout, stderr)
    check(done)
    return done


def check(done):
    """Every document fits its schema, and everything that is listed is there."""
    for name in ("launch", "cleanup", "result", "observations"):
        document = done.document(name + ".json")
        if document is not None:
            fits(schemas.SCHEMAS[name], document, name)
    for record in done.attempts:
        fits(schemas.ATTEMPT, record, "attempt")
    for record in (done.observations or {}).get("records", ()):
        fits(schemas.RECORDS[record["kind"]], record, record["kind"])
    for name in (done.result or {}).get("files", ()):
        assert os.path.isfile(done.path(name)), name


def fits(schema, value, name):
    lacking = schemas.missing(schema, value)
    assert lacking is None, "%s lacks %s" % (name, lacking)
    broken = contract.violation(schema, value, name)
    assert broken is None, "%s: %s" % (name, broken)


def command(args, input=None, python=sys.executable, bundle=None):
    """Another command of the bundle: (exit code, stdout, stderr)."""
    done = subprocess.run([python, "-I", "-S", str(bundle), *map(str, args)], input=input, capture_output=True, timeout=HANG)
    return done.returncode, done.stdout.decode(), done.stderr.decode()

"""Runs of real agent CLIs on the built bundle against a scripted endpoint: `Cli("qwen").play(bundle, tmp_path / "play", plan)`.

A Cli writes plans in its own dialect and tools: `says`, `shell`, `final`, `error` (tests/conformance/scenarios.py). Whatever is played,
this is held against every run: each request that the endpoint saw has its attempt record and no other; the key stands in no file;
nothing below HOME was changed.
"""
from __future__ import annotations

import hashlib
import os
import select
import subprocess

from tests import runs
from tests.conformance.harnesses import TABLE
from tests.conformance.runner import PATH, merged
from tests.conformance.scenarios import Script
from tests.conftest import lacking
from tests.endpoint import Endpoint

KEY = "sk-real-runs-0123456789abcdefghijklmnop"
REFUSING = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")      # nobody listens there


class Cli(Script):
    def __init__(self, name, version=None):
        super().__init__(TABLE[name])
        self.name, self.version = name, version or TABLE[name].versions[-1]

    def __str__(self):
        return "%s-%s" % (self.name, self.version)

    def places(self):
        """Entries of PATH; where the CLI cannot be had, the test is skipped, in CI it fails."""
        try:
            return self.harness.places(self.version)
        except (OSError, subprocess.SubprocessError) as error:
            lacking("%s could not be installed: %s" % (self, error))

    def start(self, bundle, folder, plan, place=None, uid=0, shared=None, files=(), **document):
        """A Run in the new directory `folder`. place: a tests/lonely.py; uid: the user of the whole run; shared: the directory where
        `home` and `work` are (folder); files: {path: text} in the working directory; document: merged over the input document."""
        return Run(self, bundle, folder, plan, place, uid, shared or folder, dict(files), document)

    def play(self, bundle, folder, plan, during=None, **more):
        """A whole run -> (runs.Done, the endpoint's requests). during(run): called when it has been started."""
        run = self.start(bundle, folder, plan, **more)
        if during:
            during(run)
        done = run.end()
        return done, run.seen


class Run:
    """`work`, `home`: its directories; `process`, `endpoint`; when it has ended, `seen`: the endpoint's requests."""

    def __init__(self, cli, bundle, folder, plan, place, uid, shared, files, document):
        self.work, self.home, self.key = shared / "work", shared / "home", folder / "key"
        for path in (folder, folder / "run", self.work, self.home):
            path.mkdir(exist_ok=True)
            path.chmod(0o777 if path in (self.work, self.home) else 0o755)
        for name, text in files.items():
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            (self.work / name).write_text(text)
        self.key.write_text(KEY)
        for path in (folder, folder / "run", self.key):
            os.chown(str(path), uid, uid)
        self.before = listing(self.home)
        self.endpoint = Endpoint(plan, unix=str(folder / "endpoint") if place else None).start()
        model = {"socket": str(folder / "endpoint"), "api": cli.harness.api}
        if place:
            os.chmod(str(folder / "endpoint"), 0o777)
        else:
            model = cli.harness.document(self.endpoint.url)["model"]
        asked = {"harness": cli.name, "cwd": str(self.work), "prompt": "Do the task.", "timeout": 300, "linger": cli.harness.linger,
                 "env": dict({} if place else REFUSING, PATH=":".join([*cli.places(), PATH]), HOME=str(self.home)),
                 "retry": {"base": 0.05, "cap": 0.1, "max_attempts": 3},
                 "model": dict(model, name="mock-model", api_key_file=str(self.key))}
        self.process, self.directory = runs.start(bundle, folder, wrapper=place.wrapper(uid) if place else (),
                                                  environ={"PATH": PATH}, **merged(asked, document))

    def end(self):
        try:
            done = runs.finish(self.process, self.directory, 400)
        finally:
            self.endpoint.stop()
        self.seen = self.endpoint.requests()
        asked = [record for record in done.attempts if record["decision"] not in ("latched", "refused")]
        assert sorted(one["request_sha256"] for one in asked) == sorted(one.get("body_sha256") for one in self.seen), "requests"
        now = listing(self.home)
        assert now == self.before, "changed in HOME: %s" % sorted(set(now.items()) ^ set(self.before.items()))
        assert not self.key.exists()
        for where, content in done.everything().items():
            assert KEY.encode() not in content, "the key stands in " + where
        return done


def listing(folder):
    """{relative path: digest} of every file below it."""
    found = {}
    for where, _, names in os.walk(str(folder)):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, str(folder))] = hashlib.sha256(file.read()).hexdigest()
    return found


def tools(done):
    return [(one["tool_call_id"], one["status"], one["error_type"]) for one in done.records("tool_call")]


def wait_for(path):
    """Until a tool has made the file `path`; there is nothing to be told by."""
    while not os.path.exists(str(path)):
        select.select([], [], [], 0.05)

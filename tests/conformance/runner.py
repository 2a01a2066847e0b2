"""One scenario, for real: the built bundle, the real CLI, the scripted endpoint; -> Played, which checks.py looks at.

`play(scenario, version, places, bundle, folder)` runs on this machine; `folder` is new and belongs to the run. The key stands in a
file that the worker removes. Nothing is masked: what the run left is read with tests/runs.py, which also holds every
document against its schema.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys

from tests import runs
from tests.conformance.witness import Witness
from tests.endpoint import Endpoint

KEY = "sk-conformance-0123456789abcdefghijklmnop"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Played:
    """A scenario that was played: `done` (tests/runs.py), `witness`, and what the host's commands said about it."""

    def __init__(self, scenario, version, done, witness, commands, key=KEY):
        self.scenario, self.version, self.done, self.witness, self.commands = scenario, version, done, witness, commands
        self.key, self.harness = key, scenario["harness"]

    def exchanges(self):
        """[(exchange of the witness, attempt record)]: the same bytes asked for, in order; AssertionError where one lacks."""
        left = [one for one in self.done.attempts if one["decision"] not in ("latched", "refused")]
        pairs = [(exchange, take(left, exchange)) for exchange in self.witness.model]
        for exchange in self.witness.side:
            assert take(left, exchange)["main"] is False, "request %d came from a tool, yet it counts as main" % exchange.number
        assert not left, "attempts that the endpoint never saw: %s" % left
        return pairs


def take(records, exchange):
    """The first attempt record of these with the exchange's bytes, removed from the list."""
    record = next((one for one in records if one["request_sha256"] == exchange.sha256), None)
    assert record, "the endpoint got request %d, no attempt record tells of it" % exchange.number
    records.remove(record)
    return record


def merged(left, right):
    """`right` over `left`; dicts in both are merged, None takes a field away."""
    both = dict(left)
    for name, value in right.items():
        both[name] = merged(both[name], value) if isinstance(value, dict) and isinstance(both.get(name), dict) else value
    return {name: value for name, value in both.items() if value is not None}


def document(scenario, places, url, cwd, key_file, home, path=PATH):
    """The input document of a scenario; all paths as the sandbox has them. places: entries of PATH where the CLI is."""
    harness = scenario["harness"]
    base = {"cwd": cwd, "prompt": "Do the task.", "env": {"PATH": ":".join(list(places) + [path]), "HOME": home},
            "retry": {"base": 0.05, "cap": 0.1, "max_attempts": 3},
            "model": {"name": "mock-model", "api_key_file": key_file}}
    for more in (harness.document(url), harness.settings(scenario["settings"]), scenario["document"]):
        base = merged(base, more)
    return base


def play(scenario, version, places, bundle, folder, python=sys.executable, wrapper=(), key=KEY, log=True):
    """Run it here; folder: a path object that does not exist yet; wrapper: words before the worker's command; log: the
    endpoint's witness, which has the key, is written to the folder, too."""
    work, home, key_file = folder / "work", folder / "home", folder / "model.key"
    for path in (folder, work, home):
        path.mkdir()
    key_file.write_text(key + "\n")
    for name, text in scenario["files"].items():
        (work / name).write_text(text)
    with Endpoint(scenario["plan"], str(folder / "witness.jsonl") if log else None) as endpoint:
        asked = document(scenario, places, endpoint.url, str(work), str(key_file), str(home),
                         os.path.dirname(python) + ":" + PATH)
        done = start(bundle, folder / "run", asked, python, wrapper)
    done.key_removed = not key_file.exists()
    done.work = str(work)
    return Played(scenario, version, done, Witness(endpoint.requests(), scenario), host(bundle, done.directory),
                  key)


def start(bundle, directory, asked, python=sys.executable, wrapper=(), command="run"):
    """Run the bundle on this document to its end; the environment is as bare as that of a container."""
    directory.mkdir()
    (directory / "input.json").write_text(json.dumps(asked))
    process = subprocess.Popen([*wrapper, python, "-I", "-S", str(bundle), command, str(directory / "input.json")],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={"PATH": PATH, "LC_ALL": "C.UTF-8"})
    return runs.finish(process, directory, asked.get("timeout", 60) + runs.HANG)


def host(bundle, directory, python=sys.executable):
    """Exit codes and words of what a host runs on an outcome."""
    return {name: runs.command([name, directory], bundle=bundle, python=python) for name in ("verify", "verdict", "show")}


def verifier(work):
    """A task's verifier: the reward of what the agent left."""
    done = subprocess.run(["cat", os.path.join(work, "answer.txt")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return 1.0 if done.stdout.strip() == b"42" else 0.0

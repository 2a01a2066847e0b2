"""Promise: the lines for sandboxctl in README.md work as they are printed there.

They are read from the README and run one by one in a copy of the tree, after the substitutions of SUBSTITUTES and no others:
names of containers, hosts and directories, and the input document. That is the README's own with the address of the scripted
endpoint, where the real Codex runs; elsewhere an agent of one line, which asks no model (policy: that counts).
"""
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import ctl, real_cli
from tests.conftest import ROOT, lacking
from tests.endpoint import message
from tests.sandboxes import bwrap, docker, roots, vias
from worker import contract

FIRST, ENGINES = "## Your first real run", "## Engines"
AGENT = {"command": ctl.SUCCESS, "cwd": "/", "timeout": 300, "policy": {"no_model_call": "grade"},
         "model": {"base_url": "http://127.0.0.1:9/v1", "api": "responses"}}


def section(title):
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        return file.read().partition(title)[2].partition("\n## ")[0]


def blocks(title, language):
    return re.findall(r"^```%s\n(.*?)^```" % language, section(title), re.M | re.S)


def lines(text):
    """Commands of a block: continued lines joined, comments left out."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


def blocks_of(title, word):
    """The blocks of a section that have `word` in them."""
    return [lines(block) for block in blocks(title, "sh") if word in block]


NEWCOMER, STEPS = blocks_of(FIRST, "sandboxctl run")[0], blocks_of(ENGINES, "sandboxctl stage")[0]
BY_HAND = blocks_of(FIRST, "docker cp")[0]
THROUGH = blocks_of(ENGINES, "sandboxctl run")[0]
# the word of --via in the README -> (the place that is tested, what is written in its stead)
SUBSTITUTES = {
    "docker exec -i my-task": ("docker", lambda place: place.via), "podman exec -i my-task": ("podman", lambda place: place.via),
    "kubectl exec -i my-pod --": ("kubectl", lambda place: place.via), "ssh my-host": ("ssh", lambda place: place.via),
    "chroot /srv/root": ("root", lambda place: "chroot " + place.root), "": ("local", lambda place: place.via),
    "/srv/job": ("bubblewrap", lambda place: place.folder),
}


class Root(vias.Place):
    """A root file system to write to, with the one device that every shell needs."""

    def __enter__(self):
        self.root = os.path.join(self.folder, "root")
        shutil.copytree(roots.make(sys.executable), self.root, symlinks=True)
        null = os.path.join(self.root, "dev", "null")
        if not os.path.exists(null):
            subprocess.run(["mknod", "-m", "666", null, "c", "1", "3"], check=True)
        return self

    @staticmethod
    def why_not():
        return roots.why_not()


class Bubblewrap(vias.Place):
    @staticmethod
    def why_not():
        return bwrap.cannot_start()


PLACES = dict(vias.VIAS, root=Root, bubblewrap=Bubblewrap)


def play(commands, folder, replace=()):
    """Run each line in a shell, in `folder`; the substitutions are (old, new) pairs."""
    for line in commands:
        for old, new in replace:
            line = line.replace(old, new)
        done = subprocess.run(["sh", "-c", line], cwd=str(folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=ctl.HANG)
        assert done.returncode == 0, "%s\n%s" % (line, done.stderr.decode(errors="replace"))
    return done.stdout.decode()


@pytest.fixture
def folder(tree, dist, tmp_path):
    """A copy of the tree with a built bundle, an input document and a key."""
    shutil.copytree(tree, str(tmp_path / "tree"), ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(dist, str(tmp_path / "tree" / "dist"), dirs_exist_ok=True)
    (tmp_path / "tree" / "openai.key").write_text("sk-0123456789-of-the-host\n")
    ctl.document(tmp_path / "tree", **AGENT)
    return tmp_path / "tree"


def test_every_line_with_sandboxctl_is_run_here():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        printed = [line for block in re.findall(r"^```sh\n(.*?)^```", file.read(), re.M | re.S) for line in lines(block) if "dist/sandboxctl" in line]
    ours = NEWCOMER + STEPS + THROUGH
    assert [line for line in printed if line not in ours and "summarize" not in line and "install" not in line] == []
    assert all(any(word and word in line or "--via ''" in line for word in SUBSTITUTES) for line in THROUGH)


def test_the_input_document_is_one():
    document = json.loads(blocks(FIRST, "json")[0])
    assert contract.violation(contract.INPUT, document) is None and document["harness"] == "codex"


@pytest.mark.parametrize("line", [line for line in THROUGH if "--via ''" in line])
def test_on_this_machine(folder, line):
    play([line], folder)
    assert ctl.outcome(folder / "out-local").action == "grade"


@pytest.mark.engine
@pytest.mark.parametrize("line", [line for line in THROUGH if "--via ''" not in line], ids=lambda line: line.split("out-")[-1].strip())
def test_through_each_engine(folder, line):
    word = next(word for word in SUBSTITUTES if word and word in line)
    name, substitute = SUBSTITUTES[word]
    if PLACES[name].why_not():
        lacking(PLACES[name].why_not())
    with PLACES[name]() as place:
        play([line], folder, [(word, substitute(place))])
    out = re.search(r"--out (\S+)", line).group(1)
    assert ctl.outcome(folder / out).action == "grade"


@pytest.mark.engine
def test_step_by_step_and_by_hand(folder):
    if docker.why_not():
        lacking(docker.why_not())
    with docker.Container(docker.image(sys.executable)) as box:
        play(STEPS, folder, [("my-task", box.name)])
        document = json.loads((folder / "input.json").read_text())
        document["model"]["api_key_file"] = "/run/agent/openai.key"  # as the README says there
        (folder / "input.json").write_text(json.dumps(document))
        assert "GRADE" in play(BY_HAND, folder, [("my-task", box.name)])


@pytest.mark.engine
@pytest.mark.real_cli
def test_the_three_lines_of_a_newcomer_with_the_real_codex(folder):
    document = json.loads(blocks(FIRST, "json")[0])
    document["model"]["base_url"] = "http://127.0.0.1:20000/v1"
    document["cwd"] = "/tmp"
    (folder / "input.json").write_text(json.dumps(document))
    plan = {"answers": [{"responses": {"items": [message("Fixed.")], "usage": [10, 0, 3, 0]}}], "repeat": "last"}
    with docker.Container(docker.image(sys.executable)) as box, docker.Container(docker.image(sys.executable), network="container:" + box.name) as beside:
        box.put(real_cli.path(), "/usr/local/bin/codex")
        beside.put(os.path.join(ROOT, "tests", "endpoint.py"), "/tmp/endpoint.py")
        start = "cd /tmp; cat >plan; mkfifo pipe; (python3 endpoint.py --port 20000 --plan plan --witness w >pipe 2>&1 &); head -n 1 pipe"
        assert b"20000" in beside.exec(["sh", "-c", start], input=json.dumps(plan).encode()).stdout
        shown = play(NEWCOMER, folder, [("my-task", box.name)])
        assert b"sk-0123456789-of-the-host" in beside.exec(["cat", "/tmp/w"]).stdout
    found = ctl.outcome(folder / "outcome")
    assert "GRADE" in shown and found.outcome["kind"] == "completed" and found.result["final_message"] == "Fixed."

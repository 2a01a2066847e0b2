"""`make demo` works wherever it can run, and says so when its evidence and the endpoint's witness disagree."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT, lacking
from tests.demo.run_demo import KEY, compare
from tests.sandboxes import bwrap


def demo(tmp_path, *arguments):
    out = str(tmp_path / "out")
    done = subprocess.run([sys.executable, "-m", "tests.demo.run_demo", "--out", out] + list(arguments), cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    text = done.stdout.decode(errors="replace")
    assert done.returncode == 0, text
    for part in ("running in ", "GRADE", "1 retries", "checked ", "evidence  " + os.path.join(out, "outcome")):
        assert part in text, text
    return os.path.join(out, "outcome")


def test_as_a_plain_process(tmp_path):
    outcome = demo(tmp_path, "--sandbox", "process")
    with open(os.path.join(outcome, "model_attempts.jsonl")) as file:
        assert [json.loads(line)["status"] for line in file] == [429, 200, 200]


@pytest.mark.engine
@pytest.mark.parametrize("sandbox", ["docker", "bwrap"])
def test_in_a_sandbox(sandbox, tmp_path):
    if sandbox == "bwrap" and bwrap.cannot_start():
        lacking(bwrap.cannot_start())
    demo(tmp_path, "--sandbox", sandbox)


@pytest.mark.engine
@pytest.mark.real_cli
def test_with_the_real_codex(tmp_path):
    outcome = demo(tmp_path, "--agent", "codex")
    with open(os.path.join(outcome, "result.json")) as file:
        assert json.load(file)["final_message"] == "There are eight planets in planets.txt."


def test_a_difference_is_named(tmp_path):
    (tmp_path / "model_attempts.jsonl").write_text("{}\n{}\n")
    (tmp_path / "leak.log").write_text("x " + KEY)
    text = "; ".join(compare(str(tmp_path), [{"request": 1, "headers": [["Authorization", "Bearer wrong"]]}]))
    assert "saw 1 requests, the attempt log has 2" in text and "did not carry the key" in text and "leak.log" in text


def test_make_help_lists_every_target():
    if not shutil.which("make"):
        lacking("no make")
    with open(os.path.join(ROOT, "Makefile")) as file:
        targets = [line.split()[1] for line in file if line.startswith(".PHONY")]
    done = subprocess.run(["make", "help"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    assert [line.split()[0] for line in done.stdout.decode().splitlines()] == targets

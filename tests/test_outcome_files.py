"""Promise: a host can tell the outcome that the worker wrote from one that somebody changed, forged or cut."""
from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests import agents, runs


@pytest.fixture
def done(bundle, tmp_path):
    done = runs.run(bundle, tmp_path, command=agents.printing({"type": "x"}, agents.DONE), prompt="p")
    (tmp_path / "run.out").write_text("\n".join(json.dumps(line) for line in done.lines) + "\n")
    return done


def verify(bundle, done, *options):
    return runs.command(["verify", done.directory, *options], bundle=bundle)


def test_an_untouched_outcome_is_verified(bundle, done, tmp_path):
    assert verify(bundle, done, "--nonce", done.result["nonce"], "--manifest", tmp_path / "run.out")[:2] == (0, "verified\n")


FORGERIES = {
    "an event is edited": lambda d: edit(d.path("events.jsonl"), b'"x"', b'"y"'),
    "a file is cut": lambda d: os.truncate(d.path("events.jsonl"), 5),
    "a file is gone": lambda d: os.unlink(d.path("observations.json")),
    "a file is a symlink": lambda d: relink(d.path("events.jsonl")),
    "a file is a FIFO": lambda d: (os.unlink(d.path("stderr.log")), os.mkfifo(d.path("stderr.log"))),
    "the listing climbs out": lambda d: edit_result(d, lambda r: r["files"].update({"../../etc/passwd": {"size": 1, "sha256": "x"}})),
}


def edit(path, old, new):
    with open(path, "rb") as file:
        text = file.read()
    assert old in text
    with open(path, "wb") as file:
        file.write(text.replace(old, new))


def relink(path):
    os.rename(path, path + ".moved")
    os.symlink(path + ".moved", path)


def edit_result(done, change):
    result = done.document("result.json")
    change(result)
    with open(done.path("result.json"), "w") as file:
        json.dump(result, file)


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_changed_file_is_named(bundle, done, forge):
    forge(done)
    code, _, said = verify(bundle, done)
    assert code == 65 and said.count("\n") == 1, said


def test_a_consistent_forgery_does_not_pass_the_manifest_of_stdout(bundle, done, tmp_path):
    edit_result(done, lambda r: r["outcome"].update(kind="completed", message="really"))
    assert verify(bundle, done)[0] == 0  # the files alone cannot know
    code, _, said = verify(bundle, done, "--manifest", tmp_path / "run.out")
    assert code == 65 and "result.json: is not as the run announced it" in said
    (tmp_path / "run.out").write_bytes(b"")
    code, _, said = verify(bundle, done, "--manifest", tmp_path / "run.out")
    assert code == 66 and "or never began" in said and said.count("\n") == 1


def test_the_seal_shows_a_forged_result(bundle, tmp_path):
    document = {"directory": str(tmp_path / "run"), "command": ["true"], "seal_key": "key of the host", "timeout": 60}
    code, _, said = runs.command(["run", "-"], input=json.dumps(document).encode() + b"\n", bundle=bundle)
    assert code == 0, said
    (tmp_path / "key").write_text("key of the host\n")
    done = runs.Done(tmp_path / "run", code, b"", b"")
    assert verify(bundle, done, "--seal-key-file", tmp_path / "key")[0] == 0
    assert b"key of the host" not in b"".join(done.everything().values())
    edit_result(done, lambda r: r["disposition"].update(action="retry"))
    assert verify(bundle, done, "--seal-key-file", tmp_path / "key")[0] == 65


BROKEN = {"cut": lambda t: t[: len(t) // 2], "empty": lambda t: b"", "no object": lambda t: b"[]", "no outcome": lambda t: b"{}",
          "not UTF-8": lambda t: b"\xff" + t, "deep": lambda t: b"[" * 100000}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("word", ["verify", "show", "verdict"])
def test_a_result_that_cannot_be_read_is_66(bundle, done, broken, word):
    text = done.read("result.json")
    with open(done.path("result.json"), "wb") as file:
        file.write(broken(text))
    code, out, said = runs.command([word, done.directory], bundle=bundle)
    assert (code, out) == (66, "") and said.startswith("sandbox-worker: result.json") and said.count("\n") == 1


def test_show_and_verdict_say_what_a_person_asks_first(bundle, done):
    code, out, _ = runs.command(["show", done.directory], bundle=bundle)
    assert code == 0 and out.startswith("outcome   GRADE  completed: completed\n") and "cleanup   confirmed" in out
    assert "\x1b" not in out
    code, out, _ = runs.command(["verdict", done.directory], bundle=bundle)
    assert code == 0 and out.startswith("grade: completed (fault: none, verify allowed)") and out.count("\n") == 1


def test_hostile_text_reaches_no_terminal(bundle, tmp_path):
    evil = {"type": "item.completed", "item": {"type": "agent_message", "text": "\x1b[2J\x07\u202eevil\nline"}}
    done = runs.run(bundle, tmp_path, command=agents.printing(evil, agents.DONE))
    out = runs.command(["show", done.directory], bundle=bundle)[1]
    assert "evil" in out and not {"\x1b", "\x07", "\u202e"} & set(out)


def test_no_name_in_a_result_breaks_or_colours_the_lines_of_verify(bundle, done):
    odd = ["\x1b[31mred", "two\nlines", "\u202eback", "nul\0", "\ud800", "../../etc/passwd", "/etc/passwd", "x" * 100000]
    result = dict(done.result, files={name: {} for name in odd})
    with open(done.path("result.json"), "w") as file:
        json.dump(result, file)
    code, out, said = runs.command(["verify", done.directory], bundle=bundle)
    assert (code, out) == (65, "") and said.count("\n") == len(odd) and not {"\x1b", "\u202e", "\0"} & set(said)
    assert all(line.startswith("sandbox-worker: ") and len(line) < 5000 for line in said.splitlines())


def test_status_tells_a_run_that_has_ended(bundle, done):
    code, out, _ = runs.command(["status", done.directory, "--json"], bundle=bundle)
    assert code == 0 and json.loads(out)["kind"] == "completed" and json.loads(out)["events"] == 2
    assert runs.command(["status", done.directory, "--follow"], bundle=bundle)[0] == 0


def test_schemas_are_printed_and_unknown_names_are_misuse(bundle):
    for name in ("input", "launch", "attempt", "cleanup", "observations", "result"):
        code, out, _ = runs.command(["schema", name], bundle=bundle)
        assert code == 0 and json.loads(out)["type"] == "object"
    assert runs.command(["schema", "nothing"], bundle=bundle)[0] == 64


def test_explode_gives_the_files_and_they_run(bundle, tmp_path):
    code, out, _ = runs.command(["explode", tmp_path / "x"], bundle=bundle)
    assert code == 0 and (tmp_path / "x" / "worker" / "sandbox_runner.py").exists()
    ran = subprocess.run([sys.executable, "-I", "-S", str(tmp_path / "x"), "--version"], capture_output=True)
    assert ran.returncode == 0 and ran.stdout.startswith(b"sandbox-worker ")
    assert runs.command(["explode", tmp_path / "x"], bundle=bundle)[0] == 64  # not empty


@pytest.mark.parametrize("words", [[], ["nothing"], ["recover"], ["proxy", "x"], ["export", "x"], ["doctor", "x"],
                                   ["run"], ["run", "a", "b"], ["stop"], ["verify", "--nonce"], ["verdict"], ["show", "a", "b"]])
def test_misuse_is_a_sentence_and_64(bundle, words):
    code, out, said = runs.command(words, bundle=bundle)
    assert (code, out) == (64, "") and said.startswith("sandbox-worker: ") and "Traceback" not in said

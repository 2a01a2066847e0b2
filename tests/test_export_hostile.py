"""Promise: `export` takes any outcome, however damaged or hostile: refused, or a valid document that says what is missing."""
from __future__ import annotations

import importlib
import json
import os
import shutil

import pytest

from tests import export_rules, runs
from tests.test_export import FORMATS, made, outcome
from worker.host import export


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(outcome("codex-0.171.0-sub_agent"), str(tmp_path / "o"))
    return tmp_path / "o"


def test_a_tampered_outcome_is_refused_or_says_so(bundle, copied):
    with open(str(copied / "observations.json"), "a") as file:
        file.write(" ")
    asked = ["export", copied, "--format", "atif"]
    code, out, said = runs.command(asked, bundle=bundle)
    assert (code, out) == (65, "") and said == "sandbox-worker: observations.json: is not as the result lists it\n"
    code, out, said = runs.command([*asked, "--unverified"], bundle=bundle)
    assert code == 0 and "observations.json" in said
    assert json.loads(out)["extra"]["sandbox_worker"]["not_verified"] == ["observations.json: is not as the result lists it"]
    for name in FORMATS:
        assert "is not as the result lists it" in runs.command(["export", copied, "--format", name, "--unverified"], bundle=bundle)[1]
    assert runs.command(["export", copied, "--format", "bundle", "--nonce", "other"], bundle=bundle)[0] == 65


MISSING = ["observations.json", "model_attempts.jsonl", "bodies"]


@pytest.mark.parametrize("lacking_file", MISSING)
@pytest.mark.parametrize("name", FORMATS)
def test_what_is_missing_is_a_gap_and_no_failure(copied, lacking_file, name):
    os.rename(str(copied / lacking_file), str(copied / "gone"))
    document = made(name, str(copied))
    if lacking_file == "observations.json" and name != "responses":
        assert "observations.json: No such file" in json.dumps(document)


PLANTED = {"a FIFO": os.mkfifo, "a symlink": lambda path: os.symlink("/etc/passwd", path), "a directory": os.mkdir}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
@pytest.mark.parametrize("name", FORMATS)
def test_planted_files_are_not_opened(copied, plant, name):
    for file in ("observations.json", "model_attempts.jsonl", "bodies/000001.response"):
        os.unlink(str(copied / file))
        plant(str(copied / file))
    assert "root:" not in json.dumps(made(name, str(copied)))


ODD = (None, True, -7, 1.5, 1e308, 10 ** 30, "", "\ud800", [], [None], {}, {"kind": "new"})


def mutated(value):
    """The value with one part of it replaced by each odd thing in turn."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        inner = value[key]
        for odd in mutated(inner) if isinstance(inner, (dict, list)) else ():
            yield dict(value, **{key: odd}) if isinstance(value, dict) else value[:key] + [odd] + value[key + 1:]
        for odd in ODD:
            yield dict(value, **{key: odd}) if isinstance(value, dict) else value[:key] + [odd] + value[key + 1:]


@pytest.mark.parametrize("name", FORMATS)
def test_any_part_of_any_document_may_be_anything(name):
    """Odd values everywhere: strict JSON that keeps the format's rules, never an exception."""
    module = importlib.import_module(export.FORMATS[name])
    result, seen = export.read_result(outcome("codex-0.171.0-sub_agent")), 0
    observations = export.read_document(outcome("codex-0.171.0-sub_agent"), "observations.json")
    attempts = export.lines(outcome("codex-0.171.0-sub_agent"), "model_attempts.jsonl", [])
    result = {key: result[key] for key in ("invocation_id", "nonce", "started_at", "ended_at", "harness", "usage", "outcome",
                                           "disposition", "warnings", "labels", "exports", "counts")}
    ids = {1: {"call_spawn"}, 2: {"msg_0002_0"}}
    variants = [(odd, observations, attempts) for odd in mutated(result)]
    variants += [(result, odd, attempts) for odd in mutated(observations)]
    variants += [(result, observations, odd) for odd in mutated(attempts[:2])]
    for given in variants[::4]:
        document = json.loads(export.strict_json(module.export(export.evidence.Evidence(*given, identifiers=ids))))
        assert not export_rules.broken(name, document), (name, given)
        seen += 1
    assert seen > 500


def relate(document, *parents):
    """Give the invocations these parents; further ones are made."""
    (child,) = [one for one in document["records"] if one.get("parent_invocation_id")]
    made_up = [dict(child, invocation_id=name, parent_invocation_id=above) for name, above in parents]
    document["records"] = [one for one in document["records"] if one is not child] + made_up


@pytest.mark.parametrize("parents", [
    [("a", "b"), ("b", "a")], [("a", "a")], [("a", "nobody")], [("a", None), ("a", None)], [("a", "a"), ("a", "a"), ("b", "a")],
    [("a", "b"), ("b", "c"), ("c", "d"), ("d", None)]])
@pytest.mark.parametrize("name", FORMATS)
def test_parents_that_are_no_tree(copied, parents, name):
    path = str(copied / "observations.json")
    document = json.load(open(path))
    relate(document, *parents)
    with open(path, "w") as file:
        json.dump(document, file)
    text = json.dumps(made(name, str(copied)))
    assert name == "responses" or text.count("It is 42.") == (0 if name == "otel" else len(
        dict(parents) if name == "bundle" else parents))


def test_a_record_of_an_unknown_kind_is_kept_or_told(copied):
    path = str(copied / "observations.json")
    document = json.load(open(path))
    document["records"].append({"kind": "quantum_leap", "x": 1})
    document["records"][1]["conversation"].append({"type": "hologram", "data": "z"})
    with open(path, "w") as file:
        json.dump(document, file)
    ours = made("atif", str(copied))
    assert ours["extra"]["sandbox_worker"]["other_records"] == [{"kind": "quantum_leap", "x": 1}]
    assert ours["steps"][-1]["extra"]["other_items"] == [{"type": "hologram", "data": "z"}]
    assert {"code": "unknown_record_type", "invocation_id": None, "detail": "quantum_leap"} in made("bundle", str(copied))["gaps"]
    assert "hologram" not in json.dumps(made("responses", str(copied)))


def test_huge_fields_and_lone_surrogates_pass(copied):
    path = str(copied / "observations.json")
    document = json.load(open(path))
    document["records"][1]["conversation"][-1]["content"][0]["text"] = "x" * (8 << 20) + "\ud83d"
    with open(path, "w") as file:
        json.dump(document, file)
    for name in FORMATS:
        text = export.exported(name, str(copied), export.read_result(str(copied)))
        runs.strict(text)
        assert (len(text) > 8 << 20) == (name != "otel")


@pytest.mark.parametrize("words", [[], ["--format"], ["--format", "x"], ["--format", "atif", "--zip"], ["--format", "atif", "more"]])
def test_misuse_is_one_sentence(bundle, copied, words):
    code, out, said = runs.command(["export", copied, *words], bundle=bundle)
    assert (code, out) == (64, "") and said.count("\n") == 1 and "usage: sandbox-worker.pyz export" in said


def test_places_that_cannot_be_read_or_written(bundle, copied, tmp_path):
    asked = ["export", copied, "--format", "otel"]
    for target in (tmp_path / "no/such/place.json", tmp_path):
        code, out, said = runs.command([*asked, "-o", target], bundle=bundle)
        assert (code, out) == (73, "") and said.count("\n") == 1 and "cannot be written" in said
    assert sorted(os.listdir(tmp_path)) == ["o", "sandbox-worker.pyz"]
    assert runs.command(["export", tmp_path / "nothing", "--format", "otel"], bundle=bundle)[0] == 66
    (copied / "result.json").write_text("{}")
    assert runs.command(asked, bundle=bundle)[0] == 66

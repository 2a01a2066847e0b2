"""Promise: what mini-swe-agent leaves is read whole, damaged or odd: transcripts of real runs (tests/corpus/mini)."""
from __future__ import annotations

import pytest

from tests import transcript_corpus as corpus
from worker.harnesses import mini
from worker.harnesses import mini_reader as reader

CASES = corpus.cases("mini")


@pytest.mark.parametrize("case", CASES)
def test_a_real_run(case, tmp_path):
    corpus.check(reader, "mini", case, tmp_path)


def test_cut_anywhere(tmp_path):
    corpus.cut_everywhere(reader, "mini", CASES[-1], tmp_path)


@pytest.mark.parametrize("case", [CASES[-1]])
def test_any_part_of_any_record_may_be_anything(case, tmp_path):
    corpus.odd_everywhere(reader, "mini", case, tmp_path)


def job(**more):
    return dict({"command": None, "env": {"PATH": "/bin"}, "cwd": "/", "prompt": b"x", "timeout": 60, "model": {"name": "m"}}, **more)


def test_the_prompt_is_in_no_argument(tmp_path):
    made = mini.prepare(job(prompt="Tu was für \u2028 mich".encode()), "http://127.0.0.1:1/v1", "token", str(tmp_path),
                        lambda program, path, cwd: None)
    assert made["argv"] == ["mini", "-y", "--exit-immediately", "-c", "mini.yaml", "-c", str(tmp_path / "mini" / mini.CONFIG),
                            "-o", str(tmp_path / "mini" / mini.TRAJECTORY)]
    config = corpus.json.loads((tmp_path / "mini" / mini.CONFIG).read_text(encoding="ascii"))
    assert config["run"] == {"task": "Tu was für \u2028 mich"} and config["model"]["model_name"] == "openai/m"
    assert config["model"]["model_kwargs"]["max_retries"] == 0


def test_the_callers_words_stay(tmp_path):
    made = mini.prepare(job(command=["mini", "-c", "own.yaml", "-o", "t.json"], cwd=str(tmp_path)), None, None, str(tmp_path),
                        lambda program, path, cwd: None)
    assert made["argv"] == ["mini", "-c", "own.yaml", "-o", "t.json", "-y", "--exit-immediately", "-c",
                            str(tmp_path / "mini" / mini.CONFIG)]
    assert made["state"] == str(tmp_path.resolve()) and made["baseline"]["trajectory"] == "t.json"


def test_a_path_with_an_equals_sign_is_no_setting(tmp_path):
    folder = tmp_path / "a=b"
    folder.mkdir()
    made = mini.prepare(job(), None, None, str(folder), lambda program, path, cwd: None)
    assert made["argv"][6] == mini.CONFIG and made["env"]["MSWEA_CONFIG_DIR"] == str(folder / "mini")


def test_a_file_of_the_task_is_not_its_configuration(tmp_path):
    usual = tmp_path / "lib" / "python3.11" / "site-packages" / "minisweagent" / "config" / "mini.yaml"
    usual.parent.mkdir(parents=True)
    usual.write_text("")
    made = mini.prepare(job(cwd=str(tmp_path)), None, None, str(tmp_path), lambda program, path, cwd: str(tmp_path / "bin" / "mini"))
    assert made["argv"][4] == str(usual)

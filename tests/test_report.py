"""Promise: `report OUT` makes one page of any outcome: small, self-contained, with all that is known, whatever the files hold."""

from __future__ import annotations

import os
import random
import re

import pytest

from tests import agents, outcomes, runs
from tests.endpoint import Endpoint
from worker.html_page import anchor, shown, tag
from worker.report import words
from worker.report.page import page
from worker.report.reading import Run


def made(folder, documents, **more):
    return page(Run(outcomes.write(folder, documents, **more))).decode("utf-8")


def test_the_page_tells_what_decided_and_links_it_to_its_turn_and_bodies(tmp_path):
    text = made(tmp_path / "out", outcomes.documents(calls=3))
    assert "The agent finished its task." in text and "Grade it" in text and 'href="#a-4"' in text
    for target in ("a-1", "turn-1", anchor("file", "bodies/000001.response"), "call-call_1"):
        assert 'id="%s"' % target in text and 'href="#%s"' % target in text
    assert "usage_omitted" in text and "native/x.jsonl" in text and "sleep 985" in text and "recovered_errors" in text
    assert "4097 left-over processes killed" in text and "And 4096 more." in text


def test_the_page_is_one_file_with_a_strict_policy(tmp_path):
    text = made(tmp_path / "out", outcomes.documents())
    assert "default-src &#39;none&#39;" in text and "unsafe" not in text.partition("</head>")[0].partition("<style>")[0]
    assert not re.findall(r"""\s(?:src|action|style|srcset|on[a-z]+)=["']""", text.partition("<script>")[0])
    assert set(re.findall(r'href="(.)', text)) == {"#"}


def test_500_tool_calls_with_long_outputs_stay_under_3_mb(tmp_path):
    folder = outcomes.write(tmp_path / "out", outcomes.documents(calls=500, output="line of output\n" * 4000))
    made_page = page(Run(folder))
    assert len(made_page) < 3_000_000 and made_page.count(b'class="item tool"') == 500
    assert b"characters are left out" in made_page


def test_what_could_not_be_read_is_said(tmp_path):
    folder = outcomes.write(tmp_path / "out", outcomes.documents())
    os.unlink(os.path.join(folder, "cleanup.json"))
    os.unlink(os.path.join(folder, "model_attempts.jsonl"))
    with open(os.path.join(folder, "observations.json"), "w") as file:
        file.write("{")
    text = page(Run(folder)).decode()
    assert "Not read: cleanup.json" in text and "Not read: observations.json" in text and "Not read: model_attempts.jsonl" in text


ODD_VALUES = (None, True, -1, 10**400, 1e308, float("nan"), "", "x", [], {}, [[]], [None, 1, "a"], {"a": {"b": []}}, {"seq": 1})


@pytest.mark.parametrize("seed", range(40))
def test_any_value_may_have_any_type(tmp_path, seed):
    """Leaves and whole branches replaced at random; outcome, disposition and files stay objects, or it is no outcome."""
    chance = random.Random(seed)

    def change(value, depth=0):
        if depth > 1 and chance.random() < 0.15:
            return chance.choice(ODD_VALUES)
        if isinstance(value, dict):
            return {key: change(one, depth + 1) for key, one in value.items()}
        if isinstance(value, list):
            return [change(one, depth + 1) for one in value]
        return chance.choice(ODD_VALUES) if depth and chance.random() < 0.1 else value

    found = {name: value if isinstance(value, str) else change(value) for name, value in outcomes.documents(calls=8).items()}
    result, whole = found["result.json"], outcomes.documents(calls=8)["result.json"]
    for field in ("outcome", "disposition"):
        result[field] = dict(whole[field], **{name: chance.choice(ODD_VALUES) for name in chance.sample(sorted(whole[field]), 3)})
    text = made(tmp_path / "out", found)
    assert text.startswith("<!doctype html>") and text.endswith("</html>\n") and "<footer>" in text


def test_hostile_text_never_becomes_markup(tmp_path):
    text = made(tmp_path / "out", outcomes.hostile())
    assert text.count("<script>") == 1 and text.count("</script>") == 1 and text.count("<style>") == 1
    assert not re.search("<(?:img|iframe|base|link|wbr|object|embed|form)", text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]", text)
    assert "\\u202egnp.exe" in text and "\\x1b[31;1mred" in text and len(text) < 3_000_000


@pytest.mark.parametrize(
    "text, seen",
    [
        ("<&>\"'", "&lt;&amp;&gt;&quot;&#39;"),
        ("a\x00b\x1b\x7f\x9b", "a\\x00b\\x1b\\x7f\\x9b"),
        ("\u202e\u2066\u200b", "\\u202e\\u2066\\u200b"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("\r\nx\ty\r", "\nx\ty\\x0d"),
        (None, "\u2013"),
        (3, "3"),
        ("\u00e9\u4e2d\U0001f600", "\u00e9\u4e2d\U0001f600"),
    ],
)
def test_text_is_shown_as_it_is(text, seen):
    assert shown(text) == seen and tag("p", text, title=text or "") == '<p title="%s">%s</p>' % (
        seen if text is not None else "",
        seen,
    )


def test_every_kind_of_outcome_has_words():
    from worker import outcome, policy

    assert set(words.KINDS) == set(policy.TABLE) and set(words.FAULTS) == set(outcome.FAULTS.values())
    assert set(words.ACTIONS) == {"grade", "mask", "retry"}


def command(bundle, *arguments):
    return runs.command(["report", *map(str, arguments)], bundle=bundle)


def test_the_command_writes_beside_the_outcome_or_where_it_is_told(bundle, tmp_path):
    folder = outcomes.write(tmp_path / "out", outcomes.documents())
    target = os.path.join(folder, "report.html")
    os.symlink(os.path.join(folder, "result.json"), target)  # planted: not followed
    before = open(os.path.join(folder, "result.json"), "rb").read()
    code, stdout, stderr = command(bundle, folder)
    assert (code, stderr) == (0, "") and stdout.strip() == target and not os.path.islink(target)
    assert open(os.path.join(folder, "result.json"), "rb").read() == before
    assert command(bundle, folder, "-o", tmp_path / "page.html")[0] == 0
    assert (tmp_path / "page.html").read_bytes() == open(target, "rb").read() == command(bundle, folder, "-o", "-")[1].encode()


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        ([], 64, "takes 1 argument"),
        (["nowhere"], 66, "result.json"),
        (["out", "-o", "no/such/place.html"], 73, "place.html"),
        (["out", "-o"], 64, "lacks its value"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(bundle, tmp_path, monkeypatch, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    outcomes.write(tmp_path / "out", outcomes.documents())
    found, stdout, stderr = command(bundle, *arguments)
    assert (found, stdout) == (code, "") and words in stderr and stderr.count("\n") == 1


def failed_run(bundle, tmp_path):
    """A scripted agent whose provider limits the rate for ever."""
    limited = {
        "status": 429,
        "json": {"error": {"message": "Slow down.", "code": "rate_limit_exceeded"}},
        "headers": {"Retry-After": "0.1"},
    }
    with Endpoint({"default": limited}) as endpoint:
        return runs.run(
            bundle,
            tmp_path,
            command=agents.python("print(ask()[0]); sys.exit(1)"),
            retry={"max_attempts": 3},
            model={"base_url": endpoint.url + "/v1", "name": "m", "api": "responses"},
        )


def test_a_failed_run_says_whose_fault_it_was(bundle, tmp_path):
    done = failed_run(bundle, tmp_path)
    text = page(Run(done.directory)).decode()
    assert "The model provider limited the rate of requests." in text and "Run it again in a fresh sandbox" in text
    assert text.count("tried again") >= 2 and "all attempts were used up" in text and "Slow down." in text

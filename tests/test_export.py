"""Promise: `export` gives what a run left in the formats of others, valid by their rules, the same bytes every time.

tests/corpus/exports/NAME: `outcome/` as a real run left it (texts shortened, hashes made anew), and what each format makes of it
(`python3 -m tests.test_export` writes the latter anew; read the difference before you commit it).
"""
from __future__ import annotations

import importlib
import json
import os
import shutil

import pytest

from tests import agents, export_rules, harness_corpus, peer_models, real_cli, runs, transcript_corpus
from tests.conformance import runner, scenarios
from tests.conftest import lacking
from tests.endpoint import Endpoint, message, shell
from worker import usage
from worker.host import export

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "exports")
CASES = sorted(os.listdir(CORPUS))
FORMATS = sorted(export.FORMATS)


def outcome(case):
    return os.path.join(CORPUS, case, "outcome")


def made(name, directory):
    """The document of an export, held against the format's rules."""
    text = export.exported(name, directory, export.read_result(directory))
    document = runs.strict(text)
    assert not export_rules.broken(name, document)
    return document


def pretty(document):
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def attributes(span):
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def spans(document, name=""):
    return [one for one in document["resourceSpans"][0]["scopeSpans"][0]["spans"] if one["name"].startswith(name)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", FORMATS)
def test_real_outcomes_give_the_documents_of_the_corpus(case, name):
    with open(os.path.join(CORPUS, case, name + ".json"), encoding="utf-8") as file:
        assert pretty(made(name, outcome(case))) == file.read()


@pytest.mark.parametrize("name", FORMATS)
def test_the_command_gives_the_same_bytes_to_a_file_and_to_stdout(bundle, tmp_path, name):
    asked = ["export", outcome(CASES[0]), "--format", name]
    code, out, said = runs.command(asked, bundle=bundle)
    assert (code, said) == (0, "") and out == export.exported(name, outcome(CASES[0]), export.read_result(outcome(CASES[0]))).decode()
    assert runs.command([*asked, "-o", tmp_path / "x.json"], bundle=bundle) == (0, "", "")
    assert (tmp_path / "x.json").read_text() == out
    assert sorted(os.listdir(tmp_path)) == ["sandbox-worker.pyz", "x.json"]


@pytest.mark.pythons
@pytest.mark.parametrize("name", FORMATS)
def test_every_python_gives_the_same_bytes(bundle, other_python, name):
    asked = ["export", outcome("codex-0.171.0-sub_agent"), "--format", name]
    assert runs.command(asked, bundle=bundle, python=other_python) == runs.command(asked, bundle=bundle)


# -- what the documents tell --------------------------------------------------------------------------------------------------


def test_atif_metrics_stand_at_the_step_of_their_model_call():
    document = made("atif", outcome("codex-0.171.0-tool_success"))
    steps = [step for step in document["steps"] if step["source"] == "agent"]
    assert [step["metrics"]["prompt_tokens"] for step in steps] == [1000, 1100, 1200]
    assert [step["metrics"]["cached_tokens"] for step in steps] == [400, 900, 1000]
    assert [len(step.get("tool_calls", ())) for step in steps] == [1, 1, 0]
    assert steps[0]["reasoning_content"] == "Think first." and steps[0]["tool_calls"][0]["arguments"] == {"cmd": "echo one"}
    assert steps[0]["observation"]["results"][0]["content"].endswith("one\n") and steps[2]["message"] == "All done."
    assert steps[0]["tool_calls"][0]["extra"]["status"] == "completed"
    assert document["final_metrics"]["total_prompt_tokens"] == 3300


def test_atif_without_recorded_answers_guesses_no_metrics(tmp_path):
    shutil.copytree(outcome("codex-0.171.0-tool_success"), str(tmp_path / "o"))
    shutil.rmtree(str(tmp_path / "o/bodies"))
    document = made("atif", str(tmp_path / "o"))
    assert not any("metrics" in step for step in document["steps"])
    assert len(document["extra"]["sandbox_worker"]["model_calls"]) == 3


def test_retries_are_attempts_of_their_step_and_spans_of_their_call():
    ours = made("atif", outcome("codex-0.171.0-retry_429"))
    step = next(step for step in ours["steps"] if step["source"] == "agent")
    told = step["extra"]["attempts"]
    assert [one["status"] for one in told] == [429, 429, 200] and step["llm_call_count"] == 1
    assert [one["decision"] for one in told] == ["retried", "retried", "forwarded"]
    assert told[0]["wait"]["source"] == "retry-after"
    document = made("otel", outcome("codex-0.171.0-retry_429"))
    posts = [attributes(one) for one in spans(document, "POST")]
    assert [one["http.response.status_code"] for one in posts] == ["429", "429", "200", "200"]
    assert [one.get("http.request.resend_count") for one in posts] == [None, "1", "2", None]
    assert [one.get("error.type") for one in posts] == ["rate_limited", "rate_limited", None, None]
    chats = spans(document, "chat mock-model")
    assert len(chats) == 2 and all(one["status"] == {"code": 1} for one in chats)
    assert attributes(chats[0])["gen_ai.usage.input_tokens"] == "1000"


def test_a_sub_agent_is_embedded_and_below_the_call_that_spawned_it():
    document = made("atif", outcome("codex-0.171.0-sub_agent"))
    (below,) = document["subagent_trajectories"]
    step = next(step for step in document["steps"] if step.get("tool_calls"))
    assert step["observation"]["results"][0]["subagent_trajectory_ref"] == [{"trajectory_id": below["trajectory_id"]}]
    assert below["final_metrics"]["total_prompt_tokens"] == 500 and below["steps"][-1]["message"] == "It is 42."
    trace = made("otel", outcome("codex-0.171.0-sub_agent"))
    (tool,), (root, child) = spans(trace, "execute_tool"), spans(trace, "invoke_agent")
    assert child["parentSpanId"] == tool["spanId"] and tool["parentSpanId"] == root["spanId"]
    assert [one["parentSpanId"] for one in spans(trace, "chat")].count(child["spanId"]) == 1


def test_a_failure_is_told_in_every_format():
    case = outcome("codex-0.171.0-error_after_tool")
    assert made("responses", case)["error"] == {"code": "server_error", "message": "Invalid request: Bad input."}
    assert made("responses", case)["usage"]["input_tokens"] == 1000
    assert made("atif", case)["extra"]["sandbox_worker"]["outcome"]["kind"] == "invalid_request"
    root, failed = spans(made("otel", case), "invoke_agent")[0], spans(made("otel", case), "chat")[1]
    assert attributes(root)["error.type"] == attributes(failed)["error.type"] == "invalid_request"
    assert made("bundle", case)["records"][1]["error_type"] == "invalid_request"
    assert attributes(spans(made("otel", outcome("codex-0.171.0-killed_mid_tool")), "execute_tool")[0])["error.type"] == "incomplete"


def test_a_compaction_is_told():
    case = outcome("codex-0.171.0-compaction")
    (ours,) = made("atif", case)["extra"]["sandbox_worker"]["context_compactions"]
    events = [one["name"] for one in spans(made("otel", case))[0]["events"]]
    (record,) = [one for one in made("bundle", case)["records"] if one["kind"] == "context_compaction"]
    assert ours["tokens_before"] == record["tokens_before"] == 1130 and "sandbox_worker.context_compaction" in events
    assert record["model_calls"] == [{"model_call_id": "2", "response_id": "resp_0002"}]
    kinds = [step["extra"].get("request_kind") for step in made("atif", case)["steps"] if step["source"] == "agent"]
    assert kinds == ["turn", "compaction", "turn"]


# -- other runs of the built bundle -------------------------------------------------------------------------------------------


LIVE = {
    "no model": ({"command": ["true"]}, "completed"),
    "not started": ({"command": ["no-such-program-anywhere"]}, "failed"),
    "killed": ({"command": agents.shell("kill -9 $$")}, "failed"),
    "out of time": ({"command": agents.shell("sleep 600"), "timeout": 1}, "incomplete"),
}


@pytest.mark.parametrize("case", LIVE)
def test_runs_without_a_transcript_are_exported(bundle, tmp_path, case):
    done = runs.run(bundle, tmp_path, **LIVE[case][0])
    for name in FORMATS:
        code, out, said = runs.command(["export", done.directory, "--format", name], bundle=bundle)
        assert (code, said) == (0, "") and not export_rules.broken(name, json.loads(out))
        if name == "responses":
            assert json.loads(out)["status"] == LIVE[case][1] and json.loads(out)["usage"] is None


def test_a_generic_run_with_a_model_tells_of_its_calls(bundle, tmp_path):
    plan = [{"responses": {"items": [shell("ls")], "usage": [10, 0, 5, 0]}}, {"status": 500, "json": {"error": {"message": "no"}}},
            {"responses": {"items": [message("Hi.")], "usage": [20, 0, 5, 0]}}]
    with Endpoint(plan) as endpoint:
        done = runs.run(bundle, tmp_path, command=agents.python("ask(); ask()"), retry={"base": 0.01, "cap": 0.02},
                        model={"base_url": endpoint.url + "/v1", "name": "m", "api": "responses", "api_key_env": "KEY"},
                        environ={"KEY": "sk-export-0123456789"})
    documents = {name: made(name, done.directory) for name in FORMATS}
    chats = [attributes(one) for one in spans(documents["otel"], "chat")]
    assert [one["gen_ai.usage.input_tokens"] for one in chats] == ["10", "20"]
    assert [one["sandbox_worker.model_call.attempts"] for one in chats] == ["1", "2"]
    assert documents["responses"]["usage"]["total_tokens"] == 40
    assert not any("sk-export" in json.dumps(one) for one in documents.values())


@pytest.mark.real_cli
@pytest.mark.parametrize("version", real_cli.CODEX)
@pytest.mark.parametrize("name", ["tool_failure", "sub_agent", "quota"])
def test_a_run_of_the_real_codex(bundle, tmp_path, name, version):
    """Every model call of the witness is a chat span and, where it made something, a step with its own figures."""
    place = os.path.dirname(real_cli.path(version))
    played = runner.play(scenarios.BY_NAME[name], version, [place], bundle, tmp_path / "played")
    documents = {each: made(each, played.done.directory) for each in FORMATS}
    chats = [attributes(one) for one in spans(documents["otel"], "chat")]
    posts = [attributes(one)["http.response.status_code"] for one in spans(documents["otel"], "POST")]
    assert 0 < len(posts) == len(played.witness.model) and len(chats) == len({one["request"] for one in played.done.attempts})
    wanted = sorted(one["usage"]["input_tokens"] for one in played.done.attempts if one["usage"])
    root = documents["atif"]
    steps = [step for one in [root] + root.get("subagent_trajectories", []) for step in one["steps"]]
    assert sorted(step["metrics"]["prompt_tokens"] for step in steps if "metrics" in step) == wanted
    assert sorted(int(one["gen_ai.usage.input_tokens"]) for one in chats if "gen_ai.usage.input_tokens" in one) == wanted
    assert documents["responses"]["status"] == ("failed" if name == "quota" else "completed")
    assert len(documents["bundle"]["records"]) == len(played.done.observations["records"])


# -- transcripts of the other CLIs --------------------------------------------------------------------------------------------

READERS = {"claude_code": "claude_code_reader", "gemini": "gemini_reader", "qwen": "qwen_reader", "mini": "mini_reader"}
TRANSCRIPTS = [(harness, case) for harness in READERS for case in transcript_corpus.cases(harness)]
TRANSCRIPTS += [(harness, case) for harness in ("hermes", "kilocode", "opencode", "pi") for case in harness_corpus.cases(harness)]


def read_transcript(harness, case, folder):
    """(evidence, attempts) of what a real CLI left."""
    if harness in READERS:
        state, stdout, _ = transcript_corpus.load(harness, case, folder)
        reader = importlib.import_module("worker.harnesses." + READERS[harness])
        return transcript_corpus.collect(reader, state, stdout, str(folder / "session")), []
    case = harness_corpus.Case(harness, case, folder)
    return case.collect()[0], case.attempts


def document_of(harness, case, folder, name):
    found, attempts = read_transcript(harness, case, folder)
    decided = {"status": "completed", "kind": "completed", "fault": "none", "code": None, "http_status": None, "message": "x"}
    observed = json.loads(json.dumps(found["plain"]))
    result = {"invocation_id": "inv", "outcome": decided, "harness": {"name": harness, "version": found["version"]},
              "usage": usage.choose(None, found)[0], "started_at": 1796000000.5, "ended_at": 1796000100.5, "files": {}}
    known = export.evidence.Evidence(result, {"source": harness, "records": observed, "gaps": found["gaps"]}, attempts)
    return json.loads(export.strict_json(importlib.import_module(export.FORMATS[name]).export(known)))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("harness, case", TRANSCRIPTS)
def test_transcripts_of_every_cli_are_exported(tmp_path, harness, case, name):
    document = document_of(harness, case, tmp_path, name)
    assert not export_rules.broken(name, document)
    if name == "atif":
        found, _ = read_transcript(harness, case, tmp_path.parent / (tmp_path.name + "-again"))
        calls = [call["tool_call_id"] for one in [document] + document.get("subagent_trajectories", []) for step in one["steps"]
                 for call in step.get("tool_calls", ())]
        wanted = [one["tool_call_id"] for one in found["plain"] if one["kind"] == "tool_call" and "synthetic" not in one]
        shown = document["extra"]["sandbox_worker"]["tool_calls_without_item"]
        assert set(wanted) <= set(calls) | {one["tool_call_id"] for one in shown}
        assert sum(len(one["conversation"]) for one in found["plain"] if "conversation" in one) == 0 or calls or not wanted


# -- the peers ----------------------------------------------------------------------------------------------------------------


@pytest.mark.harness_cli     # as long as those: it installs what the peers publish
def test_the_peers_own_code_takes_every_document(tmp_path):
    """Harbor 0.26.0's trajectory models, OpenTelemetry's protobuf, the OpenAI SDK's response model."""
    reason = peer_models.why_not()
    if reason:
        lacking(reason)
    asked = [name for name in FORMATS if name != "bundle"]
    documents = [(name, made(name, outcome(case))) for case in CASES for name in asked]
    for place, (harness, case) in enumerate(TRANSCRIPTS):
        for name in asked:
            (tmp_path / ("%s-%d" % (name, place))).mkdir()
            documents.append((name, document_of(harness, case, tmp_path / ("%s-%d" % (name, place)), name)))
    words = peer_models.verdicts(documents)
    assert [one for one in zip(words, [name for name, _ in documents]) if one[0]] == []
    broken = made("atif", outcome(CASES[0]))
    broken["steps"][0]["step_id"] = 7
    assert "step_id" in peer_models.verdicts([("atif", broken)])[0]          # the check can fail


if __name__ == "__main__":
    for each in CASES:
        for form in FORMATS:
            with open(os.path.join(CORPUS, each, form + ".json"), "w", encoding="utf-8") as target:
                target.write(pretty(made(form, outcome(each))))

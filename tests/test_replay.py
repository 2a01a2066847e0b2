"""Promise: a recorded run answers a rerun without any endpoint, byte for byte and event for event; what does not fit is said, with
the first difference, as the host's fault and never the model's.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests import agents, outcomes, real_cli, runs
from tests.conformance import runner, scenarios
from tests.endpoint import Endpoint, message
from tests.test_proxy_command import start as start_proxy
from transport import recorded as recorded_files
from transport import replay

NOBODY = replay.Places({})
LIMITED = {
    "status": 429,
    "json": {"error": {"message": "Slow down.", "code": "rate_limit_exceeded"}},
    "headers": {"Retry-After": "0.05"},
}
TWO = """
for text in %r:
    status, body = ask({"model": "m", "input": text, "stream": True, "prompt_cache_key": os.urandom(4).hex()})
    say(status=status, body=body.decode())
sys.exit(status != 200)
"""


def body(*items, **more):
    return dict({"model": "m", "input": list(items)}, **more)


def user(text):
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def output(text):
    return {"type": "function_call_output", "call_id": "c", "output": text}


# (dialect, one body, another, how they match: exactly the same, alike, alike but for tool output, not at all)
PAIRS = [
    ("responses", body(user("x")), body(user("x"), prompt_cache_key="1", client_metadata={"a": 1}, user="u"), replay.ALIKE),
    ("responses", body(user("call 127.0.0.1:4711 now")), body(user("call 127.0.0.1:59787 now")), replay.ALIKE),
    (
        "responses",
        body(user("<cwd>/a</cwd><current_date>2026-11-30</current_date>")),
        body(user("<cwd>/a</cwd><current_date>2027-01-01</current_date>")),
        replay.ALIKE,
    ),
    (
        "responses",
        body(user("thread 01a22b59-0f06-7cb1-9301-c56c4588926c")),
        body(user("thread 01a22b59-22a0-7181-ab62-b2c922201006")),
        replay.ALIKE,
    ),
    (
        "responses",
        body(output("Chunk ID: 671018\nWall time: 0.0000 seconds\nOutput:\none\n")),
        body(output("Chunk ID: ab12cd\nWall time: 1.2500 seconds\nOutput:\none\n")),
        replay.ALIKE,
    ),
    (
        "responses",
        body(dict(user("x"), internal_chat_message_metadata_passthrough={"turn_id": "1"})),
        body(user("x")),
        replay.ALIKE,
    ),
    ("responses", body(output("pid 77")), body(output("pid 78")), replay.BLIND),
    (
        "chat",
        {"messages": [{"role": "tool", "content": "a"}]},
        {"messages": [{"role": "tool", "content": "b"}], "user": "u"},
        replay.BLIND,
    ),
    (
        "messages",
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "a"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "b"}]}], "metadata": {"user_id": "1"}},
        replay.BLIND,
    ),
    (
        "generate_content",
        {"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {"a": 1}}}]}]},
        {"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {"a": 2}}}]}]},
        replay.BLIND,
    ),
    ("responses", body(user("x")), body(user("y")), None),
    ("responses", body(user("x")), body(user("x"), temperature=1), None),
    ("responses", body(user("x")), body(user("x"), user("y")), None),
    ("chat", {"messages": []}, {"messages": [], "client_metadata": {}}, None),  # volatile in another dialect only
    ("responses", body(user(1)), body(user(True)), None),
]


def entry(number, document, dialect="responses", answers=("answer",)):
    data = json.dumps(document).encode()
    return replay.Entry(number, "POST", "/v1/x", dialect, str(number), True, "m", lambda: data, list(answers), "")


@pytest.mark.parametrize("dialect, recorded, asked, how", PAIRS)
def test_what_belongs_to_one_run_does_not_count(dialect, recorded, asked, how):
    index = replay.Index([entry(1, recorded, dialect)], {}, {})
    found, by, _ = index.find("POST", "/v1/x", dialect, "?", json.dumps(asked).encode())
    assert (found and by) == how


@pytest.mark.parametrize(
    "recorded, asked, difference",
    [
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, ("a[1].b", '"x"', '"y"')),
        ({"a": 1}, {}, ("a", "1", "(nothing)")),
        ({}, {"a": None}, ("a", "(nothing)", "null")),
        ({"a": [1]}, {"a": [1, 2]}, ("a[1]", "(nothing)", "2")),
        ({"a": 1}, {"a": True}, ("a", "1", "true")),
        ({"a": 1}, {"a": 1}, None),
    ],
)
def test_the_first_difference_has_its_path(recorded, asked, difference):
    assert replay.difference(recorded, asked) == difference


def test_of_long_texts_the_place_where_they_differ_is_shown():
    _, recorded, asked = replay.difference({"a": "x" * 5000 + "one" + "y" * 5000}, {"a": "x" * 5000 + "two" + "y" * 5000})
    assert "xxone" in recorded and "xxtwo" in asked and len(recorded) <= replay.SHORTENED


def test_the_runs_own_directories_have_names():
    index = replay.Index([entry(1, body(user("in /app and /app/x, not /apple")))], {"cwd": "/app"}, {"cwd": "/tmp/run 1"})
    assert (
        index.find(
            "POST", "/v1/x", "responses", "?", json.dumps(body(user("in /tmp/run 1 and /tmp/run 1/x, not /apple"))).encode()
        )[1]
        == replay.ALIKE
    )


def test_equal_requests_get_their_answers_in_order_and_then_again():
    index = replay.Index([entry(1, body()), entry(2, body())], {}, {})
    order = []
    for _ in range(4):
        found = index.find("POST", "/v1/x", "responses", "?", json.dumps(body()).encode())[0]
        found.used += 1
        order.append(found.number)
    assert order == [1, 2, 1, 2]


# -- runs -----------------------------------------------------------------------------------------------------------------


def said(text):
    return {"responses": {"items": [message(text)], "usage": [10, 2, 3, 1]}}


def record(bundle, folder, plan, texts=("one", "two"), **more):
    folder.mkdir()
    with Endpoint(plan) as endpoint:
        return runs.run(
            bundle,
            folder,
            command=agents.python(TWO % (list(texts),)),
            retry={"base": 0.01, "cap": 0.02, "max_attempts": 3},
            model={"base_url": endpoint.url + "/v1", "name": "m", "api": "responses"},
            **more,
        )


def rerun(bundle, folder, recorded, texts=("one", "two"), **model):
    folder.mkdir()
    return runs.run(
        bundle,
        folder,
        command=agents.python(TWO % (list(texts),)),
        retry={"base": 0.01, "cap": 0.02, "max_attempts": 3},
        model=dict({"replay": recorded.directory}, **model),
    )


@pytest.fixture(scope="module")
def recorded(dist, tmp_path_factory):
    """A run of two requests, of which the first one needed a retry."""
    return record(
        os.path.join(dist, "sandbox-worker.pyz"),
        tmp_path_factory.mktemp("recorded") / "a",
        [LIMITED, said("first"), said("second")],
    )


def test_a_rerun_gets_the_recorded_answers_byte_for_byte(bundle, tmp_path, recorded):
    done = rerun(bundle, tmp_path / "b", recorded)
    assert done.events == recorded.events and done.outcome["kind"] == "completed" and "replayed" in done.warnings()
    assert [one["response_headers"]["x-replay-match"] for one in done.attempts] == [replay.ALIKE] * 2
    assert done.read("bodies", "000001.response") == recorded.read("bodies", "000002.response")
    assert done.result["usage"]["wire"] == recorded.result["usage"]["wire"]
    again = rerun(bundle, tmp_path / "c", done)  # a replay is a recording, too
    assert again.events == recorded.events


def test_what_does_not_fit_is_the_hosts_fault_and_says_where(bundle, tmp_path, recorded):
    done = rerun(bundle, tmp_path / "b", recorded, texts=("one", "three", "three"))
    outcome = done.outcome
    assert (outcome["kind"], outcome["fault"], outcome["http_status"], done.action) == ("invalid_request", "host", 400, "mask")
    assert "request 2" in outcome["message"] and 'input: recorded "two", asked "three"' in outcome["message"]
    assert [one["decision"] for one in done.attempts] == ["forwarded", "forwarded", "forwarded"]  # fingerprints differ
    assert [one["failure"] for one in done.attempts] == [None, "invalid_request", "invalid_request"]
    error = json.loads(done.events[1]["body"])["error"]
    assert (error["code"], error["type"]) == ("replay_mismatch", "invalid_request_error")
    assert runs.command(["verdict", done.directory], bundle=bundle)[0] == 69


def test_recorded_failures_come_back_only_when_asked_for(bundle, tmp_path):
    failed = record(bundle, tmp_path / "a", [said("first"), LIMITED, LIMITED, LIMITED])
    assert failed.outcome["kind"] == "rate_limited"
    plain = rerun(bundle, tmp_path / "b", failed)
    assert (
        plain.outcome["fault"] == "host"
        and "request 2 matches, but it failed in the recording (rate_limited)" in plain.outcome["message"]
    )
    whole = rerun(bundle, tmp_path / "c", failed, replay_failures=True)
    assert whole.outcome["kind"] == "rate_limited" and whole.outcome["fault"] == "model"
    assert [one["status"] for one in whole.attempts] == [200, 429, 429, 429]


def test_a_stream_comes_event_by_event_as_it_was_framed(bundle, tmp_path, recorded):
    done = rerun(bundle, tmp_path / "b", recorded)
    for mine, theirs in zip(done.attempts, [one for one in recorded.attempts if one["status"] == 200]):
        assert [mine[name] for name in ("events", "terminal", "finish", "usage", "response_id", "response_bytes")] == [
            theirs[name] for name in ("events", "terminal", "finish", "usage", "response_id", "response_bytes")
        ]


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda folder: None, "model_attempts.jsonl cannot be read"),
        (lambda folder: (folder / "model_attempts.jsonl").write_text("{}\nno json\n"), "it has no model request"),
        (
            lambda folder: (
                outcomes.write(folder / "x", outcomes.documents())
                and os.rename(str(folder / "x" / "model_attempts.jsonl"), str(folder / "model_attempts.jsonl"))
            ),
            "was not kept whole",
        ),
        (lambda folder: os.mkfifo(str(folder / "model_attempts.jsonl")), "is no regular file"),
        (lambda folder: os.symlink("/etc/passwd", str(folder / "model_attempts.jsonl")), "cannot be read"),
    ],
)
def test_what_is_no_recording_is_a_bad_input(bundle, tmp_path, make, words):
    folder = tmp_path / "out"
    folder.mkdir()
    make(folder)
    process, _ = runs.start(bundle, tmp_path, command=["true"], model={"replay": str(folder)})
    stdout, stderr = process.communicate(timeout=runs.HANG)
    said = stderr.decode()
    assert (process.returncode, stdout) == (65, b"") and "model.replay: " in said and words in said and said.count("\n") == 1


@pytest.mark.parametrize("value", [None, True, 1.5, 10**400, "x\0\ud800", [[]], {"a": None}, [None, "a\0.response", "../x.request"]], ids=str)
def test_any_field_of_a_recording_may_be_anything(tmp_path, value):
    """It came out of a sandbox: the rest of it still answers, and nothing is raised but that it is no recording."""
    record = {"request": "r1", "path": "/v1/responses", "method": "POST", "dialect": "responses", "status": 200, "main": True,
              "request_sha256": "0", "model": "m", "failure": None, "response_bytes": 2, "bodies": ["bodies/1.response"]}
    for field in [*record, "response_headers"]:
        (tmp_path / "model_attempts.jsonl").write_text(json.dumps(dict(record, **{field: value})) + "\n" + json.dumps(record) + "\n")
        entries = recorded_files.recording(str(tmp_path), True)[0]
        assert entries and all(entry.digests({}) == (None, None) for entry in entries)  # no body of a request was kept
        replay.Index(entries, {}, {}).find("POST", "/v1/responses", "responses", "1", b"{}")


def test_what_is_nested_too_deep_matches_byte_for_byte_only():
    bodies = [b'{"input":' + b"[" * depth + text + b"]" * depth + b"}" for depth in (300, 5000) for text in (b"1", b"2")]
    entries = [replay.Entry(number, "POST", "/v1/responses", "responses", str(number), True, "m", lambda body=body: body, [1], None)
               for number, body in enumerate(bodies)]
    index = replay.Index(entries, {}, {})
    for number, body in enumerate(bodies):
        assert index.find("POST", "/v1/responses", "responses", str(number), body)[:2] == (entries[number], replay.EXACT)
    assert index.find("POST", "/v1/responses", "responses", "x", bodies[1])[:2] == (entries[1], replay.ALIKE)
    for body in (bodies[3], bodies[3].replace(b"2", b"3"), bodies[1].replace(b"2", b"3")):
        assert index.find("POST", "/v1/responses", "responses", "x", body)[0] is None


def test_an_endpoint_beside_a_recording_is_a_bad_input(bundle, tmp_path):
    process, _ = runs.start(bundle, tmp_path, command=["true"], model={"replay": "x", "base_url": "http://x"})
    assert b"give one of base_url, socket and replay" in process.communicate(timeout=runs.HANG)[1] and process.returncode == 65


def test_the_proxy_command_replays(bundle, tmp_path, recorded):
    process, info = start_proxy(bundle, tmp_path / "p", "--replay", recorded.directory)
    try:
        from urllib.request import ProxyHandler, Request, build_opener

        asked = Request(
            info["base_url"] + "/responses",
            data=b'{"model": "m", "input": "two", "stream": true}',
            headers={"Authorization": "Bearer " + info["token"], "Content-Type": "application/json"},
        )
        with build_opener(ProxyHandler({})).open(asked) as answer:
            assert answer.read() == recorded.read("bodies", "000003.response") and answer.headers["x-replay-request"] == "2"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=runs.HANG)
    assert process.returncode == 0


# -- the real Codex -------------------------------------------------------------------------------------------------------

RUN_SPECIFIC = {"started_at", "completed_at", "duration_ms", "wall_time_s", "cpu_time_s", "peak_memory_mib", "offset"}


def observed(done):
    """Its observations without ids, times and places, which differ between any two runs of Codex."""
    launch = done.document("launch.json")
    places = replay.Places(
        {"cwd": launch["cwd"], "home": launch["agent_home"], "session": done.directory, "me": done.result["invocation_id"]}
    )

    def walk(value):
        if isinstance(value, dict):
            return {key: walk(one) for key, one in value.items() if key not in RUN_SPECIFIC}
        return (
            [walk(one) for one in value] if isinstance(value, list) else places.named(value) if isinstance(value, str) else value
        )

    return walk(done.observations)


@pytest.mark.real_cli
@pytest.mark.parametrize("name", ["tool_success", "tool_failure"])
def test_a_real_codex_run_is_replayed_to_the_same_observations(dist, tmp_path, name):
    program, bundle = real_cli.path(), os.path.join(dist, "sandbox-worker.pyz")
    first = runner.play(scenarios.BY_NAME[name], real_cli.CODEX[0], [os.path.dirname(program)], bundle, tmp_path / "a").done
    work, home = tmp_path / "elsewhere", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    second = runner.start(
        bundle,
        tmp_path / "b",
        {
            "harness": "codex",
            "cwd": str(work),
            "prompt": "Do the task.",
            "timeout": 60,
            "linger": 5,
            "env": {"PATH": os.path.dirname(program) + ":" + runner.PATH, "HOME": str(home)},
            "model": {"replay": first.directory},
        },
    )
    assert (
        second.stderr == ""
        and second.outcome["kind"] == first.outcome["kind"] == "completed"
        and observed(second) == observed(first)
    )
    assert second.result["usage"]["chosen"] == first.result["usage"]["chosen"]
    how = [one["response_headers"]["x-replay-match"].partition(";")[0] for one in second.attempts]
    assert how[0] == replay.ALIKE and set(how) <= {replay.ALIKE, replay.BLIND}


@pytest.mark.real_cli
def test_another_prompt_is_told_to_the_real_codex_once(dist, tmp_path):
    program, bundle = real_cli.path(), os.path.join(dist, "sandbox-worker.pyz")
    first = runner.play(
        scenarios.BY_NAME["tool_failure"], real_cli.CODEX[0], [os.path.dirname(program)], bundle, tmp_path / "a"
    ).done
    done = runner.start(
        bundle,
        tmp_path / "b",
        {
            "harness": "codex",
            "cwd": str(tmp_path),
            "prompt": "Do something else.",
            "timeout": 60,
            "linger": 5,
            "env": {"PATH": os.path.dirname(program) + ":" + runner.PATH, "HOME": str(tmp_path)},
            "model": {"replay": first.directory},
        },
    )
    assert (done.outcome["kind"], done.outcome["fault"], done.action) == ("invalid_request", "host", "mask")
    assert len(done.attempts) == 1 and 'recorded "Do the task.", asked "Do something else."' in done.outcome["message"]

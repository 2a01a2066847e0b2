"""Promise: every bad input document is one sentence that names the field, exit 65, and nothing was started or written."""

from __future__ import annotations

import json
import os

import pytest

from worker import contract

HTTP = {"base_url": "http://127.0.0.1:1/v1"}
GOOD = {"command": ["true"], "timeout": 5}

# (document or bytes, what the sentence must start with)
BAD = [
    (b"", "the input document: is not JSON"),
    (b"[]", "the input document: must be an object"),
    (b"{", "the input document: is not JSON"),
    (b'{"timeout": NaN}', "timeout: NaN is not JSON"),
    (b'{"retry": {"cap": -Infinity}}', "cap: -Infinity is not JSON"),
    (b'{"labels": {"a": [NaN]}}', "the input document: NaN is not JSON"),
    (b'{"timeout": 1, "timeout": 2}', "timeout: is given twice"),
    (b'{"env": {"A": "1", "A": "2"}}', "A: is given twice"),
    (b"\xff\xfe", "the input document: is not JSON"),
    (b"[" * 100000, "the input document: is not JSON"),
    (b'{"timeout": ' + b"9" * 5000 + b"}", ("the input document: is not JSON", "timeout: must be")),
    ({"colour": 1}, "colour: is not a field"),
    ({"model": dict(HTTP, colour=1)}, "model.colour: is not a field"),
    ({"retry": {"colour": 1}}, "retry.colour: is not a field"),
    ({"limits": {"colour": 1}}, "limits.colour: is not a field"),
    ({"timeout": "5"}, "timeout: must be a number"),
    ({"timeout": True}, "timeout: must be a number"),
    ({"timeout": None}, "timeout: must be a number"),
    ({"timeout": 0}, "timeout: must be more than 0"),
    ({"timeout": -1}, "timeout: must be more than 0"),
    (b'{"timeout": 1e999}', "timeout: must be finite and at most 2000000"),
    ({"timeout": 1e12}, "timeout: must be finite and at most 2000000"),
    ({"cleanup_timeout": 0}, "cleanup_timeout: must be more than 0"),
    ({"grace": -0.0}, "grace: must be more than 0"),
    ({"linger": []}, "linger: must be a number"),
    ({"retry": {"max_attempts": 0}}, "retry.max_attempts: must be at least 1"),
    ({"retry": {"max_attempts": 1.5}}, "retry.max_attempts: must be a whole number"),
    ({"retry": {"max_wait": -1}}, "retry.max_wait: must be more than 0"),
    ({"retry": {"ambiguous_replays": -1}}, "retry.ambiguous_replays: must be at least 0"),
    ({"retry": {"hold": "both"}}, "retry.hold: must be one of first_event, answer"),
    ({"retry": {"statuses": [200]}}, "retry.statuses[0]: must be at least 400"),
    ({"limits": {"requests": 0}}, "limits.requests: must be at least 1"),
    ({"limits": {"total_tokens": "9"}}, "limits.total_tokens: must be a whole number"),
    ({"command": "ls"}, "command: must be a list"),
    ({"command": []}, "command: must not be empty"),
    ({"command": ["a", ""]}, "command[1]: must have at least 1"),
    ({"command": ["a\0b"]}, "command[0]: must not contain a NUL"),
    ({"env": {"A=B": "x"}}, "env: 'A=B' is no variable name"),
    ({"env": {"": "x"}}, "env: '' is no variable name"),
    ({"env": {"A": 1}}, "env.A: must be a string"),
    ({"env": {"A": "\0"}}, "env.A: must not contain a NUL"),
    (b'{"prompt": "\\ud83d"}', "prompt: contains half of a surrogate pair"),
    ({"prompt": "a", "prompt_file": "b"}, "prompt: cannot be given together with prompt_file"),
    ({"prompt_file": "/does/not/exist"}, "prompt_file: /does/not/exist cannot be read"),
    ({"model": HTTP, "model_base_url": "http://h"}, "model: cannot be given together with model_base_url"),
    ({"model": {}}, ("model.base_url: give either", "model")),
    ({"model": dict(HTTP, socket="/s")}, "model.base_url: give one of base_url, socket and replay"),
    ({"model": {"base_url": "ftp://h"}}, "model.base_url: must be an http"),
    ({"model": {"base_url": "http://"}}, "model.base_url: must be an http"),
    ({"model": {"base_url": "http://:80"}}, "model.base_url: must be an http"),
    ({"model": {"base_url": "http://h:99999"}}, "model.base_url: has no valid port"),
    ({"model": {"base_url": "http://h:x"}}, "model.base_url: has no valid port"),
    ({"model": {"base_url": "http://u@h"}}, "model.base_url: must not contain"),
    ({"model": {"base_url": "http://h/#f"}}, "model.base_url: must not contain"),
    ({"model": {"base_url": "http://h/a b"}}, "model.base_url: must not contain"),
    ({"model_base_url": "h/v1"}, "model_base_url: must be an http"),
    ({"model": dict(HTTP, api="soap")}, "model.api: must be one of"),
    ({"model": dict(HTTP, auth="basic")}, "model.auth: must be one of"),
    ({"model": dict(HTTP, api_key="k")}, "model.api_key: is only accepted with `run -`"),
    ({"model": dict(HTTP, api_key_env="A", api_key_file="B")}, "model.api_key_env: cannot be given together with"),
    ({"model": dict(HTTP, api_key_env="NOT_SET_ANYWHERE")}, "model.api_key_env: the variable NOT_SET_ANYWHERE is not set"),
    ({"model": dict(HTTP, api_key_file="/does/not/exist")}, "model.api_key_file: /does/not/exist cannot be read"),
    ({"model": dict(HTTP, ca_file="/does/not/exist")}, "model.ca_file: /does/not/exist cannot be read"),
    ({"model": dict(HTTP, ca_file="/etc/passwd")}, "model.ca_file: /etc/passwd has no certificate"),
    ({"seal_key": "k"}, "seal_key: is only accepted with `run -`"),
    ({"agent_user": "root"}, "agent_user: must be UID or UID:GID"),
    ({"agent_user": "1:"}, "agent_user: must be UID or UID:GID"),
    ({"agent_user": "4294967295"}, "agent_user: must be UID or UID:GID"),  # (uid_t)-1 changes nothing: the agent would stay root
    ({"agent_user": "1:" + "9" * 5000}, "agent_user: must be UID or UID:GID"),
    ({"model": dict(HTTP, headers={"X": "a\r\nb: c"})}, "model.headers: 'X' is no header"),
    ({"model": dict(HTTP, headers={"X": "\u20ac"})}, "model.headers: 'X' is no header"),
    ({"model": dict(HTTP, headers={"X Y": "a"})}, "model.headers: 'X Y' is no header"),
    ({"model": dict(HTTP, headers={"": "a"})}, "model.headers: '' is no header"),
    ({"model": dict(HTTP, headers={"Transfer-Encoding": "chunked"})}, "model.headers: 'Transfer-Encoding' is no header"),
    ({"model": dict(HTTP, headers={"content-length": "1"})}, "model.headers: 'content-length' is no header"),
    ({"redact": ["short"]}, "redact[0]: must have at least 8"),
    ({"policy": {"rate_limited": "ignore"}}, "policy.rate_limited: must be one of grade, mask, retry"),
    ({"run_attempt": 0}, "run_attempt: must be at least 1"),
    ({"bodies": "some"}, "bodies: must be one of all, errors, none"),
    ({"watch_stdin": "yes"}, "watch_stdin: must be true or false"),
    ({"labels": []}, "labels: must be an object"),
    (b'{"command": ["true"], "labels": %s1%s}' % (b'{"a": [' * 60, b"]}" * 60), "labels: must not be nested more than 100"),
]


def text_of(document) -> bytes:
    return document if isinstance(document, bytes) else json.dumps(document).encode()


@pytest.mark.parametrize("document,start", BAD, ids=[str(start)[:60] for _, start in BAD])
def test_a_bad_document_is_one_sentence_that_names_the_field(document, start, tmp_path):
    with pytest.raises(contract.BadInput) as caught:
        contract.load(str(tmp_path / "input.json"), text_of(document))
    sentence = str(caught.value)
    assert sentence.startswith(start), sentence
    assert "\n" not in sentence and len(sentence) < 400
    assert os.listdir(tmp_path) == []


def test_every_cut_of_a_document_is_refused_or_the_whole():
    text = text_of(dict(GOOD, model=dict(HTTP, api="chat"), env={"A": "ü"}))
    for end in range(len(text)):
        with pytest.raises(contract.BadInput):
            contract.load("/somewhere/input.json", text[:end])


def test_defaults_are_those_of_the_design(tmp_path):
    job = contract.load(str(tmp_path / "input.json"), text_of({}))
    assert (job["timeout"], job["cleanup_timeout"], job["linger"], job["bodies"]) == (1800, 10, 30, "all")
    assert job["directory"] == str(tmp_path) and job["model"] is None and job["prompt"] is None
    assert job["retry"] == {"max_attempts": 6, "max_wait": 120, "budget": 900, "base": 1, "cap": 60,
                            "ambiguous_replays": 1, "hold": None, "statuses": []}
    assert job["limits"]["requests"] == 2000 and job["limits"]["stdout_bytes"] == 256 << 20
    assert job["nonce"] != contract.load("/x/input.json", b"{}")["nonce"]


def test_the_references_document_is_taken_unchanged():
    job = contract.load("/x/input.json", text_of({
        "directory": "/tmp/sessions/1", "command": ["node", "codex.js", "exec", "--json", "--", "-"], "cwd": "/app",
        "env": {"OPENAI_API_KEY": "sk-or-a-placeholder"}, "prompt": "Fix it", "timeout": 600.0, "cleanup_timeout": 10.0,
        "model_base_url": "http://127.0.0.1:9/v1"}))
    assert job["model"]["key"] == "sk-or-a-placeholder" and job["model"]["api"] == "responses"
    assert job["prompt"] == b"Fix it" and job["directory"] == "/tmp/sessions/1"


def test_a_byte_order_mark_is_no_part_of_the_document():
    assert contract.load("/x/input.json", b"\xef\xbb\xbf{}")["timeout"] == 1800


def test_a_key_file_is_read_and_its_line_end_dropped(tmp_path):
    (tmp_path / "key").write_text("sk-0123456789\n")
    document = {"model": dict(HTTP, api_key_file=str(tmp_path / "key"))}
    assert contract.load("/x/input.json", text_of(document))["model"]["key"] == "sk-0123456789"


@pytest.mark.parametrize("content", ["", "a\nb", "schlüssel", "a\x00b"])
def test_a_key_that_cannot_stand_in_a_header_is_refused(content, tmp_path):
    (tmp_path / "key").write_bytes(content.encode())
    with pytest.raises(contract.BadInput, match="the key must be printable ASCII"):
        contract.load("/x/input.json", text_of({"model": dict(HTTP, api_key_file=str(tmp_path / "key"))}))


def test_a_certificate_file_from_the_environment_is_checked_for_https_only(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/does/not/exist")
    with pytest.raises(contract.BadInput, match="model.ca_file: /does/not/exist cannot be read"):
        contract.load("/x/input.json", text_of({"model": {"base_url": "https://h/v1"}}))
    assert contract.load("/x/input.json", text_of({"model": HTTP}))["model"]["ca_file"] is None

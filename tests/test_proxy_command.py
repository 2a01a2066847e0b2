"""Promise: `proxy` is the transport alone: an info file when it listens, attempts in its directory, an orderly end."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests import runs
from tests.endpoint import Endpoint, message

SLOW_DOWN = {"status": 429, "headers": {"Retry-After": "0"}, "json": {"error": {"type": "rate_limit_error", "message": "x"}}}
ANSWER = {"chat": {"items": [message("42")], "usage": [10, 2, 3, 1]}}


def start(bundle, folder, *options):
    process = subprocess.Popen([sys.executable, "-I", "-S", bundle, "proxy", "--dir", str(folder), *map(str, options)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    info = folder / "info.json"
    while not info.exists() and process.poll() is None:
        os.sched_yield()
    return process, json.loads(info.read_text())


def post(info, token):
    request = urllib.request.Request(info["base_url"] + "/chat/completions", data=b'{"model": "m", "messages": []}',
                                     headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("end", ["SIGTERM", "stdin"])
def test_it_serves_records_and_ends(bundle, tmp_path, end):
    (tmp_path / "key").write_text("sk-the-real-key\n")
    with Endpoint([SLOW_DOWN, ANSWER]) as endpoint:
        process, info = start(bundle, tmp_path / "p", "--upstream", endpoint.url + "/v1", "--api", "chat",
                              "--key-file", tmp_path / "key", "--watch-stdin", "--max-attempts", 3)
        assert info["pid"] == process.pid and sorted(info) == ["base_url", "pid", "port", "token"]
        assert post(info, info["token"]) == 200 and post(info, "wrong") == 401
        if end == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=runs.HANG)
        seen = endpoint.requests()
    assert process.returncode == 0
    records = [json.loads(line) for line in (tmp_path / "p" / "model_attempts.jsonl").read_text().splitlines()]
    records.sort(key=lambda record: record["seq"])
    assert [record["decision"] for record in records] == ["retried", "forwarded", "refused"]
    assert [dict(one["headers"])["Authorization"] for one in seen] == ["Bearer sk-the-real-key"] * 2
    summary = json.loads((tmp_path / "p" / "summary.json").read_text())
    assert summary["usage"]["input_tokens"] == 10 and summary["retries"] == 1 and not (tmp_path / "key").exists()


def test_a_stop_ends_it_and_confirms(bundle, tmp_path):
    process, _ = start(bundle, tmp_path / "p", "--upstream", "http://127.0.0.1:9/v1")
    for _ in range(2):
        assert runs.command(["stop", tmp_path / "p"], bundle=bundle)[::2] == (0, "sandbox-worker: the proxy is over\n")
    assert process.wait(runs.HANG) == 0 and (tmp_path / "p" / "summary.json").exists()
    process.communicate()


@pytest.mark.parametrize("options,code,words", [
    ((), 65, "directory"), (("--dir", "DIR"), 65, "model.base_url"), (("--dir", "DIR", "--upstream", "h"), 65, "model.base_url"),
    (("--dir", "DIR", "--upstream", "http://h", "--max-wait", "nan"), 65, "retry.max_wait"),
    (("--dir", "DIR", "--upstream", "http://h", "--api", "soap"), 65, "model.api"), (("--colour",), 64, "--colour"), (("x",), 64, "arguments"),
])
def test_bad_options_are_one_sentence(bundle, tmp_path, options, code, words):
    found, out, said = runs.command(["proxy", *[str(tmp_path / "p") if o == "DIR" else o for o in options]], bundle=bundle)
    assert (found, out) == (code, "") and words in said and said.count("\n") == 1 and not (tmp_path / "p").exists()

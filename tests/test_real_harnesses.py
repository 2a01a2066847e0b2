"""Promise: however the model's answer ends, the outcome says whose fault it was. Real CLIs, a scripted model.

ENDINGS has what conformance does not play: a row is what the endpoint says, and what must be known of it, for one CLI or for all.
"""
from __future__ import annotations

import json
import shutil

import pytest

from tests.conformance.dialects import CUT_AFTER
from tests.conformance.harnesses import TABLE
from tests.conftest import elsewhere
from tests.endpoint import message, reasoning
from tests.real_runs import Cli, tools

pytestmark = pytest.mark.harness_cli
CLIS = {name: [Cli(name, version) for version in harness.versions] for name, harness in TABLE.items() if name not in ("codex", "generic")}
LIMIT = {"chat": "length", "messages": "max_tokens", "generate_content": "MAX_TOKENS"}
FILTER = {"chat": "content_filter", "messages": "refusal", "generate_content": "SAFETY"}
HOUR = {"Retry-After": "3600"}


def cut(to):
    """An answer that ends cleanly, and too early."""
    return to.final("Half an answer.", cut_after=CUT_AFTER[to.harness.api], then="end")


def always(answer):
    return {"default": answer}


STREAMING = [name for name in CLIS if name != "mini"]
# (harnesses, what, plan for a Cli, kind, action, the CLI's own exit code or None: not asked, the endpoint's requests or None,
#  further input)
ENDINGS = [
    (CLIS, "a Retry-After of an hour", lambda to: [to.error(429, "Slow down.", HOUR)], "rate_limited", "retry", None, 1, {"linger": 5}),
    (STREAMING, "cut at the output limit", lambda to: always(to.says(message("trunc"), finish=LIMIT[to.harness.api])),
     "output_limit", "grade", None, None, {}),
    (STREAMING, "a clean end without finish, asked again unseen", lambda to: [to.says(to.shell("echo one")), cut(to), to.final()],
     "completed", "grade", 0, 3, {}),
    (STREAMING, "clean ends for ever", lambda to: always(cut(to)), "stream_interrupted", "retry", None, None, {"linger": 5}),
    (("claude_code", "gemini", "qwen", "opencode"), "refused", lambda to: always(to.says(message("I can not."), finish=FILTER[to.harness.api])),
     "refusal", "grade", None, None, {}),
    (CLIS, "401", lambda to: [to.error(401, "no", kind="authentication_error", code="invalid_api_key")], "authentication", "mask", None, 1, {}),
    (("claude_code",), "403", lambda to: [to.error(403, "no", kind="permission_error")], "permission", "mask", 1, 1, {}),
    (("claude_code",), "413 is no image error", lambda to: [to.error(413, "Request exceeds the maximum size", kind="request_too_large")],
     "context_length", "grade", 1, 1, {}),
    (("claude_code",), "prompt too long", lambda to: [to.error(400, "prompt is too long: 21 tokens > 20 maximum")],
     "context_length", "grade", 1, 1, {}),
    (("claude_code",), "credit", lambda to: [to.error(400, "Your credit balance is too low to access the API.")],
     "quota_exhausted", "mask", 1, 1, {}),
    (("claude_code",), "404 is asked for again, without a stream", lambda to: always(to.error(404, "model: x")),
     "model_not_found", "mask", 1, 2, {}),
    (("claude_code",), "529", lambda to: always(to.error(529, "Overloaded")), "overloaded", "retry", 1, 3, {}),
    # The CLI asks it to go on, three times, each a new request with three attempts.
    (("claude_code",), "overloaded within the stream",
     lambda to: always(to.says(message("x"), error={"type": "overloaded_error", "message": "Overloaded"})), "overloaded", "retry", 1, 12, {}),
    (("gemini",), "401 is exit code 145", lambda to: [to.error(401, "no")], "authentication", "mask", 145, 1, {}),
    (("gemini",), "512 is exit code 0", lambda to: always(to.error(512, "oh")), "server_error", "retry", 0, 1, {}),
    (("gemini",), "overloaded within the stream is exit code 0",
     lambda to: always(to.says(message("x"), error={"code": 503, "status": "UNAVAILABLE", "message": "busy"})),
     "overloaded", "retry", 0, 3, {}),
    (("gemini",), "an empty answer is exit code 0", lambda to: always(to.says()), "agent_error", "grade", 0, None, {}),
    (("qwen",), "503", lambda to: always(to.error(503, "busy", kind="overloaded")), "overloaded", "retry", 1, 3, {}),
    (("mini",), "words without a tool, three times, with exit code 0", lambda to: always(to.says(message("All done."))),
     "agent_error", "grade", 0, 3, {}),
]
ROWS = [pytest.param(cli, *row[2:], id="%s-%s" % (cli, row[1])) for row in ENDINGS for name in row[0] for cli in CLIS[name]]


@pytest.mark.parametrize("cli, plan, kind, action, exits, requests, more", ROWS)
def test_endings(cli, plan, kind, action, exits, requests, more, bundle, tmp_path):
    done, seen = cli.play(bundle, tmp_path / "play", plan(cli), **more)
    assert (done.outcome["kind"], done.action) == (kind, action), done.outcome
    assert exits is None or done.result["return_code"] == exits
    assert requests is None or len([one for one in seen if one["method"] == "POST"]) == requests
    assert (done.result["final_message"] is None) == (kind != "completed")


@pytest.mark.parametrize("name, api", [("opencode", "responses"), ("opencode", "messages"), ("pi", "responses"), ("pi", "messages")])
def test_other_dialects(name, api, bundle, tmp_path):
    cli = Cli(name)
    items = [reasoning("Think.")] if api == "responses" else []
    plan = [{api: {"items": items + [cli.shell("echo one")]}}, {api: {"items": [message("All done.")]}}]
    done, _ = cli.play(bundle, tmp_path / "play", plan, model={"api": api})
    assert (done.outcome["kind"], done.result["final_message"]) == ("completed", "All done.")
    assert [status for _, status, _ in tools(done)] == ["completed"] and all(one["main"] for one in done.attempts if one["dialect"])


@pytest.mark.parametrize("cli", CLIS["opencode"] + CLIS["kilocode"], ids=str)
def test_tools_that_would_be_downloaded_are_not_offered(cli, bundle, tmp_path):
    """`grep` and `glob` need ripgrep."""
    if shutil.which("rg", path="/usr/local/bin:/usr/bin:/bin"):
        elsewhere("this machine has ripgrep")
    _, seen = cli.play(bundle, tmp_path / "play", [cli.final()])
    offered = {tool["function"]["name"] for tool in json.loads(seen[0]["body"])["tools"]}
    assert "bash" in offered and not {"grep", "glob"} & offered

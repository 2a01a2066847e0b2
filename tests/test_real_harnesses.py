"""The real OpenCode, Kilocode, Pi and Hermes in runs of the built bundle, each cut off from every network but its own loopback."""
from __future__ import annotations

import os
import time

import pytest

from tests import real_harnesses as real
from tests.conftest import lacking
from tests.endpoint import message, reasoning

pytestmark = pytest.mark.harness_cli
each = pytest.mark.parametrize("name, version", real.VERSIONS, ids=["-".join(one) for one in real.VERSIONS])
NEWEST = dict(real.VERSIONS)
ALSO = [("opencode", "responses"), ("opencode", "messages"), ("pi", "responses"), ("pi", "messages")]


@pytest.fixture(autouse=True)
def there(request):
    """The CLI is installed, or the test is skipped with the reason."""
    values = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    name = values.get("name", "pi")
    reason = real.why_not(name, values.get("version", NEWEST[name]))
    if reason:
        lacking(reason)


def test_the_witness_of_names_works(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root here")
    wrapper, names = real.lonely(tmp_path)
    ask = "import socket\ntry: socket.getaddrinfo('models.example.com', 443)\nexcept OSError: pass"
    real.subprocess.run([*wrapper, real.sys.executable, "-c", ask], check=True, timeout=60)
    assert b"models" in names.read_bytes()


@each
def test_success_and_a_failed_tool(name, version, bundle, tmp_path):
    """No name is looked up, the prompt arrives byte for byte, tools and usage are known, nothing of it lies in HOME."""
    plan = [real.says(real.shell(name, "echo oops >&2; exit 7")),
            real.says(real.shell(name, "echo one; pwd"), usage=real.SECOND), real.DONE]
    done = real.play(name, version, bundle, tmp_path, plan)
    assert (done.outcome["kind"], done.code, done.result["final_message"]) == ("completed", 0, "All done.")
    assert real.tools(done) == [("failed", "exit_code_7"), ("completed", None)]
    assert done.names == [], "names looked up: %s" % done.names
    prompt, offered = real.asked(done)
    assert prompt.rstrip("\n") == "Do \"the\" task.\n--really"
    assert not {"grep", "glob"} & set(offered) or name == "hermes" or real.shutil.which("rg")
    assert done.result["harness"]["version"] == version and done.receipt["cleanup_confirmed"]
    chosen = done.result["usage"]["chosen"]
    assert (chosen["source"], chosen["input_tokens"], chosen["output_tokens"]) == ("wire", 3300, 90)
    assert done.result["usage"]["transcript"]["input_tokens"] == 3300
    assert set(done.gaps()) <= {"prompt_in_argv"} and "recovered_errors" not in done.warnings()      # Hermes probes are no trouble
    assert ("prompt_in_argv" in done.gaps()) == (name == "hermes")
    assert os.listdir(str(tmp_path / "home")) == []
    root = done.records("agent_invocation")[0]
    assert len(root["model_calls"]) == 3 and root["status"] == "completed"
    assert not any(file.startswith("state") for file in done.result["files"])


@each
def test_429_then_success(name, version, bundle, tmp_path):
    plan = [real.error(429, "Slow down.", {"Retry-After": "0.3"}), real.says(real.shell(name, "echo one")), real.DONE]
    done = real.play(name, version, bundle, tmp_path, plan)
    main = [one for one in done.attempts if one["main"]]
    assert [one["decision"] for one in main] == ["retried", "forwarded", "forwarded"]
    assert done.outcome["kind"] == "completed" and "recovered_errors" in done.warnings()


@each
def test_a_terminal_error(name, version, bundle, tmp_path):
    """400 after a tool: Pi and Hermes exit 0 for it."""
    plan = [real.says(real.shell(name, "echo one")), real.error(400, "Bad input.", type="invalid_request_error", code="bad_input")]
    done = real.play(name, version, bundle, tmp_path, plan)
    assert (done.outcome["kind"], done.outcome["http_status"], done.action) == ("invalid_request", 400, "mask")
    assert done.result["return_code"] == (0 if name in ("pi", "hermes") else 1)
    assert real.tools(done) == [("completed", None)]
    assert done.result["usage"]["chosen"]["input_tokens"] == 1000


@each
def test_a_provider_that_stays_down(name, version, bundle, tmp_path):
    """500 for ever: a CLI that would go on asking is answered by the latch and ended by `linger`."""
    done = real.play(name, version, bundle, tmp_path, [real.error(500, "Internal error.")] * 3)
    assert (done.outcome["kind"], done.action) == ("server_error", "retry")
    assert len([one for one in done.requests if one["method"] == "POST"]) == 3


@each
def test_a_retry_after_of_an_hour(name, version, bundle, tmp_path):
    """OpenCode and Hermes would sleep for it."""
    began = time.monotonic()
    done = real.play(name, version, bundle, tmp_path, [real.error(429, "Slow down.", {"Retry-After": "3600"})])
    assert (done.outcome["kind"], done.action) == ("rate_limited", "retry") and time.monotonic() - began < 240


@each
def test_streams_without_an_end(name, version, bundle, tmp_path):
    """OpenCode asks again for ever, Kilocode and Pi's forerunner take it for success: the proxy holds answers and retries."""
    cut = real.says(message("Half an answer."), cut_after=3, then="end")
    done = real.play(name, version, bundle, tmp_path, {"answers": [real.says(real.shell(name, "echo one")), cut, real.DONE]})
    assert (done.outcome["kind"], done.result["final_message"]) == ("completed", "All done.")
    done = real.play(name, version, bundle, fresh(tmp_path), {"answers": [cut], "repeat": "always"}, timeout=60, linger=3)
    assert (done.outcome["kind"], done.action) == ("stream_interrupted", "retry")


@each
def test_usage_that_nobody_tells(name, version, bundle, tmp_path):
    """The CLIs write zeros for it."""
    done = real.play(name, version, bundle, tmp_path, [real.says(message("All done."), usage="omit")])
    assert done.result["usage"]["transcript"] is None
    assert done.result["usage"]["chosen"]["completeness"] == "unknown" and "usage_omitted" in done.gaps()


@each
def test_an_answer_that_was_cut_at_its_limit(name, version, bundle, tmp_path):
    """All of them exit 0."""
    done = real.play(name, version, bundle, tmp_path, {"answers": [real.says(message("trunc"), finish="length")], "repeat": "always"})
    assert (done.outcome["kind"], done.result["final_message"]) == ("output_limit", None)


@each
def test_the_deadline_in_the_middle_of_a_tool(name, version, bundle, tmp_path):
    """The CLI is asked to end; its tool, in a session of its own, is killed, and the transcript is read."""
    plan = [real.says(real.shell(name, "trap '' TERM INT HUP; touch started; while :; do sleep 1; done"))]
    done = real.play(name, version, bundle, tmp_path, plan, timeout=45)
    assert (done.work / "started").exists(), "the machine is too slow for this test's deadline"
    assert (done.outcome["kind"], done.receipt["cleanup_confirmed"]) == ("wall_timeout", True)
    assert [status for status, _ in real.tools(done)][0] in ("incomplete", "cancelled")
    wanted = "SIGINT" if name == "hermes" else "SIGTERM"
    assert done.receipt["signals"][0]["signal"] == wanted


@each
def test_as_an_ordinary_user(name, version, bundle, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("every other test here is this one")
    for path in (tmp_path, tmp_path.parent):
        path.chmod(0o755)
    plan = [real.says(real.shell(name, "id -u >uid; echo one")), real.DONE]
    done = real.play(name, version, bundle, tmp_path, plan, agent_user="12345:12345")
    assert done.outcome["kind"] == "completed", done.outcome
    assert (done.work / "uid").read_text().strip() == "12345" and real.tools(done) == [("completed", None)]


@pytest.mark.parametrize("name, api", ALSO)
def test_other_dialects(name, api, bundle, tmp_path):
    items = [reasoning("Think.")] if api == "responses" else []
    plan = [real.says(*items, real.shell(name, "echo one"), api=api), real.says(message("All done."), api=api, usage=real.THIRD)]
    done = real.play(name, NEWEST[name], bundle, tmp_path, plan, api=api)
    assert (done.outcome["kind"], done.result["final_message"]) == ("completed", "All done.")
    assert real.tools(done) == [("completed", None)] and all(one["main"] for one in done.attempts if one["dialect"])


@pytest.mark.parametrize("name", ["opencode", "kilocode"])
def test_a_sub_agent(name, bundle, tmp_path):
    """Its session is an invocation of its own, started by the task call."""
    task = real.function_call("task", {"description": "compute", "prompt": "Compute it.", "subagent_type": "general"}, "call_task")
    plan = {"answers": [
        {"match": {"header": {"x-parent-session-id": "ses_"}}, "times": "always",
         "steps": real.says(message("It is 42."), usage=[500, 0, 7, 0])},
        real.says(task), real.says(message("All done."), usage=real.THIRD)]}
    done = real.play(name, NEWEST[name], bundle, tmp_path, plan)
    assert done.outcome["kind"] == "completed"
    root, child = done.records("agent_invocation")
    assert (child["parent_invocation_id"], child["spawned_by_tool_call_id"]) == (root["invocation_id"], "call_task")
    assert len(child["model_calls"]) == 1 and done.result["usage"]["transcript"]["input_tokens"] == 2700
    assert [one["main"] for one in done.attempts] == [True] * 3


def fresh(tmp_path):
    folder = tmp_path / "again"
    folder.mkdir()
    return folder

"""Promise: mini-swe-agent is run and told of as the contract says: the real CLI, a scripted model."""
from __future__ import annotations

import json

import pytest

from tests.endpoint import message
from tests.real_runs import Cli, tools

CLI = Cli("mini")
pytestmark = pytest.mark.harness_cli


def test_success_and_tools(bundle, tmp_path):
    prompt = "Do 'the' \"task\" = -t {{x}} \u00fc\u2028\x07\U0001f600\\ud83d\\ude00" + "x" * 200000
    done, seen = CLI.play(bundle, tmp_path / "play", [
        CLI.says(message("Let me see."), CLI.shell("echo one; echo err >&2; exit 7", "call_1")), CLI.says(CLI.shell("pwd", "call_2")),
        CLI.final()], prompt=prompt)
    assert (done.outcome["kind"], done.code, done.result["final_message"]) == ("completed", 0, "All done.")
    assert tools(done) == [
        ("call_1", "failed", "exit_code_7"), ("call_2", "completed", None), ("call_0003_1", "completed", None)]
    root, = done.records("agent_invocation")
    assert [call["response_id"] for call in root["model_calls"]] == ["chatcmpl-0001", "chatcmpl-0002", "chatcmpl-0003"]
    for source in ("wire", "transcript"):
        usage = done.result["usage"][source]
        assert (usage["input_tokens"], usage["output_tokens"]) == (3200, 110), source
    assert set(done.gaps()) == {"event_times_unavailable"} and done.result["harness"]["version"] == "2.4.6"
    assert not any(prompt[:20] in word for word in done.document("launch.json")["command"])
    assert prompt in json.loads(seen[0]["body"])["messages"][1]["content"]


def test_killed_in_its_first_step_it_leaves_no_trajectory(bundle, tmp_path):
    done, _ = CLI.play(bundle, tmp_path / "play", [CLI.says(CLI.shell("trap '' TERM; kill -9 $PPID; sleep 987", "call_1"))])
    assert (done.outcome["kind"], done.result["return_code"], done.result["cleanup_confirmed"]) == ("killed", -9, True)
    assert "agent_artifact_unavailable" in done.gaps()
    assert done.result["usage"]["chosen"]["input_tokens"] == 1000

"""Promise: Qwen Code is run and told of as the contract says, whatever the endpoint answers: the real CLI, a scripted model."""
from __future__ import annotations

import os
import signal

import pytest

from tests.endpoint import function_call, message, reasoning
from tests.real_runs import Cli, tools, wait_for

CLI = Cli("qwen")
pytestmark = pytest.mark.harness_cli


def test_success_tools_and_a_sub_agent(bundle, tmp_path):
    agent = function_call("agent", {"description": "sub", "prompt": "Compute.", "subagent_type": "general-purpose",
                                    "run_in_background": False}, "call_3")
    done, seen = CLI.play(bundle, tmp_path / "play", [
        CLI.says(reasoning("Hm."), message("Let me see."), CLI.shell("echo one; echo err >&2; exit 7", "call_1"),
               usage=[1000, 400, 50, 20]),
        CLI.says(CLI.shell("pwd", "call_2"), agent), CLI.says(message("It is 42."), usage=[500, 0, 7, 0]), CLI.final()])
    assert (done.outcome["kind"], done.code, done.result["final_message"]) == ("completed", 0, "All done.")
    assert tools(done) == [
        ("call_1", "failed", "exit_code_7"), ("call_2", "completed", None), ("call_3", "completed", None)]
    root, sub = done.records("agent_invocation")
    assert (sub["parent_invocation_id"], sub["spawned_by_tool_call_id"]) == (root["invocation_id"], "call_3")
    assert [call["response_id"] for call in root["model_calls"]] == ["chatcmpl-0001", "chatcmpl-0002", "chatcmpl-0004"]
    assert [call["response_id"] for call in sub["model_calls"]] == ["chatcmpl-0003"]
    for source in ("wire", "transcript", "events"):
        usage = done.result["usage"][source]
        assert (usage["input_tokens"], usage["output_tokens"]) == (3700, 117), source
    assert not done.gaps() and done.result["harness"]["version"] == "0.24.4"
    command = done.document("launch.json")["command"]
    assert command[2].endswith("/cli.js"), "the launcher would orphan the real process"
    assert len(seen) == 4, "no memory agent after the answer"


def test_pieces_that_it_glues_together(bundle, tmp_path):
    """A stream that was passed on and broke: the CLI asks to go on and puts the pieces together; the wire tells of it."""
    plan = [CLI.final(text="Half an answer.", cut_after=2, then="rst"), CLI.final()]
    done, seen = CLI.play(bundle, tmp_path / "play", plan, retry={"hold": "first_event"})
    assert (done.outcome["kind"], len(seen)) == ("completed", 2)
    assert [one["failure"] for one in done.attempts] == ["stream_interrupted", None]
    assert done.result["final_message"].endswith("All done.") and "cli_retry" in done.warnings()


def test_its_launcher_is_not_what_runs(bundle, tmp_path):
    """The words of a caller who names the launcher become the real program; stopping it leaves nobody."""
    entry = os.path.realpath(os.path.join(CLI.places()[0], "qwen"))
    assert entry.endswith("cli-entry.js")

    def stop(run):
        wait_for(run.work / "started")
        run.process.send_signal(signal.SIGTERM)

    done, _ = CLI.play(bundle, tmp_path / "play", [CLI.says(CLI.shell("touch started; sleep 987 & wait", "call_1"))], during=stop,
                   command=["node", entry])
    launched = done.document("launch.json")
    assert launched["given_command"] == ["node", entry] and launched["command"][2].endswith("/cli.js")
    assert (done.outcome["kind"], done.result["cleanup_confirmed"]) == ("terminated", True)
    assert done.receipt["return_code"] in (130, -9)  # it may take longer than its grace on a busy machine
    assert not [one for one in done.receipt["killed"] if any(word.endswith("cli.js") for word in one["argv"] or ())]

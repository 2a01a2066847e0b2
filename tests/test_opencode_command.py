"""The commands and configurations of OpenCode, Kilocode and Pi: what is added, where, and what stays the caller's."""
from __future__ import annotations

import json
import os

import pytest

from worker.harnesses import kilocode, opencode, opencode_program, pi

URL = "http://127.0.0.1:1/v1"


def job(tmp_path, **more):
    return dict({"command": None, "env": {"PATH": "/nowhere", "HOME": str(tmp_path)}, "cwd": str(tmp_path), "prompt": b"do",
                 "timeout": 60.0, "model": {"name": "m", "api": "chat"}}, **more)


def nothing(program, path, cwd):
    return None


def prepared(harness, tmp_path, url=URL, which=nothing, **more):
    return harness.prepare(job(tmp_path, **more), url, "the-token", str(tmp_path / "state"), which)


FAMILY = [(opencode, "OPENCODE_", "opencode"), (kilocode, "KILO_", "kilo")]


@pytest.mark.parametrize("harness, prefix, program", FAMILY)
def test_the_built_command(harness, prefix, program, tmp_path):
    launch = prepared(harness, tmp_path)
    assert launch["argv"] == [program, "run", "--format", "json", "--pure", "--thinking", "--title", "run", "-m", "sandbox-worker/m"]
    assert (launch["stdin"], launch["prompt_in_argv"]) == ("prompt", False)
    env = launch["env"]
    assert env["PWD"] == str(tmp_path) and env[prefix + "DISABLE_MODELS_FETCH"] == "1"
    assert all(env[name].startswith(str(tmp_path / "state")) for name in env if name.startswith("XDG_"))
    assert launch["state"] == os.path.join(env["XDG_DATA_HOME"], program)
    settings = json.loads(env[prefix + "CONFIG_CONTENT"])
    options = settings["provider"]["sandbox-worker"]["options"]
    assert options["baseURL"] == URL and options["chunkTimeout"] == options["headerTimeout"] == 60000
    assert "the-token" not in env[prefix + "CONFIG_CONTENT"] + " ".join(launch["argv"])


def test_kilocode_asks_once():
    assert dict(kilocode.FAMILY["env"])["KILO_SESSION_RETRY_LIMIT"] == "1"             # 0 is ignored


def test_npm_install_is_not_run(tmp_path):
    config = os.path.join(prepared(opencode, tmp_path)["env"]["XDG_CONFIG_HOME"], "opencode")
    lock = json.load(open(os.path.join(config, "package-lock.json")))
    assert list(lock["packages"][""]["dependencies"]) == ["@opencode-ai/plugin"] and os.path.isdir(config + "/node_modules")


def test_without_ripgrep_its_tools_are_not_offered(tmp_path):
    launch = prepared(opencode, tmp_path)
    allowed = json.loads(launch["env"]["OPENCODE_CONFIG_CONTENT"])["permission"]
    assert (allowed["grep"], allowed["glob"], allowed["*"]) == ("deny", "deny", "allow") and "ripgrep" in launch["notes"][0]
    earlier = tmp_path / ".cache" / "opencode" / "bin"
    earlier.mkdir(parents=True)
    (earlier / "rg").write_text("#!/bin/sh\n")
    launch = prepared(opencode, tmp_path)
    assert "grep" not in json.loads(launch["env"]["OPENCODE_CONFIG_CONTENT"])["permission"] and launch["notes"] == []
    assert os.path.samefile(os.path.join(launch["env"]["XDG_CACHE_HOME"], "opencode", "bin", "rg"), str(earlier / "rg"))


def test_rules_of_the_project_are_read(tmp_path):
    """OPENCODE_DISABLE_PROJECT_CONFIG keeps the CLI from looking for them."""
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    settings = json.loads(prepared(opencode, tmp_path)["env"]["OPENCODE_CONFIG_CONTENT"])
    assert settings["instructions"] == [str(tmp_path / "AGENTS.md")]


def test_what_the_caller_set_stays(tmp_path):
    theirs = {"PATH": "/nowhere", "XDG_DATA_HOME": "data", "OPENCODE_DISABLE_SHARE": "0",
              "OPENCODE_CONFIG_CONTENT": json.dumps({"agent": {"build": {"steps": 3}}, "share": "auto"})}
    launch = prepared(opencode, tmp_path, env=theirs)
    assert not {"XDG_DATA_HOME", "OPENCODE_DISABLE_SHARE"} & set(launch["env"])
    assert launch["state"] == str(tmp_path / "data" / "opencode")
    settings = json.loads(launch["env"]["OPENCODE_CONFIG_CONTENT"])
    assert settings["agent"] == {"build": {"steps": 3}} and settings["share"] == "disabled"


@pytest.mark.parametrize("given, wanted", [
    (["opencode", "run", "--model", "x/y", "task"], ["run", "--format", "json", "--pure", "--thinking", "--title", "run", "--model",
                                                     "x/y", "task"]),
    (["opencode", "run", "--title", "T", "-m", "x/y"], ["run", "--format", "json", "--pure", "--thinking", "--title", "T", "-m", "x/y"]),
    (["opencode", "models"], ["models"]),
])
def test_a_given_command_keeps_its_words(given, wanted, tmp_path):
    """A second -m would be an error of the CLI's."""
    assert prepared(opencode, tmp_path, command=given)["argv"][1:] == wanted


def test_without_a_model_nothing_points_anywhere(tmp_path):
    launch = prepared(opencode, tmp_path, url=None, model=None)
    assert "-m" not in launch["argv"] and "provider" not in json.loads(launch["env"]["OPENCODE_CONFIG_CONTENT"])
    launch = prepared(pi, tmp_path, url=None, model=None)
    assert "--provider" not in launch["argv"] and not os.path.exists(os.path.join(launch["env"]["PI_CODING_AGENT_DIR"], "models.json"))


WRAPPERS = [("opencode", "opencode-ai/bin/opencode", "opencode-linux-%s/bin/opencode"),
            ("kilo", "@kilocode/cli/bin/kilo", "@kilocode/cli-linux-%s/bin/kilo")]


@pytest.mark.parametrize("name, wrapper, package", WRAPPERS)
def test_the_npm_wrapper_is_replaced_by_the_program(name, wrapper, package, tmp_path):
    machine = opencode_program.MACHINES[os.uname().machine]
    files = [str(tmp_path / "node_modules" / path) for path in (wrapper, package % opencode_program.variants(machine)[0])]
    for path, text in zip(files, (b"#!/usr/bin/env node\n", b"\x7fELF")):
        os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            file.write(text)
        os.chmod(path, 0o755)
    family = {"opencode": opencode.FAMILY, "kilo": kilocode.FAMILY}[name]
    for words in ([name, "run"], ["node", files[0], "run"]):
        found = opencode.resolve(words, "", str(tmp_path), lambda program, path, cwd: files[0] if program == name else None, family)
        assert found[:2] == (files[1], ["run"]) and "replaced" in found[2][0]
    os.unlink(files[1])
    found = opencode.resolve([name, "run"], "", str(tmp_path), lambda *_: files[0], family)
    assert found[:2] == (files[0], ["run"]) and "no native program" in found[2][0]


# -- Pi -----------------------------------------------------------------------------------------------

def test_pi_is_told_by_files(tmp_path):
    launch = prepared(pi, tmp_path)
    assert launch["argv"][:3] == ["pi", "--mode", "json"] and launch["argv"][-4:] == ["--provider", "sandbox-worker", "--model", "m"]
    agent = launch["env"]["PI_CODING_AGENT_DIR"]
    provider = json.load(open(os.path.join(agent, "models.json")))["providers"]["sandbox-worker"]
    assert (provider["baseUrl"], provider["api"], provider["apiKey"]) == (URL, "openai-completions", "the-token")
    settings = json.load(open(os.path.join(agent, "settings.json")))
    assert settings["retry"]["enabled"] is False and settings["retry"]["provider"]["maxRetries"] == 0
    assert settings["httpIdleTimeoutMs"] == 60000 and "the-token" not in " ".join(launch["argv"])


def test_pi_s_own_settings_stay_where_ours_say_nothing(tmp_path):
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "models.json").write_text(json.dumps({"providers": {"other": {"baseUrl": "x"}}}))
    (tmp_path / "agent" / "settings.json").write_text("{not json")
    launch = prepared(pi, tmp_path, env={"PATH": "/nowhere", "PI_CODING_AGENT_DIR": "agent"})
    assert "PI_CODING_AGENT_DIR" not in launch["env"]
    assert sorted(json.load(open(str(tmp_path / "agent" / "models.json")))["providers"]) == ["other", "sandbox-worker"]


@pytest.mark.parametrize("given, wanted", [
    (["pi", "--model", "x", "--no-session", "hello"], ["--provider", "sandbox-worker", "--model", "x", "--no-session", "hello"]),
    (["node", "cli.js", "--", "-x"], ["--provider", "sandbox-worker", "--model", "m", "--", "-x"]),
    (["pi", "update"], ["update"]),
])
def test_pi_s_given_command_keeps_its_words(given, wanted, tmp_path):
    argv = prepared(pi, tmp_path, command=given)["argv"]
    assert argv[-len(wanted):] == wanted and ("--session-dir" in argv) == ("cli.js" in argv)


def test_pi_s_version_is_that_of_its_package(tmp_path):
    script = tmp_path / "pkg" / "dist" / "cli.js"
    script.parent.mkdir(parents=True)
    script.write_text("")
    (tmp_path / "pkg" / "package.json").write_text('{"version": "1.6.0"}')
    assert pi.version_of(str(script)) == "1.6.0" and pi.version_of(None) is None

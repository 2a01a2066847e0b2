"""The command that Codex is started with: where the overrides stand, which words are kept, which program runs.

What the real CLI makes of it (one request on 429 and 503, nobody else called) is in tests/test_codex_real.py.
"""

from __future__ import annotations

import json
import os
import stat

import pytest

from tests.conftest import lacking
from worker import harnesses
from worker.harnesses import codex, codex_program, generic

URL = "http://127.0.0.1:5/v1"


def job(folder, **more):
    return dict({"command": None, "cwd": str(folder), "env": {"PATH": str(folder)}, "prompt": b"do it", "timeout": 600.5,
                 "model": {"name": "m-1", "api": "responses"}}, **more)  # fmt: skip


def prepared(folder, base_url=URL, **more):
    return codex.prepare(job(folder, **more), base_url, "token-1", str(folder / "state"))


def program(path, data=b"\x7fELF native"):
    os.makedirs(os.path.dirname(str(path)), exist_ok=True)
    with open(str(path), "wb") as file:
        file.write(data)
    os.chmod(str(path), 0o755)
    return str(path)


def settings(argv):
    """{key: value} of the -c options, and where the first and the last of them stand."""
    found = {argv[at + 1].split("=", 1)[0]: argv[at + 1].split("=", 1)[1] for at, word in enumerate(argv) if word == "-c"}
    return found, argv.index("-c"), len(argv) - 1 - argv[::-1].index("-c") + 1


def test_a_command_of_our_own(tmp_path):
    native = program(tmp_path / "codex")
    made = prepared(tmp_path)
    assert made["argv"][:5] == [native, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    assert made["argv"][-1] == "-" and made["stdin"] == "prompt" and not made["prompt_in_argv"]
    found, _, _ = settings(made["argv"])
    provider = "model_providers.sandbox_worker."
    assert found["model_provider"] == '"sandbox_worker"' and found["model"] == '"m-1"'
    assert found[provider + "base_url"] == json.dumps(URL) and found[provider + "wire_api"] == '"responses"'
    assert found[provider + "request_max_retries"] == found[provider + "stream_max_retries"] == "0"
    assert found[provider + "stream_idle_timeout_ms"] == "600500"
    assert found["features.unbounded_connection_retries"] == found["features.plugins"] == found["analytics.enabled"] == "false"
    assert made["env"] == {json.loads(found[provider + "env_key"]): "token-1", "CODEX_HOME": str(tmp_path / "state/codex")}
    assert stat.S_IMODE(os.stat(made["state"]).st_mode) == 0o700
    assert "token-1" not in " ".join(made["argv"])


GIVEN = {
    # name: (words, words before the overrides, words after them)
    "reference": (
        ["exec", "--json", "--skip-git-repo-check", "--", "-"],
        ["exec", "--json", "--skip-git-repo-check"],
        ["--", "-"],
    ),
    "without --": (["exec", "--json", "-"], ["exec", "--json", "-"], []),
    "options after the prompt": (["exec", "--json", "hello", "-m", "x"], ["exec", "--json", "hello", "-m", "x"], []),
    "alias": (["e", "--json", "-"], ["e", "--json", "-"], []),
    "resume": (["exec", "--json", "resume", "--last", "-"], ["exec", "--json", "resume", "--last", "-"], []),
    "shallow settings are lifted (exec)": (
        ["-c", "a=1", "--enable", "f", "exec", "--json", "-"],
        ["exec", "-c", "a=1", "--enable", "f", "--json", "-"],
        [],
    ),
    "shallow settings are lifted (resume)": (
        ["exec", "-c", "a=1", "--json", "resume", "-c", "b=2", "ID", "--", "-"],
        ["exec", "--json", "resume", "-c", "a=1", "-c", "b=2", "ID"],
        ["--", "-"],
    ),
    "joined forms": (
        ["-ca=1", "--config=b=2", "--disable=g", "exec", "--json", "-"],
        ["exec", "-ca=1", "--config=b=2", "--disable=g", "--json", "-"],
        [],
    ),
    "deep settings stay": (["exec", "-c", "a=1", "--json", "-"], ["exec", "-c", "a=1", "--json", "-"], []),
    "a value that looks like a subcommand": (["-m", "exec", "exec", "--json", "-"], ["-m", "exec", "exec", "--json", "-"], []),
    "a prompt that looks like a subcommand": (["exec", "--json", "--", "resume"], ["exec", "--json"], ["--", "resume"]),
    "a prompt that looks like a setting": (["exec", "--json", "--", "-c", "a=1"], ["exec", "--json"], ["--", "-c", "a=1"]),
    "no --json": (["exec", "-"], ["exec", "-", "--json"], []),
    "no --json, resume": (["exec", "resume", "ID", "--", "-"], ["exec", "resume", "ID", "--json"], ["--", "-"]),
    "experimental json": (["exec", "--experimental-json", "-"], ["exec", "--experimental-json", "-"], []),
    "no subcommand": (["--version"], ["--version"], []),
    "a setting without its value": (["exec", "--json", "-c"], ["exec", "--json", "-c"], []),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_given_command_keeps_its_words(name, tmp_path):
    words, before, after = GIVEN[name]
    native = program(tmp_path / "codex")
    made = prepared(tmp_path, command=["codex"] + words)
    assert made["given_argv"] == ["codex"] + words
    ours = codex.flags(codex.overrides(job(tmp_path), URL))
    assert made["argv"] == [native] + before + ours + after


def test_no_proxy_no_overrides(tmp_path):
    program(tmp_path / "codex")
    made = prepared(tmp_path, base_url=None, model=None, command=["codex", "exec", "--json", "-c", "a=1", "-"])
    assert made["argv"][1:] == ["exec", "--json", "-c", "a=1", "-"]
    assert list(made["env"]) == ["CODEX_HOME"]
    own = prepared(tmp_path, base_url=None, model=None)
    assert "features.plugins" in settings(own["argv"])[0] and "model_provider" not in settings(own["argv"])[0]


def test_what_the_caller_set_is_the_callers_unless_it_is_the_proxy(tmp_path):
    program(tmp_path / "codex")
    words = [
        "codex",
        "exec",
        "--json",
        "--enable",
        "plugins",
        "-c",
        "model_provider=x",
        "-c",
        "shell_environment_policy.exclude=[]",
        "-",
    ]
    made = prepared(tmp_path, command=words)
    flat = " ".join(made["argv"])
    assert "features.plugins" not in flat and flat.count("shell_environment_policy.exclude") == 1
    assert made["argv"].index("model_provider=x") < made["argv"].index('model_provider="sandbox_worker"')  # the later one counts


def test_strict_configuration_gets_no_key_that_0_144_4_does_not_know(tmp_path):
    program(tmp_path / "codex")
    made = prepared(tmp_path, command=["codex", "exec", "--json", "--strict-config", "-"])
    assert codex.BOUNDED not in settings(made["argv"])[0]


def test_values_are_toml(tmp_path):
    program(tmp_path / "codex")
    made = prepared(tmp_path, model={"name": 'a"b\\c\u00e9', "api": "responses"})
    assert settings(made["argv"])[0]["model"] == '"a\\"b\\\\c\u00e9"'


def test_env_decides_where_the_state_is(tmp_path):
    program(tmp_path / "codex")
    home = tmp_path / "elsewhere" / "codex home"
    made = prepared(tmp_path, env={"PATH": str(tmp_path), "CODEX_HOME": str(home)})
    assert made["state"] == str(home) and home.is_dir() and "CODEX_HOME" not in made["env"]
    relative = prepared(tmp_path, env={"PATH": str(tmp_path), "CODEX_HOME": "in-cwd"})
    assert relative["state"] == str(tmp_path / "in-cwd")
    with pytest.raises(OSError):
        prepared(tmp_path, env={"PATH": str(tmp_path), "CODEX_HOME": str(tmp_path / "codex" / "below a file")})


def test_what_was_there_before_is_the_baseline(tmp_path):
    program(tmp_path / "codex")
    rollout = tmp_path / "home/sessions/2026/11/30/rollout-x.jsonl"
    rollout.parent.mkdir(parents=True)
    rollout.write_bytes(b"12345")
    made = prepared(tmp_path, env={"PATH": str(tmp_path), "CODEX_HOME": str(tmp_path / "home")})
    assert made["baseline"] == {"sessions/2026/11/30/rollout-x.jsonl": 5}
    assert prepared(tmp_path)["baseline"] == {}


# -- the program ----------------------------------------------------------------------------------------------------------

PACKAGE, TRIPLE = codex_program.TARGETS.get(os.uname().machine, (None, None))
LAYOUTS = {
    # name: (node_modules of @openai/codex/bin/codex.js, the native program below it)
    "npm": ("lib/node_modules", "@openai/%s/vendor/%s/bin/codex"),
    "nested": ("lib/node_modules", "@openai/codex/node_modules/@openai/%s/vendor/%s/bin/codex"),
    "pnpm": ("n/.pnpm/@openai+codex@1/node_modules", "@openai/%s/vendor/%s/bin/codex"),
    "own vendor": ("node_modules", "@openai/codex/vendor/%.0s%s/bin/codex"),
    "before the split": ("node_modules", "@openai/codex/vendor/%.0s%s/codex/codex"),
}


def installed(folder, layout):
    if PACKAGE is None:
        lacking("no native Codex for this machine")
    modules, native = LAYOUTS[layout]
    wrapper = program(folder / modules / "@openai/codex/bin/codex.js", b"#!/usr/bin/env node\n")
    return wrapper, program(folder / modules / (native % (PACKAGE, TRIPLE)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", ["link", "node", "path"])
def test_the_npm_wrapper_becomes_the_native_program(layout, form, tmp_path):
    wrapper, native = installed(tmp_path, layout)
    os.symlink(wrapper, str(tmp_path / "codex"))
    command = {"link": ["codex"], "path": [wrapper], "node": ["node", os.path.relpath(wrapper, str(tmp_path))]}[form]
    made = prepared(tmp_path, command=command + ["exec", "--json", "--", "-"])
    assert made["argv"][:3] == [native, "exec", "--json"] and made["argv"][-2:] == ["--", "-"]
    assert made["given_argv"][: len(command)] == command and wrapper.split("/")[-1] in made["notes"][0] + "codex.js"


def test_a_shell_shim(tmp_path):
    wrapper, native = installed(tmp_path, "npm")
    shim = b'#!/bin/sh\nbasedir=$(dirname "$0")\nexec node "$basedir/lib/node_modules/@openai/codex/bin/codex.js" "$@"\n'
    program(tmp_path / "codex", shim)
    assert prepared(tmp_path)["argv"][0] == native


def test_a_wrapper_without_its_program_is_left_alone(tmp_path):
    wrapper = program(tmp_path / "node_modules/@openai/codex/bin/codex.js", b"#!/usr/bin/env node\n")
    made = prepared(tmp_path, command=["node", wrapper, "exec", "--json", "--", "-"])
    assert made["argv"][:3] == ["node", wrapper, "exec"] and "no native program" in made["notes"][0]


def test_somebodys_own_script_is_left_alone(tmp_path):
    script = program(tmp_path / "codex", b"#!/bin/sh\nexit 0\n")
    made = prepared(tmp_path)
    assert made["argv"][0] == script and not made["notes"]


@pytest.mark.parametrize("name", ["codex", "./codex", "/no/such/codex"])
def test_a_program_that_is_missing_is_found_out_at_the_launch(name, tmp_path):
    assert prepared(tmp_path, command=[name, "exec", "--json", "-"])["argv"][0] == name


def test_which(tmp_path):
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/tool").mkdir()
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/tool").write_text("")
    found = program(tmp_path / "bin/tool")
    path = "%s:plain:dir::%s" % (tmp_path / "missing", tmp_path / "bin")
    assert harnesses.which("tool", path, str(tmp_path)) == found
    assert harnesses.which("bin/tool", path, str(tmp_path)) == str(tmp_path / "bin/tool")
    assert harnesses.which("nothing", path, str(tmp_path)) is None
    assert harnesses.which("sh", None, "/") in ("/bin/sh", "/usr/bin/sh")


# -- the table ------------------------------------------------------------------------------------------------------------

NAMES = {
    "a name": ("codex", None, "codex"),
    "a program": (None, ["/usr/bin/codex", "exec"], "codex"),
    "node": (None, ["/usr/bin/node", "/opt/codex.js", "exec"], "codex"),
    "another program": (None, ["sh", "-c", "codex"], "generic"),
    "the name wins": ("generic", ["codex"], "generic"),
    "nothing": (None, None, "generic"),
}


@pytest.mark.parametrize("name", NAMES)
def test_find(name):
    asked, command, found = NAMES[name]
    assert harnesses.find(asked, command).NAME == found


def test_find_an_unknown_name():
    assert harnesses.find("no such harness", ["codex"]) is None


@pytest.mark.parametrize("name", sorted(harnesses.TABLE))
def test_every_harness_has_what_the_worker_asks_for(name):
    module = harnesses.find(name, None)
    assert module.NAME == name and tuple(module.PROGRAMS) == harnesses.TABLE[name]
    for wanted in (
        "TESTED",
        "APIS",
        "STOP_SIGNAL",
        "GRACE",
        "HOLD",
        "MAIN_HEADERS",
        "IDENTITY_HEADERS",
        "CLIENT_TIMER",
        "EXIT_ZERO_IS_SUCCESS",
    ):
        assert hasattr(module, wanted), wanted
    reader = __import__(module.READER, fromlist=["Live"])
    live = reader.Live()
    for wanted in (
        "terminal",
        "message",
        "final_message",
        "thread_id",
        "usage",
        "last_tool",
        "limit",
        "warnings",
        "events",
        "errors",
    ):
        assert hasattr(live, wanted), wanted
    for pattern, kind, needs_wire, source in reader.ERRORS:
        assert isinstance(pattern, str) and isinstance(needs_wire, bool) and kind and source


@pytest.mark.parametrize(("api", "names"), sorted(generic.SDK_NAMES.items()))
def test_generic_names_of_the_sdks(api, names, tmp_path):
    made = generic.prepare(
        {"command": ["x", "y"], "env": {}, "prompt": None, "model": {"api": api}}, "http://h", "t", str(tmp_path)
    )
    assert made["argv"] == made["given_argv"] == ["x", "y"] and made["stdin"] == "null"
    wanted = {"SANDBOX_WORKER_MODEL_URL": "http://h", "SANDBOX_WORKER_TOKEN": "t"}
    wanted.update([(name, "http://h") for name in names[0]] + [(name, "t") for name in names[1]])
    assert made["env"] == wanted


def test_generic_leaves_names_alone_that_env_sets(tmp_path):
    given = {"command": ["x"], "env": {"OPENAI_BASE_URL": "http://other"}, "prompt": b"", "model": {"api": "chat"}}
    made = generic.prepare(given, "http://h", "t", str(tmp_path))
    assert sorted(made["env"]) == ["SANDBOX_WORKER_MODEL_URL", "SANDBOX_WORKER_TOKEN"] and made["stdin"] == "prompt"
    assert generic.prepare(dict(given, model=None), None, "t", str(tmp_path))["env"] == {}

"""Promise: every agent CLI is run by one contract. The real CLIs, a scripted model, a place without any network.

Four kinds of run, each with every CLI, and what each of them must show:

    pair        two at the same time, as root and as an ordinary user, with one HOME, one working directory and one /tmp; HOME and
                the task hold settings that point elsewhere; the prompt is as large as the CLI takes it, full of quotes and dashes
    limited     429 for ever, with a proxy in the environment that refuses and tells
    overtime    the deadline comes while an answer arrives, piece by piece
    stopped     the run is told to stop while a tool runs that ignores signals
"""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.conformance.harnesses import TABLE
from tests.conftest import lacking
from tests.endpoint import message
from tests.lonely import PROXIED, Lonely
from tests.real_runs import Cli, listing, tools, wait_for
from worker import harnesses

pytestmark = pytest.mark.harness_cli
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
each = pytest.mark.parametrize("cli", [Cli(name, version) for name, harness in TABLE.items() if name != "generic"
                                       for version in harness.versions], ids=str)
USER, NATIVE = 12345, "call_of_its_own"
HARD = 'Say "yes" and \'no\', `id`, $HOME, {{x}}, %s, \\n, \u00fc\u2028\U0001f600.\n--help\n-p\n@missing.txt\n/help\n!ls\n\n# End\n'
OPENINGS = {"one": "--really \"do\" it.\n", "two": "/app/main.py fails.\n", "limited": "@missing.py fails.\n", "overtime": "# Title\n\n!ls\n",
            "stopped": "!ls\n-- \n"}
LARGE = {"hermes": 120000}      # bytes of prompt: its only way in is one argument
CHANGES = {"qwen": lambda text: text.replace(" @missing", "@missing")}       # it looks for the file and sets a space before the name
# Of a request that failed; they cannot be switched off. 1.17.11 would go on for ever.
OWN_REPEATS = {"qwen-0.24.4": 6, "opencode-1.17.11": 200, "opencode-1.18.33": 5, "kilocode-7.7.7": 1}
SLOW = {"kilocode": 150}        # s: it may take 80 of them to ask the model on a busy machine
# What a home or a task may hold that would turn the CLI away from the proxy.
ELSEWHERE = "http://elsewhere.example/v1"
VARIABLES = "GEMINI_SANDBOX=docker\nQWEN_SANDBOX=docker\nQWEN_CODE_API_TIMEOUT_MS=1\nOPENAI_ORG_ID=stolen\n" + "".join("%s=%s\n" % (name, ELSEWHERE) for name in (
    "OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL")) + "".join("%s=stolen\n" % name for name in (
        "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_MODEL", "GEMINI_MODEL"))
AWAY = dict.fromkeys(("HTTP_PROXY", "http_proxy"), "http://elsewhere.example:3128")
CLAUDE = {"apiKeyHelper": "echo stolen", "env": {**AWAY, "NO_PROXY": "", "no_proxy": "",
    "ANTHROPIC_BASE_URL": ELSEWHERE, "ANTHROPIC_API_KEY": "stolen", "ANTHROPIC_AUTH_TOKEN": "stolen", "ANTHROPIC_MODEL": "stolen",
    "ANTHROPIC_CUSTOM_HEADERS": "x-stolen: 1", "CLAUDE_CODE_USE_BEDROCK": "1", "CLAUDE_CODE_MAX_RETRIES": "9"}}
GEMINI = {"general": {"maxAttempts": 9}, "model": {"name": "stolen"}, "tools": {"sandbox": "docker"}}       # the limits of this CLI: worker/harnesses/gemini.py
QWEN = {"security": {"auth": {"selectedType": "qwen-oauth", "baseUrl": ELSEWHERE, "apiKey": "stolen"}}, "$version": 4,
        "model": {"name": "stolen", "generationConfig": {"maxRetries": 9}}, "telemetry": {"enabled": True, "otlpEndpoint": ELSEWHERE},
        "modelProviders": {"openai": [{"id": name, "baseUrl": ELSEWHERE, "envKey": "OPENAI_API_KEY"} for name in ("mock-model", "stolen")]},
        "tools": {"sandbox": "docker"}, "env": AWAY}
OPENCODE = {"provider": {"sandbox-worker": {"options": {"baseURL": ELSEWHERE}}}, "model": "sandbox-worker/stolen", "autoupdate": True}
CODEX = 'model_provider = "far"\n[model_providers.far]\nname = "far"\nbase_url = "%s"\n' % ELSEWHERE
IN_HOME = {
    ".claude/settings.json": CLAUDE, ".gemini/settings.json": GEMINI, ".gemini/.env": VARIABLES, ".env": VARIABLES,
    ".qwen/settings.json": QWEN, ".qwen/.env": VARIABLES, ".config/opencode/opencode.json": OPENCODE, ".config/kilo/kilo.json": OPENCODE,
    ".opencode/opencode.json": OPENCODE, ".kilo/kilo.json": OPENCODE,
    ".pi/agent/models.json": {"providers": {"sandbox-worker": {"baseUrl": ELSEWHERE}}}, ".hermes/.env": VARIABLES,
    ".hermes/config.yaml": {"model": {"base_url": ELSEWHERE}}, ".config/mini-swe-agent/.env": VARIABLES, ".codex/config.toml": CODEX,
}
IN_TASK = {
    ".env": VARIABLES, ".claude/settings.json": CLAUDE, ".claude/settings.local.json": CLAUDE,
    ".gemini/settings.json": GEMINI, ".gemini/.env": VARIABLES, ".qwen/settings.json": QWEN, ".qwen/.env": VARIABLES,
    "opencode.json": OPENCODE, ".opencode/opencode.json": OPENCODE, "kilo.json": OPENCODE, ".kilo/kilo.json": OPENCODE,
    ".pi/settings.json": {"retry": {"enabled": True, "provider": {"maxRetries": 9}}}, "mini.yaml": {"agent": {"step_limit": 1}},
    ".codex/config.toml": CODEX,
}


@pytest.fixture
def place(request, tmp_path):
    """A lonely place where the test's CLI can be reached by every user."""
    if os.geteuid() != 0:
        lacking("network namespaces need root")
    cli = request.node.callspec.params["cli"] if hasattr(request.node, "callspec") else None
    with Lonely(tmp_path, [ROOT] + [os.path.realpath(path) for path in cli.places()] if cli else []) as found:
        yield found


def put(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def prompt(cli, word):
    text = OPENINGS[word] + "marker-%s-marker\n" % word + HARD * 2
    return text + "x" * (LARGE.get(cli.name, 200000) - len(text.encode()))


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings(one)


def test_the_place_hears_what_is_asked_of_others(place):
    ask = ("import socket, urllib.request\n"
           "for ask in (lambda: socket.getaddrinfo('models.example.com', 443), lambda: socket.create_connection(('192.0.2.1', 443), 0.2),\n"
           "            lambda: urllib.request.urlopen('https://models.example.com')):\n"
           "    try: ask()\n"
           "    except OSError: pass\n"
           "open('/tmp/left', 'w')")
    subprocess.run([*place.wrapper(USER), sys.executable, "-c", ask], env=PROXIED, check=True, timeout=60)
    assert set(place.heard()) == {"name models.example.com", "packet tcp 192.0.2.1:443", "proxy CONNECT models.example.com:443"}
    assert place.left() == ["left"]


class Seen:
    """A run as its demands look at it."""

    def __init__(self, cli, word, done, run, place, user=0):
        self.cli, self.word, self.done, self.run, self.place, self.user = cli, word, done, run, place, user
        self.asked = [one for one in run.seen if one["method"] == "POST"]
        self.signals = [one["signal"] for one in done.receipt["signals"]]


# --- the demands: each says what is wrong by an AssertionError ------------------------------------------

def the_prompt_arrives_as_it_is(seen):
    wanted, change = prompt(seen.cli, seen.word).rstrip("\n"), CHANGES.get(seen.cli.name, lambda text: text)
    assert seen.asked and any(wanted in change(text) for text in strings(json.loads(seen.asked[0]["body"]))), "not in the first request"


def the_prompt_is_no_argument(seen):
    words = seen.done.document("launch.json")["command"]
    assert any("marker-" in word for word in words) == ("prompt_in_argv" in seen.done.gaps()) == (seen.cli.name == "hermes")


def the_model_is_the_runs(seen):
    asked = {json.loads(one["body"]).get("model") or re.sub(r".*/models/(.*):.*", r"\1", one["path"]) for one in seen.asked}
    assert asked == {"mock-model"}, asked


def nobody_else_is_asked(seen):
    others = [line for line in seen.place.heard() if line != "name localhost"]
    assert not others, others


def nothing_is_left_in_tmp(seen):
    assert not seen.place.left(), seen.place.left()


def it_runs_as_its_user(seen):
    assert (seen.run.work / ("is-" + seen.word)).read_text().strip() == str(seen.user)


def it_sees_nothing_of_the_other(seen):
    other = b"marker-%s-marker" % {"one": b"two", "two": b"one"}[seen.word]
    assert not any(other.decode() in one["body"] for one in seen.run.seen), "in a request"
    for folder, _, names in os.walk(seen.done.directory):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    assert other not in file.read(), "in " + path


def its_transcript_is_its_own(seen):
    assert any(name.startswith("native/") for name in seen.done.result["files"]), "no transcript"
    assert not {"agent_artifact_unavailable", "transcript_ambiguous", "transcript_unrelated"} & set(seen.done.gaps())


def it_succeeds(seen):
    assert (seen.done.outcome["kind"], seen.done.code) == ("completed", 0), seen.done.outcome
    assert seen.done.result["final_message"].strip() == "Done by %s." % seen.word and len(seen.asked) == 2
    (identity, status, _), = tools(seen.done)[:1]
    assert (identity, status) == (seen.cli.harness.call_id({"name": seen.cli.harness.tool, "call_id": NATIVE}), "completed")
    chosen = seen.done.result["usage"]["chosen"]
    assert (chosen["input_tokens"], chosen["output_tokens"], chosen["completeness"]) == (2200, 60, "complete"), chosen


def the_proxy_owns_the_retries(seen):
    """What the CLI asks again by itself is answered without the endpoint, and is not much."""
    decisions = [one["decision"] for one in seen.done.attempts if one["main"]]
    assert decisions[:3] == ["retried", "retried", "gave_up"] and set(decisions[3:]) <= {"latched"}, decisions
    assert len(seen.asked) == 3 and len(decisions) <= 3 + OWN_REPEATS.get(str(seen.cli), 0), decisions


def the_limit_is_told(seen):
    assert (seen.done.outcome["kind"], seen.done.outcome["http_status"], seen.done.action) == ("rate_limited", 429, "retry")
    assert seen.done.result["final_message"] is None
    stays = "lingered" in seen.done.warnings()
    assert stays == bool(seen.signals) and (not stays or seen.cli.harness.repeats), "it is ended by linger: %s" % seen.signals


def it_ends_within_its_grace(seen):
    module = harnesses.find(seen.cli.name, None)
    assert seen.signals[0] == signal.Signals(module.STOP_SIGNAL).name and len(seen.signals) <= 2, seen.signals
    asked, ended = seen.done.receipt["signals"][0]["at"], seen.done.result["ended_at"]
    assert ended - asked < module.GRACE + 10, "%.1f s after the stop signal" % (ended - asked)
    assert seen.done.receipt["cleanup_confirmed"] and seen.done.receipt["proof"]


def overtime_is_told(seen):
    told = seen.done.outcome["kind"], seen.done.action
    silent = seen.cli.name == "mini" and told == ("model_timeout", "retry")     # it asks for no streams: nothing had come for long
    assert (told == ("wall_timeout", "grade") or silent) and seen.done.receipt["timed_out"], told
    assert len(seen.asked) == 1 and seen.done.attempts[-1]["main"] and seen.done.result["final_message"] is None


def a_stop_is_told(seen):
    assert (seen.done.outcome["kind"], seen.done.code) == ("terminated", 75)
    status = [status for _, status, _ in tools(seen.done)]
    assert "completed" not in status and (status or "agent_artifact_unavailable" in seen.done.gaps()), status


def check(seen, *demands):
    broken = []
    for demand in demands:
        try:
            demand(seen)
        except AssertionError as error:
            broken.append("%s: %s" % (demand.__name__, str(error).split("\nassert ")[0]))
    assert not broken, "\n".join(broken)


ALWAYS = (the_prompt_arrives_as_it_is, the_prompt_is_no_argument, the_model_is_the_runs, nobody_else_is_asked, nothing_is_left_in_tmp)


@each
def test_pair(cli, bundle, tmp_path, place):
    for shared, files in (("home", IN_HOME), ("work", IN_TASK)):
        (tmp_path / shared).mkdir()
        put(tmp_path / shared, files)
    before, pair = listing(tmp_path / "work"), {}
    for word, other, user in (("one", "two", 0), ("two", "one", USER)):
        tool = cli.shell("id -u >is-%s; until [ -e is-%s ]; do sleep 0.1; done; echo \"I am %s\"" % (word, other, word), NATIVE)
        (tmp_path / (word + ".prompt")).write_text(prompt(cli, word))
        pair[word] = user, cli.start(bundle, tmp_path / word, [cli.says(tool), cli.final("Done by %s." % word)], place, user, tmp_path,
                                     prompt=None, prompt_file=str(tmp_path / (word + ".prompt")))
    for word, (user, run) in pair.items():
        pair[word] = Seen(cli, word, run.end(), run, place, user)
    for seen in pair.values():
        check(seen, it_succeeds, it_runs_as_its_user, it_sees_nothing_of_the_other, its_transcript_is_its_own, *ALWAYS)
    now = listing(tmp_path / "work")
    assert sorted(set(now.items()) - set(before.items())) == sorted((name, now[name]) for name in ("is-one", "is-two"))


@each
def test_limited(cli, bundle, tmp_path, place):
    answer = cli.error(429, "Slow down.", {"Retry-After": "0.1"}, kind="rate_limit_error", code="rate_limit_exceeded")
    plan = {"answers": [{"match": {"method": "GET"}, "times": "always", "steps": {"status": 404, "json": {}}}], "default": answer}
    run = cli.start(bundle, tmp_path / "play", plan, place, prompt=prompt(cli, "limited"), env=PROXIED)
    check(Seen(cli, "limited", run.end(), run, place), the_proxy_owns_the_retries, the_limit_is_told, *ALWAYS)


@each
def test_overtime(cli, bundle, tmp_path, place):
    words = [message("%d " % (number * 7919)) for number in range(1200)]     # what repeats itself is taken for a loop
    plan = [cli.says(*words, event_delay=0.25, **({"delay": 300} if cli.name == "mini" else {}))]       # it asks for no streams
    run = cli.start(bundle, tmp_path / "play", plan, place, prompt=prompt(cli, "overtime"), timeout=SLOW.get(cli.name, 50),
                    retry={"hold": "first_event"})
    check(Seen(cli, "overtime", run.end(), run, place), overtime_is_told, it_ends_within_its_grace, *ALWAYS)


@each
def test_stopped(cli, bundle, tmp_path, place):
    plan = [cli.says(cli.shell("trap '' TERM INT HUP; touch started; while :; do sleep 1; done"))]
    run = cli.start(bundle, tmp_path / "play", plan, place, prompt=prompt(cli, "stopped"))
    wait_for(run.work / "started")
    run.process.send_signal(signal.SIGTERM)
    check(Seen(cli, "stopped", run.end(), run, place), a_stop_is_told, it_ends_within_its_grace, *ALWAYS)

"""Promise: the real Codex CLI through the built bundle leaves evidence that agrees with what the endpoint saw.

Each scenario runs once per version, two at a time; the nine checks of tests/conformance compare its record with the
witness, the tests below add what is particular. Scenarios that conformance also has are taken from there.
"""
from __future__ import annotations

import glob
import os
import time
from email.utils import formatdate

import pytest

from tests import real_cli
from tests.conformance import checks, runner, scenarios
from tests.conformance.scenarios import FIRST, LIMITED, SECOND, error, final, says, scenario
from tests.endpoint import Endpoint, shell

pytestmark = pytest.mark.real_cli

# What a tool of the agent does to look like the agent: the token and the proxy's address, out of the CLI's own process.
SIDE = '''
import os, urllib.error, urllib.request
pid, url = os.getppid(), None
while url is None:
    words = open("/proc/%d/cmdline" % pid).read().split("\\0")
    url = next((w.split('"')[1] for w in words if "base_url=" in w and w.startswith("model_providers")), None)
    environ = open("/proc/%d/environ" % pid).read().split("\\0")
    pid = int(open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[1])
token = next(v.split("=", 1)[1] for v in environ if v.startswith("SANDBOX_WORKER_TOKEN="))
def post(path, body, key=token):
    headers = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    try:
        return urllib.request.urlopen(urllib.request.Request(url + path, body, headers)).status
    except urllib.error.HTTPError as refused:
        return refused.code
print("model", post("/responses", b'{"model": "no-such-model", "input": "side"}'))
print("path", post("/nowhere", b'{"model": "mock-model", "input": "side"}'))
print("outside", post("/../outside", b"{}"))
print("quota", post("/responses", b'{"model": "mock-model", "input": "side quota"}'))
print("token", post("/responses", b'{"model": "mock-model", "input": "side"}', "wrong"))
'''
QUOTA = {"kind": "insufficient_quota", "code": "insufficient_quota"}
WALL = {"kind": "wall_timeout", "status": "incomplete", "fault": "limit", "code": None, "http_status": None, "action": "grade"}
LIMIT = scenarios.provider("rate_limited", 429, "retry", "rate_limit_exceeded")
BAD_WAITS = ["nan", "inf", "-5", "garbage", "Wed, 21 Oct 2015 07:28:00 GMT", "1e400", ""]


def date_in(seconds):
    return formatdate(time.time() + seconds, usegmt=True)


def side(part, answer, path=""):
    return {"match": {"body": part, "path": path}, "times": "always", "steps": answer}


HERE = [
    scenario("endless_429", "429 for ever, until the attempts are used up",
             {"default": error(429, "Slow down.", {"Retry-After": "0.1"}, **LIMITED)}, ["rate_limited"] * 3,
             decisions=["retried", "retried", "gave_up"], outcome=LIMIT, exit=1, message=None, usage="unknown",
             transcript="none"),
    scenario("wait_beyond_the_deadline", "a Retry-After that outlasts the run: given up at once, a failure of the provider",
             [says(shell("echo one")), error(429, "Slow down.", {"Retry-After": "90"}, **LIMITED)], [None, "rate_limited"],
             decisions=["forwarded", "gave_up"], tools=["completed"], outcome=LIMIT, exit=1, message=None),
    scenario("useless_waits", "Retry-After values that say nothing fall back to backoff",
             [error(429, "Slow down.", {"Retry-After": value}) for value in BAD_WAITS] + [final()],
             ["rate_limited"] * len(BAD_WAITS) + [None], decisions=["retried"] * len(BAD_WAITS) + ["forwarded"],
             document={"retry": {"max_attempts": 20}}),
    scenario("disagreeing_waits", "two Retry-After headers that differ are backoff, too",
             [error(429, "Slow down.", {"Retry-After": ["1", "2"]}), final()], ["rate_limited", None],
             decisions=["retried", "forwarded"]),
    scenario("fractional_wait", "a fraction of a second in Retry-After is waited for",
             [error(503, "Down.", {"Retry-After": "0.6"}), final()], ["overloaded", None], decisions=["retried", "forwarded"]),
    scenario("dated_wait", "an HTTP date in Retry-After is waited for", None, ["rate_limited", None],
             decisions=["retried", "forwarded"]),
    scenario("usage_omitted_once", "one of two answers tells no usage: the sum is only partial",
             [says(shell("echo one")), final(usage="omit")], [None, None], tools=["completed"], usage=None, transcript=None),
    scenario("timeout_in_tool", "our deadline ends a tool that has a child in a session of its own",
             [says(shell("setsid sh -c 'trap \"\" TERM INT HUP; sleep 985' >/dev/null 2>&1 & sleep 984"))], [None],
             tools=["cancelled"], document={"timeout": 6, "grace": 15}, outcome=WALL, exit=1, message=None, killed="sleep 985"),
    scenario("side_requests", "what a tool sends through the proxy with the run's token changes nothing",
             {"answers": [side("no-such-model", error(404, "No such model.", code="model_not_found")),
                          side("side quota", error(429, "Quota exceeded.", **QUOTA)),
                          side("", error(404, "Not found."), "/nowhere"), side("", error(404, "Not found."), "/outside"),
                          says(shell("python3 side.py")), final(usage=SECOND)]},
             [None, None], tools=["completed"], files={"side.py": SIDE}),
    scenario("overrides_at_several_levels", "the caller's own settings at several levels hold, and so do the worker's",
             [says(shell("echo one")), final(usage=SECOND)], [None, None], tools=["completed"],
             document={"command": ["codex", "-c", 'developer_instructions="Mind the gap."', "-c", "model_providers.x.name=x",
                                   "exec", "-c", 'model="another-model"', "--skip-git-repo-check", "-s",
                                   "danger-full-access", "-"],
                       "model": {"name": None}}),
]
SHARED = ("tool_success", "tool_failure", "usage_omitted", "retry_429", "retry_500", "error_after_tool", "stream_cut_answer",
          "stream_cut_first_event", "model_timeout", "quota")
ALL = {one["name"]: one for one in [scenarios.BY_NAME[name] for name in SHARED] + HERE}


ALSO = {}                   # scenario -> what must hold of it beyond the common checks


def also(*names):
    """What is promised of these scenarios, with each version: looked at in the one run of the scenario."""
    def mark(function):
        for name in names:
            ALSO.setdefault(name, []).append(function)
        return function
    return mark


@pytest.mark.parametrize("version", real_cli.CODEX)
@pytest.mark.parametrize("name", list(ALL))
def test_the_record_agrees_with_the_witness(dist, tmp_path, version, name):
    one = dict(ALL[name])
    if name == "dated_wait":
        one["plan"] = [error(429, "Slow down.", {"Retry-After": date_in(7)}), final()]
    played = runner.play(one, version, [os.path.dirname(real_cli.path(version))], os.path.join(dist, "sandbox-worker.pyz"),
                         tmp_path / "run")
    judged = checks.judge(played)
    assert {evidence: cell["reasons"] for evidence, cell in judged.items() if cell["state"] == "not fulfilled"} == {}
    for promise in ALSO.get(name, ()):
        promise(played)


@also("useless_waits", "disagreeing_waits")
def waits_that_say_nothing_are_backoff(played):
    waits = [one["wait"] for one in played.done.attempts[:-1]]
    assert waits and {wait["source"] for wait in waits} == {"backoff"}
    assert all(0 <= wait["seconds"] <= 0.1 for wait in waits)


@also("dated_wait")
def a_date_is_not_come_too_early(played):
    first, second = played.witness.model
    said = time.mktime(time.strptime(first.sent_headers["retry-after"], "%a, %d %b %Y %H:%M:%S GMT")) - time.timezone
    assert played.done.attempts[0]["wait"]["source"] == "retry-after" and said - checks.CLOCK <= second.at <= said + checks.GENEROUS


@also("usage_omitted_once")
def usage_that_is_known_in_part_is_said_to_be_partial(played):
    chosen = played.done.result["usage"]["chosen"]
    assert (chosen["completeness"], chosen["total_tokens"]) == ("partial", 1050)
    assert "usage_omitted" in played.done.gaps()


@also("error_after_tool")
def the_total_of_the_rollout_is_kept(played):
    usage = played.done.result["usage"]
    assert usage["transcript"]["total_tokens"] == FIRST[0] + FIRST[2] and usage["events"] is None


@also("timeout_in_tool")
def a_timeout_leaves_nobody_alive(played):
    done = played.done
    assert done.result["timed_out"] and done.receipt["timed_out"]
    assert [one["signal"] for one in done.receipt["signals"]] == ["SIGINT"]      # Codex writes its last records on SIGINT
    assert not list(at_work_in(played.done.work))
    assert done.result["usage"]["transcript"]["total_tokens"] == 1050            # because SIGINT, not SIGTERM


def at_work_in(folder):
    """Processes whose working directory is this one."""
    for path in glob.glob("/proc/[0-9]*/cwd"):
        try:
            if os.readlink(path).startswith(folder):
                yield path
        except OSError:
            continue


@also("side_requests")
def a_tool_cannot_change_the_outcome(played):
    done, seen = played.done, played.witness.side
    assert [(each.path, each.status) for each in seen] == [
        ("/v1/responses", 404), ("/v1/nowhere", 404), ("/v1/../outside", 404), ("/v1/responses", 429)]
    with_key = [each.headers.get("authorization") == "Bearer " + runner.KEY for each in seen]
    assert with_key[0] and with_key[3] and not with_key[2]
    assert not any(each.headers.get("authorization") not in (None, "Bearer " + runner.KEY) for each in seen)
    mine = [each for each in done.attempts if not each["main"] and each["decision"] != "refused"]
    assert sorted(each["status"] for each in mine) == [404, 404, 404, 429]
    assert done.result["counts"]["aux_failed"] == 2 and done.result["counts"]["refused"] == 1
    assert "recovered_errors" in done.warnings()


@also("overrides_at_several_levels")
def overrides_of_every_level_reach_the_model(played):
    assert {each.request["model"] for each in played.witness.model} == {"another-model"}
    assert all("Mind the gap." in str(each.request["input"]) for each in played.witness.model)
    launch = played.done.document("launch.json")
    assert launch["given_command"][0] == "codex" and launch["command"][0] == real_cli.path(played.version)


@pytest.mark.parametrize("version", real_cli.CODEX)
def test_nobody_else_is_called(dist, tmp_path, version):
    """An ambient proxy that refuses would see every other host; the tool's own call shows that it does."""
    fetch = "python3 -c 'import urllib.request as u; u.urlopen(\"http://example.test/tool\")' 2>/dev/null; env | grep -ci _proxy="
    with Endpoint([]) as ambient:
        proxy = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), ambient.url)
        one = scenario("nobody_else", "", [says(shell(fetch)), final(usage=SECOND)], [None, None], tools=["completed"],
                       document={"env": proxy})
        played = runner.play(one, version, [os.path.dirname(real_cli.path(version))],
                             os.path.join(dist, "sandbox-worker.pyz"), tmp_path / "run")
    assert [(each["method"], each["path"]) for each in ambient.requests()] == [("GET", "http://example.test/tool")]
    assert [each.path for each in played.witness.all] == ["/v1/responses"] * 2 and played.done.outcome["kind"] == "completed"


@pytest.mark.parametrize("version", real_cli.CODEX)
def test_the_native_program_runs_not_the_npm_wrapper(dist, tmp_path, version):
    wrapper = os.path.join(real_cli.folder(version), "node_modules", ".bin", "codex")
    one = scenario("wrapper", "", [final()], [None])
    played = runner.play(one, version, [os.path.dirname(wrapper)], os.path.join(dist, "sandbox-worker.pyz"), tmp_path / "run")
    launch = played.done.document("launch.json")
    assert launch["command"][0] == os.path.realpath(real_cli.path(version)) and played.done.outcome["kind"] == "completed"
    assert played.done.result["harness"]["version"] == version and "untested_version" not in played.done.warnings()


def test_the_short_form_of_the_reference_runs_unchanged(dist, tmp_path):
    """No field beyond the reference's; the key is in env and is replaced there."""
    program = real_cli.path()
    one = scenario("short_form", "", [says(shell("echo ${OPENAI_API_KEY:-none}")), final(usage=SECOND)], [None, None],
                   tools=["completed"])
    run, work = tmp_path / "run", tmp_path / "work"
    work.mkdir()
    with Endpoint(one["plan"]) as endpoint:
        done = runner.start(os.path.join(dist, "sandbox-worker.pyz"), run, {
            "directory": str(run), "cwd": str(work), "prompt": "Do the task.", "timeout": 60, "cleanup_timeout": 10,
            "command": [program, "exec", "--skip-git-repo-check", "--json", "-s", "danger-full-access", "-m", "mock-model", "-"],
            "env": {"OPENAI_API_KEY": runner.KEY, "PATH": runner.PATH, "HOME": str(tmp_path)},
            "model_base_url": endpoint.url + "/v1"})
    seen = endpoint.requests()
    assert (done.code, done.outcome["kind"]) == (0, "completed") and done.result["harness"]["name"] == "codex"
    assert set(done.result) >= {"return_code", "timed_out", "cleanup_confirmed", "error", "hostname", "pid"}
    keys = [value for each in seen for name, value in each["headers"] if name.lower() == "authorization"]
    assert keys == ["Bearer " + runner.KEY] * 2
    assert runner.KEY not in seen[1]["body"]
    leaks = [name for name, data in done.everything().items() if runner.KEY.encode() in data]
    assert leaks == ["input.json"]                     # the host's own file; the worker did not write it

"""Promise: the same in real containers: the real Codex in Docker with the oldest and the newest Python, as root and as a user.

A container has no network but a loopback that it shares with a second one, where the scripted endpoint runs: the witness is
out of the agent's reach. Bundle, input, key and plan go in by copy, the outcome comes out by copy. Where the agent must not
find the key, a tool of the agent looks for it everywhere it can: in Docker, in bubblewrap, and in a user namespace of
`unshare -r`, where it is root with all capabilities that the worker left it.
"""
from __future__ import annotations

import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import tarfile

import pytest

from tests import pythons, real_cli, runs
from tests.conformance import checks, runner, scenarios
from tests.conformance.scenarios import SECOND, final, says, scenario
from tests.conformance.witness import Witness, sha256
from tests.conftest import CI
from tests.endpoint import function_call, read_witness
from tests.sandboxes import bwrap, docker, roots
from tests.test_codex_real import ALL as REAL

pytestmark = [pytest.mark.real_cli, pytest.mark.engine]
ENDPOINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "endpoint.py")
OLDEST, NEWEST = pythons.REQUIRED
ROOT, USER = "0", "12345"

MAIN = ("tool_success", "tool_failure", "usage_omitted", "retry_429", "retry_500", "endless_429", "error_after_tool",
        "stream_cut_answer", "stream_cut_first_event", "timeout_in_tool", "side_requests", "detached_child")
FEW = ("tool_success", "timeout_in_tool")
SCENARIOS = dict(REAL, detached_child=scenarios.BY_NAME["detached_child"])
# In CI, which has twenty minutes for everything, each scenario once, and each user with each Python.
CASES = [(OLDEST, ROOT, name) for name in (MAIN[::2] if CI else MAIN)] + [(NEWEST, USER, name) for name in (MAIN[1::2] if CI else MAIN)]
CASES += [(python, user, name) for python, user in ((OLDEST, USER), (NEWEST, ROOT)) for name in (FEW[1:] if CI else FEW)]

# A tool that looks for a secret (given reversed, so that it is not found in the script itself) and, to show that it can
# find one, for the run's token, which is the agent's own.
HUNT = '''
import json, os, re, sys
key, roots = sys.argv[1][::-1].encode(), sys.argv[2:]
token, pid = None, os.getppid()
while token is None:
    found = re.search(rb"SANDBOX_WORKER_TOKEN=(\\w+)", open("/proc/%d/environ" % pid, "rb").read())
    token, pid = found and found.group(1), int(open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[1])
seen = {"key": [], "token": [], "denied": [], "read": {"environ": 0, "cmdline": 0, "mem": 0, "files": 0}}
def look(place, data, kind):
    seen["read"][kind] += 1
    for name, secret in (("key", key), ("token", token)):
        if secret in data:
            seen[name].append(place)
def memory(pid):
    """All readable memory of a process in pieces, each with the end of the one before."""
    with open("/proc/%s/mem" % pid, "rb", 0) as file:
        for line in open("/proc/%s/maps" % pid):
            area, rights = line.split()[:2]
            start, end = (int(part, 16) for part in area.split("-"))
            rest = b""
            while "r" in rights and start < end and "[v" not in line:
                try:
                    file.seek(start)
                    data = file.read(min(1 << 22, end - start))
                except (OSError, ValueError, OverflowError):
                    break
                if not data:
                    break
                yield rest + data
                rest, start = data[-200:], start + len(data)
for pid in [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]:
    for kind in ("environ", "cmdline"):
        try:
            look("%s of %s" % (kind, pid), open("/proc/%s/%s" % (pid, kind), "rb").read(), kind)
        except OSError:
            seen["denied"].append([kind, int(pid)])
    try:
        for piece in memory(pid):
            look("memory of " + pid, piece, "mem")
    except OSError:
        seen["denied"].append(["mem", int(pid)])
for root in roots:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/sys", "/dev")]
        for name in names:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 50 << 20:
                    look(path, open(path, "rb").read(), "files")
            except OSError:
                seen["denied"].append(["file", path])
seen["token"] = sorted(set(place.split(" of ")[0] for place in seen["token"]))
print("HUNT" + json.dumps(seen) + "HUNT")
'''


class Box:
    """A container with Codex, beside it one for the endpoint; play() runs a scenario in them, on a port of its own."""

    def __init__(self, python, version, dist):
        self.version, self.bundle, self.ports = version, os.path.join(dist, "sandbox-worker.pyz"), iter(range(20001, 29999))
        image = docker.image(pythons.cached(python))
        self.sandbox = docker.Container(image)
        self.beside = docker.Container(image, network="container:" + self.sandbox.name)

    def __enter__(self):
        self.sandbox.__enter__()
        self.beside.__enter__()
        self.sandbox.put(real_cli.path(self.version), "/usr/local/bin/codex")
        self.beside.put(ENDPOINT, "/tmp/endpoint.py")
        return self

    def __exit__(self, *_):
        self.beside.__exit__()
        self.sandbox.__exit__()

    def endpoint(self, plan, port):
        """Start it; its first line on the pipe says that it listens."""
        start = ("cd /tmp; cat >plan-{0}.json; mkfifo pipe-{0}; (python3 endpoint.py --port {0} --plan plan-{0}.json "
                 "--witness witness-{0}.jsonl >pipe-{0} 2>&1 & echo $! >pid-{0}); head -n 1 pipe-{0}")
        told = self.beside.exec(["sh", "-c", start.format(port)], input=json.dumps(plan).encode()).stdout
        assert json.loads(told)["port"] == port, told

    def witness(self, scenario, folder, port):
        stop = "kill $(cat /tmp/pid-{0}); cat /tmp/witness-{0}.jsonl".format(port)
        (folder / "witness.jsonl").write_bytes(self.beside.exec(["sh", "-c", stop]).stdout)
        return Witness(read_witness(str(folder / "witness.jsonl")), scenario)

    def put(self, source, name, user):
        """Copy a folder to /run/NAME, owned by the user."""
        def owned(entry):
            entry.uid = entry.gid = int(user)
            return entry
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(str(source), name, filter=owned)
        docker.docker("cp", "-", self.sandbox.name + ":/run", input=packed.getvalue())

    def play(self, one, user, folder, key=runner.KEY, env=None, on_stdin=False, outcome="run"):
        """-> Played. env: variables of the worker's process; on_stdin: the input document is not copied but piped;
        outcome: where the outcome is, when the document has its own `directory`."""
        port, inside = next(self.ports), "/run/" + one["name"] + "-" + user
        staged = folder / "staged"
        for name in ("work", "home", "run"):
            (staged / name).mkdir(parents=True)
        for name, text in one["files"].items():
            (staged / "work" / name).write_text(text)
        (staged / "openai.key").write_text(key if not env and not on_stdin else "")
        asked = runner.document(one, ["/usr/local/bin"], "http://127.0.0.1:%d" % port, inside + "/work",
                                inside + "/openai.key", inside + "/home")
        if not on_stdin:
            (staged / "run" / "input.json").write_text(json.dumps(asked))
        shutil.copy(self.bundle, staged / "run" / "sandbox-worker.pyz")
        self.endpoint(one["plan"], port)
        self.put(staged, os.path.basename(inside), user)
        words = ["docker", "exec", "-i"] + [word for name in env or {} for word in ("-e", name)] + ["-u", user, self.sandbox.name]
        words += ["python3", "-I", "-S", inside + "/run/sandbox-worker.pyz", "run"]
        words += ["-"] if on_stdin else [inside + "/run/input.json"]
        ran = subprocess.run(words, input=json.dumps(asked).encode() + b"\n" if on_stdin else b"", stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, timeout=runs.HANG, env=dict(os.environ, **(env or {})))
        self.sandbox.get(inside, str(folder / "out"))
        done = runs.Done(folder / "out" / outcome, ran.returncode, ran.stdout, ran.stderr)
        assert done.result, "no result: %s" % done.stderr
        runs.check(done)
        done.key_removed, done.work = not (folder / "out" / "openai.key").exists(), str(folder / "out" / "work")
        return runner.Played(one, self.version, done, self.witness(one, folder, port),
                             runner.host(self.bundle, done.directory), key)


@pytest.fixture(scope="module")
def boxes(dist):
    """boxes(python, version): one pair of containers for each, made when first asked for."""
    made = {}

    def get(python, version=real_cli.CODEX[0]):
        if (python, version) not in made:
            made[python, version] = Box(python, version, dist).__enter__()
        return made[python, version]
    yield get
    for box in made.values():
        box.__exit__()


@pytest.mark.parametrize("python,user,name", CASES)
def test_the_record_agrees_with_the_witness(boxes, tmp_path, python, user, name):
    judged = checks.judge(boxes(python).play(dict(SCENARIOS[name]), user, tmp_path))
    assert {evidence: cell["reasons"] for evidence, cell in judged.items() if cell["state"] == "not fulfilled"} == {}


@pytest.mark.parametrize("python", [OLDEST, NEWEST])
def test_what_was_staged_is_what_was_built(boxes, tmp_path, python):
    box = boxes(python)
    one = dict(SCENARIOS["tool_success"], name="staged")
    played = box.play(one, ROOT, tmp_path)
    with open(box.bundle, "rb") as file:
        built = file.read()
    inside = box.sandbox.exec(["sha256sum", "/run/staged-0/run/sandbox-worker.pyz"]).stdout.decode().split()[0]
    assert inside == sha256(built) and played.done.read("sandbox-worker.pyz") == built
    done, said = played.done, played.done.lines[-1]["files"]            # the manifest on the command's own stdout
    assert said.pop("result.json") == sha256(done.read("result.json")) and set(said) == set(done.result["files"])
    assert {name: sha256(done.read(*name.split("/"))) for name in said} == said


def test_the_newer_cli_in_a_container(boxes, tmp_path):
    played = boxes(NEWEST, real_cli.CODEX[1]).play(dict(SCENARIOS["retry_429"]), USER, tmp_path)
    judged = checks.judge(played)
    assert {evidence: cell["reasons"] for evidence, cell in judged.items() if cell["state"] == "not fulfilled"} == {}


# -- the key ------------------------------------------------------------------------------------------------------------

def hunting(key, places="/"):
    """A run in which a tool looks for this key."""
    call = {"cmd": "python3 hunt.py %s %s" % (key[::-1], places), "yield_time_ms": 30000}        # waits for a slow machine
    return scenario("hunt", "", [says(function_call("exec_command", call)), final(usage=SECOND)], [None, None],
                    tools=["completed"], files={"hunt.py": HUNT}, document={"prompt": "Look around."})


def hunted(played):
    """What the tool reported is taken from what the model was told."""
    told = str(played.witness.model[-1].request["input"])
    assert "HUNT" in told, "the tool told nothing: %s" % told[-1500:]
    report = json.loads(told.split("HUNT")[1].replace("\\\\", "\\").replace('\\"', '"'))
    assert report["key"] == [], "the agent found the key: %s" % report["key"]
    assert {"environ", "memory"} <= set(report["token"]), "the search does not find what is there: %s" % report
    launch = played.done.document("launch.json")
    for pid in (launch["pid"], launch["guard_pid"]):
        assert ["mem", pid] in report["denied"] and ["environ", pid] in report["denied"], (pid, report["denied"])
    assert {one.headers["authorization"] for one in played.witness.model} == {"Bearer " + played.key}
    assert played.done.outcome["kind"] == "completed" and "key_exposed" not in played.done.warnings()
    assert not [name for name, data in played.done.everything().items() if played.key.encode() in data]


@pytest.mark.parametrize("python,user,source", [
    (OLDEST, ROOT, "file"), (NEWEST, USER, "file"), (NEWEST, ROOT, "environment"), (OLDEST, USER, "environment"),
    (OLDEST, ROOT, "stdin")])
def test_no_process_of_the_agent_can_read_the_key(boxes, tmp_path, python, user, source):
    key = "sk-" + secrets.token_hex(20)
    one, env = hunting(key), None
    one["name"] = "hunt-" + source
    if source == "environment":
        env = {"MY_KEY": key}
        one["document"]["model"] = {"api_key_file": None, "api_key_env": "MY_KEY"}
    if source == "stdin":
        one["document"]["model"] = {"api_key_file": None, "api_key": key}
        one["document"]["directory"] = "/run/hunt-stdin-%s/run/out" % user
    stdin = source == "stdin"
    hunted(boxes(python).play(one, user, tmp_path, key, env, on_stdin=stdin, outcome="run/out" if stdin else "run"))


@pytest.mark.parametrize("python", [OLDEST, NEWEST])
def test_the_key_in_bubblewrap(dist, tmp_path, python):
    if bwrap.why_not():
        pytest.fail(bwrap.why_not())
    root = roots.make(pythons.cached(python))
    binds = [(str(tmp_path), str(tmp_path))]
    options = ["--ro-bind", os.path.dirname(os.path.realpath(real_cli.path())), "/tmp/codex"]
    wrapper = bwrap.command(root, [], binds=binds, network=True, options=options)
    in_namespace(dist, tmp_path, wrapper, "/tmp/codex/codex", "python3", "/")


def test_the_key_under_unshare(dist, tmp_path):
    """Root in a user namespace: the agent has every capability there that is not in the bounding set any more."""
    # Own process numbers: what the tool says of every process of a busy machine would be cut by the CLI.
    wrapper = ["unshare", "-r", "-p", "-f", "--mount-proc", "--"]
    in_namespace(dist, tmp_path, wrapper, real_cli.path(), sys.executable, str(tmp_path))


def in_namespace(dist, tmp_path, wrapper, program, python, places):
    key, bundle = "sk-" + secrets.token_hex(20), str(tmp_path / "sandbox-worker.pyz")
    shutil.copy(os.path.join(dist, "sandbox-worker.pyz"), bundle)
    hunted(runner.play(hunting(key, places), real_cli.CODEX[0], [os.path.dirname(program)], bundle, tmp_path / "here", python=python,
                       wrapper=wrapper, key=key, log=False))

"""README, "Many at once": its lines as they are printed there, with a real Slurm, GNU parallel and xargs."""
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import conftest, kubernetes_schema, runs
from tests.endpoint import Endpoint, message
from tests.slurm import cluster

ROOT = conftest.ROOT
TASKS, ATTEMPTS = 20, 3
KILLED, CANCELLED, OUTAGE, REFUSED = 3, 5, 7, 9     # numbers of the tasks that go wrong
AGENT = """
import os, signal, sys, time, urllib.request, urllib.error
task, mark = %d, os.path.join(os.environ["TASK"], "was-here")
first = not os.path.exists(mark)
open(mark, "w").close()
if task == 3 and first:
    os.kill(os.getpid(), signal.SIGKILL)
if task == 5:
    time.sleep(600)
request = urllib.request.Request(os.environ["SANDBOX_WORKER_MODEL_URL"] + "/responses", headers={"Content-Type": "application/json",
    "Authorization": "Bearer " + os.environ["SANDBOX_WORKER_TOKEN"]}, data=b'{"model": "m", "input": "task %%02d", "stream": true}' %% task)
try:
    urllib.request.urlopen(request).read()
except urllib.error.HTTPError:
    sys.exit(1)
"""


def lines(language="sh"):
    """The code blocks of the README's section, in order."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        section = re.search(r"(?ms)^## Many at once\n(.*?)^## ", file.read()).group(1)
    return re.findall(r"(?ms)^```%s\n(.*?)^```" % language, section)


def block(word):
    found = [text for text in lines() if word in text]
    assert len(found) == 1, "the README has %d blocks with %s" % (len(found), word)
    return found[0]


@pytest.fixture
def place(dist, tmp_path):
    """A directory that looks like the repository to the README's lines: dist/, worker/host/recipes/, runs/."""
    os.symlink(dist, str(tmp_path / "dist"))
    os.symlink(os.path.join(ROOT, "worker"), str(tmp_path / "worker"))
    (tmp_path / "runs").mkdir()
    return tmp_path


def tell(place, name, url, source, **more):
    folder = place / "runs" / name
    folder.mkdir()
    (folder / "input.json").write_text(json.dumps(dict({
        "command": [sys.executable, "-c", source], "timeout": 120, "env": {"TASK": str(folder)}, "retry": {"max_attempts": 1, "base": 0.05},
        "model": {"base_url": url + "/v1", "api_key_env": "UPSTREAM_KEY"}}, **more)))


def sh(text, place, environ=None, check=True):
    done = subprocess.run(["sh", "-c", text], cwd=str(place), env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=runs.HANG)
    assert not check or done.returncode == 0, done.stderr.decode(errors="replace")
    return done


ANSWERS = {
    "answers": [
        {"match": {"body": "task %02d" % OUTAGE}, "steps": [{"status": 503, "json": {"error": {"message": "we are down"}}}]},
        {"match": {"body": "task %02d" % REFUSED},
         "steps": [{"status": 401, "json": {"error": {"message": "wrong key", "code": "invalid_api_key"}}}]},
    ],
    "default": {"responses": {"items": [message("done")], "usage": [10, 0, 5, 0]}},
}


def outcomes(place):
    """{(task, attempt): (kind, action, exit code of the run)}"""
    found = {}
    for task in os.listdir(str(place / "runs")):
        for attempt in sorted(os.listdir(str(place / "runs" / task))):
            path = place / "runs" / task / attempt / "result.json"
            if path.exists():
                result = json.loads(path.read_text())
                found[int(task), attempt] = (result["outcome"]["kind"], result["disposition"]["action"])
    return found


def test_the_kubernetes_manifest_fits_the_published_api():
    try:
        import yaml
    except ImportError:
        conftest.lacking("no PyYAML")
    with open(os.path.join(ROOT, "worker", "host", "recipes", "kubernetes_job.yaml")) as file:
        manifest = yaml.safe_load(file)
    with open(kubernetes_schema.PATH) as file:
        types = json.load(file)["types"]
    assert list(kubernetes_schema.complaints(manifest, "V1Job", types, "manifest")) == []
    wrong = json.loads(json.dumps(manifest))
    wrong["spec"]["completion"] = 3
    wrong["spec"]["parallelism"] = "many"
    wrong["spec"]["template"]["spec"]["containers"][0].pop("name")
    assert len(list(kubernetes_schema.complaints(wrong, "V1Job", types, "manifest"))) == 3, "the check can fail"
    rules = {rule["action"]: rule.get("onExitCodes", {}).get("values") for rule in manifest["spec"]["podFailurePolicy"]["rules"]}
    assert rules == {"Ignore": None, "Count": [75], "FailIndex": [0, 75]}


def kubernetes_words():
    try:
        import yaml
    except ImportError:
        conftest.lacking("no PyYAML")
    with open(os.path.join(ROOT, "worker", "host", "recipes", "kubernetes_job.yaml")) as file:
        container = yaml.safe_load(file)["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["/bin/sh", "-c"]
    return container["args"][0]


def test_the_kubernetes_container_runs_its_index_and_counts_its_tries(place):
    """The manifest's own shell words, with directories of this machine in place of its volumes."""
    words = ["/bin/sh", "-c", kubernetes_words()]
    for inside, outside in (("/worker/", "%s/dist/" % place), ("/inputs/", "%s/inputs/" % place), ("/outcomes/", "%s/outcomes/" % place)):
        assert inside in words[-1]
        words[-1] = words[-1].replace(inside, outside)
    (place / "inputs").mkdir()
    with Endpoint(ANSWERS) as endpoint:
        tell(place, "7", endpoint.url, AGENT % OUTAGE)
        shutil.copy(str(place / "runs" / "7" / "input.json"), str(place / "inputs" / "7.json"))
        codes = [subprocess.run(words, env=dict(os.environ, INDEX="7", FAILURES=str(number), UPSTREAM_KEY="sk-upstream-0123456789"),
                                timeout=runs.HANG).returncode for number in range(ATTEMPTS)]
    assert codes == [75, 75, 69]
    assert sorted(os.listdir(str(place / "outcomes" / "7"))) == ["attempt-1", "attempt-2", "attempt-3"]


@pytest.mark.slow
def test_a_slurm_array_requeues_what_may_be_tried_again_and_nothing_else(place):
    """20 tasks: one is killed, one cancelled, one has a provider outage, one a wrong key."""
    if cluster.why_not():
        conftest.lacking(cluster.why_not())
    with Endpoint(ANSWERS) as endpoint, cluster.Cluster() as slurm:
        for task in range(TASKS):
            tell(place, str(task), endpoint.url, AGENT % task)
        environ = dict(slurm.environ, UPSTREAM_KEY="sk-upstream-0123456789")
        job = re.search(r"job (\d+)", sh(block("sbatch"), place, environ).stdout.decode()).group(1)
        slurm.wait((place / "runs" / str(CANCELLED) / "was-here").exists, "the task to be cancelled")
        slurm.run("scancel", "%s_%d" % (job, CANCELLED))
        slurm.wait(lambda: not slurm.run("squeue", "-h", "-j", job, check=False).strip(), "the array")
        found = outcomes(place)
    wanted = {(task, "attempt-1"): ("completed", "grade") for task in range(TASKS)}
    wanted.update({(KILLED, "attempt-1"): ("killed", "retry"), (KILLED, "attempt-2"): ("completed", "grade"),
                   (CANCELLED, "attempt-1"): ("terminated", "retry"), (REFUSED, "attempt-1"): ("authentication", "mask")})
    wanted.update({(OUTAGE, "attempt-%d" % number): ("overloaded", "retry" if number < ATTEMPTS else "mask")
                   for number in range(1, ATTEMPTS + 1)})
    assert found == wanted
    sh(block("summarize").replace("-mindepth 1 -maxdepth 1", "-mindepth 2 -maxdepth 2"), place)
    totals = json.loads((place / "summary" / "summary.json").read_text())
    assert totals["actions"] == {"grade": 17, "retry": 4, "mask": 2} and totals["unreadable"] == 0


@pytest.mark.parametrize("way", ["parallel", "xargs", "slurm_array.sh", "kubernetes_job.yaml", "sandboxctl"])
def test_an_empty_bundle_is_no_success(place, way):
    """Python's own exit code of an empty program is 0: a run that never began must not be taken for one that may be graded."""
    os.unlink(str(place / "dist"))
    (place / "dist").mkdir()
    empty, job = place / "dist" / "sandbox-worker.pyz", place / "runs" / "1"
    empty.touch()
    job.mkdir()
    (job / "input.json").write_text('{"command": ["true"]}')
    environ = dict(os.environ, RUNS=str(place / "runs"), WORKER=str(empty), SLURM_ARRAY_TASK_ID="1", INDEX="1", FAILURES="0")
    if way in ("parallel", "xargs"):
        if not shutil.which(way):
            conftest.lacking("no %s" % way)
        sh(block(way), place)
        codes = [line.split("\t")[0 if way == "xargs" else 6] for line in (place / "codes.tsv").read_text().splitlines()]
        assert codes[-1] == "1"
    elif way == "slurm_array.sh":
        assert sh("sh worker/host/recipes/slurm_array.sh", place, environ, check=False).returncode == 66
    elif way == "kubernetes_job.yaml":
        text = kubernetes_words().replace("/worker/", "%s/dist/" % place).replace("/inputs/$INDEX", str(job / "input"))
        assert sh(text.replace("/outcomes/", "%s/outcomes/" % place), place, environ, check=False).returncode == 65
    else:
        shutil.copy(os.path.join(ROOT, "worker", "host", "sandboxctl"), str(place / "dist"))
        done = sh("dist/sandboxctl run --via '' --input runs/1/input.json --out out", place, check=False)
        assert done.returncode == 69 and b"it is empty" in done.stderr


@pytest.mark.parametrize("tool", ["parallel", "xargs"])
def test_parallel_and_xargs_run_them_all_and_keep_every_exit_code(place, tool):
    if not shutil.which(tool):
        conftest.lacking("no %s" % tool)
    with Endpoint(ANSWERS) as endpoint:
        for task in (0, OUTAGE, REFUSED):
            tell(place, "task %d's" % task, endpoint.url, AGENT % task)
        done = sh(block(tool), place, dict(os.environ, UPSTREAM_KEY="sk-upstream-0123456789"))
    kinds = {task: json.loads((place / "runs" / ("task %d's" % task) / "result.json").read_text())["outcome"]["kind"]
             for task in (0, OUTAGE, REFUSED)}
    assert kinds == {0: "completed", OUTAGE: "overloaded", REFUSED: "authentication"}
    codes = sorted(line.split("\t")[0 if tool == "xargs" else 6] for line in (place / "codes.tsv").read_text().splitlines())
    assert [code for code in codes if code.isdigit()] == ["0", "69", "75"], done.stderr
    sh(block("summarize"), place)
    assert len((place / "summary" / "summary.tsv").read_text().splitlines()) == 4

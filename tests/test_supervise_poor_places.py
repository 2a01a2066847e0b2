"""Promise: where memory, disk, time, names or sight are short, the run still ends as it should and says what was short.

Every place is real: what each test asks for cannot be had outside it. More places: tests/test_supervise_places.py.
"""
from __future__ import annotations

import glob
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time

import pytest

from tests import agents, pythons, runs
from tests.conftest import lacking
from tests.endpoint import Endpoint
from tests.sandboxes import bwrap, docker, roots

pytestmark = pytest.mark.engine

JOB = "/tmp/job"
DONE = '{"type":"turn.completed"}'
RUN = ["python3", "-I", "-S", JOB + "/sandbox-worker.pyz", "run", JOB + "/run/input.json"]
COLLECT = ["sh", "-c", "cd %s && rm -f run/control.sock && tar c run" % JOB]


def python(code):
    return ["python3", "-I", "-S", "-c", code]


def shell(code):
    return ["sh", "-c", code]


def staged(bundle, document):
    """A tar file with bundle and input document, for `tar x` in /tmp."""
    buffer, text = io.BytesIO(), json.dumps(dict({"timeout": 60, "cwd": "/", "directory": JOB + "/run"}, **document)).encode()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(bundle, "job/sandbox-worker.pyz")
        entry = tarfile.TarInfo("job/run/input.json")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return buffer.getvalue()


def collected(data, folder, code, stdout=b"", stderr=b""):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(folder)
    done = runs.Done(folder / "run", code, stdout, stderr)
    runs.check(done)
    return done


class Place:
    """A container in which one run takes place; `started` is the run's process on this side."""

    def __init__(self, bundle, tmp_path, *options, user=None, version="3.8", **document):
        self.container, self.folder, self.user = docker.Container(docker.image(pythons.cached(version)), *options), tmp_path, user
        self.files = staged(bundle, document)

    def __enter__(self):
        self.container.__enter__()
        self.container.exec(["sh", "-c", "cd /tmp && tar x && chmod -R a+rwX job"], input=self.files)
        return self

    def __exit__(self, *_):
        self.container.__exit__()

    def start(self, words=(), **options):
        return subprocess.Popen(self.container.command(list(words) + RUN, user=self.user, **options), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self, process):
        stdout, stderr = process.communicate(timeout=runs.HANG)
        return collected(self.container.exec(COLLECT).stdout, self.folder, process.returncode, stdout, stderr)

    def run(self, *words):
        return self.finish(self.start(words))


HUNGRY = "x = [bytearray(1 << 20) for _ in range(4096)]"
SMALL = ("--memory", "96m", "--memory-swap", "96m")


def test_an_agent_that_the_kernel_kills_for_memory(bundle, tmp_path):
    with Place(bundle, tmp_path, *SMALL, command=python(HUNGRY)) as place:
        done = place.run()
    assert done.result["return_code"] == -9 and done.receipt["signals"] == []
    assert done.outcome["kind"] == "out_of_memory" and done.action == "retry" and done.code == 75
    assert done.result["resources"]["kernel"]["oom"] is True and done.receipt["cleanup_confirmed"] is True


def test_a_worker_that_the_kernel_kills_for_memory(bundle, tmp_path):
    """The agent makes its worker the kernel's first choice, and itself the last."""
    code = """
import os, time
for pid, score in ((os.getppid(), 1000), (os.getpid(), 0)):
    with open("/proc/%d/oom_score_adj" % pid, "w") as file:
        file.write(str(score))
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
""" + HUNGRY.replace("4096", "60") + """
while True:
    try:
        os.kill(os.getppid(), 0)
        x.append(bytearray(1 << 18))
    except MemoryError:
        pass
"""
    with Place(bundle, tmp_path, *SMALL, command=python(code)) as place:
        done = place.run()
        left = place.container.exec(["sh", "-c", "ps | grep -c '[b]ytearray' || true"]).stdout
    assert done.outcome["kind"] == "worker_error" and "killed by signal 9" in done.outcome["message"] and done.code == 70
    assert done.receipt["cleanup_confirmed"] is True and done.receipt["proof"] == "echild" and left.strip() == b"0"


def test_a_disk_that_is_really_full(bundle, tmp_path):
    code = "import os\nfor n in range(50000): os.write(1, b'{\"n\":%d,\"p\":\"' % n + b'x' * 90 + b'\"}\\n')\nprint('" + DONE + "')"
    with Place(bundle, tmp_path, "--tmpfs", "/tmp:rw,size=2m,mode=1777", command=python(code)) as place:
        done = place.run()
    assert done.result["return_code"] == 0 and done.outcome["kind"] == "completed", "the agent was never blocked"
    assert done.result["resources"]["kernel"].get("disk_full") is True
    assert "evidence_lost" in done.gaps() or "output_dropped" in done.gaps()
    assert done.events[0]["n"] == 0


def test_a_directory_on_a_full_disk_is_given_back(bundle, tmp_path):
    """73, and nothing of ours stays behind: the reserve did not fit."""
    with Place(bundle, tmp_path, "--tmpfs", "/small:rw,size=64k,mode=1777", command=["true"], directory="/small/run") as place:
        process = place.start()
        _, said = process.communicate(timeout=runs.HANG)
        left = place.container.exec(["ls", "-A", "/small/run"]).stdout
    assert process.returncode == 73 and b"No space left" in said and said.count(b"\n") == 1 and left == b""


def test_a_container_that_is_paused_over_the_deadline(bundle, tmp_path):
    """The clock went on, nobody ran: the deadline holds, and the outcome says that supervision stood still."""
    with Place(bundle, tmp_path, command=shell("echo '{}'; sleep 600"), timeout=6) as place:
        process = place.start()
        assert b"started" in process.stdout.readline()
        docker.docker("pause", place.container.name)
        subprocess.run(["sleep", "8"], check=True)
        docker.docker("unpause", place.container.name)
        done = place.finish(process)
    assert done.outcome["kind"] == "wall_timeout" and "supervision_stopped" in done.warnings()
    assert done.receipt["cleanup_confirmed"] is True and done.result["duration_ms"] >= 6000


def test_a_cli_that_lingers(bundle, tmp_path):
    with Place(bundle, tmp_path, command=shell("echo '%s'; sleep 600" % DONE), harness="codex", linger=1) as place:
        done = place.run()
    assert "lingered" in done.warnings() and done.receipt["cleanup_confirmed"] is True and done.receipt["timed_out"] is False


@pytest.mark.parametrize("user,words", [("12345:12345", ()), (None, ("env", "-u", "HOME")), ("12345:12345", ("env", "-i", "PATH=/usr/local/bin:/bin"))],
                         ids=["no passwd entry", "no HOME", "neither, nor anything"])
def test_without_a_home(bundle, tmp_path, user, words):
    command = python("import os\nopen(os.environ['HOME'] + '/x', 'w').close()\nprint('%s')" % DONE)
    with Place(bundle, tmp_path, command=command, user=user) as place:
        done = place.run(*words)
    assert done.outcome["kind"] == "completed", done.read("stderr.log")
    assert done.document("launch.json")["agent_home"].startswith(JOB)


def test_no_process_is_left_for_the_worker(bundle, tmp_path):
    limit = "import os,resource,sys; resource.setrlimit(resource.RLIMIT_NPROC, (1, 1)); os.execvp(sys.argv[1], sys.argv[1:])"
    with Place(bundle, tmp_path, command=["true"], user="54321:54321") as place:
        process = place.start(python(limit))
        _, said = process.communicate(timeout=runs.HANG)
        left = place.container.exec(["ls", "-A", JOB + "/run"]).stdout
    assert process.returncode == 70 and b"the worker cannot be forked" in said and said.count(b"\n") == 1
    assert left == b"input.json\n"


def test_too_few_descriptors(bundle, tmp_path):
    done = runs.run(bundle, tmp_path, wrapper=("sh", "-c", 'ulimit -n 20; exec "$@"', "sh"), python=sys.executable, command=["true"])
    assert done.code == 70 and done.outcome["kind"] == "worker_error" and done.receipt["cleanup_confirmed"] is True
    assert "the limit of open files is 20 here" in done.outcome["message"]


def root_with(bundle, tmp_path, document):
    """(a root file system, a folder that lies at /tmp in it)."""
    if bwrap.why_not():
        lacking(bwrap.why_not())
    with tarfile.open(fileobj=io.BytesIO(staged(bundle, document))) as tar:
        tar.extractall(tmp_path / "tmp")
    subprocess.run(["chmod", "-R", "a+rwX", str(tmp_path / "tmp")], check=True)
    return roots.make(pythons.cached("3.8")), str(tmp_path / "tmp")


ESCAPE = "setsid sleep 600 & setsid sh -c 'sleep 600 & exit 0'; "


def test_hidepid_hides_other_users_processes(bundle, tmp_path):
    """PID 1 is root's and cannot be seen; what is ours can, and the proof is the same."""
    if os.geteuid():
        lacking("mounting /proc with hidepid needs root")
    look = "test -e /proc/1 && echo '{\"sees\":1}'; echo '%s'" % DONE
    root, tmp = root_with(bundle, tmp_path, {"command": shell(ESCAPE + look)})
    line = ('mount --bind "$1" "$2/tmp" && mount --bind /dev "$2/dev" && '
            'mount -t proc -o hidepid=2 proc "$2/proc" && shift 1 && R=$1 && shift 1 && chroot --userspec=12345:12345 "$R" "$@"; echo $?')
    done = subprocess.run(["unshare", "-mpf", "sh", "-c", line, "sh", tmp, root, *RUN], stdin=subprocess.DEVNULL, cwd="/",
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin"}, stdout=subprocess.PIPE, timeout=runs.HANG)
    *lines, code = done.stdout.splitlines()
    ended = runs.Done(os.path.join(tmp, "job", "run"), int(code), b"\n".join(lines), b"")
    assert ended.events == [{"type": "turn.completed"}], "PID 1 could be seen: this place is not poor"
    assert ended.code == 0 and ended.receipt["proof"] == "echild" and len(ended.receipt["killed"]) == 2
    assert {tuple(entry["argv"]) for entry in ended.receipt["killed"]} == {("sleep", "600")}


V2 = {"memory.events": "low 0\nhigh 0\nmax 7\noom 1\noom_kill %d\n", "pids.events": "max %d\n", "memory.peak": "%d\n"}


@pytest.mark.parametrize("file,kind", [("memory.events", "out_of_memory"), ("pids.events", "pids_exhausted"), ("memory.peak", "killed")])
def test_counters_of_a_control_group_of_version_2(bundle, tmp_path, file, kind):
    """The files as a container of a cgroup v2 host shows them (this kernel has its memory controller in version 1)."""
    raised = (V2[file] % (900 << 20)).replace("\n", "\\n")
    root, tmp = root_with(bundle, tmp_path, {"command": shell("printf '%s' > /sys/fs/cgroup/%s; kill -9 $$" % (raised, file))})
    group = tmp_path / "group"
    group.mkdir()
    for name, text in V2.items():
        (group / name).write_text(text % 0)
    words = bwrap.command(root, RUN, binds=[(tmp, "/tmp")], options=["--tmpfs", "/sys", "--bind", str(group), "/sys/fs/cgroup"])
    code = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=runs.HANG).returncode
    done = runs.Done(os.path.join(tmp, "job", "run"), code, b"", b"")
    runs.check(done)
    assert done.outcome["kind"] == kind and done.action == "retry"
    assert done.result["resources"]["kernel"]["oom"] is (file == "memory.events")
    assert done.result["resources"]["kernel"]["pids"] is (file == "pids.events")
    assert (done.result["resources"]["peak_memory_mib"] or 0) == (900 if file == "memory.peak" else 0)


# Asks once, closes the proxy's listener as root of this network namespace may, and stays.
CLOSES_THE_LISTENER = agents.ASK + """
import subprocess
port = os.environ["SANDBOX_WORKER_MODEL_URL"].split(":")[2].split("/")[0]
say(status=ask()[0])
subprocess.run(["ss", "-K", "-l", "-t", "sport", "=", ":" + port], check=True, stdout=subprocess.DEVNULL)
time.sleep(600)
"""


def test_a_proxy_whose_listener_dies_ends_the_run_at_once(bundle, tmp_path):
    """No client could reach the model any more, and would wait for ever: our failure, never the agent's time limit."""
    if not shutil.which("ss") or subprocess.run(["unshare", "-rn", "true"], stderr=subprocess.DEVNULL).returncode:
        lacking("no ss (Debian: iproute2), or no network namespaces here")
    alone = ("unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    done = runs.run(bundle, tmp_path, wrapper=alone, cwd="/", timeout=600, python=sys.executable, command=[
        sys.executable, "-c", CLOSES_THE_LISTENER.replace("import json,", "import json, time,")],
        model={"base_url": "http://127.0.0.1:9/v1", "api": "responses"}, retry={"max_attempts": 1})
    assert done.events == [{"status": 502}] and done.result["duration_ms"] < 1000 * runs.HANG
    assert done.outcome["kind"] == "worker_error" and "listener died" in done.outcome["message"] and done.action == "retry"
    assert done.code == 70 and done.receipt["cleanup_confirmed"] is True and done.receipt["signals"][0]["signal"] == "SIGTERM"


# Sets the wall clock, says so, leaves a stray, and stays.
SETS_THE_CLOCK = """
import os, subprocess, sys, time
print('{"before":1}', flush=True)
with open(sys.argv[1], "w") as clock:
    clock.write(sys.argv[2])
print('{"after":1}', flush=True)
subprocess.Popen(["sleep", "600"], start_new_session=True)
time.sleep(600)
"""


@pytest.mark.parametrize("moved", ["-86400", "+86400"])
def test_a_wall_clock_that_is_set_during_the_run(bundle, tmp_path, moved):
    """By a day, with libfaketime, which stands between guard and worker and the C library's clocks and file times."""
    library = next(iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), None) or lacking("no libfaketime (Debian: faketime)")
    clock = tmp_path / "clock"
    clock.write_text("+0")
    environ = {"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}
    began = time.time()
    with Endpoint({"answers": []}) as endpoint:
        done = runs.run(bundle, tmp_path, environ=environ, timeout=2, grace=0.5, cwd="/", model={
            "base_url": endpoint.url + "/v1", "api": "responses"}, command=[
            sys.executable, "-I", "-S", "-c", SETS_THE_CLOCK, str(clock), moved])
    ended = time.time()
    assert done.outcome["kind"] == "no_model_call", str(done.outcome)
    assert done.receipt["timed_out"] is True and done.result["return_code"] == -15
    stamps = [stamp for stamp, _ in done.jsonl("events.jsonl")] + [one["at"] for one in done.receipt["signals"]]
    stamps = [done.result["started_at"], done.document("launch.json")["launched_at"], *stamps, done.result["ended_at"]]
    assert stamps == sorted(stamps) and began - 1 < stamps[0] and stamps[-1] < ended + 1
    assert 2000 <= done.result["duration_ms"] <= 1000 * (ended - began) and done.receipt["cleanup_confirmed"] is True
    assert [0 <= entry["age_s"] < runs.HANG for entry in done.receipt["killed"]] == [True]
    assert any(moved[:3] in one["detail"] for one in done.result["warnings"] if one["code"] == "clock_moved")


def test_a_time_namespace_shifts_no_age(bundle, tmp_path):
    """Boot and monotonic clock are eleven days ahead of the machine's; ages in the receipt are those of the processes."""
    if subprocess.run(["unshare", "-r", "--time", "true"], stderr=subprocess.DEVNULL).returncode or not shutil.which("unshare"):
        lacking("no time namespaces here")
    shift = ("unshare", "-r", "--time", "--monotonic", "1000000", "--boottime", "1000000", "--fork")
    done = runs.run(bundle, tmp_path, wrapper=shift, cwd="/", command=[
        "sh", "-c", ESCAPE + "read up _ < /proc/uptime; echo \"{\\\"up\\\":$up}\""], python=sys.executable)
    assert done.events[0]["up"] > 1000000 and len(done.receipt["killed"]) == 2
    assert all(0 <= entry["age_s"] < runs.HANG for entry in done.receipt["killed"])
    assert 0 <= done.result["duration_ms"] < runs.HANG * 1000

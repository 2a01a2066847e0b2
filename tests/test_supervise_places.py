"""Poor places: the best remaining way is taken, and `cleanup_confirmed` is true only with proof (sandboxes.md of the makers).

Each place is a real one: a container, gVisor, bubblewrap, a bare namespace. What is promised differs by what it lacks.
"""
from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile

import pytest

from tests import pythons
from tests.conftest import elsewhere, lacking
from tests.escapes import programs
from tests.sandboxes import bwrap, docker, roots

pytestmark = pytest.mark.engine

HANG = 300
ENDS = ("double_fork", "setsid", "stopped", "chain_of_100", "forking_on", "holding_stdout")
# Runs one program and prints the receipt; $1 the program, $2.. a prefix. All files lie in /tmp/job.
PREPARE = """
cd /tmp/job && mkdir run
COMMAND='"python3","-I","-S","/tmp/job/programs.py"'
printf '{"directory":"/tmp/job/run","command":[%s,"%s","token"],"cwd":"/","timeout":60}' "$COMMAND" "$1" > run/input.json
"""
SCRIPT = PREPARE + """
python3 -I -S sandbox-worker.pyz run run/input.json > out 2> err
echo "$?" > code
python3 -I -S -c '
import json
print(json.dumps([int(open("code").read()), json.load(open("run/cleanup.json")), json.load(open("run/result.json"))]))
' || cat err
"""
SCRIPT_AS_PID_1 = PREPARE + "exec python3 -I -S sandbox-worker.pyz run run/input.json"


@pytest.fixture
def files(bundle):
    """What a place needs, as a tar file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(bundle, "job/sandbox-worker.pyz")
        tar.add(programs.__file__, "job/programs.py")
        for name, text in (("script", SCRIPT), ("script1", SCRIPT_AS_PID_1)):
            entry = tarfile.TarInfo("job/" + name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def check(output, program, confirmed=True, proof="echild", named=True):
    code, receipt, result = json.loads(output.decode().splitlines()[-1])
    assert result["return_code"] == 0 and result["outcome"]["kind"] == "completed"
    assert receipt["cleanup_confirmed"] is confirmed and receipt["proof"] == proof, receipt
    assert code == (0 if confirmed else 70)
    assert bool(receipt["error"]) is not confirmed
    if confirmed:
        assert len(receipt["killed"]) >= programs.PROGRAMS[program][1]
    if named and program not in ("forking_on",):
        assert all(entry["argv"] for entry in receipt["killed"])
    return receipt, result


def in_container(files, image, program, *options, user=None, script="script"):
    with docker.Container(image, *options) as container:
        container.exec(["sh", "-c", "cd /tmp && tar x && chmod 1777 job"], input=files)
        return container.exec(["sh", "/tmp/job/" + script, program], user=user).stdout


@pytest.mark.parametrize("version", ["3.8", "3.13"])
@pytest.mark.parametrize("user", [None, "12345:12345"])
@pytest.mark.parametrize("program", ENDS)
def test_exec_in_a_container(files, version, user, program):
    check(in_container(files, docker.image(pythons.cached(version)), program, user=user), program)


HARD = ("--read-only", "--tmpfs", "/tmp:rw,noexec,nosuid,size=16m,mode=1777", "--cap-drop", "ALL", "--security-opt",
        "no-new-privileges", "-u", "12345:12345", "--memory", "256m", "--memory-swap", "256m")


@pytest.mark.parametrize("limit", ["16", "64"])
@pytest.mark.parametrize("program", ["double_fork", "until_the_limit"])
def test_a_hardened_container_with_few_processes(files, limit, program):
    image = docker.image(pythons.cached("3.8"))
    done = docker.docker("run", "-i", "--rm", "--pull=never", "--network", "none", *HARD, "--pids-limit", limit, image,
                         "sh", "-c", "cd /tmp && tar x && sh job/script " + program, input=files)
    _, result = check(done.stdout, program)
    assert result["resources"]["kernel"]["pids"] is (program == "until_the_limit")


def test_few_descriptors(files):
    image = docker.image(pythons.cached("3.13"))
    check(in_container(files, image, "five_hundred", "--ulimit", "nofile=64:64"), "five_hundred")


def test_gvisor_without_subreapers_claims_nothing(files):
    """B25."""
    if not docker.has_runtime("runsc"):
        lacking("the engine has no runtime runsc (Debian: runsc)")
    output = in_container(files, docker.image(pythons.cached("3.8")), "double_fork", "--runtime", "runsc")
    code, receipt, _ = json.loads(output.decode().splitlines()[-1])
    if receipt["proof"] == "echild":
        elsewhere("this gVisor has subreapers")
    assert receipt["cleanup_confirmed"] is False and code == 70 and "subreaper" in receipt["error"]
    assert len(receipt["killed"]) == 1  # the marker finds it, which proves nothing


def test_gvisor_as_pid_1_proves_it(files):
    if not docker.has_runtime("runsc"):
        lacking("the engine has no runtime runsc (Debian: runsc)")
    image = docker.image(pythons.cached("3.8"))
    done = docker.docker("run", "-i", "--rm", "--pull=never", "--network", "none", "--runtime", "runsc", image,
                         "sh", "-c", "cd /tmp && tar x && exec sh job/script1 double_fork", input=files)
    last = json.loads(done.stdout.decode().splitlines()[-1])
    assert last["disposition"]["verify_allowed"] is True and last["outcome"]["kind"] == "completed"


@pytest.mark.parametrize("options", [(), ("--as-pid-1",), ("--uid", "12345", "--gid", "12345")], ids=["plain", "pid 1", "user"])
@pytest.mark.parametrize("proc", [True, False], ids=["proc", "no proc"])
@pytest.mark.parametrize("program", ENDS)
def test_bubblewrap(files, tmp_path, options, proc, program):
    if bwrap.why_not():
        lacking(bwrap.why_not())
    root = roots.make(pythons.cached("3.8"))
    job = unpacked(files, tmp_path)
    words = bwrap.command(root, ["sh", "/tmp/job/script", program], binds=[(job, "/tmp/job")], proc=proc, options=options)
    done = subprocess.run(words, stdout=subprocess.PIPE, timeout=HANG, stdin=subprocess.DEVNULL)
    check(done.stdout, program, named=proc)


def unpacked(files, folder):
    with tarfile.open(fileobj=io.BytesIO(files)) as tar:
        tar.extractall(folder)
    job = str(folder / "job")
    os.chmod(job, 0o1777)
    return job


@pytest.mark.parametrize("flags", ["-r", "-rpf", "-rpf --mount-proc"])
@pytest.mark.parametrize("program", ENDS)
def test_bare_namespaces(files, tmp_path, flags, program):
    """`-rpf` without a /proc of its own: the numbers in /proc are other processes', and none of those may be touched."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-r", "true"], stderr=subprocess.DEVNULL).returncode:
        lacking("no user namespaces here")
    job = unpacked(files, tmp_path)
    script = SCRIPT.replace("/tmp/job", job).replace("python3", sys.executable)
    done = subprocess.run(["unshare", *flags.split(), "sh", "-c", script, "sh", program], stdout=subprocess.PIPE,
                          timeout=HANG, stdin=subprocess.DEVNULL)
    check(done.stdout, program, named=flags != "-rpf")

"""Promise: in hard containers sandboxctl works or says in one sentence why not: no Python, no network, no user, nothing writable."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests import ctl
from tests.endpoint import Endpoint, message
from tests.sandboxes import docker, roots

pytestmark = pytest.mark.engine
ANSWER = {"responses": {"items": [message("42")], "usage": [10, 2, 3, 1]}}
ASK = """
import json, os, urllib.request
request = urllib.request.Request(os.environ["SANDBOX_WORKER_MODEL_URL"] + "/responses", b'{"model": "m", "input": "x", "stream": true}',
                                 {"Authorization": "Bearer " + os.environ["SANDBOX_WORKER_TOKEN"], "Content-Type": "application/json"})
urllib.request.urlopen(request).read()
print(%r)
""" % ctl.DONE


@pytest.fixture(scope="module")
def bare():
    """An image of this machine's libraries and busybox, without any Python."""
    name = docker.image(sys.executable).replace("-test:", "-bare:")
    if docker.docker("image", "inspect", name, check=False).returncode:
        root = roots.make(sys.executable)
        tar = subprocess.Popen(["tar", "-C", root, "--exclude=./usr/local/bin/python*", "--exclude=./usr/local/lib/python*", "-c", "."],
                               stdout=subprocess.PIPE)
        docker.docker("import", "-c", "ENV PATH=/usr/local/bin:/bin", "-", name, stdin=tar.stdout)
        tar.stdout.close()
        assert tar.wait() == 0
    return name


def run(dist, folder, box, *options, user=None, **fields):
    via = "docker exec -i %s%s" % ("-u %s " % user if user else "", box.name)
    path = ctl.document(folder, **dict({"command": ctl.SUCCESS, "cwd": "/", "timeout": 300}, **fields))
    done = ctl.ctl(dist, "run", "--via", via, "--input", path, "--out", folder / "out", *options)
    return done, ctl.outcome(folder / "out")


def test_without_python_there_is_one_sentence_and_a_result(dist, bare, tmp_path):
    with docker.Container(bare) as box:
        done, found = run(dist, tmp_path, box)
    assert done.returncode == 69 and done.stderr.count("\n") == 1 and "--python DIR" in done.stderr, done.stderr
    assert (found.outcome["kind"], found.outcome["status"], found.action) == ("launch_failed", "not_run", "mask")
    assert found.outcome["evidence"]["error"] == "no_python" and found.receipt["cleanup_confirmed"] is True


def test_a_portable_python_is_brought_along(dist, bare, tmp_path):
    root = os.path.join(roots.make(sys.executable), "usr", "local")
    (tmp_path / "python").mkdir()
    for name in ("bin", "lib"):
        shutil.copytree(os.path.join(root, name), str(tmp_path / "python" / name), symlinks=True,
                        ignore=shutil.ignore_patterns("unittest", "asyncio", "multiprocessing", "xml", "email", "distutils", "pydoc*",
                                                      "sqlite3", "dbm", "curses", "wsgiref", "xmlrpc", "concurrent", "logging", "lib*.so*"))
    with docker.Container(bare) as box:
        done, found = run(dist, tmp_path, box, "--python", tmp_path / "python", "--keep")
        assert done.returncode == 0 and found.outcome["kind"] == "completed", done.stderr
        assert not box.exec(["sh", "-c", "ls -d /var/tmp/*/python.part* 2>/dev/null"], check=False).stdout
        cleaned = ctl.ctl(dist, "clean", tmp_path / "out")
        assert cleaned.returncode == 0 and not box.exec(["ls", "/var/tmp"]).stdout


def test_a_user_without_a_name_in_a_read_only_container(dist, tmp_path):
    """No passwd entry, no capability, a small /tmp that is noexec, and nothing else to write to."""
    options = ("--read-only", "--tmpfs", "/tmp:rw,noexec,nosuid,size=32m", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
               "-u", "12345:12345", "--pids-limit", "64")
    with docker.Container(docker.image(sys.executable), *options) as box:
        done, found = run(dist, tmp_path, box)
        assert done.returncode == 0 and found.outcome["kind"] == "completed", done.stderr
        assert not box.exec(["ls", "/tmp"]).stdout.strip()


def test_where_nothing_can_be_written_it_says_so(dist, tmp_path):
    with docker.Container(docker.image(sys.executable), "--read-only", "-u", "12345", "--tmpfs", "/dev/shm:ro") as box:
        done, found = run(dist, tmp_path, box)
    assert done.returncode == 73 and "no directory can be written there" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "out").exists()


def test_a_model_behind_a_socket_in_a_container_without_network(dist, tmp_path):
    (tmp_path / "key").write_text("sk-0123456789-of-the-host")
    (tmp_path / "socket").mkdir()
    with Endpoint([ANSWER], unix=str(tmp_path / "socket" / "model")) as endpoint, \
            docker.Container(docker.image(sys.executable), "-v", "%s:/run/model" % (tmp_path / "socket"), network="none") as box:
        done, found = run(dist, tmp_path, box, "--key", tmp_path / "key", command=["python3", "-c", ASK],
                          model={"socket": "/run/model/model", "api": "responses"})
        seen = endpoint.requests()
    assert done.returncode == 0 and found.outcome["kind"] == "completed", done.stderr
    assert [dict(one["headers"])["Authorization"] for one in seen] == ["Bearer sk-0123456789-of-the-host"]
    assert found.attempts[0]["status"] == 200 and found.result["usage"]["chosen"]["input_tokens"] == 10


def test_a_python_without_its_modules_is_named(dist, tmp_path):
    """As Debian's python3-minimal has it."""
    with docker.Container(docker.image(sys.executable)) as box:
        box.exec(["sh", "-c", "rm -rf /usr/local/lib/python3*/json"])
        done, found = run(dist, tmp_path, box)
    assert done.returncode == 69 and "json" in done.stderr and "python3-minimal" in done.stderr, done.stderr
    assert found.outcome["kind"] == "launch_failed"


def test_what_doctor_calls_blocking_ends_it_before_anything_starts(dist, tmp_path):
    with docker.Container(docker.image(sys.executable)) as box:
        via = "docker exec -i " + box.name
        path = ctl.document(tmp_path, harness="codex", prompt="x", model={"base_url": "http://127.0.0.1:9/v1", "name": "m"})
        done = ctl.ctl(dist, "run", "--via", via, "--input", path, "--out", tmp_path / "out")
        looked = ctl.ctl(dist, "doctor", "--via", via, "--harness", "codex")
        assert not box.exec(["sh", "-c", "find / -name launch.claim"]).stdout
    found = ctl.outcome(tmp_path / "out")
    assert done.returncode == 69 and "no run can work there" in done.stderr and found.outcome["kind"] == "launch_failed", done.stderr
    assert looked.returncode == 69 and "blocking" in looked.stdout

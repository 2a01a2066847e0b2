"""`doctor` says in plain words what will not work in a sandbox: its table, and real places that lack one thing each."""
from __future__ import annotations

import json
import os
import pty
import re
import resource
import shutil
import subprocess
import sys

import pytest

from tests import pythons, runs
from tests.conftest import lacking
from tests.sandboxes import bwrap, docker, roots
from worker import doctor_findings, doctor_harness, harnesses

FINE = {  # the facts of a sandbox that lacks nothing
    "python": "3.11.7", "executable": "/usr/bin/python3", "machine": "x86_64", "kernel": "Linux 6.1", "uid": 1000, "gid": 1000,
    "cpus": 2, "memory_limit_mib": None, "pid": 7, "pid_1": "sleep", "proc": True, "children_file": True, "ctypes": True,
    "subreaper": True, "pidfd": True, "seccomp": "2", "no_new_privs": "0", "capabilities": "0", "proc_is_ours": True,
    "hidepid": False, "loopback": None, "ptrace_dropped": True, "bounding": "0", "key_names": [], "path": "/bin", "ssl": True,
    "sqlite3": True, "ca_certificates": True, "directory": "/run/agent", "directory_asked": True, "directory_error": None,
    "tmp": "/tmp", "tmp_noexec": False, "space_bytes": 1 << 40, "free_inodes": 1 << 20, "memory_free_bytes": 1 << 34,
    "pids_free": 1000, "open_files": 1024, "address_space_bytes": None, "file_size_bytes": None, "wall_clock": 2e9,
    "date": "2033-05-18", "clock_drift_s": 0.0, "user_name": "agent", "home": "/home", "home_writable": True, "harness": None,
}
HARNESS = {"name": "codex", "word": "codex", "program": "/bin/codex", "version": "0.171.0", "tested": ["0.171.0"], "error": None,
           "untested": False, "notes": [], "missed": []}
CASES = [  # what is wrong -> the one finding beside it
    ({"loopback": "Network is unreachable"}, "loopback_down"),
    ({"directory_error": "Permission denied"}, "directory_not_writable"),
    ({"directory_error": "Permission denied", "directory_asked": False}, "work_directory_not_writable"),
    ({"space_bytes": 0}, "no_space"), ({"free_inodes": 0}, "no_space"), ({"space_bytes": 100 << 20}, "little_space"),
    ({"pids_free": 5}, "too_few_pids"), ({"pids_free": 6}, "few_pids"), ({"pids_free": 63}, "few_pids"),
    ({"open_files": 31}, "too_few_files"), ({"open_files": 32}, "few_files"),
    ({"memory_free_bytes": 16 << 20}, "too_little_memory"), ({"memory_free_bytes": 256 << 20}, "little_memory"),
    ({"harness": dict(HARNESS, program=None)}, "harness_not_found"),
    ({"harness": dict(HARNESS, error="codex --version ends with 127", version=None)}, "harness_does_not_start"),
    ({"harness": dict(HARNESS, version="9.9.9", untested=True)}, "untested_version"),
    ({"harness": dict(HARNESS, version=None)}, "harness_version_unknown"),
    ({"harness": dict(HARNESS, notes=["no rg"])}, "harness_note"), ({"harness": dict(HARNESS, missed=["times"])}, "missed"),
    ({"subreaper": False}, "cleanup_unconfirmed"), ({"ctypes": False}, "no_ctypes"), ({"ssl": False}, "no_ssl"),
    ({"sqlite3": False}, "no_sqlite3"), ({"ca_certificates": False}, "no_ca_certificates"), ({"proc": False}, "no_proc"),
    ({"proc_is_ours": False}, "proc_not_ours"), ({"tmp": None}, "no_tmp"), ({"address_space_bytes": 4 << 30}, "address_space_limited"),
    ({"file_size_bytes": 1 << 20}, "file_size_limited"), ({"wall_clock": 0.0, "date": "1970-01-01"}, "clock_wrong"),
    ({"clock_drift_s": -3.0}, "clock_jumps"), ({"uid": 0, "ptrace_dropped": False}, "ptrace_stays"),
    ({"uid": 0, "capabilities": "000001ffffffffff"}, "privileged"), ({"key_names": ["OPENAI_API_KEY"]}, "key_in_environment"),
    ({"hidepid": True}, "hidepid"), ({"children_file": False}, "no_children_file"), ({"pidfd": False}, "no_pidfd"),
    ({"ptrace_dropped": False, "bounding": "00000000a80c25fb"}, "ptrace_in_bounds"), ({"tmp_noexec": True}, "tmp_noexec"),
    ({"user_name": None}, "no_passwd_entry"), ({"home_writable": False}, "home_not_writable"),
]


@pytest.mark.parametrize("change,code", CASES, ids=["%s-%d" % (code, at) for at, (_, code) in enumerate(CASES)])
def test_each_trouble_is_one_finding_with_words_and_remedy(change, code):
    found = doctor_findings.findings(dict(FINE, **change))
    assert [one["code"] for one in found] == [code]
    assert "%" not in found[0]["sentence"] and "None" not in found[0]["sentence"]
    assert found[0]["remedy"] or found[0]["severity"] == "note", "what can be better says how"


def test_nothing_is_found_where_nothing_is_lacking_or_known():
    assert doctor_findings.findings(FINE) == []
    unknown = dict(FINE, memory_free_bytes=None, pids_free=None, space_bytes=None, free_inodes=None, open_files=None,
                   ptrace_dropped=None, capabilities=None, bounding=None, harness=HARNESS)
    assert doctor_findings.findings(unknown) == []


def test_every_row_of_the_table_has_a_case():
    assert {row[0] for row in doctor_findings.TABLE} == {code for _, code in CASES} - {"harness_note", "missed"}
    assert set(doctor_harness.MISSED) == set(harnesses.TABLE)


def test_the_worst_decides_and_stands_first():
    found = doctor_findings.findings(dict(FINE, hidepid=True, ssl=False, loopback="Network is unreachable"))
    assert [one["severity"] for one in found] == ["blocking", "degraded", "note"]
    assert [doctor_findings.verdict(found[at:]) for at in range(4)] == ["blocking", "degraded", "fine", "fine"]


# --- real places ------------------------------------------------------------------------------------


def looked(stdout):
    document = json.loads(stdout.decode())
    return document, {one["code"]: one["severity"] for one in document["findings"]}


def here(bundle, *words, **options):
    done = subprocess.run([sys.executable, "-I", "-S", bundle, "doctor", "--json", *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=runs.HANG, **options)
    assert not done.stderr, done.stderr
    return (done.returncode,) + looked(done.stdout)


def test_here_a_run_works(bundle, tmp_path):
    code, document, found = here(bundle, "--dir", str(tmp_path / "run"))
    assert code == 0 and "blocking" not in found.values() and document["verdict"] in ("fine", "degraded")
    assert document["facts"]["directory"] == str(tmp_path / "run")
    assert sorted(os.listdir(str(tmp_path))) == ["sandbox-worker.pyz"], "nothing that it made stays"


def test_text_is_eighty_columns_wide_and_coloured_on_a_terminal_only(bundle, tmp_path):
    command = [sys.executable, "-I", "-S", bundle, "doctor", "--dir", "/proc/no"]
    plain = subprocess.run(command, stdout=subprocess.PIPE, timeout=runs.HANG)
    text = plain.stdout.decode()
    assert plain.returncode == 69 and "directory_not_writable" in text and text.splitlines()[-1] == "verdict   no run can work here"
    assert "\x1b" not in text and all(len(line) <= 80 for line in text.splitlines())
    on_terminal = {}
    for name, env in (("colour", {}), ("none", {"NO_COLOR": "1"})):
        parent, child = pty.openpty()
        process = subprocess.Popen(command, stdout=child, env=dict(os.environ, **env))
        os.close(child)
        on_terminal[name] = b""
        while True:
            try:
                piece = os.read(parent, 65536)
            except OSError:  # EIO: the other end is closed
                break
            on_terminal[name] += piece
        os.close(parent)
        assert process.wait(runs.HANG) == 69
    assert b"\x1b[31;1mblocking\x1b[0m" in on_terminal["colour"] and b"\x1b" not in on_terminal["none"]


@pytest.mark.parametrize("words", [["--harness", "nosuch"], ["word"], ["--harness"], ["--colour"]])
def test_a_bad_command_line_is_64(bundle, words):
    code, stdout, said = runs.command(["doctor", *words], bundle=bundle)
    assert (code, stdout) == (64, "") and said.count("\n") == 1 and "usage:" in said


def test_variables_that_look_like_keys_are_named_not_shown(bundle):
    code, document, found = here(bundle, env=dict(os.environ, WEATHER_API_KEY="sk-abcdefgh", MY_TOKEN=""))
    assert found["key_in_environment"] == "degraded" and "WEATHER_API_KEY" in document["facts"]["key_names"]
    assert "MY_TOKEN" not in document["facts"]["key_names"] and "sk-abcdefgh" not in json.dumps(document)


def test_few_descriptors_and_small_files_are_said(bundle):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    code, document, found = here(bundle, preexec_fn=limit)
    assert code == 0 and found["few_files"] == found["file_size_limited"] == "degraded" and document["facts"]["open_files"] == 64


def program(folder, name, text):
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


@pytest.mark.parametrize("name", [name for name in harnesses.TABLE if name != "generic"])
def test_an_untested_version_of_any_harness_is_a_warning(bundle, tmp_path, name):
    harness = harnesses.find(name, None)
    places = tmp_path / "prefix" / "bin"
    places.mkdir(parents=True)
    package = {"hermes": "hermes_agent", "mini": "mini_swe_agent"}.get(name)
    if package:
        (tmp_path / "prefix" / "lib" / "python3.11" / "site-packages" / (package + "-99.1.2.dist-info")).mkdir(parents=True)
    program(places, harness.PROGRAMS[0], "echo 'the CLI v99.1.2 (a build)'\n")
    for version, wanted in (("99.1.2", True), (harness.TESTED[-1], False)):
        if package:
            folder = tmp_path / "prefix" / "lib" / "python3.11" / "site-packages"
            os.rename(str(next(folder.iterdir())), str(folder / ("%s-%s.dist-info" % (package, version))))
        program(places, harness.PROGRAMS[0], "echo 'the CLI v%s (a build)'\n" % version)
        code, document, found = here(bundle, "--harness", name, env=dict(os.environ, PATH="%s:/usr/bin:/bin" % places))
        assert document["facts"]["harness"]["version"] == version and ("untested_version" in found) == wanted and code == 0


def test_a_harness_that_is_missing_or_broken_blocks(bundle, tmp_path):
    code, document, found = here(bundle, "--harness", "codex", env=dict(os.environ, PATH=str(tmp_path)))
    assert code == 69 and found["harness_not_found"] == "blocking"
    program(tmp_path, "codex", "echo no such library >&2; exit 127\n")
    code, document, found = here(bundle, "--harness", "codex", env=dict(os.environ, PATH="%s:/bin" % tmp_path))
    assert code == 69 and found["harness_does_not_start"] == "blocking"
    assert "no such library" in document["facts"]["harness"]["error"]


def needs_namespaces():
    done = subprocess.run(["unshare", "-n", "-m", "true"], stderr=subprocess.PIPE) if shutil.which("unshare") else None
    if done is None or done.returncode:
        lacking("no namespaces of our own here")


def test_a_loopback_that_is_down_blocks(bundle):
    needs_namespaces()
    done = subprocess.run(["unshare", "-n", sys.executable, "-I", "-S", bundle, "doctor", "--json"], stdout=subprocess.PIPE)
    document, found = looked(done.stdout)
    assert done.returncode == 69 and found["loopback_down"] == "blocking" and "unreachable" in document["facts"]["loopback"]


def test_a_proc_that_hides_others_and_a_full_disk(bundle, tmp_path):
    needs_namespaces()
    line = ('mount -t proc -o hidepid=2 proc /proc; mkdir "$2"; mount -t tmpfs -o size=64k none "$2"; '
            'head -c 65536 /dev/zero >"$2/full" 2>&1; exec "$1" -I -S "$3" doctor --json --dir "$2"')
    done = subprocess.run(["unshare", "-m", "-p", "-f", "sh", "-c", line, "sh", sys.executable, str(tmp_path / "small"), bundle],
                          stdout=subprocess.PIPE)
    _, found = looked(done.stdout)
    assert done.returncode == 69 and found["hidepid"] == "note" and found["no_space"] == "blocking"
    assert "cleanup_unconfirmed" not in found and "no_proc" not in found


@pytest.mark.engine
@pytest.mark.parametrize("proc", [True, False])
def test_bubblewrap_with_and_without_proc(bundle, proc):
    if bwrap.why_not():
        lacking(bwrap.why_not())
    root = roots.make(pythons.cached("3.8"))
    command = bwrap.command(root, ["python3", "-I", "-S", "/tmp/b/sandbox-worker.pyz", "doctor", "--json", "--dir", "/tmp/b/run"],
                            [(os.path.dirname(bundle), "/tmp/b")], proc=proc)
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=runs.HANG)
    _, found = looked(done.stdout)
    assert done.returncode == 0 and ("no_proc" in found) is not proc and found["no_ca_certificates"] == "degraded"
    assert "loopback_down" not in found


def in_docker(bundle, *options, words=("--dir", "/job/run")):
    os.chmod(os.path.dirname(bundle), 0o755)
    mount = "%s:/b:ro" % os.path.dirname(bundle)
    done = docker.docker("run", "--rm", "--pull=never", "--network", "none", "-v", mount, *options, docker.image(pythons.cached("3.8")),
                         "python3", "-I", "-S", "/b/sandbox-worker.pyz", "doctor", "--json", *words, check=False)
    assert not done.stderr.strip(), done.stderr
    return (done.returncode,) + looked(done.stdout)


@pytest.mark.engine
def test_a_hardened_container(bundle):
    code, document, found = in_docker(
        bundle, "--read-only", "--tmpfs", "/tmp:rw,noexec,nosuid,size=16m", "--tmpfs", "/job:rw,size=64m,mode=1777", "--cap-drop", "ALL",
        "--security-opt", "no-new-privileges", "-u", "12345:12345", "--pids-limit", "40", "--memory", "256m")
    assert code == 0 and document["verdict"] == "degraded"
    wanted = {"little_space", "few_pids", "little_memory", "tmp_noexec", "no_passwd_entry", "home_not_writable", "no_ca_certificates"}
    assert wanted <= set(found) and not {"privileged", "ptrace_stays", "no_proc"} & set(found)
    assert 30 <= document["facts"]["pids_free"] < 40


@pytest.mark.engine
def test_containers_in_which_no_run_can_work(bundle):
    code, _, found = in_docker(bundle, "--read-only", "--pids-limit", "4")
    assert code == 69
    assert found["directory_not_writable"] == found["too_few_pids"] == "blocking" and found["no_tmp"] == "degraded"
    code, _, found = in_docker(bundle, "--ulimit", "nofile=24:24", "-e", "SOME_API_KEY=x1", "--cap-add", "SYS_ADMIN")
    assert code == 69 and found["too_few_files"] == "blocking" and found["key_in_environment"] == found["privileged"] == "degraded"


@pytest.mark.engine
def test_gvisor(bundle):
    if not docker.has_runtime("runsc"):
        lacking("the engine has no runtime runsc (Debian: runsc)")
    with docker.Container(docker.image(pythons.cached("3.8")), "--runtime", "runsc") as box:
        box.put(bundle, "/sandbox-worker.pyz")
        done = box.exec(["python3", "-I", "-S", "/sandbox-worker.pyz", "doctor", "--json", "--dir", "/job"], check=False)
    document, found = looked(done.stdout)
    assert done.returncode == 0 and found["no_pidfd"] == "note"
    assert ("cleanup_unconfirmed" in found) == (not document["facts"]["subreaper"])


def test_the_readme_of_harnesses_knows_the_versions_that_doctor_knows():
    with open(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "README.md")) as file:
        text = file.read()
    for name in harnesses.TABLE:
        for version in harnesses.find(name, None).TESTED:
            assert re.search(r"(?<![0-9.])%s(?![0-9])" % re.escape(version), text), "%s %s" % (name, version)

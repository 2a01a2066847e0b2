"""The bundle: reproducible, whole or refused in one sentence, and from memory once it runs."""
from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile

import pytest

import build
from tests import pythons
from tests.conftest import ROOT, python_of
from tests.sandboxes import docker

FORMS = (build.PYZ, build.TEXT)


def run(path, *arguments, python=sys.executable, flags=("-I", "-S"), **options):
    return subprocess.run((python,) + tuple(flags) + (path,) + arguments, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60, **options)


def assert_one_sentence(done, code, *words):
    text = done.stderr.decode()
    assert done.returncode == code, text
    assert text.startswith("sandbox-worker: ") and text.count("\n") == 1, text
    assert not [word for word in words if word not in text], text
    assert done.stdout == b""


@pytest.fixture
def files(dist):
    """{name: content} of the bundle as it was built (the tree may have changed since)."""
    with zipfile.ZipFile(os.path.join(dist, build.PYZ)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(params=FORMS)
def form(request, dist, tmp_path):
    """A fresh copy of each form in turn."""
    return shutil.copy(os.path.join(dist, request.param), str(tmp_path))


# --- building ------------------------------------------------------------------------------------

def test_two_builds_are_the_same_and_a_stale_dist_is_noticed(tree, tmp_path):
    shutil.copytree(tree, str(tmp_path / "tree"))
    script = str(tmp_path / "tree" / "build.py")
    assert run(script, "--check").returncode == 0                       # without a dist/ there is nothing stale
    assert b"bytes" in run(script).stdout
    assert run(script, "--check").returncode == 0
    (tmp_path / "tree" / "worker" / "version.py").write_text('VERSION = "9.9.9"\nBUNDLE = {}\nFILES = {}\n')
    done = run(script, "--check")
    assert done.returncode == 1 and b"stale" in done.stdout and b"sandbox-worker.pyz" in done.stdout


@pytest.mark.pythons
def test_every_python_builds_the_same_bytes(other_python, tree, dist, tmp_path):
    done = run(os.path.join(tree, "build.py"), "--out", str(tmp_path), python=other_python)
    assert done.returncode == 0, done.stderr
    for name in os.listdir(dist):
        with open(os.path.join(dist, name), "rb") as one, open(str(tmp_path / name), "rb") as other:
            assert one.read() == other.read(), name


def test_sums(dist):
    with open(os.path.join(dist, build.SUMS)) as file:
        sums = dict(line.split()[::-1] for line in file)
    assert set(sums) == set(os.listdir(dist)) - {build.SUMS}
    for name, digest in sums.items():
        with open(os.path.join(dist, name), "rb") as file:
            assert hashlib.sha256(file.read()).hexdigest() == digest


def test_a_zip_that_any_tool_reads(dist):
    with zipfile.ZipFile(os.path.join(dist, build.PYZ)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == sorted(archive.namelist())
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
        names = set(archive.namelist())
    assert {"__main__.py", "MANIFEST", "worker/cli.py", "transport/sandbox_transport.py"} <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]


def test_the_text_form_is_plain_text(dist):
    with open(os.path.join(dist, build.TEXT), "rb") as file:
        data = file.read()
    assert data.isascii() and not set(data) & (set(range(32)) - {10})


# --- running -------------------------------------------------------------------------------------

def test_it_runs(form):
    done = run(form, "--version")
    assert (done.returncode, done.stdout.decode().split()) == (0, ["sandbox-worker", build.version()])


@pytest.mark.pythons
@pytest.mark.parametrize("name", FORMS)
def test_it_runs_on_every_python(name, other_python, dist):
    for flags in (("-I", "-S"), ()):
        assert run(os.path.join(dist, name), "--version", python=other_python, flags=flags).returncode == 0


@pytest.mark.parametrize("version", pythons.TOO_OLD)
def test_an_old_python_gets_a_sentence(version, form):
    python = python_of(version)
    flags = ("-S",) if version == "2.7" else ("-I", "-S")
    assert_one_sentence(run(form, "run", "x", python=python, flags=flags), 69, "3.8", version)


HIDE = """
import sys, runpy
class Without(object):
    def __init__(self, finder): self.finder = finder
    def find_spec(self, name, *more):
        return None if name in %r else self.finder.find_spec(name, *more)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("missing", [["json"], ["hmac", "json", "select"]])
def test_missing_modules_are_named(missing, bundle):
    done = run("-c", HIDE % missing, bundle, "run", "x")
    assert_one_sentence(done, 69, "python3-minimal", *missing)


def test_without_ctypes_it_starts(form):
    assert run("-c", HIDE % ["ctypes", "_ctypes"], form, "--version").returncode == 0


@pytest.mark.engine
def test_a_container_whose_python_lacks_json(bundle):
    python = python_of("3.8")
    with docker.Container(docker.image(python)) as container:
        container.put(bundle, "/sandbox-worker.pyz")
        container.exec(["rm", "-r", "/usr/local/lib/python3.8/json"])
        done = container.exec(["python3", "-I", "-S", "/sandbox-worker.pyz", "run", "x"], check=False)
        assert_one_sentence(done, 69, "json", "python3-minimal")


def test_files_beside_the_bundle_are_no_modules(form):
    for name in ("json", "socket", "worker", "struct"):
        with open(os.path.join(os.path.dirname(form), name + ".py"), "w") as file:
            file.write("raise SystemExit('imported what lay beside the bundle')\n")
    assert run(form, "schema", "nothing-of-that-name").returncode != 1
    if form.endswith(".pyz"):               # a script's folder is searched before its first line runs: hence -I
        assert run(form, "--version", flags=()).returncode == 0


def test_nothing_is_cached_beside_it(form):
    before = os.listdir(os.path.dirname(form))
    run(form, "--version", flags=())
    assert os.listdir(os.path.dirname(form)) == before


# --- damage --------------------------------------------------------------------------------------

def save(path, data):
    with open(path, "wb") as file:
        file.write(data)


def load(path):
    with open(path, "rb") as file:
        return file.read()


@pytest.mark.parametrize("name", ["worker/cli.py", "transport/evidence.py", "MANIFEST"])
def test_a_changed_byte_names_its_file(name, bundle, files):
    data = load(bundle)
    content = files[name]
    at = data.index(content) + len(content) // 2
    save(bundle, data[:at] + bytes([data[at] ^ 1]) + data[at + 1:])
    # A damaged list of the files may name a file that does not exist; damage it is all the same.
    assert_one_sentence(run(bundle, "--version"), 65, "damaged" if name == "MANIFEST" else name)


def test_a_missing_foreign_or_older_module_is_named(bundle, files):
    for change, name in (({"worker/cli.py": None}, "worker/cli.py is missing"),
                         ({"worker/cli.py": b"# an older one\n"}, "worker/cli.py is not"),
                         ({"worker/new.py": b"\n"}, "worker/new.py is not"),
                         ({"MANIFEST": None}, "MANIFEST is missing")):
        changed = {n: c for n, c in dict(files, **change).items() if c is not None}
        save(bundle, build.zipped(changed))
        assert_one_sentence(run(bundle, "--version"), 65, name)


def test_a_cut_zip_never_runs(bundle):
    data = load(bundle)
    for size in (0, 100, len(data) // 2, len(data) - 100, len(data) - 1):
        save(bundle, data[:size])
        done = run(bundle, "run", "x")          # Python itself finds no archive; an empty file is an empty program
        assert (done.returncode != 0 or size == 0) and done.stdout == b""
        assert size == 0 or b"sandbox-worker: this bundle is cut off, copy it again" in done.stderr


@pytest.mark.pythons
def test_what_every_python_says_of_a_cut_zip(bundle, other_python):
    save(bundle, load(bundle)[:-20000])
    done = run(bundle, "run", "x", python=other_python)
    assert done.returncode == 1 and b"sandbox-worker: this bundle is cut off, copy it again" in done.stderr


def test_a_cut_text_form_says_so(dist, tmp_path):
    """E12."""
    data = load(os.path.join(dist, build.TEXT))
    path = str(tmp_path / build.TEXT)
    start = data.index(b"\n#@ ")
    cuts = random.Random(2).sample(range(start, len(data) - 2), 12) + [start + 1, len(data) - 3]
    for size in cuts:
        save(path, data[:size])
        assert_one_sentence(run(path, "run", "x"), 65, "damaged", str(size))
    at = data.index(b"def unzip")
    save(path, data[:at] + b"D" + data[at + 1:])
    assert_one_sentence(run(path, "run", "x"), 65, "damaged")


def test_the_text_form_survives_other_line_ends(dist, tmp_path):
    path = str(tmp_path / build.TEXT)
    save(path, load(os.path.join(dist, build.TEXT)).replace(b"\n", b"\r\n"))
    assert run(path, "--version").returncode == 0


# --- memory --------------------------------------------------------------------------------------

LATER = """
import os, sys
archive = sys.argv[1]
sys.path.insert(0, archive)
space = {"__name__": "loader"}
exec(compile(open(sys.argv[2]).read(), "main", "exec"), space)
space["load"](archive)
for change in sys.argv[3:]:
    os.unlink(archive) if change == "delete" else open(archive, "wb").write(b"rubbish")
import traceback, worker.cli
from worker.version import BUNDLE, FILES
assert archive not in sys.path
print(BUNDLE["version"], BUNDLE["sha256"], BUNDLE["files"], len(FILES))
assert worker.cli.__loader__.get_source("worker.cli").encode() == FILES["worker/cli.py"]
try:
    worker.cli.main(5)
except TypeError:
    print(traceback.format_exc())
"""


@pytest.mark.parametrize("change", ["delete", "rewrite"])
def test_later_modules_come_from_memory(change, bundle, tree, files):
    done = run("-c", LATER, bundle, os.path.join(tree, "worker", "__main__.py"), change)
    assert done.returncode == 0, done.stderr
    first, _, trace = done.stdout.decode().partition("\n")
    version, digest, count, held = first.split()
    assert version == build.version() and digest == files["MANIFEST"].split()[1].decode()
    assert (int(count), int(held)) == (len(files) - 1, len(files))
    assert "if arguments else" in trace         # the traceback shows source lines


@pytest.mark.parametrize("change", ["rm {0}", "echo rubbish > {0}", "mv {0} {0}.gone; mkdir {0}"])
def test_an_agent_that_changes_the_bundle_changes_nothing(change, form, files, tmp_path):
    """The run goes on from memory: guard, worker, evidence, outcome."""
    for round_, command in enumerate(("true", change.format("'%s'" % form))):
        job = {"directory": str(tmp_path / ("session%d" % round_)), "command": ["/bin/sh", "-c", command], "timeout": 60}
        save(str(tmp_path / "input.json"), json.dumps(job).encode())
        done = run(form, "run", str(tmp_path / "input.json"))
        assert done.returncode == 0, done.stderr
        result = json.loads(load(os.path.join(job["directory"], "result.json")))
        assert result["outcome"]["kind"] == "completed" and result["cleanup_confirmed"]
        assert result["bundle"]["sha256"] == files["MANIFEST"].split()[1].decode()


@pytest.mark.engine
def test_what_is_staged_is_what_was_built(dist):
    python = python_of("3.8")
    with docker.Container(docker.image(python)) as container:
        container.exec(["mkdir", "/staged"])
        container.put(dist + "/.", "/staged")
        done = container.exec(["sh", "-c", "cd /staged && sha256sum -c SHA256SUMS"], check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_source_tree_and_an_unpacked_bundle_run(files, tmp_path):
    for name, content in files.items():
        path = tmp_path / "unpacked" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for words in (["-m", "worker"], [str(tmp_path / "unpacked")]):
        done = subprocess.run([sys.executable] + words + ["--version"], cwd=ROOT, stdout=subprocess.PIPE)
        assert (done.returncode, done.stdout.split()[:1]) == (0, [b"sandbox-worker"])


STEP_BY_STEP = """
import json, sys, zipfile
main = {"__name__": "bundle"}
exec(zipfile.ZipFile(sys.argv[1]).read("__main__.py").decode(), main)
main["load"](sys.argv[1])
from worker.later import loading
def ours():
    return {name for name in sys.modules if name.startswith(("worker.", "transport."))}
import worker.starting, worker.finish
steps, before = [], ours()
for _ in loading(sys.argv[2]):
    steps.append(sorted(ours() - before))
    before = ours()
print(json.dumps(steps))
"""


@pytest.mark.parametrize("module", ["transport.reception", "worker.conclude", "worker.harnesses.codex_rollout"])
def test_what_is_needed_later_is_loaded_a_module_at_a_time(bundle, module):
    """So that an agent's end waits for one module at most, and not for all of them."""
    steps = json.loads(run("-c", STEP_BY_STEP, bundle, module).stdout)
    assert [len(step) for step in steps] == [1] * len(steps) and len(steps) > 5 and steps[-1] == [module]

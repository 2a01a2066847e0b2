"""sandboxctl as a host uses it: `done = ctl(dist, "run", "--via", via, ...)`; `Run` reads what it left in OUT."""
from __future__ import annotations

import json
import os
import subprocess
import time

from tests import runs

HANG = 3 * runs.HANG  # a whole job is a dozen processes and connections
DONE = '{"type": "turn.completed", "usage": {"input_tokens": 5, "cached_input_tokens": 0, "output_tokens": 2}}'
SUCCESS = ["/bin/sh", "-c", "echo '%s'" % DONE]
FOREVER = ["/bin/sh", "-c", "echo '{\"type\": \"x\"}'; sleep 600"]


def words(dist, *arguments, shell=None):
    return [*([shell] if isinstance(shell, str) else shell or ()), os.path.join(dist, "sandboxctl"), *map(str, arguments)]


def ctl(dist, *arguments, shell=None, timeout=HANG, **options):
    """-> CompletedProcess with text."""
    options.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run(words(dist, *arguments, shell=shell), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                          **options)
    done.stdout, done.stderr = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in done.stderr, done.stderr
    return done


def start(dist, *arguments, **options):
    return subprocess.Popen(words(dist, *arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            **options)


def document(folder, name="input.json", **fields):
    """An input document on the host; its path."""
    path = os.path.join(str(folder), name)
    with open(path, "w") as file:
        json.dump(dict({"timeout": 60}, **fields), file)
    return path


def outcome(out):
    """The documents in OUT, held against their schemas."""
    done = runs.Done(out, None, b"", b"")
    runs.check(done)
    return done


def record(out):
    with open(os.path.join(str(out), ".sandboxctl", "run.json")) as file:
        return json.load(file)


def wait_running(dist, out, process=None):
    """Until `status OUT` says that the run is going on."""
    until = time.monotonic() + HANG
    while time.monotonic() < until:
        assert process is None or process.poll() is None, process.communicate()
        if os.path.exists(os.path.join(str(out), ".sandboxctl", "run.json")) and record(out)["launched_at"]:
            look = ctl(dist, "status", str(out), "--json")
            if look.returncode == 0 and look.stdout and json.loads(look.stdout)["state"] == "running":
                return json.loads(look.stdout)
        time.sleep(0.05)
    raise AssertionError("the run does not begin")

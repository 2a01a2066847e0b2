"""How the tests' agent CLIs are installed: each version once under .cache/, by one process at a time.

Where the project's own `install` has a lock for this machine it is used for those that take npm or pip longest, so that each run of
the real CLIs tests it, too.
"""
from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.path.join(ROOT, ".cache")


@contextlib.contextmanager
def one_at_a_time(folder):
    """Waits for whoever installs into this folder now; then nobody else does."""
    os.makedirs(CACHE, exist_ok=True)
    with open(folder + ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def by_ourselves(name, version, prefix):
    """`install NAME` with this prefix; False, and the reason on stderr, where that cannot be done here."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(ROOT, "build.py"), "--out", folder], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run([os.path.realpath(sys.executable), "-I", "-S", os.path.join(folder, "sandbox-worker.pyz"), "install", name,
                               "--version", version, "--prefix", prefix], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, timeout=900)
    if done.returncode:
        print(done.stderr.decode(errors="replace"), file=sys.stderr)
        shutil.rmtree(prefix, ignore_errors=True)
    return done.returncode == 0

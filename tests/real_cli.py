"""The real agent CLIs, from npm, each version once under .cache/; `python3 -m tests.real_cli 0.144.4` prints the path.

The native program is what the worker launches, so that is what path() gives; wrapper() gives the npm script. Codex's
Linux build is static and needs no node to run. `--ignore-scripts`: nothing of the package runs at installation.
"""
from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys

from tests.installed import CACHE, one_at_a_time

CODEX = ("0.144.4", "0.171.0")
NATIVE = "node_modules/@openai/codex*/vendor/*-linux-*/bin/codex"


def folder(version):
    return os.path.join(CACHE, "codex-" + version)


def installed(version):
    """-> path of the native program, or None."""
    found = sorted(glob.glob(os.path.join(folder(version), NATIVE)))
    return found[0] if found else None


def why_not(versions=CODEX):
    """The reason why the real CLIs cannot be had here, or None; installs what is missing."""
    missing = [version for version in versions if not installed(version)]
    if missing and not shutil.which("npm"):
        return "Codex %s is not in .cache and there is no npm to install it" % " and ".join(missing)
    for version in missing:
        try:
            install(version)
        except (subprocess.SubprocessError, OSError) as error:
            return "npm could not install Codex %s: %s" % (version, error)
    return None


def install(version):
    with one_at_a_time(folder(version)):
        if not installed(version):
            by_npm(version)


def by_npm(version):
    done = subprocess.run(["npm", "install", "--prefix", folder(version), "--no-audit", "--no-fund", "--ignore-scripts",
                           "@openai/codex@" + version], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=600)
    if done.returncode or not installed(version):
        raise OSError("npm ended with %d: %s" % (done.returncode, done.stdout.decode(errors="replace")[-500:]))


def path(version=CODEX[0]):
    """-> path of the native Codex of this version; installs it when needed; OSError when it cannot."""
    if not installed(version):
        install(version)
    return installed(version)


def wrapper(version=CODEX[0]):
    """-> path of the npm package's start script (needs node)."""
    path(version)
    return os.path.join(folder(version), "node_modules/@openai/codex/bin/codex.js")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or CODEX:
        print(path(wanted))

"""Which Pythons this machine has: `python3.X` along PATH, then those of pyenv. Nothing is assumed to be there."""
from __future__ import annotations

import glob
import os
import shutil
import subprocess

SUPPORTED = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
TOO_OLD = ("2.7", "3.6", "3.7")
REQUIRED = ("3.8", "3.13")          # what CI must have
ASK = "import sys; print('%d.%d' % sys.version_info[:2])"


def answers(path, version):
    try:
        done = subprocess.run([path, "-I", "-S", "-c", ASK] if version[0] == "3" else [path, "-S", "-c", ASK],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.decode().strip() == version


def find(version):
    """-> absolute path of a Python of this version ("3.8") that really starts (a pyenv shim may not), or None."""
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    candidates = [shutil.which("python" + version), shutil.which("python3"), shutil.which("python2.7")]
    candidates += sorted(glob.glob(os.path.join(pyenv, "versions", version + ".*", "bin", "python" + version)))
    return next((path for path in candidates if path and answers(path, version)), None)


_found = {}


def cached(version):
    if version not in _found:
        _found[version] = find(version)
    return _found[version]

"""The test suite on other Pythons: `python3 -m tests.on_pythons [3.8 3.13]`, part of `make test-all`.

For each it makes .cache/venv-X.Y with the pinned pytest and runs what `make test` runs. A Python that is not there is named;
with CI=true that is a failure.
"""
from __future__ import annotations

import os
import subprocess
import sys

from tests import pythons

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def environment(version, python):
    """-> the interpreter of a virtual environment with pytest; made once for these requirements."""
    folder = os.path.join(ROOT, ".cache", "venv-" + version)
    requirements, inside = os.path.join(ROOT, "tests", "requirements.txt"), os.path.join(folder, "bin", "python")
    stamp = os.path.join(folder, "installed")
    with open(requirements) as file:
        wanted = file.read()
    if not os.path.exists(stamp) or open(stamp).read() != wanted:
        subprocess.run([python, "-m", "venv", folder], check=True)
        subprocess.run([inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements],
                       check=True)
        with open(stamp, "w") as file:
            file.write(wanted)
    return inside


def main(versions):
    bad = []
    for version in versions:
        python = pythons.cached(version)
        if python is None:
            print("Python %s: none on PATH or in pyenv, NOT TESTED" % version)
            bad += [version] if os.environ.get("CI") == "true" else []
            continue
        print("Python %s: the suite of `make test` with %s" % (version, python), flush=True)
        command = [environment(version, python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-r", "fE"]
        bad += [version] if subprocess.run(command, cwd=ROOT).returncode else []
    if bad:
        print("failed or missing: Python %s" % ", ".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or pythons.REQUIRED))

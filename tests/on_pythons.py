"""The test suite on other Pythons: `python3 -m tests.on_pythons [3.8 3.13]`, part of `make test-all`.

For each it makes .cache/venv-X.Y with the pinned pytest and runs what `make test` runs, but for what takes long and hardly
depends on the version (ONCE). A Python that is not there is named; with CI=true that is a failure.
"""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from tests import pythons

# Words of files and tests: floods, every cut of every corpus, kills at many points, what is one program on the host's side.
ONCE = ("sandboxctl and not every_shell", "export_hostile", "supervise_kills", "many_at_once", "readme", "transport_soak", "random_trees",
        "any_part_of_any", "cut_anywhere", "memory_does_not_grow", "never_raise", "report", "two_builds", "planted", "replay",
        "test_export", "doctor", "outcome_rows", "run_outcomes", "terminal", "odd_places", "poor_places", "summarize",
        "outcome_files", "control_peers", "output_file", "tampering", "test_install", "demo")
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


def start(version):
    """-> (version, Popen with its output in a file, that file), or None where there is no such Python."""
    python = pythons.cached(version)
    if python is None:
        print("Python %s: none on PATH or in pyenv, NOT TESTED" % version)
        return None
    print("Python %s: the suite of `make test` with %s" % (version, python), flush=True)
    command = [environment(version, python), "-m", "pytest", "-n", str(2 * (os.cpu_count() or 1)), "--dist", "worksteal", "-q",
               "-p", "no:cacheprovider", "-r", "fE", "-k", "not (%s)" % " or ".join("(%s)" % words for words in ONCE)]
    output = tempfile.TemporaryFile()
    return version, subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output), output


def main(versions):
    running = [start(version) for version in versions]          # side by side: they wait more than they compute
    bad = [v for v, job in zip(versions, running) if job is None and os.environ.get("CI") == "true"]
    for version, process, output in filter(None, running):
        code = process.wait()
        output.seek(0)
        print("=== Python %s\n%s" % (version, output.read().decode(errors="replace")), flush=True)
        bad += [version] if code else []
    if bad:
        print("failed or missing: Python %s" % ", ".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    # CI has twenty minutes for everything: there the oldest, beside the machine's own.
    sys.exit(main(sys.argv[1:] or (pythons.REQUIRED[:1] if os.environ.get("CI") == "true" else pythons.REQUIRED)))

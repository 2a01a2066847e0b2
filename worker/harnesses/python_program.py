"""A CLI that is a Python package: what lies beside its console script. Launch path, used by such harnesses."""
from __future__ import annotations

import os


def packages(program):
    """The directories of packages in the environment of a console script: PREFIX/bin/NAME -> PREFIX/lib/python*/site-packages."""
    library = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(program))), "lib")
    try:
        found = [os.path.join(library, python, "site-packages") for python in sorted(os.listdir(library))]
    except OSError:
        return []
    return [path for path in found if os.path.isdir(path) and os.access(path, os.R_OK | os.X_OK)]


def file_of(program, path):
    """The absolute path of a file of a package, or None."""
    return next((file for file in (os.path.join(folder, path) for folder in packages(program)) if os.path.isfile(file)), None)


def version_of(program, package):
    """The version of `package`, as its dist-info directory writes it, or None."""
    for folder in packages(program):
        for name in os.listdir(folder):
            if name.startswith(package + "-") and name.endswith(".dist-info"):
                return name[len(package) + 1 : -len(".dist-info")]
    return None

"""A CLI that is a Python package: which version of it lies beside its console script. Launch path, used by such harnesses."""
from __future__ import annotations

import os


def version_of(program, package):
    """The version of `package` (as its dist-info directory writes it) in the environment of a console script
    (PREFIX/bin/NAME -> PREFIX/lib/python*/site-packages), or None."""
    library = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(program))), "lib")
    try:
        for python in sorted(os.listdir(library)):
            packages = os.path.join(library, python, "site-packages")
            for name in os.listdir(packages) if os.path.isdir(packages) else ():
                if name.startswith(package + "-") and name.endswith(".dist-info"):
                    return name[len(package) + 1 : -len(".dist-info")]
    except OSError:
        pass
    return None

"""Root file systems with a Python and busybox, made from this machine by mkroot.sh; each once, under .cache/roots/."""
from __future__ import annotations

import hashlib
import os
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.path.join(ROOT, ".cache", "roots")
MKROOT = os.path.join(HERE, "mkroot.sh")


def why_not():
    """The reason why no root can be made here, or None."""
    busybox = shutil.which("busybox")
    if not busybox:
        return "busybox is missing (Debian: busybox-static)"
    if not shutil.which("ldd"):
        return "ldd is missing"
    linked = subprocess.run(["ldd", busybox], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if linked.returncode == 0:
        return "%s is not static (Debian: busybox-static)" % busybox
    return None if os.geteuid() == 0 else "making a root file system needs root"


def name_of(python):
    """A name that changes with the Python and with the recipe: "3.8.18-1f2e3d4c"."""
    version = subprocess.run([python, "-I", "-S", "-c", "import platform; print(platform.python_version())"],
                             stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    with open(MKROOT, "rb") as file:
        return "%s-%s" % (version, hashlib.sha256(file.read()).hexdigest()[:8])


def make(python):
    """-> path of a root with this Python (path of the interpreter)."""
    path = os.path.join(CACHE, name_of(python))
    if not os.path.isdir(path):
        os.makedirs(CACHE, exist_ok=True)
        partial = "%s.partial-%d" % (path, os.getpid())
        subprocess.run(["sh", MKROOT, python, partial], check=True, stdin=subprocess.DEVNULL)
        try:
            os.rename(partial, path)
        except OSError:                         # another process was faster
            shutil.rmtree(partial)
    return path

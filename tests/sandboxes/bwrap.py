"""bubblewrap as the tests use it: a root made by roots.make(), own namespaces, no network but its own loopback."""
from __future__ import annotations

import functools
import shutil
import subprocess

from tests.sandboxes import roots


@functools.lru_cache(maxsize=None)
def cannot_start():
    """The reason why bwrap does not work here, or None."""
    if not shutil.which("bwrap"):
        return "no bwrap on PATH (Debian: bubblewrap)"
    done = subprocess.run(["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "true"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        return "bwrap cannot make namespaces here: %s" % done.stderr.decode(errors="replace").strip()
    return None


def why_not():
    """The reason why it cannot be used with a root of its own, or None."""
    return cannot_start() or roots.why_not()


def command(root, argv, binds=(), proc=True, network=False, options=()):
    """The words that run argv in `root`, read-only; binds: (outside, inside) pairs, writable."""
    words = ["bwrap", "--ro-bind", root, "/", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-all", "--die-with-parent"]
    words += ["--proc", "/proc"] if proc else []
    words += ["--share-net"] if network else []
    for outside, inside in binds:
        words += ["--bind", outside, inside]
    return words + list(options) + ["--clearenv", "--setenv", "PATH", "/usr/local/bin:/bin"] + list(argv)

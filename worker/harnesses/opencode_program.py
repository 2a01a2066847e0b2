"""The native program behind the npm wrapper of OpenCode or Kilocode: one process less, and a signal reaches the CLI itself; and
the ripgrep that the CLI once downloaded.

The wrappers (opencode-ai/bin/opencode, @kilocode/cli/bin/kilo) look for the platform package beside or above themselves; a copy
that the package's own installation chose (bin/.opencode, bin/.kilo) goes first.  Loaded before the launch, but only where the
program is a script or there is no rg on PATH.
"""

from __future__ import annotations

import os

from worker import harnesses

# CLI -> (path of its platform packages below node_modules, program in their bin/)
PACKAGES = {"opencode": ("opencode-linux-%s", "opencode"), "kilo": ("@kilocode/cli-linux-%s", "kilo")}
MACHINES = {"x86_64": "x64", "aarch64": "arm64"}


def resolve(words, script, cwd, name):
    """(program, its arguments, notes) of words whose program is an interpreter or a script."""
    interpreted = len(words) > 1 and os.path.basename(words[0]) in harnesses.INTERPRETERS
    program, note = native_of(os.path.join(cwd, words[1]) if interpreted else script, name)
    return (program, words[2 if interpreted else 1 :], [note]) if program else (script or words[0], words[1:], [note])


def native_of(script, name):
    """(native program or None, a note for the result) for a wrapper script."""
    package, program = PACKAGES[name]
    place = os.path.dirname(os.path.realpath(script))
    candidates = [os.path.join(place, "." + program), os.path.join(place, program + ".exe")]
    kinds = variants(MACHINES.get(os.uname().machine, ""))
    while place != os.path.dirname(place):
        candidates += [os.path.join(place, "node_modules", package % kind, "bin", program) for kind in kinds]
        place = os.path.dirname(place)
    for found in candidates:
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found, "npm wrapper %s replaced by its native program" % script
    return None, "no native program found for the npm wrapper " + script


def earlier_ripgrep(there, cache):
    """Link to the rg that the CLI downloaded into the image's own cache directory, if there is one."""
    earlier, target = os.path.join(there, "bin", "rg"), os.path.join(cache, "bin", "rg")
    if os.path.isfile(earlier) and not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
        os.symlink(earlier, target)
    return os.path.isfile(target)


def variants(machine):
    """Suffixes in the order of the wrappers' own choice: libc by the loader that is there, AVX2 by /proc/cpuinfo."""
    musl = os.path.isdir("/lib") and any(name.startswith("ld-musl-") for name in os.listdir("/lib"))
    kinds = [machine + "-musl", machine] if musl else [machine, machine + "-musl"]
    if machine != "x64":
        return kinds
    try:
        with open("/proc/cpuinfo", "rb") as file:
            fast = b" avx2 " in file.read()
    except OSError:
        fast = True
    plain = [kind.replace("x64", "x64-baseline") for kind in kinds]
    return kinds + plain if fast else plain + kinds

"""The native Codex program behind its npm wrapper (the wrapper of 0.144.4 exits 0 when the CLI dies by SIGTERM).

Searched as the wrapper itself does: the platform package beside, above or inside the wrapper's package (npm, pnpm, bun), and
the package's own vendor directory (platform tarballs, old releases). Loaded only where the program is a script.
"""
from __future__ import annotations

import os

from worker import harnesses

# Platform packages and target triples (bin/codex.js of the npm package).
TARGETS = {"x86_64": ("codex-linux-x64", "x86_64-unknown-linux-musl"),
           "aarch64": ("codex-linux-arm64", "aarch64-unknown-linux-musl")}


def native_of(script):
    """(native program or None, a note for the result or None) for a script."""
    wrapper = wrapper_of(script)
    native = wrapper and native_program(wrapper, os.uname().machine)
    replaced = "npm wrapper %s replaced by its native program" if native else "no native program found for the npm wrapper %s"
    return native or None, replaced % script if wrapper else None


def wrapper_of(script):
    """The codex.js that a file is, links to, or (a shell shim of pnpm or cmd-shim) names; None for anything else."""
    real = os.path.realpath(script)
    if os.path.basename(real) == "codex.js":
        return real
    head = harnesses.beginning(real)
    if head.startswith(b"#!") and b"@openai/codex/bin/codex.js" in head:
        for word in head.decode("utf-8", "replace").split('"'):
            target = os.path.join(os.path.dirname(script), word.replace("$basedir/", ""))
            if word.endswith("codex.js") and os.path.isfile(target):
                return os.path.realpath(target)
    return None


def native_program(wrapper, machine):
    """The native program of the package that a codex.js belongs to, searched as Node resolves packages; None if absent."""
    package, triple = TARGETS.get(machine, ("", ""))
    root = place = os.path.dirname(os.path.dirname(wrapper))
    vendors = []
    while place != os.path.dirname(place):
        vendors.append(os.path.join(place, "node_modules", "@openai", package, "vendor"))
        place = os.path.dirname(place)
    for vendor in vendors + [os.path.join(root, "vendor")]:  # the last: platform tarballs, and releases before the split
        for layout in ("bin/codex", "codex/codex"):
            program = os.path.join(vendor, triple, layout)
            if triple and os.path.isfile(program) and os.access(program, os.X_OK):
                return program
    return None

"""The version, and what the running bundle is made of: filled in by worker/__main__.py when it runs from a bundle."""
from __future__ import annotations

VERSION = "0.1.0"

# "sha256" is over the bundle's manifest (name, size and SHA-256 of every file); "source" in a source tree.
BUNDLE = {"version": VERSION, "sha256": "source", "files": 0}

# name -> bytes of every file of the bundle, as read before launch; empty in a source tree.
FILES: "dict[str, bytes]" = {}

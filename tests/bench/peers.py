"""The programs that ours is measured beside: found, or installed by the bench itself; each proxy started in the same way.

apt-get (as root only) for tini, dumb-init, nginx, HAProxy; pip, in .cache/bench/, for mitmproxy (Python 3.12 or later) and
orjson; npm for Codex, whose binary contains its responses-api-proxy. What cannot be had is None and named in the table.
Every proxy is one process, so that its CPU time and memory are its own, and passes a request as it comes: no buffering.
"""
from __future__ import annotations

import glob
import os
import shutil
import socket
import subprocess
import sys
import time

from tests import real_cli
from tests.bench.machine import CACHE, HANG, HERE, KEY, ROOT, Hung, Live, cpu_seconds, status, wait_for

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
_asked = set()


def from_apt(package, program=None):
    """The program's path; installs the package once where this is root and apt-get is there."""
    found = shutil.which(program or package, path=PATH)
    if found or package in _asked or os.getuid() or not shutil.which("apt-get"):
        return found
    for words in ([["update"]] if not _asked else []) + [["install", "-y", "--no-install-recommends", package]]:
        subprocess.run(["apt-get", "-q", *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=300, env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"))
    _asked.add(package)
    return shutil.which(program or package, path=PATH)


def newest_python(at_least=(3, 12)):
    found = [sys.executable] + sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")), reverse=True)
    found += [shutil.which("python3.%d" % minor) for minor in (14, 13, 12)]
    for python in filter(None, found):
        code = "import sys; sys.exit(sys.version_info < %r)" % (at_least,)
        if subprocess.run([python, "-c", code], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    return None


def from_pip(package, program, python):
    """Path of a program in a virtual environment of its own, or None."""
    folder = os.path.join(CACHE, package)
    path = os.path.join(folder, "bin", program)
    if not os.path.exists(os.path.join(folder, "ready")) and python:
        for command in ([python, "-m", "venv", folder], [folder + "/bin/python", "-m", "pip", "install", "-q", package]):
            if subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300).returncode:
                return None
        open(os.path.join(folder, "ready"), "w").close()
    return path if os.path.exists(path) else None


def python_with_orjson():
    """A Python of the version that runs the bundle, with orjson, or None."""
    return from_pip("orjson", "python", sys.executable)


def codex():
    """The native Codex program, or None."""
    try:
        return real_cli.path()
    except (OSError, subprocess.SubprocessError):
        return None


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Proxy:
    """A started proxy: `port`, `path` (of Responses), `pid`, `token`, `ready_ms`; or the upstream itself."""

    def __init__(self, name, process=None, port=None, path="/v1/responses", token="none", live=None, ready_ms=None):
        self.name, self.process, self.port, self.path, self.token, self.live = name, process, port, path, token, live
        self.pid, self.ready_ms = live.worker if live else process.pid, ready_ms
        self.cpu = self.sent = 0.0

    def cpu_seconds(self):
        return cpu_seconds(self.pid)

    def peak_mb(self):
        return status(self.pid, "VmHWM") / 1024

    def stop(self):
        if self.live:
            return self.live.stop()
        self.process.kill()
        self.process.wait(HANG)


def spawn(name, command, port=None, info=None, stdin=None, **options):
    """Starts it and waits until it accepts on `port`, or on the one that it writes into the file `info`."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    if stdin:
        process.stdin.write(stdin)
        process.stdin.close()
    if info:
        port = int("".join(c for c in wait_for(info, 20).split("port")[-1].split(",")[0] if c.isdigit()))
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            if time.monotonic() > began + 20 or process.poll() is not None:
                process.kill()
                raise Hung(name + " did not start") from None
            time.sleep(0.001)
    return Proxy(name, process, port, ready_ms=(time.monotonic() - began) * 1000, **options)


def upstream(machine):
    return spawn("direct", [machine.upstream, machine.path("port")], info=machine.scratch + "/port-%d" % machine.count)


def nginx(machine, target, tls=None, name="nginx"):
    """tls: "to" speaks TLS to the target; "from" listens with TLS (what makes the target a TLS upstream)."""
    program = from_apt("nginx-light", "nginx")
    if not program:
        return None
    port, folder, certificates = free_port(), machine.path("nginx"), os.path.join(ROOT, "tests", "tls")
    os.mkdir(folder)
    with open(os.path.join(HERE, "native", "nginx.conf")) as file:
        text = file.read()
    secure = "proxy_ssl_trusted_certificate %s/ca.pem; proxy_ssl_verify on; proxy_ssl_name localhost; proxy_ssl_server_name on;"
    listening = "ssl_certificate %s/server.pem; ssl_certificate_key %s/server.key;" % (certificates, certificates)
    for mark, value in (("FOLDER", folder), ("LISTEN", "%d%s" % (port, " ssl" if tls == "from" else "")), ("TARGET", str(target)),
                        ("SCHEME", "https" if tls == "to" else "http"),
                        ("TLS", {"to": secure % certificates, "from": listening}.get(tls, ""))):
        text = text.replace("@%s@" % mark, value)
    with open(folder + "/nginx.conf", "w") as file:
        file.write(text)
    return spawn(name, [program, "-p", folder, "-c", folder + "/nginx.conf", "-e", folder + "/error.log"], port)


def haproxy(machine, target):
    program = from_apt("haproxy")
    if not program:
        return None
    port, config = free_port(), machine.path("haproxy.cfg")
    with open(os.path.join(HERE, "native", "haproxy.cfg")) as file:
        text = file.read().replace("@PORT@", str(port)).replace("@TARGET@", str(target))
    with open(config, "w") as file:
        file.write(text)
    return spawn("HAProxy", [program, "-db", "-f", config], port)


def mitmdump(machine, target):
    program = from_pip("mitmproxy", "mitmdump", newest_python())
    port = free_port()
    words = ["--mode", "reverse:http://127.0.0.1:%d" % target, "-q", "--listen-host", "127.0.0.1", "-p", str(port), "--set",
             "stream_large_bodies=1", "--set", "confdir=" + machine.path("mitm"), "--set", "flow_detail=0"]
    return program and spawn("mitmdump", [program, *words], port)


def codex_proxy(machine, target):
    program, info = codex(), machine.path("codex-proxy")
    words = ["responses-api-proxy", "--server-info", info, "--upstream-url", "http://127.0.0.1:%d/v1/responses" % target]
    return program and spawn("Codex responses-api-proxy", [program, *words], info=info, stdin=KEY.encode() + b"\n")


def reference(machine, target):
    port = free_port()
    return spawn("reference's way (http.server, urllib)",
                 [machine.python, os.path.join(HERE, "reference_proxy.py"), str(port), str(target)], port)


def worker(machine, target, name, bodies, scheme="http"):
    """The product's own proxy, in a run whose agent does nothing."""
    began = time.monotonic()
    model = {"base_url": "%s://localhost:%d/v1" % (scheme, target), "name": "m", "api": "responses"}
    if scheme == "https":
        model["ca_file"] = os.path.join(ROOT, "tests", "tls", "ca.pem")
    else:
        model["base_url"] = model["base_url"].replace("localhost", "127.0.0.1")
    live = Live(machine, model=model, bodies=bodies, limits={"requests": 10 ** 9, "body_bytes": 10 ** 12})
    ready = (time.monotonic() - began) * 1000
    return Proxy(name, port=live.port, token=live.token, live=live, ready_ms=ready)

"""Where the demo can run: Docker, bubblewrap, or no sandbox at all; each says what it is and what that means.

A place has: `path(name)` (a file's name inside), `put(source, name)`, `serve(plan)` (starts the scripted endpoint; -> the
`model` fields that lead to it), `start(argv)` (-> Popen), `ask(argv)` (-> stdout), `collect(target)`, and `close()`.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

from tests.endpoint import Endpoint, read_witness
from tests.sandboxes import bwrap, docker, roots

HERE = os.path.dirname(os.path.abspath(__file__))
ENDPOINT = os.path.join(os.path.dirname(HERE), "endpoint.py")
PULLED = "python:3-slim"


class Unusable(Exception):
    """This place cannot be had here; the text says why."""


class Docker:
    name = "a Docker container"
    meaning = "own file system and processes, no network; files go in and out by `docker cp` only"
    python = "python3"

    def __init__(self, folder, say):
        if docker.why_not():
            raise Unusable(docker.why_not())
        self.folder = folder
        image = self.find_image(say)
        self.server = docker.Container(image).__enter__()
        try:                # the endpoint's container shares nothing but its loopback with the agent's
            self.box = docker.Container(image, network="container:" + self.server.name).__enter__()
            self.box.exec(["mkdir", "-p", "/job/work"])
        except BaseException:
            self.close()
            raise

    def find_image(self, say):
        """A local image with Python; else one made of this machine's Python; else a pulled one."""
        listed = docker.docker("images", "--format", "{{.Repository}}:{{.Tag}}").stdout.decode().split()
        for name in listed:
            if name.startswith(("python:3", "sandbox-worker-test:")):
                return name
        if roots.why_not() is None:
            say("making a small image from this machine's Python and busybox ...")
            return docker.image(sys.executable)
        say("pulling %s (this machine lacks what it takes to make an image: %s) ..." % (PULLED, roots.why_not()))
        if docker.docker("pull", PULLED, check=False, timeout=600).returncode:
            raise Unusable("there is no image with Python, none can be made (%s), and %s cannot be pulled"
                           % (roots.why_not(), PULLED))
        return PULLED

    def path(self, name):
        return "/job/" + name

    def put(self, source, name):
        self.box.put(source, self.path(name))

    def serve(self, plan):
        save(os.path.join(self.folder, "plan.json"), plan)
        for source in (ENDPOINT, os.path.join(self.folder, "plan.json")):
            self.server.put(source, "/")
        docker.docker("exec", "-d", self.server.name, "python3", "/endpoint.py", "--plan", "/plan.json", "--witness",
                      "/witness.jsonl", "--info", "/info.json")
        for _ in range(200):
            info = self.server.exec(["cat", "/info.json"], check=False)
            if info.returncode == 0:
                return {"base_url": json.loads(info.stdout)["url"] + "/v1"}
            time.sleep(0.05)
        raise Unusable("the scripted endpoint did not start in its container")

    def start(self, argv):
        return subprocess.Popen(self.box.command(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def ask(self, argv):
        return self.box.exec(argv, check=False).stdout.decode(errors="replace")

    def collect(self, target):
        self.box.get("/job/session", target)
        witness = os.path.join(self.folder, "witness.jsonl")
        self.server.get("/witness.jsonl", witness)
        return read_witness(witness)

    def close(self):
        for box in (getattr(self, "box", None), self.server):
            if box:
                box.__exit__()


class Process:
    name = "a plain process"
    meaning = "NO SANDBOX: the agent can do what you can do; fine for this demo, not for real work"
    python = os.path.realpath(sys.executable)       # a virtual environment may lie where the sandbox has nothing

    def __init__(self, folder, say):
        self.folder = folder
        self.job = os.path.join(folder, "job")
        os.makedirs(os.path.join(self.job, "work"))
        self.endpoint = None

    def path(self, name):
        return os.path.join(self.job, name)

    def put(self, source, name):
        shutil.copy(source, os.path.join(self.job, name))

    def serve(self, plan):
        self.endpoint = Endpoint(plan, os.path.join(self.folder, "witness.jsonl")).start()
        return {"base_url": self.endpoint.url + "/v1"}

    def start(self, argv):
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def ask(self, argv):
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.stdout.decode(errors="replace")

    def collect(self, target):
        shutil.copytree(os.path.join(self.job, "session"), target, symlinks=True,
                        ignore=lambda folder, names: [n for n in names if n == "control.sock"])
        return self.endpoint.requests()

    def close(self):
        if self.endpoint:
            self.endpoint.stop()


class Bwrap(Process):
    name = "bubblewrap"
    meaning = "this machine's files, read-only, own processes and no network: the model is reached through a Unix socket"

    def __init__(self, folder, say):
        if bwrap.cannot_start():
            raise Unusable(bwrap.cannot_start())
        super().__init__(folder, say)

    def path(self, name):
        return "/tmp/job/" + name

    def serve(self, plan):
        path = os.path.join(self.job, "model.sock")
        self.endpoint = Endpoint(plan, os.path.join(self.folder, "witness.jsonl"), unix=path).start()
        return {"socket": self.path("model.sock")}

    def words(self, argv):
        return ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", self.job,
                "/tmp/job", "--unshare-all", "--die-with-parent"] + argv

    def start(self, argv):
        return super().start(self.words(argv))

    def ask(self, argv):
        return super().ask(self.words(argv))


PLACES = {"docker": Docker, "bwrap": Bwrap, "process": Process}


def save(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=1)


def find(wanted, folder, say):
    """-> the place that was asked for, or the first that can be had; what was not had is said."""
    for name in [wanted] if wanted else list(PLACES):
        try:
            return PLACES[name](folder, say)
        except Unusable as reason:
            say("not in %s: %s" % (PLACES[name].name, reason))
    raise SystemExit("demo: the sandbox that was asked for cannot be had")

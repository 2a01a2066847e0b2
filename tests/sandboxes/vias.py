"""Real places for sandboxctl, each with the command that runs a command inside: `with VIAS["docker"]() as place: place.via`.

    via      the word for --via
    dir      a directory for --dir that outlives a command, or None where the place keeps its files
    sh(text) runs a shell command inside, past sandboxctl; -> stdout
"""
from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from tests.sandboxes import bwrap, docker, roots

PODMAN = ("--runtime", "runc", "--ulimit", "nofile=16384:16384", "--ulimit", "nproc=16384:16384")
HUNG = 120


class Place:
    """This machine itself, and what all places share."""

    via, dir = "", None

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="sandboxctl-place-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def sh(self, text):
        words = shlex.split(self.via) + ["sh"]
        done = subprocess.run(words, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=HUNG)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @staticmethod
    def why_not():
        return None


class Chroot(Place):
    """A root file system of its own in a mount namespace; a directory of ours is its /run."""

    dir = "/run/job"

    def __enter__(self):
        root = roots.make(sys.executable)
        inside = 'mount --bind "$1" "$2/run" && mount -t proc proc "$2/proc" && mount --bind /dev "$2/dev" && exec chroot "$@"'
        inside = inside.replace('"$@"', '"$2" "$3"')
        self.via = shlex.join(["unshare", "-m", "sh", "-c", inside, "x", self.folder, root])
        return self

    @staticmethod
    def why_not():
        return roots.why_not()


class Bwrap(Place):
    """Each command is a sandbox of its own over the same files; a run lives and dies with its command."""

    dir = "/run/job"

    def __enter__(self):
        words = bwrap.command(roots.make(sys.executable), [], binds=[(self.folder, "/run")])
        words.remove("--die-with-parent")
        self.via = shlex.join(words)
        return self

    @staticmethod
    def why_not():
        return bwrap.why_not()


class Docker(Place):
    options = ()

    def __init__(self, *options, user=None, python=sys.executable):
        super().__init__()
        self.box = docker.Container(docker.image(python), *self.options, *options)
        self.via = "docker exec -i " + ("-u %s " % user if user else "") + self.box.name

    def __enter__(self):
        self.box.__enter__()
        return self

    def __exit__(self, *_):
        self.box.__exit__()
        super().__exit__()

    @staticmethod
    def why_not():
        return docker.why_not()


class Gvisor(Docker):
    options = ("--runtime=runsc",)

    @staticmethod
    def why_not():
        return docker.why_not() or (None if docker.has_runtime("runsc") else "docker has no runtime runsc (Debian: runsc)")


class Kubectl(Docker):
    """`kubectl exec` as it is: a client on PATH that passes the exit code on; and a container without tar and cp."""

    def __enter__(self):
        super().__enter__()
        self.sh("rm /bin/tar /bin/cp")
        client = os.path.join(self.folder, "kubectl")
        with open(client, "w") as file:
            file.write('#!/bin/sh\n# kubectl exec -i POD -- COMMAND...\n[ "$1 $2 $4" = "exec -i --" ] || exit 1\npod=$3\nshift 4\n'
                       'docker exec -i "$pod" "$@"\ncode=$?\n[ $code -eq 0 ] || echo "command terminated with exit code $code" >&2\n'
                       "exit $code\n")
        os.chmod(client, 0o755)
        self.via = "%s exec -i %s --" % (client, self.box.name)
        return self


class Podman(Place):
    def __enter__(self):
        self.name = "sandboxctl-" + os.urandom(6).hex()
        podman("run", "-d", "--name", self.name, "--network", "none", *PODMAN, "--rootfs", roots.make(sys.executable) + ":O",
               "sleep", "3600")
        self.via = "podman exec -i " + self.name
        return self

    def __exit__(self, *_):
        subprocess.run(["podman", "rm", "-f", "-t", "0", self.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        super().__exit__()

    @staticmethod
    def why_not():
        if not shutil.which("podman") or not shutil.which("runc"):
            return "no podman or no runc on PATH (Debian: podman runc)"
        return roots.why_not()


def podman(*words):
    done = subprocess.run(["podman", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=HUNG)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Ssh(Place):
    """A real sshd on the loopback, on a port and with keys of its own; the way in that splits words twice."""

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.at(name)], check=True)
        shutil.copy(self.at("user.pub"), self.at("authorized"))
        os.makedirs("/run/sshd", exist_ok=True)
        self.write("sshd_config", "Port %d\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s\nPidFile %s\nUsePAM no\n"
                   "StrictModes no\nPermitRootLogin prohibit-password\nMaxStartups 100\n"
                   % (port, self.at("host"), self.at("authorized"), self.at("pid")))
        self.write("config", "Host box\n HostName 127.0.0.1\n Port %d\n User root\n IdentityFile %s\n IdentitiesOnly yes\n"
                   " UserKnownHostsFile %s\n StrictHostKeyChecking accept-new\n LogLevel ERROR\n"
                   % (port, self.at("user"), self.at("known")))
        self.daemon = subprocess.Popen([shutil.which("sshd", path="/usr/sbin:/sbin:" + os.environ["PATH"]), "-D", "-e", "-f",
                                        self.at("sshd_config")], stdin=subprocess.DEVNULL, stderr=open(self.at("log"), "w"))
        self.via = "ssh -F %s box" % self.at("config")
        for _ in range(100):
            done = subprocess.run(shlex.split(self.via) + ["true"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if done.returncode == 0:
                return self
            time.sleep(0.1)
        raise AssertionError(done.stderr)

    def at(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.at(name), "w") as file:
            file.write(text)

    def __exit__(self, *_):
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.wait()
        super().__exit__()

    @staticmethod
    def why_not():
        if not shutil.which("ssh") or not shutil.which("sshd", path="/usr/sbin:/sbin:" + os.environ["PATH"]):
            return "no ssh or sshd (Debian: openssh-client openssh-server)"
        return None if os.geteuid() == 0 else "an sshd of its own needs root here"


VIAS = {"local": Place, "chroot": Chroot, "bwrap": Bwrap, "docker": Docker, "gvisor": Gvisor, "podman": Podman, "ssh": Ssh,
        "kubectl": Kubectl}

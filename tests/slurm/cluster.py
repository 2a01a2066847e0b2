"""A real Slurm of one node: munged, slurmctld and slurmd, each started by hand, their files in one directory of their own."""
from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
HUNG = 120.0        # s


def why_not():
    """The reason why there can be no Slurm here, or None."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")]
    if missing:
        return "no %s (Debian: slurmctld slurmd slurm-client munge)" % ", ".join(missing)
    return None if os.geteuid() == 0 else "starting Slurm needs root"


class Cluster:
    """`with Cluster() as cluster`: `cluster.environ` makes the client commands find it."""

    def __enter__(self):
        self.state = tempfile.mkdtemp(prefix="slurm-", dir="/tmp")      # a short path: sockets have 108 bytes
        self.environ = dict(os.environ, PATH=os.environ["PATH"] + ":/usr/sbin", SLURM_CONF=self.path("slurm.conf"))
        for name in ("state", "spool"):
            os.mkdir(self.path(name))
        with open(os.path.join(HERE, "slurm.conf")) as file:
            text = file.read()
        ports = free_ports(2)
        for name, value in (("@HOST@", socket.gethostname().split(".")[0]), ("@STATE@", self.state), ("@PORT1@", str(ports[0])),
                            ("@PORT2@", str(ports[1]))):
            text = text.replace(name, value)
        with open(self.path("slurm.conf"), "w") as file:
            file.write(text)
        with open(os.open(self.path("munge.key"), os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
            file.write(os.urandom(1024))
        self.daemons = []
        self.start("munged", "--foreground", "--force", "--key-file=" + self.path("munge.key"), "--socket=" + self.path("munge.sock"),
                   "--pid-file=" + self.path("munged.pid"), "--log-file=" + self.path("munged.log"), "--seed-file=" + self.path("seed"))
        self.wait(lambda: os.path.exists(self.path("munge.sock")), "munged")
        self.start("slurmctld", "-D", "-f", self.path("slurm.conf"))
        self.start("slurmd", "-D", "-f", self.path("slurm.conf"))
        self.wait(lambda: b"idle" in self.run("sinfo", "-h", "-o", "%t", check=False), "slurmd")
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait(HUNG)
        shutil.rmtree(self.state, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.state, name)

    def start(self, *command):
        with open(self.path(command[0] + ".out"), "wb") as out:
            self.daemons.append(subprocess.Popen(command, env=self.environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def run(self, *command, check=True, **options):
        done = subprocess.run(command, env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=HUNG, **options)
        assert not check or done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def wait(self, condition, what):
        """Until it is true; there is nothing to be told by."""
        end = time.monotonic() + HUNG
        while not condition():
            assert time.monotonic() < end, "%s hangs: %s" % (what, self.logs())
            select.select([], [], [], 0.2)

    def logs(self):
        found = []
        for name in sorted(os.listdir(self.state)):
            if name.endswith((".log", ".out")):
                with open(self.path(name), errors="replace") as file:
                    found.append("%s: %s" % (name, file.read()[-1500:]))
        return "\n".join(found)


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports

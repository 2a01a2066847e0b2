"""Docker as the tests use it: files go in and out by copy only, commands by `exec`, and nothing is ever pulled."""
from __future__ import annotations

import functools
import shutil
import subprocess
import uuid

from tests.sandboxes import roots

HUNG = 300          # s; hang guard of one docker command


def docker(*arguments, check=True, **options):
    """Run the docker client; output as bytes; CalledProcessError shows what docker said."""
    options.setdefault("timeout", HUNG)
    options.setdefault("stdin", None if "input" in options else subprocess.DEVNULL)
    if "input" in options:
        del options["stdin"]
    done = subprocess.run(("docker",) + arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    if check and done.returncode:
        raise AssertionError("docker %s: rc %d: %s" % (" ".join(arguments), done.returncode,
                                                       done.stderr.decode(errors="replace")))
    return done


@functools.lru_cache(maxsize=None)
def why_not():
    """The reason why no engine can be used, or None. Set DOCKER_HOST, or run tests/sandboxes/dockerd.sh."""
    if not shutil.which("docker"):
        return "no docker client on PATH (Debian: docker.io)"
    try:
        done = docker("version", "--format", "{{.Server.Version}}", check=False, timeout=20)
    except subprocess.TimeoutExpired:
        return "the docker engine does not answer"
    if done.returncode:
        return "no docker engine answers: %s" % done.stderr.decode(errors="replace").strip().splitlines()[-1]
    return None


@functools.lru_cache(maxsize=None)
def has_runtime(name):
    return name in docker("info", "--format", "{{json .Runtimes}}").stdout.decode()


@functools.lru_cache(maxsize=None)
def image(python):
    """-> name of an image with busybox and this Python (path of the interpreter), made here when it is not there."""
    name = "sandbox-worker-test:" + roots.name_of(python)
    if docker("image", "inspect", name, check=False).returncode:
        root = roots.make(python)
        tar = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE)
        docker("import", "-c", "ENV PATH=/usr/local/bin:/bin", "-", name, stdin=tar.stdout)
        tar.stdout.close()
        assert tar.wait() == 0, "tar failed"
    return name


class Container:
    """`with Container(image) as c`: a container that sleeps; commands come by exec, files by copy."""

    def __init__(self, image_name, *options, network="none", command=("sleep", "3600")):
        self.name = "sandbox-worker-" + uuid.uuid4().hex[:12]
        self.arguments = ("run", "-d", "--pull=never", "--name", self.name, "--network", network) + options
        self.arguments += (image_name,) + tuple(command)

    def __enter__(self):
        docker(*self.arguments)
        return self

    def __exit__(self, *_):
        docker("rm", "-f", "-v", self.name, check=False)

    def command(self, argv, env=None, user=None, cwd=None, stdin=False):
        """The words of `docker exec` for argv; for Popen."""
        words = ["docker", "exec"] + (["-i"] if stdin else [])
        for name, value in (env or {}).items():
            words += ["-e", "%s=%s" % (name, value)]
        words += ["-u", user] if user else []
        words += ["-w", cwd] if cwd else []
        return words + [self.name] + list(argv)

    def exec(self, argv, check=True, input=None, **options):
        """-> CompletedProcess with bytes; see command() for the options."""
        words = self.command(argv, stdin=input is not None, **options)[1:]
        return docker(*words, check=check, **({} if input is None else {"input": input}))

    def put(self, source, target):
        docker("cp", source, "%s:%s" % (self.name, target))

    def get(self, source, target):
        docker("cp", "%s:%s" % (self.name, source), target)

    def read(self, path):
        return self.exec(["cat", path]).stdout

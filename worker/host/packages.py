"""Where `install` gets its packages: from an archive or from the registries, and never without holding them against the lock.

A package is {"file" (its name in the archive), "name", "version", "check": (algorithm, digest in bytes), "path" (npm: where it
goes)}. An archive is a tar file of the packages as the registry gave them. Mirrors: npm's `registry` (environment or ~/.npmrc),
pip's `index-url` (environment or pip.conf).
"""
from __future__ import annotations

import base64
import hashlib
import os
import re

from worker import cli
from worker.host.install_rules import Failed

NPM, PYPI = "https://registry.npmjs.org", "https://pypi.org/simple"
TRIES, PATIENCE = 3, 60  # seconds without a byte
LARGEST = 1 << 30
SIMPLE = "application/vnd.pypi.simple.v1+html, text/html;q=0.2"  # PEP 691
PIP_CONFIGURATIONS = ("~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf")


def chosen(lock, target):
    """The packages of a lock that this target needs. Raises Failed where there are none for it."""
    found = _chosen(lock, target)
    if not found:
        place = " ".join(filter(None, (target["machine"], target["libc"], target["python_version"])))
        raise Failed(cli.NO_OUTCOME, "%s %s: there is no package for %s" % (lock["harness"], lock["version"], place))
    return found


def _chosen(lock, target):
    if lock["from"] == "npm":
        return [_npm(row) for row in lock["packages"] if row[4] in (None, target["cpu"]) and row[5] in (None, target["libc"])
                and not (target["node"] and "/node-linux-" in row[0])]
    place = "%s-%s" % (target["python_version"], target["machine"])
    return [] if place not in lock["targets"] else [{"file": file, "name": name, "check": ("sha256", bytes.fromhex(sha256))}
            for name, file, sha256, targets in lock["packages"] if targets is None or place in targets]


def _npm(row):
    path, name, version, integrity = row[:4]
    algorithm, _, digest = integrity.partition("-")  # Subresource Integrity
    return {"file": "%s-%s.tgz" % (name.replace("/", "+"), version), "name": name, "version": version, "path": path,
            "check": (algorithm, base64.b64decode(digest))}


class Source:
    """`get(package)` gives a package's bytes, checked."""

    def __init__(self, kind, archive, wanted):
        self.kind, self.path, self.wanted, self.reading, self.writing, self.there = kind, archive, wanted, None, None, {}
        if archive and os.path.exists(archive):
            self.reading = _opened(archive)
            self.there = {member.name: member for member in self.reading if member.isreg()}
        elif archive:
            import tarfile

            self.partial = "%s.partial-%d" % (archive, os.getpid())
            self.writing = tarfile.open(self.partial, "w")  # noqa: SIM115 - until close()

    def get(self, package):
        if self.reading:
            member = self.there.get(package["file"])
            if member is None or member.size > LARGEST:
                raise Failed(cli.NO_OUTCOME, "%s: was made for another version or machine, it has no %s" % (
                    self.path, package["file"]))
            data = self.reading.extractfile(member).read()
        else:
            data = fetch(url_of(self.kind, package), LARGEST)
        algorithm, digest = package["check"]
        if hashlib.new(algorithm, data).digest() != digest:
            raise Failed(cli.BAD_INPUT, "%s: its %s is not the locked one; nothing was installed" % (package["file"], algorithm))
        if self.writing:
            import io
            import tarfile

            member = tarfile.TarInfo(package["file"])
            member.size = len(data)
            self.writing.addfile(member, io.BytesIO(data))
        return data

    def fetch_all(self):
        for package in {package["file"]: package for package in self.wanted}.values():
            self.get(package)
        self.close()
        return ["%s: %d packages" % (self.path, len(self.wanted))]

    def close(self):
        """Everything was got: the archive takes its name."""
        if self.writing:
            self.writing.close()
            os.replace(self.partial, self.path)
            self.writing = None

    def abandon(self):
        """Nothing of an archive that is not whole stays. After close() this does nothing."""
        if self.writing:
            self.writing.close()
            os.unlink(self.partial)
            self.writing = None


def _opened(archive):
    import tarfile

    try:
        return tarfile.open(archive, "r:")
    except tarfile.TarError as error:
        raise Failed(cli.BAD_INPUT, "%s: is no archive of install (%s)" % (archive, error)) from None


def url_of(kind, package):
    if kind == "npm":
        return "%s/%s/-/%s-%s.tgz" % (npm_registry(), package["name"], package["name"].rpartition("/")[2], package["version"])
    index = "%s/%s/" % (pypi_index(), re.sub(r"[-_.]+", "-", package["name"]).lower())  # PEP 503
    page = fetch(index, 64 << 20).decode("utf-8", "replace")
    from html import unescape
    from urllib.parse import unquote, urljoin

    for href in re.findall(r'<a\b[^>]*?\bhref\s*=\s*["\']([^"\']+)', page):
        url = urljoin(index, unescape(href)).partition("#")[0]
        if unquote(url.rpartition("/")[2]) == package["file"]:
            return url
    raise Failed(cli.NO_OUTCOME, "%s does not list %s" % (index, package["file"]))


def npm_registry():
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if os.environ.get(name):
            return os.environ[name].rstrip("/")
    found = re.search(r"(?m)^\s*registry\s*=\s*(\S+)", _text("~/.npmrc"))
    return (found.group(1) if found else NPM).rstrip("/")


def pypi_index():
    if os.environ.get("PIP_INDEX_URL"):
        return os.environ["PIP_INDEX_URL"].rstrip("/")
    for path in (os.environ.get("PIP_CONFIG_FILE", ""),) + PIP_CONFIGURATIONS:
        found = re.search(r"(?m)^\s*index-url\s*[=:]\s*(\S+)", _text(path) if path else "")
        if found:
            return found.group(1).rstrip("/")
    return PYPI


def _text(path):
    try:
        with open(os.path.expanduser(path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def fetch(url, most):
    """The bytes behind an http(s) URL. Raises Failed."""
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    if not url.startswith(("https://", "http://", "file://")):
        raise Failed(cli.NO_OUTCOME, "%s: is no URL of a registry" % url)
    for attempt in range(1, TRIES + 1):
        try:
            with urlopen(Request(url, headers={"Accept": SIMPLE if url.endswith("/") else "*/*"}), timeout=PATIENCE) as answer:
                data = answer.read(most + 1)
                if len(data) <= most:
                    return data
                raise Failed(cli.BAD_INPUT, "%s: is larger than %d bytes" % (url, most))
        except (OSError, HTTPException, ValueError) as error:
            final = attempt == TRIES or 400 <= getattr(error, "code", 0) < 500
            if final:
                raise Failed(cli.NO_OUTCOME, "%s could not be fetched (%s)" % (url, getattr(error, "reason", error))) from None

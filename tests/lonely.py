"""A place without any network but its own loopback, where whatever asks for another host is written down.

`with Lonely(folder, keep) as place:` makes a network and mount namespace (root only); `place.wrapper(uid)` are the words before a
command that runs there; `place.heard()` is what was asked for, one line each:

    name models.example.com             a name was looked up (the answer is NXDOMAIN)
    packet tcp 192.0.2.1:443            a packet for an address that is not here (nobody answers)
    proxy CONNECT models.example.com    the proxy at PROXY was asked (the answer is 403); set it in a run's environment

/tmp there is `place.tmp`, an empty directory, so that what a program leaves in it is seen; the directories `keep` stay, and every
user can reach them and this Python, even where they lie in a closed directory (root's home).
"""
from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys

PROXY = "http://127.0.0.1:3128"
PROXIED = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), PROXY)
# A cable whose other end we hold. Its neighbour has an address, so that packets are sent and not only asked about (IPv4; what
# speaks IPv6 looks up a name first).
CABLE = """
ip link set lo up
ip link add far type veth peer name near
ip addr add 10.9.9.1/24 dev near
ip link set near up; ip link set far up
ip neigh add 10.9.9.2 lladdr 02:00:00:00:00:02 dev near
ip route add default via 10.9.9.2
"""
PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp"}


class Lonely:
    def __init__(self, folder, keep):
        """folder: a path object of ours that others may enter; keep: directories that stay although they lie in /tmp."""
        self.log, self.tmp, self.resolver = folder / "heard", folder / "tmp", folder / "resolv.conf"
        self.keep = [str(folder), sys.prefix, sys.base_prefix, *keep]

    def __enter__(self):
        self.log.write_bytes(b"")
        self.log.parent.chmod(0o755)
        self.tmp.mkdir()
        self.tmp.chmod(0o1777)
        self.resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        self.process = subprocess.Popen(
            ["unshare", "-n", "-m", sys.executable, __file__, str(self.log), str(self.tmp), str(self.resolver), *self.keep],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self.process.stdout.readline() != b"ready\n":
            said = self.process.communicate()[1].decode(errors="replace")
            raise OSError("no namespace of our own: " + said[-500:])
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.communicate()

    def wrapper(self, uid=0):
        return ["nsenter", "-t", str(self.process.pid), "-n", "-m", "-S", str(uid), "-G", str(uid)]

    def heard(self):
        return self.log.read_text().splitlines()

    def left(self):
        """Names below /tmp there, without what was kept."""
        kept = tuple(os.path.join(str(self.tmp), os.path.relpath(path, "/tmp")) for path in self.keep)
        found = []
        for folder, directories, names in os.walk(str(self.tmp)):
            directories[:] = [name for name in directories if os.path.join(folder, name) not in kept]
            found += [os.path.relpath(os.path.join(folder, name), str(self.tmp)) for name in names]
        return sorted(found)


def main(log, tmp, resolver, *keep):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)      # PR_SET_PDEATHSIG
    subprocess.run(["sh", "-ec", CABLE], check=True)
    mount("--make-rprivate", "/")
    mount("--bind", resolver, "/etc/resolv.conf")
    covers = {closed(path) for path in keep if not path.startswith("/tmp/")} - {None}
    inside = [entry.path for cover in covers for entry in os.scandir(cover) if entry.is_dir(follow_symlinks=False)]
    held = {path: os.open(path, os.O_PATH) for path in [*keep, *inside]}
    mount("--bind", tmp, "/tmp")
    for cover in covers:
        mount("-t", "tmpfs", "-o", "mode=755", "none", cover)
    for path, fd in sorted(held.items()):
        if not os.path.isdir(path):
            os.makedirs(path)
            mount("-c", "--bind", "/proc/self/fd/%d" % fd, path, pass_fds=(fd,))
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    packets.bind(("far", 0x0800))
    proxy = socket.socket()
    proxy.bind(("127.0.0.1", 3128))
    proxy.listen(64)
    print("ready", flush=True)
    listeners = {names: asked_for_a_name, packets: sent_a_packet, proxy: asked_the_proxy}
    while True:
        for ready in select.select(list(listeners), [], [])[0]:
            with open(log, "a") as file:
                file.write(listeners[ready](ready) + "\n")


def closed(path):
    """The first directory above `path` that not everybody may enter, or None."""
    parts = path.split("/")[1:-1]
    above = ["/" + "/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return next((each for each in above if not os.stat(each).st_mode & 1), None)


def mount(*words, **options):
    subprocess.run(["mount", *words], check=True, **options)


def asked_for_a_name(server):
    data, peer = server.recvfrom(4096)
    server.sendto(data[:2] + b"\x81\x83" + data[4:6] + bytes(6) + data[12:], peer)      # NXDOMAIN
    labels, at = [], 12
    while data[at:at + 1] not in (b"", b"\0"):
        labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1"))
        at += 1 + data[at]
    return "name " + ".".join(labels)


def sent_a_packet(cable):
    data = cable.recv(65536)
    rest = data[(data[0] & 15) * 4:]
    port = ":%d" % int.from_bytes(rest[2:4], "big") if data[9] in (6, 17) else ""
    return "packet %s %s%s" % (PROTOCOLS.get(data[9], data[9]), socket.inet_ntoa(data[16:20]), port)


def asked_the_proxy(listener):
    client = listener.accept()[0]
    client.settimeout(5)
    try:
        line = client.recv(4096).split(b"\r\n")[0].decode("latin-1")
        client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    except OSError as error:
        line = "nothing: %s" % error
    client.close()
    return "proxy " + " ".join(line.split(" ")[:2])


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Why an exec failed, in words that a host can act on. Loaded only after one did.

execve says ENOENT for a missing program, a missing loader and a missing script interpreter alike, and ENOEXEC for a
foreign architecture and for a text without #! alike (execve(2)); the file's own first bytes tell them apart.
"""
from __future__ import annotations

import errno
import os
import stat
import struct

from worker import processes

# e_machine (elf.h) and the names that uname(2) has for the processors that run it
MACHINES = {3: ("x86", "i386 i586 i686 x86_64"), 62: ("x86-64", "x86_64"), 40: ("ARM", "armv6l armv7l armv8l aarch64"),
            183: ("AArch64", "aarch64 arm64"), 243: ("RISC-V", "riscv64 riscv32"), 21: ("PowerPC 64", "ppc64 ppc64le"),
            22: ("S/390", "s390x"), 258: ("LoongArch", "loongarch64"), 8: ("MIPS", "mips mips64")}
PT_INTERP = 3
EXPLAINED = (errno.EACCES, errno.ENOENT, errno.ENOEXEC, errno.EINVAL, errno.ELIBBAD, errno.ELOOP)  # by the file's own bytes


class LaunchError:
    """`kind`: not_found, not_executable, wrong_architecture, missing_loader, missing_interpreter, bad_cwd,
    argument_too_long, user or other. `message`: a sentence."""

    __slots__ = ("kind", "message")

    def __init__(self, kind, message):
        self.kind, self.message = kind, message


def diagnose(command, stage, number):
    """`command` as in supervise.spawn; `stage` start, user, cwd or exec; `number` the errno there (text)."""
    number = int(number)
    words = os.strerror(number) if number else "the launcher was killed"
    if stage == "cwd":
        return LaunchError("bad_cwd", "cwd %s: %s" % (command["cwd"], words))
    if stage == "user":
        return LaunchError("user", "cannot become user %d:%d: %s" % (command["user"] + (words,)))
    name, path = command["argv"][0], command["program"]
    if stage == "exec":
        if path is None:
            return LaunchError("not_found", _not_found(name, command))
        if number == errno.E2BIG:
            return LaunchError("argument_too_long", _too_long(command))
        kind, sentence = _look_at(path, command["cwd"], number)
        if kind:
            return LaunchError(kind, "%s: %s" % (path, sentence))
    return LaunchError("other", "%s: %s" % (path or name, words))


def _not_found(name, command):
    if os.path.islink(os.path.join(command["cwd"] or "", name)):
        return "%s: is a link to nothing" % name
    if "/" in name:
        return "%s: no such file" % name
    return "%s: not found in PATH (%s)" % (name, command["env"].get("PATH", os.defpath))


def _too_long(command):
    """execve(2): one string may have 131,072 bytes with its NUL, all together a quarter of the stack limit."""
    words = [len(os.fsencode(word)) + 1 for word in command["argv"]]
    names = [len(os.fsencode(name + value)) + 2 for name, value in command["env"].items()]
    longest = max(words + names)
    if longest > 131072:
        return "an argument or variable has %d bytes, the kernel takes 131,071" % (longest - 1)
    return "arguments and environment have %d bytes together, more than the kernel takes" % sum(words + names)


def _look_at(path, cwd, number):
    """(kind, sentence), or (None, None) where the file explains nothing."""
    if os.path.isdir(path):
        return "not_executable", "is a directory"
    head = processes.read(path, 4096)  # nothing where it may only be executed
    if number not in EXPLAINED:
        return None, None
    if number == errno.EACCES:
        return "not_executable", _access(path, head)
    if head.startswith(b"#!"):
        return _script(head, cwd)
    if head.startswith(b"\x7fELF") and len(head) >= 20:
        return _elf(head)
    if number == errno.ENOEXEC:
        return "not_executable", "is empty" if not head else "is neither a program of this system nor a script with #!"
    if number == errno.ENOENT:
        return "not_found", "no such file"
    return None, None


def _access(path, head):
    if not stat.S_ISREG(os.stat(path).st_mode):
        return "is no regular file"
    if not os.stat(path).st_mode & 0o111:
        return "is not executable (mode %04o)" % (os.stat(path).st_mode & 0o7777)
    if os.statvfs(path).f_flag & os.ST_NOEXEC:
        return "lies on a file system mounted noexec"
    if head.startswith(b"#!"):
        return "permission denied for it or its interpreter %s" % _interpreter(head)
    return "permission denied"


def _interpreter(head):
    words = head[2:].split(b"\n", 1)[0].split(None, 1)
    return os.fsdecode(words[0]) if words else ""


def _script(head, cwd):
    line = head[2:].split(b"\n", 1)[0]
    name = _interpreter(head)
    if not name:
        return "missing_interpreter", "its first line names no interpreter"
    if line.endswith(b"\r") and not os.path.exists(os.path.join(cwd or "", name + "\r")):
        return "missing_interpreter", "its first line ends in a carriage return (DOS text)"
    if not os.path.exists(os.path.join(cwd or "", name)):
        return "missing_interpreter", "its interpreter %s does not exist" % name
    return "missing_interpreter", "its interpreter %s cannot be run" % name


def _elf(head):
    order = ">" if head[5:6] == b"\2" else "<"
    machine = struct.unpack_from(order + "H", head, 18)[0]
    here = os.uname().machine
    name, hosts = MACHINES.get(machine, ("machine %d" % machine, ""))
    if here not in hosts.split():
        return "wrong_architecture", "is a program for %s, this is %s" % (name, here)
    loader = _loader(head, order)
    if loader and not os.path.exists(loader):
        return "missing_loader", "its loader %s does not exist (built for another C library)" % loader
    return "wrong_architecture", "is a damaged or unsupported program for %s" % name


def _loader(head, order):
    """PT_INTERP of the program headers, where it lies within the first 4 KiB (linkers put it there)."""
    wide = head[4:5] == b"\2"
    try:
        table = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)[0]
        size, count = struct.unpack_from(order + "HH", head, 54 if wide else 42)
        for index in range(min(count, 64)):
            at = table + index * size
            if struct.unpack_from(order + "I", head, at)[0] == PT_INTERP:
                start = struct.unpack_from(order + ("Q" if wide else "I"), head, at + (8 if wide else 4))[0]
                return os.fsdecode(head[start:].split(b"\0", 1)[0])
    except struct.error:  # cut short
        pass
    return None

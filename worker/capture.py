"""The agent's stdout as `[unix_time, event]` lines, its stderr as it is; both bounded, in memory and on disk.

What a line becomes (DESIGN 7)
- A JSON object stays as its bytes are; escapes of lone surrogates and bytes that are no UTF-8 become U+FFFD.
- Anything else becomes a string: other JSON, text, NaN and Infinity (which json takes but no strict reader), numbers
  and nesting that readers refuse (C27), objects over 16 MiB (their beginning).
- Control sequences, NUL and BOM around an object are stripped; a line of nothing else is dropped.

How that is fast: a block of lines is checked in one call of the JSON scanner, as one list in which a random string
stands between the lines. Only if it comes back exactly between single values was every line one JSON document of its
own; an agent cannot know the string. Blocks that fail are looked at line by line.

How it is bounded: a line that outgrows 1 MiB goes to an unlinked file until it is complete; a file that outgrows half
of its cap continues in a ring (tail.py), of which the newest part is added at the end. What is lost is a gap.
"""
from __future__ import annotations

import binascii
import json
import os
import re

from worker.tail import CappedFile, Spool

LIVE_LINE = 1 << 20  # kept in memory while incomplete
MAX_LINE = 16 << 20  # parsed and kept whole
KEPT_OF_LONGER = 64 << 10
DEPTH = 500  # readers in Python stop at about 990, and need a level or two themselves
DIGITS = 4300  # sys.int_info: int() of longer text is refused since CVE-2020-10735

NOISE = rb"(?:[\x00-\x20\x7f]|\xef\xbb\xbf|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\^-~])+"
LEADING_NOISE, TRAILING_NOISE = re.compile(NOISE), re.compile(NOISE + rb"\Z")
SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
ESCAPES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.")
STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (DIGITS + 1))


class _NotStrict(ValueError):
    pass


def _refuse(name):
    raise _NotStrict(name)


_decode = json.JSONDecoder(parse_constant=_refuse).decode
_as_string = json.JSONEncoder(ensure_ascii=False).encode


class Capture:
    """Feed it with `stdout(bytes)` and `stderr(bytes)`; `close()` at the end.

    stdout_file, stderr_file: EvidenceFile (opened without a redactor: this class blanks the secrets, so that `on_event`
    never sees one either). now(): unix time. on_event(obj): each object line, in order. limits: `stdout_bytes`,
    `stderr_bytes`. dirfd: where a long line or a tail may lie meanwhile, unlinked.
    `gaps`: [{"code", "detail", "file", "offset", "count"}] after close; `lines`, `objects`, `seen` (any stdout at all).
    """

    def __init__(self, stdout_file, stderr_file, now, on_event, limits, redactor, dirfd=None):
        self.now, self.on_event, self.redactor = now, on_event, redactor
        self.events = CappedFile(stdout_file, limits["stdout_bytes"], "events.jsonl", dirfd, lines=True)
        self.log = CappedFile(stderr_file, limits["stderr_bytes"], "stderr.log", dirfd, lines=False)
        self.partial = Spool(dirfd, LIVE_LINE, MAX_LINE)
        self.between = '"' + binascii.hexlify(os.urandom(16)).decode() + '"'
        self.glue = "," + self.between + ","
        self.gaps, self.lines, self.objects, self.seen = [], 0, 0, False

    def stdout(self, data):
        self.seen = True
        end = data.rfind(b"\n")
        if end < 0:
            self.partial.add(data)
            return
        start = 0
        stamp = b"[%.6f," % self.now()
        if self.partial.size:
            start = data.index(b"\n") + 1
            self.partial.add(data[:start - 1])
            self.long_line(stamp)
        if start <= end:
            self.block(stamp, data[start:end])
        if end + 1 < len(data):
            self.partial.add(data[end + 1:])

    def stderr(self, data):
        self.log.write(self.redactor.feed(data))

    def close(self):
        if self.partial.size:
            self.long_line(b"[%.6f," % self.now())
        self.log.write(self.redactor.flush())
        for file in (self.events, self.log):
            file.close()
            self.gaps += file.gaps

    # -- lines ---------------------------------------------------------------------------------------------------
    def long_line(self, stamp):
        """The line that came in pieces."""
        size = self.partial.size
        line = self.partial.take()
        if line is None:
            self.gaps.append({"code": "line_oversized", "file": "events.jsonl", "offset": self.events.size, "count": 1,
                              "detail": "a line of %d bytes; the first %d are kept" % (size, KEPT_OF_LONGER)})
            head = self.redactor.clean(self.partial.head[:KEPT_OF_LONGER])
            self.put(stamp, [_as_string(head.decode("utf-8", "replace")).encode()])
            self.lines += 1
        else:
            self.block(stamp, line)

    def block(self, stamp, data):
        """Complete lines, without the last newline."""
        data = self.redactor.clean(data)
        lines = data.split(b"\n")
        if b"\r" in data:
            lines = [line.replace(b"\r", b" ") for line in lines]
        self.lines += len(lines)
        objects = self.checked(data, lines)
        if objects is None:
            for line in lines:
                self.single(stamp, line)
            return
        self.objects += len(objects)
        self.put(stamp, lines)
        for event in objects:
            self.on_event(event)

    def checked(self, data, lines):
        """The lines' objects, when all of them are plain strict objects; else None."""
        if not plain(data):
            return None
        for line in lines:
            if line[:1] != b"{":
                return None
        try:
            if len(lines) == 1:
                values = [_decode(lines[0].decode())]
            else:
                values = _decode("[" + self.glue.join([line.decode() for line in lines]) + "]")
        except (ValueError, RecursionError):
            return None
        if len(values) != 2 * len(lines) - 1 or values[1::2].count(self.between[1:-1]) != len(lines) - 1:
            return None
        return values[::2]

    def single(self, stamp, line):
        """Any line at all."""
        noise = LEADING_NOISE.match(line)
        core = line[noise.end():] if noise else line
        if not core:
            return
        if core[:1] == b"{":
            if core[-1:] != b"}":
                core = TRAILING_NOISE.sub(b"", core)
            core, event = strict_object(core)
            if event is not None:
                self.objects += 1
                self.put(stamp, [core])
                self.on_event(event)
                return
        self.put(stamp, [_as_string(line.decode("utf-8", "replace")).encode()])

    def put(self, stamp, lines):
        self.events.write(stamp + (b"]\n" + stamp).join(lines) + b"]\n")


def plain(data):
    """Nothing in it that only `strict_object` can judge."""
    if SURROGATE_ESCAPE.search(data) or data.count(b"[") + data.count(b"{") > DEPTH and depth(data) > DEPTH:
        return False
    return True


def strict_object(line):
    """(bytes to write, object) of a line that begins with {, or (line, None) when it is no strict JSON object."""
    text = line.decode("utf-8", "replace")
    if SURROGATE_ESCAPE.search(line):
        text = ESCAPES.sub(lambda escape: "\\ufffd" if len(escape.group()) == 6 else escape.group(), text)
    if line.count(b"[") + line.count(b"{") > DEPTH and depth(line) > DEPTH:
        return line, None
    if len(line) > DIGITS and LONG_NUMBER.search(line) and LONG_NUMBER.search(STRINGS.sub(b"", line)):
        return line, None
    try:
        return text.encode(), _decode(text)
    except (ValueError, RecursionError):
        return line, None


def depth(line):
    """How deep the brackets outside strings are nested."""
    level = deepest = 0
    for char in re.findall(rb"[][{}]", STRINGS.sub(b"", line)):
        level += 1 if char in b"[{" else -1
        deepest = max(deepest, level)
    return deepest

"""The agent's stdout as `[unix_time, event]` lines, its stderr as it is; both bounded, in memory and on disk.

What a line becomes (DESIGN 7)
- A JSON object stays as its bytes are; escapes of lone surrogates and bytes that are no UTF-8 become U+FFFD.
- Anything else becomes a string: other JSON, text, NaN and Infinity (which json takes but no strict reader), numbers
  and nesting that readers refuse (C27), objects over 16 MiB (their beginning).
- Control sequences, NUL and BOM around an object are stripped; a line of nothing else is dropped.

A block of lines is decoded, looked at and written at once; each line costs one call of the JSON scanner, and its bytes are
written as they came. A block with a line that is no plain object, or with suspicious escapes, takes the careful way, `judge`.

A line that outgrows 1 MiB goes to an unlinked file until it is complete, a file that outgrows half of its cap goes on
in a ring of which the newest part is added at the end (keep.py). What is lost is a gap.
"""
from __future__ import annotations

import json
import re
import sys

from worker.keep import CappedFile, Spool

BLOCK = 64 << 10  # of whole lines; more makes the allocator go to the kernel for every one
LIVE_LINE = 1 << 20  # kept in memory while incomplete
MAX_LINE = 16 << 20  # kept whole, and parsed
KEPT_OF_LONGER = 64 << 10
DEPTH = 500  # readers in Python stop at about 990, and need some for themselves
SIMPLE = 2 * DEPTH  # a shorter line cannot be nested deeper
DIGITS = 4300  # int() refuses longer text since CVE-2020-10735; Pythons before that are asked by a regex

NOISE = "(?:[\x00-\x1a\x1c-\x20\x7f\ufeff]|\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[ -/]*[0-Z\\\\^-~])+"
NOISE_AT = re.compile(NOISE)
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
ESCAPES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.")
STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
LONG_NUMBER = re.compile("[0-9]{%d}" % (DIGITS + 1))
BRACKETS = re.compile(rb"[\[{]+|[\]}]+")
NO_BRACKETS = bytes(code for code in range(256) if code not in b"[]{}")
PYTHON_COUNTS_DIGITS = hasattr(sys, "get_int_max_str_digits")


def _refuse(name):
    raise ValueError(name)


_parse = json.JSONDecoder(parse_constant=_refuse).raw_decode
_as_string = json.JSONEncoder(ensure_ascii=False).encode


class Capture:
    """Feed it with `stdout(bytes)` and `stderr(bytes)`; `close()` at the end.

    stdout_file, stderr_file: EvidenceFile, opened without redactor and cap (secrets are blanked here, so that `on_event`
    never sees one). now(): unix time. on_event(obj): each object, in order, after it was written. limits:
    `stdout_bytes`, `stderr_bytes`. dirfd: where a long line or a tail may lie meanwhile.
    After close: `gaps` [{"code", "detail", "file", "offset", "count"}], `lines`, `objects`, `seen` (any stdout at all).
    """

    def __init__(self, stdout_file, stderr_file, now, on_event, limits, redactor, dirfd=None):
        self.now, self.on_event, self.redactor = now, on_event, redactor
        self.events = CappedFile(stdout_file, limits["stdout_bytes"], "events.jsonl", dirfd, lines=True)
        self.log = CappedFile(stderr_file, limits["stderr_bytes"], "stderr.log", dirfd, lines=False)
        self.partial = Spool(dirfd, LIVE_LINE, MAX_LINE)
        self.gaps: list = []
        self.lines, self.objects, self.seen = 0, 0, False

    def stdout(self, data):
        self.seen = True
        start, end = 0, data.rfind(b"\n") + 1
        if end and self.partial.size:
            start = data.index(b"\n") + 1
            self.partial.add(data[:start - 1])
            self.end_of_long_line()
        while start < end:
            stop = end if end - start <= BLOCK else data.rfind(b"\n", start, start + BLOCK) + 1 or data.index(b"\n", start) + 1
            self.block(data[start:stop - 1])
            start = stop
        if end < len(data):
            self.partial.add(data[end:])

    def stderr(self, data):
        self.log.write(self.redactor.feed(data))

    def close(self):
        if self.partial.size:
            self.end_of_long_line()
        self.log.write(self.redactor.flush())
        for file in (self.events, self.log):
            file.close()
            self.gaps += file.gaps

    def end_of_long_line(self):
        """The line that came in pieces."""
        size, line = self.partial.size, self.partial.take()
        if line is not None:
            self.block(line)
            return
        self.gaps.append({"code": "line_oversized", "file": "events.jsonl", "offset": self.events.size, "count": 1,
                          "detail": "a line of %d bytes; the first %d are kept" % (size, KEPT_OF_LONGER)})
        head = self.redactor.clean(self.partial.head[:KEPT_OF_LONGER]).decode("utf-8", "replace")
        self.write(_as_string(head).encode(), 1)

    def block(self, data):
        """Complete lines, without the last newline."""
        data = self.redactor.clean(data)
        events = plain_objects(data)
        if events:
            self.write(data, len(events))
        else:
            events = self.carefully(data.decode("utf-8", "replace"))
        self.objects += len(events)
        for event in events:
            self.on_event(event)

    def carefully(self, text):
        """Writes lines of any kind; returns the objects among them."""
        found = [judge(line) for line in text.split("\n")]
        lines = [line for line, _ in found if line]
        if lines:
            self.write("\n".join(lines).encode(), len(lines))
        return [event for _, event in found if event is not None]

    def write(self, data, count):
        self.lines += count
        stamp = b"[%.6f," % self.now()
        self.events.write(b"".join((stamp, data.replace(b"\n", b"]\n" + stamp), b"]\n")))


def plain_objects(data):
    """The objects of a block in which every line is one, as it stands; else None."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if "\r" in text or text[-1:] == "\n" or SURROGATE.search(text):
        return None
    events, at, size = [], 0, len(text)
    try:
        while at < size:
            end = text.find("\n", at)
            end = size if end < 0 else end
            event, stop = _parse(text, at)
            if stop != end or type(event) is not dict or end - at > SIMPLE and not fit(text[at:end]):
                return None
            events.append(event)
            at = end + 1
    except (ValueError, RecursionError):
        return None
    return events


def parse(line):
    """The object that a line is, or None."""
    try:
        event, end = _parse(line)
    except (ValueError, RecursionError):
        return None
    return event if end == len(line) else None


def judge(line):
    """(text to write, object or None) of any line; no text for a line of nothing but noise."""
    noise = NOISE_AT.match(line)
    core = line[noise.end():] if noise else line
    if core[:1] == "{":
        end = core.rfind("}") + 1
        if NOISE_AT.fullmatch(core, end):
            core = core[:end]
        if SURROGATE.search(core):
            core = ESCAPES.sub(_no_lone_surrogate, core)
        core = core.replace("\r", " ")  # between tokens only: within a string json refuses it
        if fit(core):
            event = parse(core)
            if event is not None:
                return core, event
    return _as_string(line) if core else "", None


def _no_lone_surrogate(escape):
    return "\\ufffd" if len(escape.group()) == 6 else escape.group()


def fit(text):
    """Whether readers other than this one will take its nesting and its numbers."""
    if len(text) > SIMPLE and many_brackets(text) and too_deep(text):
        return False
    return PYTHON_COUNTS_DIGITS or len(text) <= DIGITS or not LONG_NUMBER.search(STRINGS.sub("", text))


def many_brackets(text):
    """Whether more than DEPTH are opened, in strings or not. Most lines have a few: finding them is faster than `count`."""
    found = 0
    for bracket in "[{":
        at = text.find(bracket)
        while at >= 0:
            found += 1
            if found > DEPTH:
                return True
            at = text.find(bracket, at + 1)
    return False


def too_deep(text):
    """Whether brackets outside strings are nested deeper than DEPTH."""
    level = 0
    for run in BRACKETS.finditer(STRINGS.sub("", text).encode("ascii", "ignore").translate(None, NO_BRACKETS)):
        size = run.end() - run.start()
        level += size if run.group()[:1] in b"[{" else -size
        if level > DEPTH:
            return True
    return False

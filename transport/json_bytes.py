"""JSON from strangers, read from bytes: nothing here raises, hangs or overflows a small stack, whatever the bytes are.

`loads` is json with three guards, each for something measured: nesting over 128 levels is refused before the parser sees
it (Python 3.13.0's C scanner overflows the 256 KiB stack of a proxy thread and kills the process; older ones raise
RecursionError); integers over 19 digits become None (int() of a million digits takes minutes before 3.11, and raises from
then on); NaN and Infinity become None (they are no JSON, and must not come out of us again).
`top_level` finds the values of a few keys of a big object without building the rest: constant memory, any buffer (mmap), a
bounded number of steps.
`ArraySplitter` cuts a JSON array into its elements while it arrives (generateContent streams without alt=sse).
Pure: no I/O, no clock.
"""
from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEEPEST = 128
_ALL_BUT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_MOST_SIGNS = 1000000  # brackets, quotes, commas and escapes that top_level looks at before it gives up
_OUTSIDE = re.compile(rb'["{}\[\],:]')
_BRACKETS = re.compile(rb'["{}\[\]]')
_OPENING = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*\[")
_INSIDE = re.compile(rb'[\\"]')


def _small_int(digits: str) -> int | None:
    return int(digits) if len(digits) <= 20 else None


_DECODER = json.JSONDecoder(parse_int=_small_int, parse_constant=lambda name: None, strict=False)


def too_deep(data: bytes) -> bool:
    """True where brackets nest over DEEPEST levels; strings are set aside first. Linear, in C."""
    if 2 * len(data) - len(data.replace(b"[", b"")) - len(data.replace(b"{", b"")) <= DEEPEST:
        return False  # (replace finds single bytes several times faster than count does)
    outside = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    rest = b"".join(outside).translate(_ONE_KIND, _ALL_BUT_BRACKETS)
    for _ in range(DEEPEST):  # every round takes the innermost level away
        if len(rest) <= DEEPEST:
            return False
        if b"[" * (DEEPEST + 1) in rest:
            return True
        rest = rest.replace(b"[]", b"")
    return len(rest) > DEEPEST


def loads(data: bytes) -> object:
    """The value, or None where the bytes are no JSON that can be read (an outer null reads the same)."""
    if too_deep(data):
        return None
    text = (data[3:] if data[:3] == b"\xef\xbb\xbf" else data).decode("utf-8", "replace").strip()
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if end == len(text) else None


def value_end(data: bytes, at: int) -> int:
    """Where the array after the colon that follows `at` ends, or -1 where there is none. Plain search for brackets outside of
    strings, so it is for texts that were parsed before."""
    opened = _OPENING.match(data, at)
    if opened is None:
        return -1
    depth, at = 1, opened.end()
    for _ in range(_MOST_SIGNS):
        token = _BRACKETS.search(data, at)
        if token is None:
            break
        at, sign = token.end(), token.group()
        if sign == b'"':
            at, _ = _string_end(data, at, _MOST_SIGNS)
            if at < 0:
                break
        else:
            depth += 1 if sign in b"[{" else -1
            if depth == 0:
                return at
    return -1


def _string_end(data: Any, at: int, most: int) -> tuple:
    """(index after the closing quote of the string whose inside starts at `at`, or -1 where that is not found; escapes)."""
    for escapes in range(most):
        found = _INSIDE.search(data, at)
        if found is None:
            break
        at = found.end()
        if found.group() == b'"':
            return at, escapes
        at += 1
    return -1, 0


def top_level(data: Any, wanted: tuple) -> dict:
    """{key: parsed value} for those of `wanted` that stand at the top of the object in `data` (bytes, mmap, ...)."""
    found: dict = {}
    depth, at, key, start, key_next, left = 0, 0, None, 0, False, _MOST_SIGNS
    while left > 0:
        left -= 1
        token = _OUTSIDE.search(data, at)
        if token is None:
            break
        at = token.end()
        sign = token.group()
        if sign == b'"':
            begin = at - 1
            at, escapes = _string_end(data, at, left)
            left -= escapes + 1
            if at < 0:
                break
            if depth == 1 and key_next:
                key, key_next = loads(bytes(data[begin:at])), False
        elif sign in b"{[":
            depth += 1
            key_next = depth == 1
        elif sign == b":" and depth == 1:
            start = at
        elif depth == 1 and sign in b",}]":
            if key in wanted:
                found[key] = loads(bytes(data[start:at - 1]))
            key, key_next = None, sign == b","
            if sign != b"," or len(found) == len(wanted):
                break
        elif sign in b"}]":
            depth -= 1
            if depth < 1:
                break
    return found


class ArraySplitter:
    """feed(bytes) -> list of the elements (bytes) of the outer array that are whole; objects and arrays only.

    `closed`: the outer array has ended. Elements over `limit` bytes are skipped and counted in `oversized`.
    """

    __slots__ = ("limit", "oversized", "closed", "_depth", "_in_string", "_escaped", "_parts", "_size")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.oversized = 0
        self.closed = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        elements = []
        begin = at = 0
        while at < len(chunk) and not self.closed:
            if self._in_string:
                at = self._through_string(chunk, at)
                continue
            token = _BRACKETS.search(chunk, at)
            if token is None:
                break
            at = token.end()
            sign = token.group()
            if sign == b'"':
                self._in_string = True
            elif sign in b"{[":
                self._depth += 1
                begin = token.start() if self._depth == 2 else begin
            elif sign in b"}]":
                self._depth -= 1
                if self._depth == 1:
                    self._keep(chunk[begin:at])
                    elements += self._cut()
                self.closed = self._depth <= 0
        if self._depth >= 2:
            self._keep(chunk[begin:])
        return elements

    def _through_string(self, chunk: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        found = _INSIDE.search(chunk, at)
        if found is None:
            return len(chunk)
        if found.group() == b'"':
            self._in_string = False
        else:
            self._escaped = True
        return found.end()

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self.limit:
            self._parts.append(piece)
        else:
            self._parts = []

    def _cut(self) -> list[bytes]:
        whole = b"".join(self._parts)
        oversized = self._size > self.limit
        self.oversized += oversized
        self._parts = []
        self._size = 0
        return [] if oversized else [whole]

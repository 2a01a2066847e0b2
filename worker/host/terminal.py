"""Text from a sandbox on a person's terminal: nothing in it moves the cursor, reorders or hides what stands beside it.

Control characters, escape sequences and format characters become `?`.  A width is in columns: East Asian wide characters take
two, combining marks none.  Colours only where stdout is a terminal that has them and NO_COLOR is not set (no-color.org).
"""
from __future__ import annotations

import os
import re

from worker import stdout

try:
    from unicodedata import combining, east_asian_width
except ImportError:         # a minimal Python: every character is one column

    def combining(character):  # type: ignore[misc]
        return 0

    def east_asian_width(character):  # type: ignore[misc]
        return "N"


# Categories Cc, Cf, Cs, Zl and Zp of Unicode 15, and what draws nothing (fillers, tags): they reorder, hide or break a line.
UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001345f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]")
USUAL, NARROWEST, WIDEST = 80, 40, 100
ACTIONS = {"grade": "32", "mask": "33", "retry": "35"}  # green, yellow, magenta
MOST_MARKS = 2                  # combining marks on one character; more of them cover the lines around


def plain(value, width=100):
    """`value` as one line of at most `width` columns that a terminal shows as it is."""
    text = value if isinstance(value, str) else str(value)
    clean = UNSEEN.sub("?", text[: 4 * width + 4].replace("\n", " "))
    kept, used, marks = [], 0, 0
    for character in clean:
        size = columns_of(character)
        marks = marks + 1 if size == 0 else 0
        if marks > MOST_MARKS:
            continue
        used += size
        if used > width:
            return cut("".join(kept), width - 3) + "..."
        kept.append(character)
    return "".join(kept)


def cut(text, width):
    """The beginning of a plain text, at most `width` columns."""
    used = 0
    for place, character in enumerate(text):
        used += columns_of(character)
        if used > width:
            return text[:place]
    return text


def columns_of(character):
    return 0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1


def wrapped(text, width, most):
    """A plain text as lines of `width` columns, broken between words where it can be; at most `most` lines."""
    lines, words = [""], text.split(" ")
    for place, word in enumerate(words):
        joined = lines[-1] + " " + word if lines[-1] else word
        if columns(joined) <= width:
            lines[-1] = joined
            continue
        if len(lines) == most:
            lines[-1] = plain(lines[-1] + " " + " ".join(words[place:]), width)
            break
        if lines[-1]:
            lines.append("")
        lines[-1] = plain(word, width)
    return lines


def columns(text):
    return sum(map(columns_of, text))


def is_terminal():
    try:
        return os.isatty(1)
    except OSError:
        return False


def width():
    """Columns of the terminal within bounds; the usual 80 where stdout is none."""
    try:
        return min(max(os.get_terminal_size(1).columns or USUAL, NARROWEST), WIDEST)
    except OSError:
        return USUAL


def coloured(text, colour):
    """`text` in an ANSI colour (the number of an SGR sequence), on a terminal without NO_COLOR only."""
    if not colour or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not is_terminal():
        return text
    return "\x1b[%sm%s\x1b[0m" % (colour, text)


def row(row, width):
    """A row of timeline.py as a line of at most `width` columns."""
    at, what, words, colour = row
    head = "%7s  %-7s " % ("?" if at is None else "%.2f s" % at, plain(what, 10))
    return head + coloured(plain(words, width - len(head)).rstrip(), colour)


def write(text):
    """All of `text` to stdout; False where nobody takes it, which must not change an exit code that says the same."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    try:
        stdout.put(1, data)
    except OSError:
        return False
    return True

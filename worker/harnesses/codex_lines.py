"""Lines of a rollout file, and what is written in single records of it.

Formats of 0.144.4 and 0.171.0; every pattern here was seen in a file that the real CLI wrote.
"""

from __future__ import annotations

import json
import re

# A record's head: stamp, type, and where the payload begins.  0.171.0 adds an ordinal.
HEAD = re.compile(r'\{"timestamp":"([^"\\]{1,40})",(?:"ordinal":[0-9]{1,15},)?"type":"([a-z_]{1,40})","payload":')
# The same for the usual record, without a regular expression: a stamp of 24 characters, and then the beginning of one of these.
BEGIN, STAMP, MARK, KEY = '{"timestamp":"', 14, 38, 35
BOTH = [(name, '","type":"%s","payload":' % name) for name in ("response_item", "event_msg")]
USUAL = {(words + '{"type":')[:KEY]: (name, len(words)) for name, words in BOTH}
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d{1,9})?Z\Z", re.A)
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def refuse(constant):
    raise ValueError("%s is no JSON" % constant)


DECODER = json.JSONDecoder(parse_constant=refuse)
MOST_TEXT = 4000  # characters at an output's head that are searched for its result

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

# How a tool output begins -> (status, error type).  Seen with 0.144.4 and 0.171.0.
EXIT = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)$", re.M)
RESULTS = (
    (re.compile(r"^(Wall time: [0-9.]+ seconds\n)?aborted by user"), "cancelled", "aborted"),
    (re.compile(r"^unsupported (custom tool )?call: "), "failed", "unsupported_call"),
    (re.compile(r"^failed to parse function arguments: "), "failed", "invalid_arguments"),
    (
        re.compile(r"^(execution error: |exec_command failed|write_stdin failed|Script failed|apply_patch verification failed)"),
        "failed",
        "tool_error",
    ),
    (re.compile(r'^\{"(agent_id|status|previous_status)":'), "completed", None),
    (re.compile(r"^(Plan updated|Script completed|attached local image path)"), "completed", None),
)
# item_completed statuses (0.171.0) and those of *_end events (0.144.4).
STATUSES = {"completed": "completed", "failed": "failed", "declined": "cancelled"}


class Place:
    """Where the record that is being read stands: file offset and length in bytes, its stamp as written, in this run or before
    it, and (start, length) of its payload where those bytes are strict JSON as they are.  One object serves a whole file."""

    __slots__ = ("offset", "length", "written", "current", "payload")

    def __init__(self):
        self.offset = self.length = 0
        self.written, self.current, self.payload = None, True, None

    @property
    def stamp(self):
        """Unix seconds, or None."""
        return unix_time(self.written)


def head(text, at=0):
    """(type, where the payload begins, stamp as written) of the record at `at` in the usual layout; else (None, 0, None)."""
    mark = at + MARK
    usual = USUAL.get(text[mark : mark + KEY])
    if usual is None and text.startswith('","ordinal":', mark):
        comma = text.find(",", mark + 12, mark + 28)
        if text[mark + 12 : comma].isdigit():
            usual, mark = USUAL.get('"' + text[comma : comma + KEY - 1]), comma - 1
    if usual and text.startswith(BEGIN, at):
        stamp = text[at + STAMP : at + MARK]
        if '"' not in stamp:
            return usual[0], mark + usual[1], stamp
    found = HEAD.match(text, at)
    return (found.group(2), found.end(), found.group(1)) if found else (None, 0, None)


def unfold(text):
    """The real text of a part of a text whose characters are bytes (transcript_files.texts)."""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8")


def split(text):
    """(stamp as written, type, payload) of a record in any layout; raises ValueError."""
    record = DECODER.decode(text)
    if not isinstance(record, dict):
        raise ValueError("no JSON object")
    return record.get("timestamp"), record.get("type"), record.get("payload")


def not_utf8(line):
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


MINUTES = {}  # the last minute seen: stamps come in order


def unix_time(stamp):
    """Unix seconds of an RFC 3339 UTC stamp; None for anything else."""
    minute = MINUTES.get(stamp[:16]) if isinstance(stamp, str) else None
    if minute is not None and len(stamp) == 24 and stamp[19] == "." and stamp[23] == "Z":
        digits = stamp[17:19] + stamp[20:23]
        if stamp[16] == ":" and digits.isdigit() and digits.isascii():
            return minute + int(digits) / 1000
    found = TIME.match(stamp) if isinstance(stamp, str) else None
    if not found:
        return None
    year, month, day, hour, at = (int(part) for part in found.groups()[:5])
    MINUTES.clear()
    MINUTES[stamp[:16]] = minute = ((days(year, month, day) * 24 + hour) * 60 + at) * 60
    return round(minute + int(found.group(6)) + float(found.group(7) or 0), 6)


def days(year, month, day):
    """Days from 1970-01-01 in the Gregorian calendar; years are counted from March, so that a leap day is the last of its."""
    year, month = year - (month < 3), (month - 3) % 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (month * 153 + 2) // 5 + day - 719469


def text_of(value):
    return value if isinstance(value, str) and value else None


def milliseconds(value):
    return value / 1000.0 if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e15 else None


def output_text(output):
    """The text of an output: a string, or the text parts of a list of content items."""
    if isinstance(output, str):
        return output
    if isinstance(output, dict):
        return output_text(output.get("content") or output.get("output"))
    if isinstance(output, list):
        return "\n".join(item["text"] for item in output[:20] if isinstance(item, dict) and isinstance(item.get("text"), str))
    return ""


def result_of(text, raw=None):
    """(status, error_type) told by an output; (None, None) where it does not tell."""
    if isinstance(raw, dict) and isinstance(raw.get("success"), bool):
        return ("completed", None) if raw["success"] else ("failed", "tool_error")
    end = text.find("\nOutput:\n", 0, MOST_TEXT)
    end = min(len(text), MOST_TEXT) if end < 0 else end
    found = exit_code(text, 0, end) or exit_code(text, end, end + 40)
    if found == "0":
        return "completed", None
    if found == "124" and text.startswith("\nOutput:\ncommand timed out after ", end):
        return "timeout", "timeout"
    if found:
        return ("completed", None) if int(found) == 0 else ("failed", "exit_code_%s" % found)
    text = text[:end]
    return next(((status, error) for pattern, status, error in RESULTS if pattern.search(text)), (None, None))


def exit_code(text, start, end):
    """The code of the first line between `start` and `end` that tells one, as text, or None."""
    if text.find("xit", start, end) < 0:  # much faster than the pattern
        return None
    found = EXIT.search(text[start:end])
    return found and found.group(1)


def executor_result(item):
    """(status, error_type) of a structured record: exit code, success flag, MCP result, status word."""
    code, success, result = item.get("exit_code"), item.get("success"), item.get("result")
    if isinstance(code, int) and not isinstance(code, bool):
        return ("completed", None) if code == 0 else ("failed", "exit_code_%d" % code)
    if isinstance(success, bool):
        return ("completed", None) if success else ("failed", "tool_error")
    if isinstance(result, dict) and ("Ok" in result or "Err" in result):
        inner = result.get("Ok")
        failed = "Err" in result or isinstance(inner, dict) and bool(inner.get("isError") or inner.get("is_error"))
        return ("failed", "tool_error") if failed else ("completed", None)
    status = STATUSES.get(item.get("status")) if isinstance(item.get("status"), str) else None
    return status, "tool_error" if status == "failed" else None


def display_text(item):
    """The text of a display item (UserMessage, AgentMessage)."""
    content = item.get("content")
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "".join(part for part in parts if isinstance(part, str)) or None

"""Is a request one that was recorded before? Which differences count, and what the first one is. Pure.

A request is `canonical` when what differs between two runs of the same task stands blank in it: the fields of VOLATILE, the
patterns of BLANKED in every text, and the run's own places (working directory, session directory, home), which get names.
`alike` requests are equal then. `blind` also leaves out what tools printed (OUTPUTS): two runs of one command may print
different times or process ids, and the model's recorded answer is still the one to this turn.
`Index.find` tries, in this order: the same bytes, alike, alike but for what tools printed; each answer is used once, in the
order of the recording, before one is used again.
"""

from __future__ import annotations

import hashlib
import json
import re

# dialect -> names of fields at the top of the body that belong to one run: conversation and cache keys, user and session ids.
VOLATILE = {
    "responses": ("prompt_cache_key", "client_metadata", "metadata", "user", "safety_identifier"),
    "chat": ("prompt_cache_key", "metadata", "user", "safety_identifier"),
    "messages": ("metadata",),
    "generate_content": ("labels", "sessionId"),
}
# Fields of items: ids that a CLI makes anew in each run (those of calls come with the model's answers and stay).
ITEM_IDS = ("internal_chat_message_metadata_passthrough",)
# (what, pattern) in any text; the part before a match of group 1 stays.
BLANKED = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("uuid", r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"),
        ("loopback port", r"\b(?:127\.0\.0\.1|localhost):\d{2,5}\b"),
        ("date and time", r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"),
        ("date", r"\b20\d\d-\d\d-\d\d\b"),
        ("unix time", r"\b1[5-9]\d{8}(?:\d{3}|\.\d+)?\b"),
        ("Codex environment", r"<(?:shell|timezone|current_date)>[^<]{0,100}</"),
        ("Codex tool header", r"(?:Chunk ID: [0-9a-f]+|Wall time: [0-9.]+ seconds|Original token count: \d+|session ID \d+)"),
        ("Claude Code environment", r"(?:OS Version|Today's date|Is directory a git repo): [^\n]{0,100}"),
    )
)
SHORTENED = 100  # characters of each value in a report
EXACT, ALIKE, BLIND = "exact", "canonical", "all but tool output"


def parsed(body):
    """The body as JSON, or None where it is none."""
    try:
        value = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class Places:
    """Names for a run's directories. places: {name: path}; longer paths first, whole components only."""

    def __init__(self, places):
        found = sorted(
            ((path.rstrip("/"), name) for name, path in places.items() if path and len(path.rstrip("/")) > 1),
            key=lambda one: -len(one[0]),
        )
        self._rules = [(re.compile(re.escape(path) + r"(?![\w.-])"), "{%s}" % name) for path, name in found]

    def named(self, text):
        for pattern, name in self._rules:
            text = pattern.sub(name, text)
        for what, pattern in BLANKED:
            text = pattern.sub("{%s}" % what, text)
        return text


def canonical(dialect, value, places):
    """`value` (parsed JSON) without what belongs to one run."""
    top = {key: one for key, one in value.items() if key not in VOLATILE.get(dialect, ())}
    return _walk(top, places)


def _walk(value, places):
    if isinstance(value, str):
        return places.named(value)
    if isinstance(value, list):
        return [_walk(one, places) for one in value]
    if isinstance(value, dict):
        return {places.named(key): _walk(one, places) for key, one in value.items() if key not in ITEM_IDS}
    return value


def blind(value):
    """A canonical value without what tools printed: in Responses, Chat Completions, Messages and generateContent."""
    if isinstance(value, list):
        return [blind(one) for one in value]
    if not isinstance(value, dict):
        return value
    kind, role = value.get("type"), value.get("role")
    if isinstance(kind, str) and kind.endswith("_output"):
        return dict(value, output=None)
    if role == "tool" or kind == "tool_result":
        return dict(value, content=None)
    if isinstance(value.get("functionResponse"), dict):
        return dict(value, functionResponse=dict(value["functionResponse"], response=None))
    return {key: blind(one) for key, one in value.items()}


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).digest()


def difference(recorded, asked, path=""):
    """(JSON path, recorded value, asked value) of the first difference, or None; a side that lacks it has "(nothing)"."""
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for key in list(recorded) + [key for key in asked if key not in recorded]:
            found = _one(recorded, asked, key, key in recorded, key in asked, ("%s.%s" % (path, key)).lstrip("."))
            if found:
                return found
        return None
    if isinstance(recorded, list) and isinstance(asked, list):
        for at in range(max(len(recorded), len(asked))):
            found = _one(recorded, asked, at, at < len(recorded), at < len(asked), "%s[%d]" % (path, at))
            if found:
                return found
        return None
    return (
        None
        if recorded == asked and type(recorded) is type(asked)
        else (path, shortened(recorded, asked), shortened(asked, recorded))
    )


def _one(recorded, asked, key, in_first, in_second, path):
    if in_first and in_second:
        return difference(recorded[key], asked[key], path)
    return (
        path,
        shortened(recorded[key], "") if in_first else "(nothing)",
        shortened(asked[key], "") if in_second else "(nothing)",
    )


def shortened(value, other):
    """A value as JSON, at most SHORTENED characters of it; of a long text those around the first place where it differs."""
    if isinstance(value, str) and isinstance(other, str) and len(value) > SHORTENED:
        same = next((at for at, (one, two) in enumerate(zip(value, other)) if one != two), min(len(value), len(other)))
        start = max(0, min(same - SHORTENED // 3, len(value) - SHORTENED))
        value = "%s%s" % ("..." if start else "", value[start:])
    text = json.dumps(value)
    return text if len(text) <= SHORTENED else text[: SHORTENED - 3] + "..."


class Entry:
    """One recorded request. `answers`: what may be served for it, in order; `body()` reads it again."""

    def __init__(self, number, method, path, dialect, sha256, main, model, body, answers, why_not):
        self.number, self.method, self.path, self.dialect, self.sha256 = number, method, path, dialect, sha256
        self.main, self.model, self.body, self.answers, self.why_not, self.used = main, model, body, answers, why_not, 0
        self._digests = None

    def digests(self, places):
        """(canonical, blind) digests; (None, None) for what is no JSON."""
        if self._digests is None:
            self._digests = digests(self.dialect, self.body(), places)[0]
        return self._digests


def digests(dialect, body, places):
    """((canonical digest, blind digest), canonical value); Nones for what is no JSON, or nested too deep to be walked through."""
    value = parsed(body)
    if value is None:
        return (None, None), None
    try:
        value = canonical(dialect, value, places)
        return (digest(value), digest(blind(value))), value
    except RecursionError:
        return (None, None), None


class Index:
    """The recorded requests, in order. Not thread-safe: the caller holds a lock."""

    def __init__(self, entries, recorded_places, places):
        self._entries, self._there, self._here = entries, Places(recorded_places), Places(places)

    def find(self, method, path, dialect, sha256, body):
        """-> (Entry, how it matches, difference or None), or (None, the nearest Entry or None, difference or None)."""
        of_kind = [one for one in self._entries if (one.method, one.path, one.dialect) == (method, path, dialect)]
        # sorted() is stable; unused ones come first. A recording from a sandbox may have anything for a number
        in_order = sorted(of_kind, key=lambda one: (one.used, one.number if isinstance(one.number, int) else 0))
        for one in in_order:
            if one.sha256 == sha256:
                return one, EXACT, None
        mine, value = digests(dialect, body, self._here) if dialect else ((None, None), None)
        if mine[0] is not None:
            for how, at in ((ALIKE, 0), (BLIND, 1)):
                for one in in_order:
                    if one.digests(self._there)[at] == mine[at]:
                        return one, how, self._first_difference(one, value) if at else None
        nearest = next((one for one in of_kind if not one.used), of_kind[-1] if of_kind else None)
        return None, nearest, nearest and value is not None and self._first_difference(nearest, value) or None

    def _first_difference(self, entry, value):
        recorded = digests(entry.dialect, entry.body(), self._there)[1]
        try:
            return None if recorded is None else difference(recorded, value)
        except RecursionError:
            return None


def told(found):
    """A difference in words."""
    return "%s: recorded %s, asked %s" % found if found else "no difference could be found: it is no JSON, or nested too deep"

"""What all readers of stdout share: the attributes that the worker looks at while the agent runs, and the way from an event to
the method that knows its type.  README.md says what the attributes mean."""

from __future__ import annotations

MOST_OPEN = 4096  # calls begun and not yet ended that are remembered
MOST_KEPT = 100  # warnings; errors
SHOWN = ("command", "file_path", "path")  # the argument of a tool call that `status` shows


class Live:
    """A subclass names in HANDLERS the method of each event type; other events are only counted."""

    HANDLERS: dict = {}

    def __init__(self):
        self.terminal = self.message = self.final_message = self.partial_message = self.thread_id = None
        self.usage = self.last_tool = self.limit = None
        self.events = self.messages = 0
        self.warnings, self.errors, self.open, self.tools = [], [], {}, {}

    def feed(self, event):
        """One parsed line of stdout; anything but an object is no event."""
        if not isinstance(event, dict):
            return
        self.events += 1
        kind = event.get("type")
        name = self.HANDLERS.get(kind) if isinstance(kind, str) else None
        if name:
            getattr(self, name)(event)

    def begin(self, name, identity, arguments, remembered=None):
        """A tool is called; remembered: what `open` holds of it until its result, its name where that is None."""
        given = arguments if isinstance(arguments, dict) else {}
        self.used(name, next((given[each] for each in SHOWN if given.get(each)), None))
        if identity and len(self.open) < MOST_OPEN:
            self.open[identity] = name if remembered is None else remembered

    def used(self, name, detail):
        self.tools[name] = self.tools.get(name, 0) + 1
        self.last_tool = {"name": name, "detail": (words(detail) or "")[:200]}

    def warn(self, code, detail):
        keep(self.warnings, {"code": code, "detail": detail[:1000]})


def words(value):
    return value if isinstance(value, str) else None


def keep(kept, value):
    if len(kept) < MOST_KEPT:
        kept.append(value)

"""The time line: lanes of model requests, tools and process events, and the tokens, drawn to one scale.  Functions over a Run.

Places are per cent of the run's time, so that the drawing is as wide as the page; colours come from classes.  The same facts
stand as text in the tables below, which is why the marks take no part in tabbing.
"""

from __future__ import annotations

from worker.html_page import anchor, section, tag
from worker.report.reading import killed, listed, number, part, sequence
from worker.report.summary import count, duration, names
from worker.report.words import DECISIONS

ROWS, ROW, BAR = 4, 16, 12  # rows of a lane at most; their height and that of a bar, px
THIN = 0.3  # per cent: as thin as a bar gets
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
LEGEND = (
    ("wait", "waiting for the first byte"),
    ("stream", "answer arrives"),
    ("fail", "failed"),
    ("pause", "waiting to try again"),
    ("ok", "tool succeeded"),
    ("odd", "tool without a result"),
    ("event", "process event"),
)
TOOL_CLASSES = {"completed": "ok", "failed": "bad", "timeout": "bad"}


class Scale:
    def __init__(self, start, end):
        self.start, self.length = start, max(end - start, 0.001)

    def at(self, time):
        """Per cent, within the picture."""
        return min(100.0, max(0.0, (time - self.start) / self.length * 100))

    def ticks(self):
        step = next((one for one in STEPS if self.length / one <= 5), self.length / 4)
        return [step * index for index in range(int(self.length / step) + 1)]


class Bar:
    """Something that took time. pieces: [(class, from, to)] in unix seconds."""

    def __init__(self, pieces, title, target=None):
        self.pieces = [(klass, begin, max(begin, end)) for klass, begin, end in pieces if begin is not None and end is not None]
        self.title, self.target = title, target
        self.start = min((one[1] for one in self.pieces), default=None)
        self.end = max((one[2] for one in self.pieces), default=None)


def timeline(run):
    span = run.span()
    if span is None:
        return section("timeline", "Time line", tag("p", "No times are recorded."))
    scale = Scale(*span)
    lanes = [
        lane("Model requests", requests(run), scale),
        lane("Tools", tools(run), scale),
        lane("Process", events(run, span), scale),
        axis(scale),
        tokens(run, scale),
    ]
    legend = tag(
        "ul",
        *[
            tag(
                "li",
                tag("svg", tag("rect", klass=klass, width=12, height=12, rx=2), width=12, height=12, aria_hidden="true"),
                " ",
                word,
            )
            for klass, word in LEGEND
        ],
        klass="legend small quiet",
    )
    return section("timeline", "Time line", tag("div", *lanes, klass="lanes"), legend)


def lane(title, bars, scale):
    bars = sorted((bar for bar in bars if bar.pieces), key=lambda bar: bar.start)
    rows, drawn = [], []
    for bar in bars:
        room = scale.length * 0.004
        row = next((index for index, end in enumerate(rows) if bar.start >= end), None)
        if row is None:
            row = len(rows) if len(rows) < ROWS else min(range(ROWS), key=rows.__getitem__)
            rows += [0.0] * (row == len(rows))
        rows[row] = bar.end + room
        drawn.append(draw(bar, row, scale))
    height = max(1, len(rows)) * ROW
    picture = tag(
        "svg",
        *drawn,
        width="100%",
        height=height,
        role="img",
        aria_label="%s over time: %d; listed as text below" % (title, len(bars)),
    )
    return tag(
        "div",
        tag("div", title, tag("span", " %d" % len(bars), klass="quiet"), klass="name"),
        tag("div", picture, klass="track"),
        klass="lane",
    )


def draw(bar, row, scale):
    top = row * ROW + (ROW - BAR) // 2
    rects = [
        tag(
            "rect",
            klass=klass,
            x="%.3f%%" % min(scale.at(begin), 100 - THIN),
            y=top,
            height=BAR,
            rx=1,
            width="%.3f%%" % max(THIN, scale.at(end) - scale.at(begin)),
        )
        for klass, begin, end in bar.pieces
    ]
    shape = tag("g", tag("title", bar.title), *rects)
    return tag("a", shape, href="#" + bar.target, tabindex="-1") if bar.target else shape


def axis(scale):
    marks = []
    for seconds in scale.ticks():
        x = scale.at(scale.start + seconds)
        place = "start" if x < 5 else "end" if x > 95 else "middle"
        marks.append(
            tag("text", ("%g s" % seconds) if seconds < 60 else duration(seconds), x="%.2f%%" % x, y=14, text_anchor=place)
        )
    return tag(
        "div",
        tag("div", "Since the start", klass="name quiet"),
        tag("div", tag("svg", *marks, width="100%", height=18, aria_hidden="true"), klass="track bare"),
        klass="lane",
    )


def requests(run):
    """One bar per attempt: the wait for the first byte, the answer, and the pause before the next try."""
    for record in run.attempts:
        begin = number(record.get("started_at"))
        first, end = number(record.get("first_byte_at")), number(record.get("ended_at"))
        failed = bool(record.get("failure") or record.get("decision") == "refused")
        pieces = [
            ("fail" if failed and first is None else "wait", begin, first if first is not None else end),
            ("fail" if failed else "stream", first, end),
        ]
        pause = number(part(record, "wait", "seconds"))
        if record.get("decision") == "retried" and pause and end is not None:
            pieces.append(("pause", end, end + pause))
        title = "attempt %s of request %s: %s%s, %s" % (
            sequence(record),
            str(record.get("request"))[:20],
            names(DECISIONS, record.get("decision"), ("?",))[0],
            ", status %s" % str(record["status"])[:10] if record.get("status") is not None else "",
            duration(end - begin) if end is not None and begin is not None else "no end",
        )
        yield Bar(pieces, title, anchor("a", sequence(record)))


def tools(run):
    span = run.span()
    for call in run.records("tool_call"):
        begin, end = number(call.get("started_at")), number(call.get("completed_at"))
        status = names(TOOL_CLASSES, call.get("status"), "odd")
        yield Bar(
            [(status, begin, end if end is not None else span[1])],
            "%s: %s%s"
            % (
                str(call.get("tool_name"))[:60],
                str(call.get("status"))[:20],
                ", " + duration(end - begin) if begin is not None and end is not None else "",
            ),
            anchor("call", call.get("tool_call_id")),
        )


def moments(run, span):
    """[(unix time, what happened)]: the life of the agent's process."""
    launched, receipt = number(run.launch.get("launched_at")), run.receipt
    found = [(span[0], "the worker started"), (launched, "the agent was started, pid %s" % str(run.launch.get("agent_pid"))[:20])]
    late = part(run.result, "outcome", "kind") == "wall_timeout"
    found += [
        (
            number(one.get("at")),
            "%s was sent to the agent%s"
            % (str(one.get("signal"))[:20], ": the time limit was reached" if late and not index else ""),
        )
        for index, one in enumerate(listed(receipt.get("signals")))
    ]
    total = killed(receipt)[1]
    if total:
        found.append((span[1], "%d left-over process%s killed" % (total, "" if total == 1 else "es")))
    found.append((span[1], "all was over, exit code %s" % str(run.result.get("return_code"))[:20]))
    return sorted((one for one in found if one[0] is not None), key=lambda one: one[0])


def events(run, span):
    for time, what in moments(run, span):
        yield Bar([("event", time, time)], "%s after %s" % (what, duration(time - span[0])), "receipt")


def tokens(run, scale):
    """Input and output tokens, summed up over the time of the answers."""
    points, sums = [], [0.0, 0.0]
    for record in sorted(run.attempts, key=lambda one: number(one.get("ended_at")) or 0):
        usage, time = record.get("usage"), number(record.get("ended_at"))
        figures = [number(part(usage, name)) for name in ("input_tokens", "output_tokens")]
        if time is None or figures == [None, None]:
            continue
        sums = [sums[index] + max(0.0, figures[index] or 0.0) for index in (0, 1)]
        points.append((scale.at(time), sums[0], sums[1]))
    if not points:
        return tag("p", "No answer told its tokens.", klass="quiet small")
    top = max(points[-1][1] + points[-1][2], 1.0)

    def steps(height):
        last, corners = 0.0, ["0,60"]
        for point in points:
            x, y = point[0] * 10, height(point) / top * 56
            corners += ["%.1f,%.1f" % (x, 60 - last), "%.1f,%.1f" % (x, 60 - y)]
            last = y
        return " ".join(corners + ["1000,%.1f" % (60 - last), "1000,60"])

    label = "Tokens, summed up: %s in, %s out" % (count(sums[0]), count(sums[1]))
    picture = tag(
        "svg",
        tag("polygon", points=steps(lambda one: one[1] + one[2]), klass="tokens-out"),
        tag("polygon", points=steps(lambda one: one[1]), klass="tokens-in"),
        viewBox="0 0 1000 60",
        preserveAspectRatio="none",
        width="100%",
        height=60,
        role="img",
        aria_label=label,
    )
    side = tag(
        "div",
        "Tokens",
        tag("br"),
        tag("span", "%s in, %s out" % (count(sums[0]), count(sums[1])), klass="quiet small"),
        klass="name",
    )
    return tag("div", side, tag("div", picture, klass="track"), klass="lane")


def happened(run):
    """The process events as text."""
    span = run.span()
    if span is None:
        return ""
    return tag(
        "ol",
        *[
            tag("li", tag("span", "+" + duration(time - span[0]), klass="quiet mono"), " ", what)
            for time, what in moments(run, span)
        ],
        klass="moments",
    )

"""The page of `summarize`: totals of many outcomes, one self-contained HTML file."""
from __future__ import annotations

from worker import html_page as html
from worker.host.summary import ACTIONS

TONES = {"grade": "good", "retry": "warn", "mask": "bad"}
WIDTH = 200  # pixels of the longest bar
STYLE = "svg rect { fill: var(--blue); }\n"


def page(totals, when):
    """UTF-8 bytes. totals: summary.Totals.as_dict(); when: text."""
    parts = [html.section("outcomes", "Outcomes", kinds(totals))]
    parts += [html.section(name, title, table(heads, rows)) for name, title, heads, rows in sections(totals) if rows]
    head = html.join([html.tag("h1", "%s outcomes" % grouped(totals["outcomes"])),
                      html.facts([(name, value) for name, value in figures(totals)])])
    return html.document("sandbox-worker: %s outcomes" % grouped(totals["outcomes"]), head, html.join(parts),
                         html.tag("p", "Made by sandbox-worker summarize, %s. Unknown figures are in no sum." % when), STYLE)


def figures(totals):
    for action in ACTIONS + ("other",):
        if action in totals["actions"] or action in ACTIONS:
            yield action, html.pill(grouped(totals["actions"].get(action, 0)), TONES.get(action, "odd"))
    yield "unreadable", html.pill(grouped(totals["unreadable"]), "bad" if totals["unreadable"] else "quiet")
    yield "verify not allowed", grouped(totals["verify_not_allowed"])
    yield "cleanup unconfirmed", grouped(totals["cleanup_unconfirmed"])
    for name in ("requests", "attempts", "retries"):
        yield name, grouped(totals["counts"][name])
    yield "waited", seconds(totals["counts"]["wait_s"])
    for name in ("input_tokens", "cached_input_tokens", "output_tokens"):
        yield name.replace("_", " "), grouped(totals["tokens"][name]["sum"])
    yield "gaps", "%s in %s outcomes" % (grouped(totals["gaps"]["sum"]), grouped(totals["gaps"]["outcomes"]))
    for name, title in (("p50", "median time"), ("p90", "90 % within"), ("most", "slowest")):
        yield title, seconds(totals["duration_s"][name])


def kinds(totals):
    largest = max([one["count"] for one in totals["kinds"].values()] or [1])
    rows = []
    for kind, one in totals["kinds"].items():
        pills = html.join([html.pill("%s %s" % (action, grouped(number)), TONES.get(action, "odd"))
                           for action, number in sorted(one["actions"].items())], " ")
        bar = html.tag("svg", html.tag("rect", width=max(1, WIDTH * one["count"] // largest), height=12),
                       width=WIDTH, height=12, aria_hidden="true")
        rows.append([html.tag("code", kind), grouped(one["count"]), bar, pills])
    return html.table(["kind", "runs", "", "what to do"], rows, "how the runs ended, and what the host should do with them")


def sections(totals):
    """(id, title, heads, rows); one without rows is left out."""
    def runs(name, column, unit):
        return [[one["directory"], one["kind"], one["action"], unit(one[column])] for one in totals[name]]

    yield "slowest", "Slowest", ["run", "kind", "action", "time"], runs("slowest", "duration_s", seconds)
    yield "waits", "Longest waits for the model", ["run", "kind", "action", "waited"], runs("longest_waits", "wait_s", seconds)
    yield "dearest", "Most tokens", ["run", "kind", "action", "tokens"], runs("most_tokens", "total_tokens", grouped)
    yield "tokens", "Tokens", ["figure", "sum", "runs that do not know it"], [
        [name.replace("_", " "), grouped(one["sum"]), grouped(one["unknown"])] for name, one in totals["tokens"].items()]
    yield "warnings", "Warnings", ["code", "runs"], [[code, grouped(number)] for code, number in totals["warnings"].items()]
    yield "harnesses", "Harnesses", ["harness", "runs"], [[name, grouped(number)] for name, number in totals["harnesses"].items()]
    yield "unreadable", "Not readable", ["directory", "why"], [
        [one["directory"], one["unreadable"]] for one in totals["not_read"]]


def table(heads, rows):
    return html.table(heads, rows, "")


def grouped(number):
    return "-" if number is None else "{:,}".format(round(number))


def seconds(value):
    if value is None:
        return "-"
    if value < 120:
        return "%.1f s" % value
    return "%d h %02d min" % (value // 3600, value % 3600 // 60) if value >= 3600 else "%d min %02d s" % (value // 60, value % 60)

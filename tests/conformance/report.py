"""The tables: which evidence is fulfilled in which scenario, as Markdown for people and as JSON for programs.

A row is one scenario with one version of one CLI. States: fulfilled; limited (not fulfilled, because of the CLI itself: the
reason names what it does); not fulfilled; not applicable (with its reason). The same rows always give the same text: no time,
no path and no figure of a particular run is in it.
"""
from __future__ import annotations

import json

from tests.conformance.checks import CHECKS

SCHEMA = "sandbox-worker/conformance/2"
EVIDENCE = [name for name, _ in CHECKS]
MARKS = {"fulfilled": "yes", "limited": "limit", "not fulfilled": "**no**", "not applicable": "n/a"}
LEGEND = "yes: fulfilled. limit: not fulfilled, because of the CLI itself (named below the table). n/a: not applicable.\n"


def row(harness, version, scenario, judged):
    return {"harness": harness, "version": version, "scenario": scenario["name"], "says": scenario["says"], "evidence": judged}


def same(harness, version, scenario, state, reason):
    """A row with one state: a scenario that could not be played to its end, or that does not apply."""
    return row(harness, version, scenario, {name: {"state": state, "reasons": [reason]} for name in EVIDENCE})


def counts(rows):
    states = [cell["state"] for one in rows for cell in one["evidence"].values()]
    return {state: states.count(state) for state in MARKS}


def fulfilled(rows):
    return not counts(rows)["not fulfilled"]


def as_json(rows):
    document = {"schema": SCHEMA, "evidence": EVIDENCE, "counts": counts(rows), "rows": rows}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def by_version(rows):
    """{(harness, version): its rows}, in order of appearance."""
    found = {}
    for one in rows:
        found.setdefault((one["harness"], one["version"]), []).append(one)
    return found


def as_markdown(rows):
    parts = [LEGEND]
    for (harness, version), some in by_version(rows).items():
        parts += ["### %s %s" % (harness, version), "", table(some)] + notes(some)
    parts.append(total(rows))
    return "\n".join(parts) + "\n"


def total(rows):
    some = counts(rows)
    return ", ".join("%d %s" % (some[state], state) for state in MARKS) + "."


def table(rows):
    lines = ["| scenario | " + " | ".join(EVIDENCE) + " |", "|---|" + "---|" * len(EVIDENCE)]
    for one in rows:
        cells = [MARKS[one["evidence"][name]["state"]] for name in EVIDENCE]
        lines.append("| `%s` | %s |" % (one["scenario"], " | ".join(cells)))
    return "\n".join(lines) + "\n"


def notes(rows):
    """The reasons of all cells that are not fulfilled or do not apply, equal ones together."""
    grouped = {}
    for one in rows:
        states = {cell["state"] for cell in one["evidence"].values()}
        for name, cell in one["evidence"].items():
            for reason in cell["reasons"]:
                whole = len(states) == 1 and len(one["evidence"]) > 1
                scenarios = grouped.setdefault((cell["state"], None if whole else name, reason), [])
                if "`%s`" % one["scenario"] not in scenarios:
                    scenarios.append("`%s`" % one["scenario"])
    lines = ["- %s, %sin %s: %s" % (state, name + ", " if name else "", ", ".join(scenarios), " ".join(reason.split())[:600])
             for (state, name, reason), scenarios in grouped.items()]
    return lines + [""] if lines else []


def summary(rows):
    """One table of all: a line for each scenario, a column for each CLI; how many of the nine kinds of evidence are fulfilled."""
    columns = by_version(rows)
    names = list(dict.fromkeys(one["scenario"] for one in rows))
    lines = ["| scenario | " + " | ".join("%s %s" % key for key in columns) + " |", "|---|" + "---|" * len(columns)]
    for name in names:
        cells = [cell_of([one for one in some if one["scenario"] == name]) for some in columns.values()]
        lines.append("| `%s` | %s |" % (name, " | ".join(cells)))
    return "\n".join(lines) + "\n"


def cell_of(rows):
    some = counts(rows)
    if not rows:
        return "not run"
    if some["not applicable"] == sum(some.values()):
        return "-"
    rest = ["%d %s" % (some[state], word) for state, word in
            (("limited", "limit"), ("not applicable", "n/a"), ("not fulfilled", "**no**")) if some[state]]
    return str(some["fulfilled"]) + (" (%s)" % ", ".join(rest) if rest else "")

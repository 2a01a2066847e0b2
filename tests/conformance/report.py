"""The table: which evidence is fulfilled in which scenario, as Markdown for people and as JSON for programs.

A row is one scenario with one version of one CLI. States: fulfilled, not fulfilled, not applicable (with its reason). The
same rows always give the same text: no time, no path and no figure of a particular run is in it.
"""
from __future__ import annotations

import json

from tests.conformance.checks import CHECKS

SCHEMA = "sandbox-worker/conformance/1"
EVIDENCE = [name for name, _ in CHECKS]
MARKS = {"fulfilled": "yes", "not fulfilled": "**no**", "not applicable": "n/a"}


def row(harness, version, scenario, judged):
    return {"harness": harness, "version": version, "scenario": scenario["name"], "says": scenario["says"], "evidence": judged}


def failed(harness, version, scenario, reason):
    """A row for a scenario that could not be played to its end: nothing of it is fulfilled."""
    return row(harness, version, scenario, {name: {"state": "not fulfilled", "reasons": [reason]} for name in EVIDENCE})


def counts(rows):
    states = [cell["state"] for one in rows for cell in one["evidence"].values()]
    return {state: states.count(state) for state in MARKS}


def fulfilled(rows):
    return not counts(rows)["not fulfilled"]


def as_json(rows):
    document = {"schema": SCHEMA, "evidence": EVIDENCE, "counts": counts(rows), "rows": rows}
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def as_markdown(rows):
    parts = []
    for harness, version in dict.fromkeys((one["harness"], one["version"]) for one in rows):
        some = [one for one in rows if (one["harness"], one["version"]) == (harness, version)]
        parts += ["### %s %s" % (harness, version), "", table(some)] + notes(some)
    total = counts(rows)
    parts.append("%d fulfilled, %d not fulfilled, %d not applicable." % tuple(total[state] for state in MARKS))
    return "\n".join(parts) + "\n"


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
        for name, cell in one["evidence"].items():
            for reason in cell["reasons"]:
                grouped.setdefault((cell["state"], name, reason), []).append("`%s`" % one["scenario"])
    lines = ["- %s, %s, in %s: %s" % (state, name, ", ".join(scenarios), " ".join(reason.split())[:600])
             for (state, name, reason), scenarios in grouped.items()]
    return lines + [""] if lines else []

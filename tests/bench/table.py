"""Rows and their budgets; the table in Markdown and JSON. Pure.

A row: what was measured, its value, what ran beside it in the same turns, and the budget, which is a limit on the value or on
its ratio to the first of those beside. A budget that is not met is marked MISSED; a row without a value says why.
"""
from __future__ import annotations


def row(group, what, value, unit, beside=(), at_most=None, at_least=None, of="value", note=""):
    """beside: [(name, value or None)]. at_most, at_least: the budget, on `of`: "value" or "ratio" (to the first beside)."""
    peer = next((v for _, v in beside if v), None)
    ratio = value / peer if value is not None and peer else None
    held = value if of == "value" else ratio
    met = None
    if held is not None and (at_most is not None or at_least is not None):
        met = (at_most is None or held <= at_most) and (at_least is None or held >= at_least)
    return {"group": group, "what": what, "value": value, "unit": unit, "beside": [list(pair) for pair in beside],
            "ratio": ratio, "at_most": at_most, "at_least": at_least, "of": of, "met": met, "note": note}


def absent(group, what, why):
    return row(group, what, None, "", note=why)


def figure(value, unit=""):
    if value is None:
        return "-"
    text = "%.0f" % value if abs(value) >= 100 else "%.1f" % value if abs(value) >= 10 else "%.2f" % value
    if abs(value) >= 10000:
        text = "{:,.0f}".format(value)
    return (text + " " + unit).strip()


def budget(one):
    limit = one["at_most"] if one["at_most"] is not None else one["at_least"]
    if limit is None:
        return ""
    return ("at most " if one["at_most"] is not None else "at least ") + (
        "%gx" % limit if one["of"] == "ratio" else "%g %s" % (limit, one["unit"]))


def markdown(rows, grid, machine):
    """The report. grid: {"head": [...], "rows": [[...]]} of the proxies side by side, or None."""
    missed = [one for one in rows if one["met"] is False]
    lines = ["%(date)s, %(cores)d cores of %(cpu)s, %(memory_gib)d GiB, Linux %(kernel)s, Python %(python)s. "
             "Medians of interleaved runs%(how)s." % machine, "",
             "| what | sandbox-worker | beside it | ratio | budget | |", "|---|---|---|---|---|---|"]
    group = None
    for one in rows:
        if one["group"] != group:
            group = one["group"]
            lines.append("| **%s** | | | | | |" % group)
        beside = ", ".join("%s %s" % (name, figure(value, one["unit"])) for name, value in one["beside"])
        ratio = "%.2fx" % one["ratio"] if one["ratio"] is not None else ""
        verdict = {True: "met", False: "**MISSED**", None: ""}[one["met"]]
        lines.append("| %s | %s | %s | %s | %s | %s |" % (
            one["what"] + (" (%s)" % one["note"] if one["note"] else ""), figure(one["value"], one["unit"]), beside, ratio,
            budget(one), verdict))
    if grid:
        lines += ["", "| " + " | ".join(grid["head"]) + " |", "|" + "---|" * len(grid["head"])]
        lines += ["| " + " | ".join(cells) + " |" for cells in grid["rows"]]
    held = sum(one["met"] is not None for one in rows)
    lines += ["", "%d of %d budgets met%s" % (held - len(missed), held, "." if not missed else "; missed: "
                                              + "; ".join(one["what"] for one in missed) + ".")]
    return "\n".join(lines) + "\n"

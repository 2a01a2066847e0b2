"""The end of the page: what the CLI printed last, the receipt, the files with their hashes."""

from __future__ import annotations

import json

from worker.html_page import anchor, cut, facts, join, link, pill, section, table, tag
from worker.report.reading import killed, listed, number, part, sequence
from worker.report.summary import count, duration
from worker.report.timeline import happened

MOST_FILES, NAMED = 2500, 500


def said(run):
    """The last events and the end of stderr: what the CLI itself had to say."""
    events = [tag("li", tag("pre", cut(json.dumps(event, ensure_ascii=False, default=str), 1500)[0])) for _, event in run.events]
    parts = [tag("h3", "Last events on its standard output"), tag("ol", *events, klass="plain")] if events else []
    if run.stderr.strip():
        tail = run.stderr[-4000:]
        parts += [tag("h3", "End of its standard error"), tag("pre", tail)]
    return section("said", "What the agent's CLI printed last", *(parts or [tag("p", "Nothing.")]))


def receipt(run):
    found = run.receipt
    confirmed = run.result.get("cleanup_confirmed") is True
    named, total = killed(found)
    what = join(
        [
            pill("confirmed" if confirmed else "not confirmed", "good" if confirmed else "bad"),
            " ",
            "No process of the agent is left." if confirmed else "It is not certain that every process of the agent is gone. ",
            "" if confirmed else cut(str(found.get("error") or ""), 500)[0],
        ]
    )
    rows = [
        (
            one.get("pid"),
            tag("code", cut(" ".join(map(str, listed(one.get("argv"), str))), 400)[0]),
            duration(one.get("age_s")),
            str(one.get("escaped") or "")[:80],
        )
        for one in named[:NAMED]
    ]
    parts = [tag("h3", "Life of the process"), happened(run)]
    if rows:
        parts.append(table(("Process", "Command", "Age", "Had left its group by"), rows, "Left-over processes that were killed"))
    if total > len(rows):
        parts.append(tag("p", "And %d more." % (total - len(rows))))
    launch = run.launch
    command = " ".join(listed(launch.get("command"), str))
    parts.append(
        facts(
            [
                ("Proof", found.get("proof")),
                ("Working directory", tag("code", launch.get("cwd"))),
                ("Peak memory", "%s MiB" % count(part(run.result, "resources", "peak_memory_mib"))),
                ("CPU time", duration(part(run.result, "resources", "cpu_time_s"))),
            ]
        )
    )
    if command:
        parts.append(tag("details", tag("summary", "The command that was started"), tag("pre", cut(command, 8000)[0])))
    return section("receipt", "Receipt", tag("p", what), *parts)


def files(run):
    """Every file of the manifest; bodies lead back to their attempts."""
    attempts = {name: sequence(record) for record in run.attempts for name in listed(record.get("bodies"), str)}
    listed_files = sorted((name, entry) for name, entry in run.result["files"].items() if isinstance(name, str))
    rows = []
    for name, entry in listed_files[:MOST_FILES]:
        owner = attempts.get(name)
        cells = [
            tag("td", tag("code", cut(name, 300)[0]), klass="path"),
            tag("td", size(part(entry, "size")), klass="number"),
            tag("td", tag("code", str(part(entry, "sha256"))[:64], klass="hash")),
            tag("td", link(anchor("a", owner), "attempt %s" % owner) if owner else ""),
        ]
        rows.append(tag("tr", *cells, id=anchor("file", name)))
    more = [tag("p", "%d more are in result.json." % (len(listed_files) - MOST_FILES))] if len(listed_files) > MOST_FILES else []
    note = tag(
        "p",
        "This page shows what the files say; it does not check them: ",
        tag("code", "verify OUT --manifest run.out"),
        " does.",
        klass="quiet small",
    )
    inside = tag(
        "details",
        tag("summary", "%d files" % len(listed_files)),
        table(("File", "Size", "SHA-256", ""), rows, "Files of the outcome"),
        *more,
        open=len(listed_files) <= 40,
    )
    return section("files", "Files", note, inside)


def size(value):
    found = number(value)
    if found is None:
        return "unknown"
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if found >= length:
            return "%.1f %s" % (found / length, unit)
    return "%d bytes" % found

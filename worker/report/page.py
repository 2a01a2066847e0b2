"""The report of one run, in the order in which a person asks.  Functions over a Run (reading.py)."""

from __future__ import annotations

import time

from worker.html_page import document, join, link, resource, tag
from worker.report.attempts import attempts
from worker.report.conversation import conversation
from worker.report.ending import files, receipt, said
from worker.report.reading import number, part
from worker.report.summary import figures, notes, verdict
from worker.report.timeline import timeline
from worker.version import VERSION

SECTIONS = (
    ("timeline", "Time line"),
    ("conversation", "Conversation"),
    ("attempts", "Model requests"),
    ("notes", "Warnings and gaps"),
    ("said", "Last words"),
    ("receipt", "Receipt"),
    ("files", "Files"),
)


def page(run):
    """The whole page as bytes."""
    talk = conversation(run)
    main = join(
        [verdict(run), figures(run), timeline(run), notes(run), talk, attempts(run, talk), said(run), receipt(run), files(run)],
        "\n",
    )
    kind = str(run.result["outcome"].get("kind"))[:60]
    name = str(run.result.get("invocation_id"))[:100]
    foot = tag(
        "p",
        "Made by sandbox-worker %s from the files of the outcome. Text from the sandbox is shown as it is; control "
        "characters stand as their codes. Nothing on this page is fetched or executed from it." % VERSION,
    )
    return document(
        "%s \u00b7 %s" % (kind, name),
        head(run, name),
        main,
        foot,
        resource("worker/report/page.css"),
        resource("worker/report/page.js"),
    )


def head(run, name):
    harness, started = run.result.get("harness"), number(run.result.get("started_at"))
    words = [str(part(harness, "name"))[:40], str(part(harness, "version") or "")[:40]]
    when = ""
    if started is not None and abs(started) < 1e11:
        when = " \u00b7 " + time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(started))
    links = [link(target, word) for target, word in SECTIONS]
    return join(
        [
            tag("h1", "Run ", tag("span", name, klass="mono")),
            tag("p", " ".join(filter(None, words)), " on ", str(run.result.get("hostname"))[:80], when, klass="quiet small"),
            tag("nav", *[join([one, " "]) for one in links], aria_label="Sections", klass="no-print"),
        ]
    )

"""The attempts: one row for every HTTP exchange with the model endpoint, its bodies and the turn that it brought."""

from __future__ import annotations

from worker.html_page import Markup, anchor, cut, join, link, pill, section, tag
from worker.report.reading import listed, number, part, sequence
from worker.report.summary import count, deciding, duration, names
from worker.report.words import DECISIONS, RULES

HEADS = ("No.", "Request", "At", "Took", "Status", "What became of it", "Tokens in", "out", "More")
SHOWN_BODIES, EXCERPT = 40, 3000  # of failed attempts, the last ones; characters


def attempts(run, conversation):
    """The section; links to a turn only where `conversation` (Markup) has it."""
    if not run.attempts:
        why = "There was no model proxy, or nothing was asked." if not run.unread else "The attempts could not be read."
        return section("attempts", "Model requests", tag("p", why))
    start, decided = (run.span() or (0.0,))[0], deciding(run)
    failed = [one for one in run.attempts if one.get("failure")][-SHOWN_BODIES:]
    rows = [row(run, one, start, one is decided, one in failed, conversation) for one in run.attempts]
    caption = "Attempts, one for each HTTP exchange; the last request's answer is the last row that was passed on"
    head = tag(
        "thead",
        tag(
            "tr",
            *[
                tag("th", one, scope="col", klass="number" if one in ("Took", "Tokens in", "out", "At") else None)
                for one in HEADS
            ],
        ),
    )
    table = tag("table", tag("caption", caption, klass="quiet"), head, tag("tbody", *rows), id="attempts-table")
    return section(
        "attempts",
        "Model requests",
        tools(run),
        tag("div", table, klass="wide", tabindex="0", role="region", aria_label="Attempts"),
    )


def tools(run):
    """The filter; it does its work in page.js."""
    choices = [("", "all"), ("failed", "failed only"), ("main", "the agent's own"), ("side", "side requests")]
    select = tag("select", *[tag("option", word, value=value) for value, word in choices], id="filter-kind")
    return tag(
        "p",
        tag("label", "Show ", select, for_="filter-kind"),
        " ",
        tag("label", "with the words ", tag("input", type="search", id="filter-words", autocomplete="off"), for_="filter-words"),
        " ",
        tag("output", "%d of %d" % (len(run.attempts), len(run.attempts)), id="filter-count", klass="quiet", aria_live="polite"),
        klass="filter no-print",
    )


def row(run, record, start, decided, excerpts, conversation):
    seq, failure = sequence(record), record.get("failure")
    begin, end = number(record.get("started_at")), number(record.get("ended_at"))
    word, tone = names(DECISIONS, record.get("decision"), (str(record.get("decision"))[:20], "bad"))
    tone = "bad" if failure and tone == "good" else tone
    usage = record.get("usage")
    kinds = " ".join(
        ["failed"] * bool(failure or record.get("decision") == "refused") + ["main" if record.get("main") else "side"]
    )
    cells = [
        join([seq, tag("br"), pill("decided", "bad" if failure else "good")]) if decided else seq,
        "%s.%s" % (str(record.get("request"))[:20], str(record.get("attempt"))[:20]),
        "+" + duration(begin - start) if begin is not None else None,
        duration(end - begin) if begin is not None and end is not None else None,
        str(record["status"])[:20] if record.get("status") is not None else None,
        became(record, word, tone, failure),
        count(part(usage, "input_tokens")) if usage else None,
        count(part(usage, "output_tokens")) if usage else None,
        more(run, record, seq, excerpts, conversation),
    ]
    classes = [None, None, "number", "number", None, "became", "number", "number", "more"]
    return tag(
        "tr", *[tag("td", cell, klass=klass) for cell, klass in zip(cells, classes)], id=anchor("a", seq), data_kinds=kinds
    )


def became(record, word, tone, failure):
    lines = [pill(word, tone)]
    if failure:
        lines += [" ", tag("code", str(failure)[:40])]
    rule = names(RULES, record.get("rule"))
    if rule and record.get("rule") != "success":
        lines += [" ", tag("span", rule, klass="quiet small")]
    said = (
        part(record, "provider_error", "message") or part(record, "provider_error", "excerpt") or part(record, "error", "message")
    )
    if said:
        lines.append(tag("div", cut(str(said), 300)[0], klass="small"))
    wait = part(record, "wait", "seconds")
    if number(wait) and record.get("decision") == "retried":
        lines.append(
            tag("div", "then waited %s (%s)" % (duration(wait), str(part(record, "wait", "source"))[:40]), klass="quiet small")
        )
    replayed = part(record, "response_headers", "x-replay-match")
    if replayed:
        lines.append(tag("div", "replayed: ", cut(str(replayed), 400)[0], klass="quiet small"))
    return join(lines)


def more(run, record, seq, excerpts, conversation):
    """Links to the turn and the bodies; the words of a failed answer."""
    found = []
    if ' id="%s"' % anchor("turn", seq) in conversation:
        found.append(link(anchor("turn", seq), "turn"))
    bodies = listed(record.get("bodies"), str)
    listed_files = run.result["files"]
    for name in bodies:
        kind = name.rpartition(".")[2][:20]
        found.append(link(anchor("file", name), kind) if name in listed_files else tag("span", kind, klass="quiet"))
    line = join(found, " \u00b7 ")
    answer = next((name for name in bodies if name.endswith(".response")), None)
    text = (run.body(answer) or b"") if excerpts and answer else b""
    if not text.strip():
        return line
    shown_text, left_out = cut(text.decode("utf-8", "replace"), EXCERPT)
    return join(
        [
            line,
            tag(
                "details",
                tag("summary", "answer", klass="small"),
                tag("pre", shown_text),
                tag("p", "%d characters are left out." % left_out, klass="quiet small") if left_out else Markup(""),
            ),
        ]
    )

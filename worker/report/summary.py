"""The top of the page: what became of the run, what to do with it, and what decided that, in words.  Functions over a Run."""

from __future__ import annotations

from worker.html_page import Markup, anchor, cut, facts, join, link, pill, section, tag
from worker.report import words
from worker.report.reading import killed, listed, number, part, sequence

# source of the evidence -> what decided, where no attempt did
SOURCES = {
    "event": "the agent's own closing event",
    "transcript": "the agent's own transcript",
    "exit": "the agent's exit",
    "text": "the agent's own words",
    "deadline": "the run's clock",
    "stop": "a request from outside",
    "limit": "the run's own limit",
    "launch": "the attempt to start the agent",
    "signal": "a signal",
    "kernel": "the kernel's record",
    "wire": "the record of model requests",
    "worker": "the worker itself",
}


def duration(seconds):
    """A length of time as a person says it."""
    seconds = number(seconds)
    if seconds is None:
        return "unknown"
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return "%d %s %02d %s" % (seconds // size, unit, seconds % size // (size // 60), "min" if unit == "h" else "s")
    return "%.0f ms" % (seconds * 1000) if seconds < 1 else "%.1f s" % seconds


def count(value):
    found = number(value)
    return "unknown" if found is None else "{:,.0f}".format(found).replace(",", "\u202f")


def names(table, key, default=None):
    return table.get(key, default) if isinstance(key, str) else default


def verdict(run):
    outcome, disposition = run.result["outcome"], run.result["disposition"]
    kind, action = outcome.get("kind"), disposition.get("action")
    headline, meaning = names(words.KINDS, kind, (words.UNKNOWN_KIND[0] % str(kind)[:60], words.UNKNOWN_KIND[1]))
    todo, tone = names(words.ACTIONS, action, ("The disposition \u201c%s\u201d is not known." % str(action)[:60], "bad"))
    if outcome.get("fault") == "host" and kind == "invalid_request":
        headline, meaning = "The replay does not fit this run.", "The agent asked something that the recorded run had not asked."
    pairs = [
        ("Outcome", tag("code", kind)),
        (
            "Status",
            pill(str(outcome.get("status"))[:20].replace("_", " "), names(words.STATUS_TONE, outcome.get("status"), "quiet")),
        ),
        ("At fault", names(words.FAULTS, outcome.get("fault"), outcome.get("fault"))),
        ("Verify in this sandbox", allowed(disposition)),
    ]
    return tag(
        "section",
        tag("h2", headline, id="outcome-title"),
        tag("p", meaning, klass="lead"),
        tag("p", pill(str(action)[:20], tone), " ", tag("strong", todo), " ", reason(outcome, disposition), klass="todo"),
        facts(pairs),
        decided_by(run, outcome),
        id="outcome",
        aria_labelledby="outcome-title",
        klass="verdict " + tone,
    )


def allowed(disposition):
    return "allowed: nothing of the agent is left" if disposition.get("verify_allowed") is True else "not allowed"


def reason(outcome, disposition):
    said = disposition.get("reason")
    return tag("span", "(%s)" % str(said)[:200], klass="quiet") if said and said != outcome.get("kind") else ""


def deciding(run):
    """The attempt record that decided, or None."""
    wanted = part(run.result, "outcome", "evidence", "seq")
    return next((one for one in run.attempts if wanted is not None and one.get("seq") == wanted), None)


def decided_by(run, outcome):
    evidence, record = outcome.get("evidence"), deciding(run)
    evidence = evidence if isinstance(evidence, dict) else {}
    source = part(evidence, "source")
    said = cut(str(outcome.get("message") or ""), 1500)[0]
    quote = tag("blockquote", said) if said else ""
    if source == "attempt" and record:
        what = attempt_sentence(record)
    else:
        what = join(
            [
                sentence(run, evidence, source),
                tag("p", link("said", "What the agent's CLI printed last"), klass="small")
                if source in ("event", "transcript", "exit", "text", "signal")
                else "",
            ]
        )
    unread = [tag("p", "Not read: ", one, klass="small") for one in run.unread]
    return tag("div", tag("h3", "What decided it"), what, quote, *unread, klass="deciding")


def sentence(run, evidence, source):
    if source == "deadline":
        return tag("p", "The time limit that the host had set: %s." % duration(run.launch.get("timeout")))
    details = [
        "%s %s" % (name.replace("_", " "), str(value)[:120])
        for name, value in sorted(evidence.items())
        if name not in ("source", "seq") and isinstance(value, (str, int, float)) and not isinstance(value, bool)
    ]
    text = names(SOURCES, source, "what is recorded as \u201c%s\u201d" % str(source)[:40])
    seq = part(evidence, "seq")
    last = (
        [", after ", link(anchor("a", str(seq)[:40]), "attempt %s" % str(seq)[:40])]
        if seq is not None and source == "event"
        else []
    )
    return tag("p", text[:1].upper() + text[1:], *last, ": " if details else "", ", ".join(details), ".")


def attempt_sentence(record):
    """One sentence about an attempt, with the link to it."""
    status, rule = record.get("status"), names(words.RULES, record.get("rule"))
    answer = "was answered with status %s" % str(status)[:10] if status is not None else "got no answer"
    error = part(record, "error", "message")
    return tag(
        "p",
        link(anchor("a", sequence(record)), "Attempt %s" % sequence(record)),
        " (request %s, try %s) " % (str(record.get("request"))[:20], str(record.get("attempt"))[:20]),
        answer,
        ": " + cut(str(error), 300)[0] if error else "",
        ". It was ",
        names(words.DECISIONS, record.get("decision"), (str(record.get("decision"))[:20],))[0],
        ", because %s." % rule if rule else ".",
    )


def figures(run):
    """The numbers that a person asks for first."""
    result, receipt = run.result, run.receipt
    counts, usage = result.get("counts") or {}, part(result, "usage", "chosen")
    pairs = [
        ("Took", duration((number(result.get("duration_ms")) or 0) / 1000)),
        ("Model requests", count(part(counts, "requests"))),
        ("Attempts \u00b7 retries", "%s \u00b7 %s" % (count(part(counts, "attempts")), count(part(counts, "retries")))),
        ("Waited for the provider", duration(part(counts, "wait_s"))),
        ("Tokens in \u00b7 out", "%s \u00b7 %s" % (count(part(usage, "input_tokens")), count(part(usage, "output_tokens")))),
        ("Tool calls", count(part(counts, "tool_calls"))),
        ("Exit code", result.get("return_code")),
        ("Left-over processes killed", killed(receipt)[1]),
    ]
    said = result.get("final_message")
    final = [tag("h3", "Its last message"), tag("pre", cut(said, 4000)[0])] if isinstance(said, str) and said else []
    return section("figures", "In numbers", facts(pairs), *final)


def notes(run):
    """Warnings and gaps: what a reader should know beside the outcome."""
    items = [note("warning", one, names(words.WARNINGS, one.get("code"))) for one in listed(run.result.get("warnings"))[:200]]
    items += [note("gap", one, meaning, anchor("gap", index)) for index, (one, meaning) in enumerate(gaps(run))]
    more = len(listed(run.result.get("warnings"))) + len(listed(run.observations.get("gaps"))) - len(items)
    items += [tag("li", "And %d more." % more)] if more else []
    body = tag("ul", *items, klass="notes") if items else tag("p", "None. Everything that was looked for was found.")
    return section(
        "notes",
        "Warnings and gaps",
        tag("p", "A warning never changes the outcome. A gap is a fact that could not be observed.", klass="quiet small"),
        body,
    )


def gaps(run):
    from worker.gaps import GAPS

    return [(one, names(GAPS, one.get("code"))) for one in listed(run.observations.get("gaps"))[:300]]


def note(word, one, meaning, name=None):
    where = " ".join("%s %s" % (name, str(one[name])[:200]) for name in ("file", "offset") if one.get(name) is not None)
    times = number(one.get("count")) or 1
    detail = cut(str(one["detail"]), 600)[0] if one.get("detail") is not None else ""
    return tag(
        "li",
        pill(word, "warn" if word == "warning" else "odd"),
        " ",
        tag("code", one.get("code")),
        " \u00d7%d" % times if times > 1 else "",
        Markup("<br>") if meaning else "",
        meaning or "",
        tag("div", detail, klass="quiet small") if detail and detail != meaning else "",
        tag("div", where, klass="quiet small mono") if where else "",
        id=name,
    )

"""`doctor [--harness NAME] [--dir DIR] [--json]`: what will not work in this sandbox, in plain words, and what to do.

Run it inside, with the same user, engine options and `exec` as the run to come; --dir is the session directory to come, --harness
the CLI to come. Exit code 0: a run can work here, though something may be lost (degraded); 69: none can (blocking).
What is looked at: doctor_probes.py and doctor_harness.py; what it means: doctor_findings.py.
"""
from __future__ import annotations

import os

from worker import cli, doctor_findings, doctor_harness, doctor_probes, harnesses
from worker.documents import strict_json
from worker.host import terminal
from worker.host.arguments import Misuse, parse
from worker.host.show import coloured, plain
from worker.version import BUNDLE, VERSION

SCHEMA = "sandbox-worker/doctor/1"
COLUMNS, INDENT = 80, 10
COLOURS = {"blocking": "31;1", "degraded": "33;1", "note": "2"}
HEADLINES = {"blocking": "no run can work here", "degraded": "a run works here, but something may be lost: see above",
             "fine": "a run works here"}


def main(words):
    try:
        _, given = parse(words, 0, ("--harness", "--dir"), ("--json",))
        name = given.get("--harness")
        if name is not None and name not in harnesses.TABLE:
            raise Misuse("%r is no harness; there are %s" % (name, ", ".join(harnesses.TABLE)))
    except Misuse as error:
        return cli.misuse("doctor", str(error))
    document = examine(given.get("--dir"), name)
    text = strict_json(document).decode() if "--json" in given else "\n".join(screen(document))
    terminal.write(text + "\n")
    return cli.MASK if document["verdict"] == "blocking" else cli.GRADE


def examine(directory, name):
    """{"schema", "version", "bundle", "verdict", "findings", "facts"}."""
    facts = doctor_probes.facts(directory or os.curdir, directory is not None)
    if name is not None:
        facts["harness"] = doctor_harness.look(name, facts["tmp"], facts["path"])
    found = doctor_findings.findings(facts)
    return {"schema": SCHEMA, "version": VERSION, "bundle": BUNDLE["sha256"], "verdict": doctor_findings.verdict(found),
            "findings": found, "facts": facts}


def screen(document):
    """The lines for people: what is there, then each finding with its remedy."""
    facts, verdict = document["facts"], document["verdict"]
    rows = [("here", "Python %s, %s on %s, uid %s, pid %s, %s cpus" % (
        facts["python"], facts["kernel"], facts["machine"], facts["uid"], facts["pid"], facts["cpus"])),
        ("room", ", ".join(room(facts)))]
    if facts["harness"]:
        harness = facts["harness"]
        rows.append(("harness", "%s %s, %s; tested: %s" % (
            harness["name"], harness["version"] or "(version unknown)", harness["program"] or "not found",
            ", ".join(harness["tested"]) or "any")))
    lines = [line for title, text in rows for line in laid_out(title, "", text)]
    for finding in document["findings"]:
        severity = finding["severity"]
        lines += laid_out(severity, COLOURS[severity], "%s: %s" % (finding["code"], finding["sentence"]))
        lines += laid_out("  do", "", finding["remedy"]) if finding["remedy"] else []
    return lines + laid_out("verdict", COLOURS.get(verdict, "32;1"), HEADLINES[verdict])


def room(facts):
    """What is left, in words; what has no limit or cannot be known is left out."""
    for name, words, form in (("memory_free_bytes", "%s of memory", doctor_findings.size), ("pids_free", "%s processes", str),
                              ("space_bytes", "%s on disk", doctor_findings.size), ("open_files", "%s open files", str)):
        if facts[name] is not None:
            yield words % form(facts[name])


def laid_out(title, colour, text):
    """A title and its text, wrapped to the screen's width; only the title has a colour."""
    lines, line = [], ""
    for word in plain(text, 4000).split(" "):
        if line and INDENT + len(line) + 1 + len(word) > COLUMNS:
            lines.append(line)
            line = word
        else:
            line = line + " " + word if line else word
    head = coloured(title, colour) + " " * (INDENT - len(title))
    return [(head if at == 0 else " " * INDENT) + each for at, each in enumerate(lines + [line])]

"""`summarize OUT... [--to DIR] [--json | --tsv]`: one table and one page of any number of outcome directories, in one pass.

`-` among them: more names come on stdin, ended by NUL (`find -print0`) or, where there is none, by newlines. Only result.json of
each is opened. Memory does not grow with the number of outcomes. --to DIR gets summary.tsv, summary.json and summary.html, whole
or not at all; without it a short summary is printed, or with --json the totals, with --tsv a line per outcome.
Exit code: 0; 66 when none could be read; 73 when DIR cannot be written.
"""
from __future__ import annotations

import os
import time

from worker import cli, stdout
from worker.documents import strict_json
from worker.host import terminal
from worker.host.arguments import ODD, Misuse, parse_any
from worker.host.outcome_directory import NotReadable, read_result
from worker.host.show import plain
from worker.host.summary import COLUMNS, Totals, row, unreadable

LARGEST_RESULT = 16 << 20   # bytes; a result of a run with 10,000 files has 2 MB
LONGEST_NAME = 1 << 16      # bytes; PATH_MAX is 4096
PIECE = 1 << 16
TSV, JSON, HTML = "summary.tsv", "summary.json", "summary.html"
# What would break a line of the table; a directory can be found again by undoing it.
ESCAPES = {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}


def main(words):
    try:
        names, given = parse_any(words, ("--to",), ("--json", "--tsv"))
        if not names:
            raise Misuse("needs outcome directories, or - for their names on stdin")
    except Misuse as error:
        return cli.misuse("summarize", str(error))
    try:
        totals = work(directories(names), given)
    except OSError as error:
        if given.get("--to"):
            forget(given["--to"])
        cli.say("summarize: %s: %s" % (error.filename or given.get("--to") or "stdout", error.strerror))
        return cli.NO_DIRECTORY
    return cli.GRADE if totals.outcomes > totals.unreadable else cli.NO_OUTCOME


def directories(names):
    for name in names:
        if name == "-":
            yield from listed(0)
        else:
            yield name


def listed(fd):
    """The names that come on a descriptor, each once it is whole."""
    rest, end = b"", None
    while True:
        piece = os.read(fd, PIECE)
        rest += piece
        if end is None and piece:
            end = b"\0" if b"\0" in rest else b"\n"
        *whole, rest = rest.split(end or b"\n") if piece else rest.split(end or b"\n") + [b""]
        if len(rest) > LONGEST_NAME:
            rest = rest[:LONGEST_NAME]
        yield from (os.fsdecode(name) for name in whole if name)
        if not piece:
            return


def look(directory):
    """The row of one outcome directory, whatever lies there."""
    try:
        return row(directory, read_result(directory, LARGEST_RESULT))
    except NotReadable as error:
        return unreadable(directory, str(error))
    except ODD as error:
        return unreadable(directory, "result.json: is not in its shape (%s)" % type(error).__name__)


def work(names, given):
    """Read all, write what was asked for; the totals. Raises OSError."""
    totals, folder = Totals(), given.get("--to")
    if folder is not None:
        os.makedirs(folder, exist_ok=True)
    table = open_new(folder, TSV) if folder is not None else os.fdopen(os.dup(1), "wb") if "--tsv" in given else None
    try:
        if table:
            table.write(("\t".join(COLUMNS) + "\n").encode())
        for name in names:
            found = look(name)
            totals.add(found)
            if table:
                table.write(line(found))
    finally:
        if table:
            table.close()  # writes the rest, or says why it cannot
    document = totals.as_dict()
    if folder is not None:
        from worker.host.summary_page import page

        for name, content in ((JSON, strict_json(document) + b"\n"),
                              (HTML, page(document, time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())))):
            with open_new(folder, name) as file:
                file.write(content)
        for name in (TSV, JSON, HTML):
            os.replace(os.path.join(folder, partial(name)), os.path.join(folder, name))
    if "--json" in given:
        stdout.put(1, strict_json(document) + b"\n")
    elif "--tsv" not in given:
        terminal.write("\n".join(screen(document, folder)) + "\n")
    return totals


def forget(folder):
    """Of a summary that could not be written nothing stays."""
    for name in (TSV, JSON, HTML):
        try:
            os.unlink(os.path.join(folder, partial(name)))
        except OSError:
            pass


def partial(name):
    return ".%s.%d" % (name, os.getpid())


def open_new(folder, name):
    path = os.path.join(folder, partial(name))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "wb")


def line(row):
    return ("\t".join(cell(row[name]) for name in COLUMNS) + "\n").encode("utf-8", "surrogateescape")


def cell(value):
    """A value as one cell: empty for unknown, true and false, lists joined by commas, text without what breaks a line. A half
    of a surrogate pair that does not stand for a byte of a name becomes `?`."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, list):
        value = ",".join(value)
    if not isinstance(value, str):
        return "%g" % value if isinstance(value, float) and value != value // 1 else "%d" % value
    return "".join("?" if ("\ud800" <= c <= "\udfff" and not "\udc80" <= c <= "\udcff") or c < " " or "\x7f" <= c < "\xa0"
                   else c for c in value.translate(ESCAPES))


def screen(totals, folder):
    """The lines for people."""
    actions, tokens, times = totals["actions"], totals["tokens"], totals["duration_s"]
    yield "outcomes  %d: %s; %d unreadable" % (totals["outcomes"], ", ".join(
        "%s %d" % (action, actions.get(action, 0)) for action in ("grade", "retry", "mask")), totals["unreadable"])
    for kind, one in totals["kinds"].items():
        yield "%9d  %-20s %s" % (one["count"], kind, ", ".join("%s %d" % pair for pair in sorted(one["actions"].items())))
    yield "model     %d requests, %d attempts, %d retries, %s s waited" % tuple(
        totals["counts"][name] for name in ("requests", "attempts", "retries", "wait_s"))
    yield "tokens    %d in, %d of it cached, %d out; %d runs do not know" % (
        tokens["input_tokens"]["sum"], tokens["cached_input_tokens"]["sum"], tokens["output_tokens"]["sum"],
        tokens["input_tokens"]["unknown"])
    yield "gaps      %d in %d runs" % (totals["gaps"]["sum"], totals["gaps"]["outcomes"])
    if times["count"]:
        yield "time      median %s s, 90 %% within %s s, longest %s s" % (times["p50"], times["p90"], times["most"])
    for one in totals["slowest"][:3]:
        yield "slowest   %.1f s  %s  %s" % (one["duration_s"], one["kind"], plain(one["directory"], 80))
    for one in totals["not_read"][:3]:
        yield "not read  %s: %s" % (plain(one["directory"], 60), plain(one["unreadable"], 100))
    if folder is not None:
        yield "written   %s" % ", ".join(plain(os.path.join(folder, name)) for name in (TSV, JSON, HTML))

"""`summarize`: any number of outcome directories become one table and one page; nothing in them can break it."""
from __future__ import annotations

import json
import os
import random
import re
import resource
import subprocess
import sys
import time

import pytest

from tests import runs
from worker.host import summary
from worker.policy import TABLE as KINDS

MANY = 100000


def result(number, rng, **change):
    """A result document in the shape of a real one."""
    kind = rng.choice(sorted(KINDS))
    tokens = rng.choice([None, {"input_tokens": number, "cached_input_tokens": 1, "cache_write_input_tokens": None, "output_tokens": 7,
                                "reasoning_output_tokens": None, "total_tokens": number + 7, "source": "wire", "completeness": "complete"}])
    return dict({
        "schema": "sandbox-worker/result/1", "invocation_id": "run-%d" % number, "cleanup_confirmed": True, "started_at": 1.8e9,
        "duration_ms": 1000 + number, "run_attempt": 1, "harness": {"name": "codex", "version": "0.171.0", "tested": []},
        "usage": {"wire": tokens, "chosen": tokens}, "counts": {"requests": 3, "attempts": 4, "retries": 1, "wait_s": 0.5},
        "warnings": [{"code": "recovered_errors", "detail": ""}], "gaps": 2,
        "files": {"bodies/%06d.request" % each: {"size": 1, "sha256": "0" * 64} for each in range(20)},
        "outcome": {"status": "x", "kind": kind, "fault": "model", "message": "because"},
        "disposition": {"action": KINDS[kind][0], "reason": kind, "verify_allowed": kind != "worker_error"}}, **change)


def put(folder, document):
    os.makedirs(str(folder))
    with open(os.path.join(str(folder), "result.json"), "wb") as file:
        file.write(document if isinstance(document, bytes) else json.dumps(document).encode())


def summarize(bundle, *words, input=b"", **options):
    return subprocess.run([sys.executable, "-I", "-S", bundle, "summarize", *map(str, words)], input=input, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=runs.HANG * 5, **options)


def table(text):
    heads, *rows = [line.split("\t") for line in text.decode("utf-8", "surrogateescape").split("\n")[:-1]]
    return [dict(zip(heads, row)) for row in rows]


def test_rows_totals_and_page_say_the_same(bundle, tmp_path):
    rng, documents = random.Random(8), {}
    for number in range(60):
        documents["run %d" % number] = result(number, rng)
        put(tmp_path / "runs" / ("run %d" % number), documents["run %d" % number])
    done = summarize(bundle, *(tmp_path / "runs" / name for name in documents), "--to", tmp_path / "out")
    assert done.returncode == 0 and not done.stderr and b"outcomes  60" in done.stdout
    assert sorted(os.listdir(str(tmp_path / "out"))) == ["summary.html", "summary.json", "summary.tsv"]
    rows = table((tmp_path / "out" / "summary.tsv").read_bytes())
    totals = json.loads((tmp_path / "out" / "summary.json").read_text())
    for row, (name, document) in zip(rows, documents.items()):
        assert row["directory"] == str(tmp_path / "runs" / name) and row["kind"] == document["outcome"]["kind"]
        assert row["action"] == document["disposition"]["action"] and row["wait_s"] == "0.5" and row["gaps"] == "2"
        assert row["input_tokens"] == ("" if document["usage"]["chosen"] is None else str(document["usage"]["chosen"]["input_tokens"]))
    known = [document["usage"]["chosen"] for document in documents.values() if document["usage"]["chosen"]]
    assert totals["outcomes"] == 60 and totals["unreadable"] == 0
    assert totals["tokens"]["input_tokens"] == {"sum": sum(one["input_tokens"] for one in known), "unknown": 60 - len(known)}
    assert totals["counts"]["requests"] == 180 and totals["counts"]["wait_s"] == 30 and totals["gaps"] == {"sum": 120, "outcomes": 60}
    for kind, one in totals["kinds"].items():
        assert one["count"] == sum(document["outcome"]["kind"] == kind for document in documents.values())
    assert [one["duration_s"] for one in totals["slowest"]][:2] == [1.059, 1.058] and len(totals["slowest"]) == summary.EXTREMES
    assert abs(totals["duration_s"]["p50"] - 1.03) < 0.06 and totals["duration_s"]["most"] == 1.059
    html = (tmp_path / "out" / "summary.html").read_text(encoding="utf-8")
    assert "Content-Security-Policy" in html and "run 59" in html and not re.search(r"(src|href)=\"(?!#)", html)


HOSTILE = {  # what lies in place of result.json -> a word of the reason
    "nothing": (lambda folder: None, "No such file"),
    "a link": (lambda folder: os.symlink("/etc/passwd", os.path.join(folder, "result.json")), "symbolic"),
    "a fifo": (lambda folder: os.mkfifo(os.path.join(folder, "result.json")), "no regular file"),
    "a directory": (lambda folder: os.mkdir(os.path.join(folder, "result.json")), "no regular file"),
    "empty": (b"", "not JSON"), "cut": (b'{"outcome": {"kind": "comp', "not JSON"), "no object": (b"[1]", "no object"),
    "deep": (b"[" * 200000, "not JSON"), "latin": (b'{"a": "\xe9"}', "not JSON"), "long number": (b'{"a": %s}' % (b"9" * 10000), "outcome"),
    "no outcome": (b"{}", "outcome"), "outcome a list": (b'{"outcome": [], "disposition": {}, "files": {}}', "outcome"),
}


def test_what_cannot_be_read_is_a_row_that_says_so(bundle, tmp_path):
    for name, (what, _) in HOSTILE.items():
        os.makedirs(str(tmp_path / "runs" / name))
        if callable(what):
            what(str(tmp_path / "runs" / name))
        else:
            (tmp_path / "runs" / name / "result.json").write_bytes(what)
    (tmp_path / "runs" / "huge").mkdir()
    with open(str(tmp_path / "runs" / "huge" / "result.json"), "wb") as file:
        file.truncate(1 << 40)
    put(tmp_path / "runs" / "good", result(1, random.Random(1)))
    names = sorted(os.listdir(str(tmp_path / "runs"))) + ["no\nsuch", "neither\tthis\xff"]
    done = summarize(bundle, "--tsv", *(tmp_path / "runs" / name for name in names))
    assert done.returncode == 0 and not done.stderr
    rows = {os.path.basename(row["directory"]): row["unreadable"] for row in table(done.stdout)}
    assert len(rows) == len(names) and rows["good"] == ""
    for name, (_, word) in HOSTILE.items():
        assert word in rows[name] or name == "long number", (name, rows[name])      # older Pythons have no bound for numbers
    assert "larger" in rows["huge"] and rows["no\\nsuch"] and rows["neither\\tthis\xff"]
    assert summarize(bundle, tmp_path / "runs" / "deep").returncode == 66


ODD = [
    {"usage": 3}, {"usage": {"chosen": {"input_tokens": "many", "total_tokens": -4, "output_tokens": True}}}, {"counts": [1]},
    {"counts": {"requests": 1e300, "wait_s": "x"}}, {"harness": "codex"}, {"harness": {"name": [1], "version": 7}}, {"warnings": {"a": 1}},
    {"warnings": [1, {"code": 2}, {"code": "<script>alert(1)</script>\t\n\x1b[2J"}]}, {"gaps": float("inf")}, {"duration_ms": float("nan")},
    {"duration_ms": 10 ** 400}, {"started_at": None}, {"invocation_id": "a\tb\nc\ud800\x00"}, {"cleanup_confirmed": "yes"},
    {"outcome": {"status": [], "kind": {}, "fault": 1, "message": {"a": 1}}},
    {"outcome": {"status": "x", "kind": "</td><script>", "fault": "none", "message": "x\ty"}},
    {"disposition": {"action": "delete everything", "reason": 1, "verify_allowed": 1}}, {"disposition": {"action": [], "reason": 1, "verify_allowed": 1}},
]


def test_wrong_types_and_markup_change_no_line_and_no_sum(bundle, tmp_path):
    for number, change in enumerate(ODD):
        put(tmp_path / "runs" / ("<b>%d" % number), json.dumps(result(number, random.Random(3), **change)).encode())
    done = summarize(bundle, "--to", tmp_path / "out", *(tmp_path / "runs" / ("<b>%d" % number) for number in range(len(ODD))))
    assert done.returncode == 0 and not done.stderr
    rows = table((tmp_path / "out" / "summary.tsv").read_bytes())
    assert len(rows) == len(ODD) and {len(row) for row in rows} == {len(summary.COLUMNS)}
    totals = runs.strict((tmp_path / "out" / "summary.json").read_bytes())
    assert totals["outcomes"] == len(ODD) and totals["duration_s"]["most"] < 100 and set(totals["actions"]) <= {"grade", "retry", "mask", "other"}
    html = (tmp_path / "out" / "summary.html").read_text(encoding="utf-8")
    assert "<script>alert" not in html and "<b>" not in html and "&lt;b&gt;" in html


@pytest.mark.parametrize("end", [b"\0", b"\n"])
def test_names_come_on_stdin(bundle, tmp_path, end):
    names = ["plain", "with space", "quo'te\"", "\u00e4\u4e16", "-dash"] + (["new\nline"] if end == b"\0" else [])
    for number, name in enumerate(names):
        put(tmp_path / name, result(number, random.Random(5)))
    sent = end.join(os.fsencode(str(tmp_path / name)) for name in names)
    for tail in (b"", end):
        done = summarize(bundle, "-", "--tsv", input=sent + tail)
        assert done.returncode == 0
        assert [row["directory"] for row in table(done.stdout)] == [str(tmp_path / name).replace("\n", "\\n") for name in names]


def test_two_runs_at_once_and_a_directory_that_cannot_be_written(bundle, tmp_path):
    put(tmp_path / "a", result(1, random.Random(5)))
    (tmp_path / "file").write_text("")
    done = summarize(bundle, tmp_path / "a", "--to", tmp_path / "file")
    assert done.returncode == 73 and done.stderr.count(b"\n") == 1
    done = summarize(bundle)
    assert done.returncode == 64 and b"usage" in done.stderr
    assert summarize(bundle, "-", input=b"").returncode == 66


def test_a_full_disk_leaves_no_half_summary(bundle, tmp_path):
    """The limit on file sizes stands for it."""
    names = "".join("x%d\n" % number for number in range(3000)).encode()
    done = subprocess.run([sys.executable, "-I", "-S", bundle, "summarize", "-", "--to", str(tmp_path / "sum")], input=names,
                          capture_output=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    assert done.returncode == 73 and done.stderr.count(b"\n") == 1 and os.listdir(tmp_path / "sum") == [], done.stderr


def test_memory_does_not_grow_with_the_number_of_outcomes(bundle, tmp_path):
    """The same outcomes once and thirty times; the peak of the child's memory."""
    for number in range(100):
        put(tmp_path / str(number), result(number, random.Random(number)))
    names = "\n".join(str(tmp_path / str(number)) for number in range(100)).encode() + b"\n"
    code = ("import resource, subprocess, sys\n"
            "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    peaks = [int(subprocess.run([sys.executable, "-c", code, sys.executable, "-I", "-S", bundle, "summarize", "-", "--tsv"],
                                input=names * times, stdout=subprocess.PIPE, check=True).stdout) for times in (1, 30)]
    assert peaks[1] - peaks[0] < 2048, peaks       # KiB


def make_many(top, number):
    """`number` outcome directories of hundreds each; their names, ended by NUL."""
    rng, names = random.Random(1), []
    for at in range(number):
        folder = os.path.join(top, "%04d" % (at // 500), "run-%06d" % at)
        os.makedirs(folder)
        with open(os.path.join(folder, "result.json"), "w") as file:
            json.dump(result(at, rng), file)
        names.append(os.fsencode(folder))
    return b"\0".join(names) + b"\0"


if __name__ == "__main__":      # python3 -m tests.test_summarize BUNDLE DIR [NUMBER]: the figure of the README
    bundle_, folder_, number_ = sys.argv[1], sys.argv[2], int((sys.argv[3:] or [MANY])[0])
    names_ = make_many(folder_, number_)
    begun = time.monotonic()
    done_ = summarize(bundle_, "-", "--to", os.path.join(folder_, "summary"), input=names_)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print("%d outcomes: %.1f s, %.1f s of CPU, %.1f MiB at most; exit code %d" % (
        number_, time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, done_.returncode))

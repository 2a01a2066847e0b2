"""Promise: what the documents point at exists: links, and the names of tests in them."""
from __future__ import annotations

import glob
import os
import re

import pytest

from tests.conftest import ROOT

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
TEST = re.compile(r"`((?:tests/)?test_[a-z0-9_*]+\.py)`")
DOCUMENTS = sorted(
    os.path.relpath(path, ROOT)
    for pattern in ("*.md", "worker/**/*.md", "transport/**/*.md", "tests/*.md")
    for path in glob.glob(os.path.join(ROOT, pattern), recursive=True)
)


def missing(document, text):
    """The targets in `text`, a document at that path, that do not exist."""
    folder = os.path.join(ROOT, os.path.dirname(document))
    links = [os.path.join(folder, link) for link in LINK.findall(text) if "://" not in link]
    tests = [os.path.join(ROOT, "tests", os.path.basename(name)) for name in TEST.findall(text)]
    return [os.path.relpath(path, ROOT) for path in links + tests if not glob.glob(path)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_document_points_at_exists(document):
    with open(os.path.join(ROOT, document), encoding="utf-8") as file:
        assert missing(document, file.read()) == []


def test_a_dead_link_is_found():
    assert missing("worker/README.md", "[x](../tests/nowhere.py) [y](host/show.py) `test_nothing.py` https://a.b/c [z](https://a.b)") == [
        "tests/nowhere.py", "tests/test_nothing.py"]


def test_every_promise_of_the_two_halves_names_its_test():
    for document in ("worker/README.md", "transport/README.md"):
        with open(os.path.join(ROOT, document), encoding="utf-8") as file:
            table = file.read().partition("|---|")[2].partition("\n\n")[0]
        rows = [row for row in table.split("\n")[1:] if row.startswith("|")]
        assert len(rows) > 10 and [row for row in rows if "../tests/test_" not in row and "`make soak`" not in row] == []

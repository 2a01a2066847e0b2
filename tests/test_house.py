"""The rules of the house catch what they are there for; whether the tree keeps them is `make check`'s business."""
from __future__ import annotations

import pytest

from tests import house
from tests.conftest import elsewhere
from tests.house import Source

FUTURE = "from __future__ import annotations\n"
BROKEN = [          # (rule, path, text, part of the sentence)
    (house.layers, "transport/x.py", "from worker import cli\n", "knows no agent"),
    (house.layers, "worker/x.py", "import transport.http1\n", "public face"),
    (house.layers, "worker/x.py", "def f():\n    from transport import http1\n", "public face"),
    (house.layers, "worker/x.py", "from tests import endpoint\n", "must not import tests"),
    (house.stdlib, "worker/x.py", "import requests\n", "standard library"),
    (house.slow, "worker/x.py", "import subprocess\n", "costs milliseconds"),
    (house.slow, "transport/x.py", "def f():\n    from http.client import HTTPConnection\n", "costs milliseconds"),
    (house.pure, "transport/x.py", '"""Framing. Pure."""\nimport socket\n', "pure file"),
    (house.pure, "transport/x.py", '"""Pure."""\nfrom transport import upstream\n', "pure file"),
    (house.python38, "worker/x.py", "match x:\n    case 1: pass\n", "not Python 3.8"),
    (house.python38, "worker/x.py", "def f(x: int): pass\n", "annotations need"),
    (house.python38, "worker/x.py", "y = 'a'.removeprefix('b')\n", "3.9"),
    (house.python38, "worker/x.py", FUTURE + "Alias = dict[str, int]\n", "quote it"),
    (house.python38, "worker/x.py", "zip(a, b, strict=True)\n", "3.10"),
    (house.ascii_only, "worker/x.py", "# caf\u00e9\n", "not ASCII"),
    (house.ascii_only, "worker/x.py", "x = 1 \n", "white space"),
    (house.size, "worker/x.py", "x = 1\n" * 401, "401 lines"),
    (house.size, "worker/x.py", "def f():\n" + "    x = 1\n" * 60, "f() has 61 lines"),
    (house.care, "worker/x.py", "try:\n    f()\nexcept Exception:\n    pass\n", "swallows"),
    (house.care, "worker/x.py", "# %s later\n" % "todo".upper(), "left-over"),
    (house.skips, "tests/x.py", "import pytest\npytest.skip('no engine')\n", "lacking"),
    (house.skips, "tests/x.py", "import pytest\n@pytest.mark.skipif(True, reason='')\ndef test_x(): pass\n", "lacking"),
]
FINE = [
    (house.layers, "worker/x.py", "from transport.sandbox_transport import Transport\nfrom worker import cli\n"),
    (house.slow, "worker/host/x.py", "def f():\n    import subprocess\n"),
    (house.slow, "worker/x.py", "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from typing import Any\n"),
    (house.pure, "transport/x.py", '"""Pure."""\nimport json\nfrom transport import http1\n'),
    (house.python38, "worker/x.py", FUTURE + "def f(x: list[int]) -> dict[str, int]: pass\nif (y := 1): pass\n"),
    (house.size, "worker/x.py", "x = 1\n" * 400),
    (house.size, "tests/endpoint.py", "x = 1\n" * 900),
    (house.care, "worker/x.py", "try:\n    f()\nexcept OSError:\n    pass\n"),
    (house.skips, "tests/x.py", "from tests.conftest import lacking\nlacking('no engine')\n"),
]


def complaints(rule, path, text, monkeypatch):
    """What the rule says of this file, were it in the tree."""
    monkeypatch.setattr(house, "tracked_texts", list)
    monkeypatch.setattr(house, "compiled_by_38", lambda sources: [])
    monkeypatch.setattr(house, "MUST_BE_PURE", ())
    others = [Source(p) for p in ("transport/upstream.py", "transport/http1.py")]
    return [sentence for where, _, sentence in rule(others + [Source(path, text.encode())]) if where == path]


@pytest.mark.parametrize("rule, path, text, part", BROKEN)
def test_a_broken_rule_is_named(rule, path, text, part, monkeypatch):
    if rule is house.stdlib and not hasattr(house.sys, "stdlib_module_names"):
        elsewhere("needs Python 3.10's list of standard modules")
    if part == "not Python 3.8" and house.sys.version_info < (3, 10):
        with pytest.raises(SyntaxError):
            Source(path, text.encode())
        return
    found = complaints(rule, path, text, monkeypatch)
    assert found and all(part in sentence for sentence in found)


@pytest.mark.parametrize("rule, path, text", FINE)
def test_what_is_allowed_is_not_named(rule, path, text, monkeypatch):
    assert complaints(rule, path, text, monkeypatch) == []


def test_a_circle_is_shown_in_full():
    sources = [Source("worker/a.py", b"from worker import b\n"), Source("worker/b.py", b"def f():\n    import worker.a\n")]
    sources[0].imports[0].module = "worker.b"            # the file does not exist
    (_, _, sentence), = house.circles(sources)
    assert sentence == "import circle: worker.a -> worker.b -> worker.a"


def test_a_stale_row_of_a_table_is_named(monkeypatch):
    monkeypatch.setattr(house, "MUST_BE_PURE", ("transport/gone.py",))
    assert any("does not exist" in sentence for _, _, sentence in house.pure([]))


def test_every_needed_module_is_named():
    sources = [Source("worker/__main__.py"), Source("worker/x.py", b"import wave, ssl, os\ntry:\n    import pty\n"
                                                                  b"except ImportError:\n    pty = None\n")]
    missing = [sentence for _, _, sentence in house.needed(sources) if "NEEDED lacks" in sentence]
    assert len(missing) == 1 and "wave" in missing[0]

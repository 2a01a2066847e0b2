"""Promise: what failed beside others passes only if it passes alone, and many failures or errors are never played again."""
from __future__ import annotations

from types import SimpleNamespace as Some

import pytest

from tests import alone

TESTS = "import os\ndef test_good(): pass\ndef test_bad(): assert os.path.exists('/no such file')\n"


def session(names, workers=2, errors=()):
    reports = {"failed": [Some(nodeid=name) for name in names], "error": list(errors)}
    reporter, options = Some(stats=reports), {"numprocesses": workers, "all": False, "harnesses": False}
    return Some(config=Some(pluginmanager=Some(get_plugin=lambda _: reporter), getoption=lambda name, default=None: options[name]))


@pytest.mark.parametrize("names, workers, errors, expected", [
    (["b", "a"], 2, (), ["a", "b"]), ([], 2, (), None), (["a"], None, (), None), (["a"], 2, ("an error",), None),
    ([str(number) for number in range(alone.MOST + 1)], 2, (), None)])
def test_what_is_played_again(names, workers, errors, expected):
    assert alone.failed(session(names, workers, errors)) == expected


@pytest.mark.parametrize("names, passed", [(["test_good"], True), (["test_bad"], False), (["test_bad", "test_good"], False)])
def test_it_must_pass_alone(tmp_path, capfd, names, passed):
    (tmp_path / "test_it.py").write_text(TESTS)
    assert alone.pass_alone(session(["%s::%s" % (tmp_path / "test_it.py", name) for name in names])) is passed
    assert ("TO BE LOOKED AT" in capfd.readouterr().out) is passed

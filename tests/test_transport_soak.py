"""A short soak with a fixed seed: what `make soak` does for minutes must hold for seconds, too."""
from __future__ import annotations

from tests.soak.__main__ import soak


def test_two_seconds_of_trouble_and_two_of_bytes(tmp_path, capsys):
    assert soak(2.0, 1, 24, str(tmp_path)) == [], capsys.readouterr().out

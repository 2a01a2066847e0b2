"""A short soak with a fixed seed: what `make soak` does for minutes must hold for seconds (`make test`: two of each form;
`make test-all`: half a minute of each, side by side), too."""
from __future__ import annotations

import pytest

from tests.soak.__main__ import HALVES, soak


def test_two_seconds_of_trouble_and_two_of_bytes(tmp_path, capsys):
    assert soak(2.0, 1, 24, str(tmp_path)) == [], capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("half", HALVES)
def test_half_a_minute(tmp_path, capsys, half):
    assert soak(30.0, 1, 64, str(tmp_path), (half,)) == [], capsys.readouterr().out

"""Usage of every vendor comes out as all input, all output and their parts; unknown stays unknown; contradictions are said."""
from __future__ import annotations

import itertools

import pytest

from transport.usage_shapes import NAMES, merge_usage, normalise_usage

U = None


@pytest.mark.parametrize("dialect, raw, figures, inconsistent", [
    # case C08, all three
    ("responses", {"input_tokens": 1000, "cached_input_tokens": 600, "output_tokens": 50, "reasoning_output_tokens": 0,
                   "total_tokens": 1050}, (1000, 600, U, 50, 0, 1050), False),
    ("messages", {"input_tokens": 8, "cache_read_input_tokens": 5000, "cache_creation_input_tokens": 100, "output_tokens": 20},
     (5108, 5000, 100, 20, U, 5128), False),
    ("responses", {"input_tokens": 100, "cached_input_tokens": 600, "output_tokens": 5, "reasoning_output_tokens": 0,
                   "total_tokens": 105}, (100, 600, U, 5, 0, 105), True),
    # vendors
    ("responses", {"input_tokens": 5, "output_tokens": 0, "total_tokens": 5}, (5, U, U, 0, U, 5), False),
    ("chat", {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}, (9, U, U, 1, U, 10), False),
    ("chat", {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "prompt_cache_hit_tokens": 4,
              "prompt_cache_miss_tokens": 5}, (9, 4, U, 1, U, 10), False),
    ("chat", {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "cached_tokens": 2}, (9, 2, U, 1, U, 10), False),
    ("chat", {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12, "prompt_tokens_details": None,
              "completion_tokens_details": {"reasoning_tokens": 3}}, (9, U, U, 3, 3, 12), False),
    ("chat", {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 19,
              "completion_tokens_details": {"reasoning_tokens": 7}}, (9, U, U, 10, 7, 19), False),
    ("chat", {"prompt_tokens": 106, "completion_tokens": 3, "total_tokens": 109, "cache_read_input_tokens": 90,
              "cache_creation_input_tokens": 10}, (106, 90, 10, 3, U, 109), False),
    ("chat", {"prompt_tokens": 6, "completion_tokens": 3, "total_tokens": 109, "cache_read_input_tokens": 90,
              "cache_creation_input_tokens": 10}, (106, 90, 10, 3, U, 109), False),
    ("chat", {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "num_cached_tokens": 2}, (9, 2, U, 1, U, 10), False),
    ("messages", {"input_tokens": 8, "cache_read_input_tokens": None, "output_tokens": 2}, (8, U, U, 2, U, 10), False),
    ("messages", {"output_tokens": 2}, (U, U, U, 2, U, U), False),
    ("generate_content", {"promptTokenCount": 10, "cachedContentTokenCount": 4, "candidatesTokenCount": 3,
                          "thoughtsTokenCount": 6, "totalTokenCount": 19}, (10, 4, U, 9, 6, 19), False),
    ("generate_content", {"promptTokenCount": 10, "toolUsePromptTokenCount": 5, "candidatesTokenCount": 3,
                          "totalTokenCount": 18}, (15, U, U, 3, U, 18), False),
    ("generate_content", {"promptTokenCount": 10, "thoughtsTokenCount": 6, "totalTokenCount": 16}, (10, U, U, 6, 6, 16), False),
    ("generate_content", {"promptTokenCount": 10}, (10, U, U, U, U, U), False),
    # nonsense
    ("chat", {"prompt_tokens": "7", "completion_tokens": 1}, (U, U, U, 1, U, U), True),
    ("chat", {"prompt_tokens": 7.0, "completion_tokens": 1.5}, (7, U, U, U, U, U), True),
    ("chat", {"prompt_tokens": -1, "completion_tokens": 10 ** 30}, (U, U, U, U, U, U), True),
    ("chat", {"prompt_tokens": True, "completion_tokens": float("inf"), "total_tokens": float("nan")}, (U,) * 6, True),
    ("chat", {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 11}, (5, U, U, 5, U, 11), True),
    ("chat", {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10,
              "completion_tokens_details": {"reasoning_tokens": 6}}, (5, U, U, 5, 6, 10), True),
])
def test_figures(dialect, raw, figures, inconsistent):
    kept = dict(raw)
    usage = normalise_usage(dialect, raw)
    assert tuple(usage[name] for name in NAMES) == figures
    assert usage.get("inconsistent", False) is inconsistent
    assert raw == kept


@pytest.mark.parametrize("raw", [None, {}, [], "usage", 7, {"x": 1}, {"prompt_tokens": None}, {"prompt_tokens_details": {}}])
def test_no_figure_is_no_usage(raw):
    for dialect in ("responses", "chat", "messages", "generate_content", None, "new"):
        assert normalise_usage(dialect, raw) is None


def test_nothing_is_ever_negative_or_raises():
    values = (None, -5, 0, 3, 1.5, "x", [], {}, 2 ** 60)
    for a, b, c, d in itertools.product(values, repeat=4):
        raw = {"input_tokens": a, "prompt_tokens": a, "promptTokenCount": a, "output_tokens": b, "completion_tokens": b,
               "candidatesTokenCount": b, "total_tokens": c, "totalTokenCount": c, "cache_read_input_tokens": d,
               "thoughtsTokenCount": d, "input_tokens_details": d, "completion_tokens_details": {"reasoning_tokens": d}}
        for dialect in ("responses", "chat", "messages", "generate_content"):
            usage = normalise_usage(dialect, raw) or {}
            assert all(value is None or value >= 0 for value in usage.values())


@pytest.mark.parametrize("earlier, later, merged", [
    (None, {"a": 1}, {"a": 1}), ({"a": 1}, None, {"a": 1}), (None, None, None), ({"a": 1}, {"a": 5, "b": 2}, {"a": 5, "b": 2}),
    ({"a": 5}, {"a": 0}, {"a": 5}), ({"a": 5}, {"a": None}, {"a": 5}), ({"a": None}, {"a": 1}, {"a": 1}),
    ({"a": "x"}, {"a": 1}, {"a": 1}), ({"a": {"b": 1}}, {"a": {"b": 2}}, {"a": {"b": 2}}), ({"a": 1}, [], {"a": 1}),
])
def test_parts_of_a_stream_merge_and_counts_only_grow(earlier, later, merged):
    assert merge_usage(earlier, later) == merged

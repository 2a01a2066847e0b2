"""Token usage: four vendors' shapes to one. Pure.

The names of DESIGN 9: `input_tokens` is all input; `cached_input_tokens` and `cache_write_input_tokens` are parts of it;
`output_tokens` is all output, `reasoning_output_tokens` a part of it; `total_tokens`. Unknown is None, never 0.
Where vendors count apart, the parts are added in (case C08):
- Anthropic's `input_tokens` leaves cache reads and writes out (Messages API reference, "usage");
- Gemini's `thoughtsTokenCount` and `toolUsePromptTokenCount` stand beside `candidatesTokenCount` and `promptTokenCount`
  (generateContent reference, UsageMetadata); cached content is inside the prompt count; protobuf JSON leaves zeros out;
- servers whose total proves that reasoning is counted beside `completion_tokens` (xAI), or cached input beside
  `prompt_tokens` (gateways before Anthropic), have it added.
A figure that is no count is None, and figures that contradict each other stay as they came; both are flagged
`"inconsistent": True`. The caller keeps the vendor's own object.
"""
from __future__ import annotations

NAMES = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens", "reasoning_output_tokens",
         "total_tokens")
_LARGEST = 2 ** 53  # counts above this are nonsense and would lose digits in other JSON readers

# Per dialect and figure: paths in the vendor's object, first one present wins. Compatible servers mix these freely.
_OPENAI = {
    "input_tokens": ("input_tokens", "prompt_tokens"),
    "cached_input_tokens": ("input_tokens_details.cached_tokens", "prompt_tokens_details.cached_tokens",
                            "cached_input_tokens",        # Codex's own events
                            "prompt_cache_hit_tokens",    # DeepSeek
                            "cache_read_input_tokens",    # LiteLLM, part of prompt_tokens there
                            "cached_tokens",              # Moonshot
                            "num_cached_tokens"),         # Mistral
    "cache_write_input_tokens": ("input_tokens_details.cache_write_tokens", "prompt_tokens_details.cache_write_tokens",
                                 "prompt_tokens_details.cache_creation_tokens", "cache_write_input_tokens",
                                 "cache_creation_input_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens"),
    "reasoning_output_tokens": ("output_tokens_details.reasoning_tokens", "completion_tokens_details.reasoning_tokens",
                                "reasoning_output_tokens", "reasoning_tokens"),
    "total_tokens": ("total_tokens",),
}
_PATHS = {
    "responses": _OPENAI,
    "chat": _OPENAI,
    "messages": {
        "input_tokens": ("input_tokens",),
        "cached_input_tokens": ("cache_read_input_tokens",),
        "cache_write_input_tokens": ("cache_creation_input_tokens",),
        "output_tokens": ("output_tokens",),
        "reasoning_output_tokens": ("output_tokens_details.thinking_tokens", "output_tokens_details.reasoning_tokens"),
        "total_tokens": (),
    },
    "generate_content": {
        "input_tokens": ("promptTokenCount",),
        "cached_input_tokens": ("cachedContentTokenCount",),
        "cache_write_input_tokens": (),
        "output_tokens": ("candidatesTokenCount", "responseTokenCount"),
        "reasoning_output_tokens": ("thoughtsTokenCount",),
        "total_tokens": ("totalTokenCount",),
    },
}


# The same the other way round: per dialect {path: (figure, its place among the paths of that figure)}. A usage object has fewer
# members than the vendors have names.
_PLACES = {dialect: {path: (name, place) for name, paths in figures.items() for place, path in enumerate(paths)}
           for dialect, figures in _PATHS.items()}
_UNKNOWN: dict = dict.fromkeys(NAMES)


def _given(places: dict, raw: dict) -> dict:
    """{figure: the vendor's value}, of the first path that is there."""
    given: dict = {}
    best: dict = {}
    for key, value in raw.items():
        if type(value) is dict:
            for inner, one in value.items():
                _take(places.get("%s.%s" % (key, inner)), one, given, best)
        elif value is not None and key in places:
            _take(places[key], value, given, best)
    return given


def _take(place: tuple | None, value: object, given: dict, best: dict) -> None:
    if place is not None and value is not None:
        name, rank = place
        if rank < best.get(name, 99):
            given[name], best[name] = value, rank


def _count(value: object) -> int | None:
    """A token count, or None. 7.0 is one; True, "7", -1, 1.5 and 1e300 are not."""
    if type(value) is int:
        return value if 0 <= value <= _LARGEST else None
    if isinstance(value, float) and value == value and abs(value) < _LARGEST and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        return None
    return value


def normalise_usage(dialect: str | None, raw: object) -> dict | None:
    """The six figures, plus `inconsistent` where they contradict each other; None where `raw` holds no figure at all."""
    places = _PLACES.get(dialect or "")
    if places is None or not isinstance(raw, dict):
        return None
    usage, bad = dict(_UNKNOWN), False
    for name, given in _given(places, raw).items():
        usage[name] = count = _count(given)
        bad = bad or count is None
    if dialect == "messages":
        _add(usage, "input_tokens", usage["cached_input_tokens"], usage["cache_write_input_tokens"])
    elif dialect == "generate_content":
        _gemini(usage, raw)
    else:
        _reasoning_beside(usage)
        _cached_beside(usage)
    if not bad and usage == _UNKNOWN:
        return None
    if usage["total_tokens"] is None and None not in (usage["input_tokens"], usage["output_tokens"]):
        usage["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]
    if bad or contradicts(usage):
        usage["inconsistent"] = True
    return usage


def _add(usage: dict, name: str, *parts: int | None) -> None:
    if usage[name] is not None:
        usage[name] += sum(part for part in parts if part is not None)


def _gemini(usage: dict, raw: dict) -> None:
    _add(usage, "input_tokens", _count(raw.get("toolUsePromptTokenCount")))
    if usage["output_tokens"] is not None:
        _add(usage, "output_tokens", usage["reasoning_output_tokens"])
    elif usage["reasoning_output_tokens"] is not None:
        usage["output_tokens"] = usage["reasoning_output_tokens"]  # a zero that protobuf JSON left out
    elif None not in (usage["total_tokens"], usage["input_tokens"]) and usage["total_tokens"] >= usage["input_tokens"]:
        usage["output_tokens"] = usage["total_tokens"] - usage["input_tokens"]


def _reasoning_beside(usage: dict) -> None:
    figures = [usage[name] for name in ("input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")]
    if None not in figures and figures[2] and sum(figures[:3]) == figures[3]:
        usage["output_tokens"] += usage["reasoning_output_tokens"]


def _cached_beside(usage: dict) -> None:
    """Gateways that pass Anthropic's count of fresh input on, and a total with the cached one in it (Portkey)."""
    figures = [usage[name] for name in ("input_tokens", "output_tokens", "total_tokens")]
    beside = (usage["cached_input_tokens"] or 0) + (usage["cache_write_input_tokens"] or 0)
    if None not in figures and beside and figures[0] + figures[1] + beside == figures[2]:
        usage["input_tokens"] += beside


def contradicts(usage: dict) -> bool:
    """True where a part is greater than its whole, or the total is not input plus output."""
    whole, out, total = usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]
    if whole is not None and (usage["cached_input_tokens"] or 0) + (usage["cache_write_input_tokens"] or 0) > whole:
        return True
    if out is not None and (usage["reasoning_output_tokens"] or 0) > out:
        return True
    return None not in (whole, out, total) and total != whole + out


def merge_usage(earlier: dict | None, later: object) -> dict | None:
    """Messages streams: message_start and message_delta each carry a part, and counts only grow; a null or a smaller
    number later on erases nothing."""
    if not isinstance(later, dict):
        return earlier
    merged = dict(earlier or {})
    for name, value in later.items():
        old = merged.get(name)
        if value is None and old is not None:
            continue
        if _count(old) is not None and _count(value) is not None and value < old:
            continue
        merged[name] = value
    return merged

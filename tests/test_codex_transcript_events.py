"""What Codex says on stdout while it runs: terminal events, warnings, the final message; and the table of its error texts."""

from __future__ import annotations

import json
import re

import pytest

from tests.test_codex_transcript_real import RUNS, load, mutated
from worker import outcome
from worker.harnesses.codex_events import ERRORS, Live
from worker.harnesses.generic_reader import Live as GenericLive


def followed(lines, live=None):
    live = live or Live()
    for line in lines:
        live.feed(json.loads(line) if isinstance(line, str) else line)
    return live


def said(text):
    return {"type": "item.completed", "item": {"type": "agent_message", "text": text}}


DONE = {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}}
FAILED = {"type": "turn.failed", "error": {"message": "x"}}
STORIES = {
    # name: (events, terminal, final message, message, partial message)
    "the last message is the answer (C28)": ([said("I will look first."), said("42"), DONE], "success", "42", None, "42"),
    "a failed turn has no answer (C28)": ([said("I will look first."), FAILED], "failure", None, "x", "I will look first."),
    "reconnects are warnings (D02)": (
        [
            {"type": "error", "message": "Reconnecting... 2/5 (stream disconnected)"},
            {"type": "item.completed", "item": {"type": "error", "message": "Falling back from WebSockets to HTTPS transport."}},
            said("42"),
            DONE,
        ],
        "success",
        "42",
        None,
        "42",
    ),
    "cut off (D18)": ([said("partial")], None, None, None, "partial"),
    "only an error": ([{"type": "error", "message": "boom"}], None, None, "boom", None),
    "a second turn": ([said("a"), DONE, {"type": "turn.started"}], None, None, None, None),
    "success without a message": ([DONE], "success", None, None, None),
    "failure without words": ([{"type": "turn.failed"}], "failure", None, "", None),
    "failure with words alone": ([{"type": "turn.failed", "error": "words"}], "failure", None, "words", None),
    "the words of the error before": (
        [{"type": "error", "message": "boom"}, {"type": "turn.failed"}],
        "failure",
        None,
        "boom",
        None,
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_stories(name):
    events, terminal, final, message, partial = STORIES[name]
    live = followed(events)
    assert (live.terminal, live.final_message, live.message, live.partial_message) == (terminal, final, message, partial)
    assert live.events == len(events)


def test_what_started_and_did_not_complete():
    live = followed(
        [{"type": "item.started", "item": {"id": "item_%d" % n, "type": "command_execution", "command": "ls"}} for n in range(3)]
        + [{"type": "item.completed", "item": {"id": "item_1", "type": "command_execution"}}]
    )
    assert sorted(live.open) == ["item_0", "item_2"] and live.tools == {"command_execution": 1}
    assert live.last_tool["name"] == "command_execution"


def test_memory_is_bounded():
    live = followed(
        [{"type": "error", "message": "Reconnecting"}] * 1000
        + [{"type": "item.started", "item": {"id": str(n), "type": "t"}} for n in range(10000)]
    )
    assert len(live.warnings) == 100 and len(live.open) <= 4096


@pytest.mark.parametrize("kind", [Live, GenericLive])
def test_any_part_of_an_event_may_be_anything(kind, tmp_path):
    for name in RUNS[:3]:
        _, events, _ = load(name, tmp_path / name)
        for event in events + [DONE, FAILED, {"type": "result", "is_error": True, "result": "x", "subtype": "success"}]:
            live = kind()
            for odd in mutated(event):
                live.feed(odd)
            assert live.terminal in (None, "success", "failure")
            assert live.message is None or isinstance(live.message, str)
            assert live.final_message is None or isinstance(live.final_message, str)


GENERIC = {
    "a result": ({"type": "result", "subtype": "success", "is_error": False, "result": "42"}, ("success", "42", None, None)),
    "an error result (D09)": (
        {"type": "result", "is_error": True, "result": "Failed to authenticate."},
        ("failure", None, "Failed to authenticate.", None),
    ),
    "a turn limit": (
        {"type": "result", "subtype": "error_max_turns", "is_error": False},
        ("failure", None, "error_max_turns", "turn_limit"),
    ),
    "a turn": ({"type": "turn.completed", "usage": None}, ("success", None, None, None)),
    "a failed turn (B17)": (
        {"type": "turn.failed", "error": {"message": "Monthly usage limit reached"}},
        ("failure", None, "Monthly usage limit reached", None),
    ),
    "something else": ({"type": "banner"}, (None, None, None, None)),
}


@pytest.mark.parametrize("name", GENERIC)
def test_shapes_that_several_programs_share(name):
    event, wanted = GENERIC[name]
    live = followed([event], GenericLive())
    assert (live.terminal, live.final_message, live.message, live.limit) == wanted


# The texts as the real CLI printed them (facts of 0.144.4 and 0.171.0), with the kind that they mean.
URL = ", url: http://127.0.0.1:1/v1/responses"
TEXTS = [
    ("exceeded retry limit, last status: 429 Too Many Requests", "rate_limited"),
    ("exceeded retry limit, last status: 429 Too Many Requests, request id: Y", "rate_limited"),
    ("rate limit exceeded: slow down", "rate_limited"),
    ("You've hit your usage limit. Upgrade to Pro (...) ... or try again at 3:40 AM.", "quota_exhausted"),
    ("You\u2019ve hit your usage limit. Upgrade to Pro", "quota_exhausted"),
    ("To use Codex with your ChatGPT plan, upgrade to Plus: ...", "quota_exhausted"),
    ("Quota exceeded. Check your plan and billing details.", "quota_exhausted"),
    (
        "Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying.",
        "context_length",
    ),
    ('{"error": {"code": "context_length_exceeded", "message": "x"}}', "context_length"),
    ('{"error": {"code": "invalid", "message": "x"}}', "invalid_request"),
    ("Invalid image in your last message. Please remove it and try again.", "invalid_request"),
    ("We're currently experiencing high demand, which may cause temporary errors.", "server_error"),
    ("We\u2019re currently experiencing high demand, which may cause temporary errors.", "server_error"),
    ("Selected model is at capacity. Please try a different model.", "overloaded"),
    ("The model `mock-model` does not exist", "model_not_found"),
    ("unexpected status 401 Unauthorized: no" + URL, "authentication"),
    ("unexpected status 402 Payment Required: no" + URL, "quota_exhausted"),
    ("unexpected status 403 Forbidden: no" + URL, "permission"),
    ("unexpected status 404 Not Found: no" + URL, "model_not_found"),
    ("unexpected status 413 Payload Too Large: no" + URL, "invalid_request"),
    ("unexpected status 422 Unprocessable Entity: no" + URL, "invalid_request"),
    ("unexpected status 503 Service Unavailable: no" + URL, "overloaded"),
    ("unexpected status 529 <unknown status code>: no" + URL, "overloaded"),
    ("unexpected status 502 Bad Gateway: no" + URL, "server_error"),
    ("unexpected status 300 Multiple Choices: no" + URL, "unexpected_response"),
    ("stream disconnected before completion: Incomplete response returned, reason: max_output_tokens", "output_limit"),
    ("Incomplete response returned, reason: max_output_tokens", "output_limit"),
    ("stream disconnected before completion: Incomplete response returned, reason: content_filter", "refusal"),
    ("stream disconnected before completion: idle timeout waiting for SSE", "model_timeout"),
    ("stream disconnected before completion: stream closed before response.completed", "stream_interrupted"),
    ("stream disconnected before completion: Transport error: network error: error decoding response body", "stream_interrupted"),
    ("stream disconnected before completion: error sending request for url (http://127.0.0.1:1/v1/responses)", "connection"),
    ("stream disconnected before completion: error sending request", "connection"),
    ("Connection failed: error sending request", "connection"),
    ("stream disconnected before completion: response.failed event received", "server_error"),
    ("Missing environment variable: `OPENAI_API_KEY`.", "authentication"),
]


@pytest.mark.parametrize(("text", "kind"), TEXTS)
def test_error_texts(text, kind):
    decided = outcome.classify(
        {"main_status": 1, "live": {"terminal": "failure", "message": text}, "error_table": ERRORS, "output_seen": True}
    )
    assert decided["kind"] == kind


def test_every_row_of_the_table_is_seen():
    hit = {next(pattern for pattern, _, _, _ in ERRORS if re.search(pattern, text)) for text, _ in TEXTS}
    unseen = {pattern for pattern, _, _, _ in ERRORS} - hit
    assert unseen <= {r"^unexpected status (429) "}  # no real run: every 429 is worded as a retry limit


def test_words_of_a_tool_are_no_error():
    """Only the CLI's own failure event is looked at, not what a message or a tool says."""
    live = followed([said("exceeded retry limit, last status: 429 Too Many Requests"), DONE])
    decided = outcome.classify(
        {"main_status": 0, "live": {"terminal": live.terminal, "message": live.message}, "error_table": ERRORS}
    )
    assert decided["kind"] == "completed"

"""What a response says is read alike however it arrives, in four dialects, and nothing that arrives raises."""
from __future__ import annotations

import json
import random

import pytest

from tests.corpora import cuts, named
from transport import dialect_events, dialects

CORPUS = named("responses")
FACTS = ("events", "terminal", "complete", "is_stream", "content_seen", "error", "finish_reason", "response_id", "model",
         "usage", "usage_raw", "retry_delay", "not_decoded", "html", "excerpt")


def read(chunks, dialect, content_type, content_encoding, clean):
    reader = dialects.Reader(dialect, content_type, content_encoding)
    for chunk in chunks:
        reader.feed(chunk)
    reader.finish(clean)
    return {name: getattr(reader, name) for name in FACTS}


def settings(wanted):
    return wanted["dialect"], wanted["content_type"], wanted["content_encoding"], wanted["clean"]


@pytest.mark.parametrize("method, path, dialect", [
    ("POST", "/v1/responses", "responses"), ("POST", "/v1/responses/?a=b", "responses"), ("POST", "/v1/%72esponses", "responses"),
    ("POST", "/v1/responses%2F", "responses"), ("POST", "/v1/responses;v=1", "responses"), ("POST", "/v1/responses%3Bv", "responses"),
    ("POST", "/v1beta/models/g%3AstreamGenerateContent", "generate_content"), ("POST", "/v1/chat%2Fcompletions", "chat"),
    ("POST", "/v1/messages", "messages"), ("POST", "/v1/messages/count_tokens", None), ("GET", "/v1/responses", None),
    ("POST", "/v1/responses_input", None), ("POST", "/v1/responses%00", None), ("POST", "/v1/responses%zz", None)])
def test_a_model_request_is_known_however_its_path_is_written(method, path, dialect):
    """A limit that an escape gets around would be none."""
    assert dialects.dialect_of(method, path) == dialect


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_corpus_at_every_cut(name):
    data, wanted = CORPUS[name]
    whole = read([data], *settings(wanted))
    assert {key: whole[key] for key in wanted["expect"]} == wanted["expect"]
    for chunks in cuts(data, 400):
        assert read(chunks, *settings(wanted)) == whole


@pytest.mark.parametrize("dialect, stream, complete", [
    ("chat", "data: [DONE]", False), ("chat", ": ping\n\ndata: [DONE]", False),
    ("chat", 'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\ndata: [DONE]', False),
    ("chat", 'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]', True),
    ("chat", 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]', True),
    ("messages", 'data: {"type": "message_start", "message": {"id": "m"}}\n\ndata: {"type": "message_stop"}', False),
    ("messages", 'data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}\n\ndata: {"type": "message_stop"}', True)])
def test_an_end_before_which_nothing_was_said_ends_no_answer(dialect, stream, complete):
    facts = read([stream.encode() + b"\n\n"], dialect, "text/event-stream", None, True)
    assert facts["complete"] == complete and bool(facts["terminal"]) == complete


FIGURES = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


@pytest.mark.parametrize("last", [
    {"choices": [{"delta": {}, "finish_reason": "stop", "usage": FIGURES}]}, {"choices": [], "x_groq": {"usage": FIGURES}},
    {"choices": [], "usage": FIGURES}, {"choices": [], "usage": None, "x_groq": {"usage": FIGURES}}])
@pytest.mark.parametrize("after", [[], [{"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}]])
def test_usage_where_services_put_it_and_zeros_behind_it(last, after):
    events = [{"choices": [{"delta": {"content": "a"}}]}, last, *after]
    stream = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
    for chunks in cuts(stream, 20):
        usage = read(chunks, "chat", "text/event-stream", None, True)["usage"]
        assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (5, 3, 8)


@pytest.mark.parametrize("name", [name for name in sorted(CORPUS) if CORPUS[name][1]["expect"].get("complete")])
def test_a_stream_that_was_complete_stays_so_whatever_follows(name):
    data, wanted = CORPUS[name]
    if not wanted["expect"].get("is_stream"):
        return
    for tail in (b"\n\n: bye\n\n", b"\r\n\r\n\xff\x00\xfe", b'\n\ndata: {"broken":'):
        after = read([data, tail], *settings(wanted))
        assert after["complete"]
        assert after["usage"] == wanted["expect"].get("usage", after["usage"])


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_truncation_is_never_complete_and_never_a_second_success(name):
    """Cut anywhere before its last event, a stream says that it is not complete, or an error, or an earlier real end."""
    data, wanted = CORPUS[name]
    if wanted["expect"].get("terminal") not in ("response.completed", "message_stop", "finishReason", "[DONE]"):
        return
    for at in range(0, data.rstrip(b"\r\n ]").rfind(b"data:"), max(1, len(data) // 300)):
        got = read([data[:at]], *settings(wanted)[:3], clean=False)
        assert not got["complete"] or got["terminal"] in ("response.completed", "error"), at


def test_a_late_error_is_never_missed_behind_cheap_events():
    """The bulk path skips events by their bytes; an error in any known spelling must still come out."""
    first = {
        "responses": b'data: {"type":"response.output_text.delta","delta":"x"}\n\n',
        "chat": b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n',
        "messages": b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"x"}}\n\n',
        "generate_content": b'data: {"candidates":[{"content":{"parts":[{"text":"x"}]}}]}\n\n',
    }
    errors = (b'data: {"error":{"code":500,"message":"m"}}\n\n', b'data: {"error" : {"message":"m"}}\n\n',
              b'data: {"type" : "error", "message":"m"}\n\n', b'event: error\ndata: {"message":"m"}\n\n',
              b'event:error\ndata: m\n\n', b'data: {"object":"error","message":"m"}\n\n', b'data:{"error":"m"}\n\n',
              b'data: {"x":1,\ndata: "error":{"message":"m"}}\n\n', b'id: 1\ndata: {"error":{"message":"m"}}\n\n')
    for dialect, event in first.items():
        for error in errors:
            for before, after in ((300, 300), (1, 0), (5, 1)):
                stream = event * before + error + event * after
                for size in (len(stream), 4096, 100):
                    got = read([stream[at:at + size] for at in range(0, len(stream), size)], dialect, "text/event-stream",
                               None, True)
                    assert got["error"]["message"] == "m", (dialect, error)
                    assert got["events"] == before + after + 1


CHUNK = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":null}]}'
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":3}}'
STRAY = b'{\r\n  "error": {\r\n    "code": 429,\r\n    "status": "RESOURCE_EXHAUSTED"\r\n  }\r\n}'
BARE = b'{"error":{"message":"m","code":429}}'


@pytest.mark.parametrize("stream, terminal, code, events", [
    # JSON outside of any event (maximhq/bifrost#5262)
    (CHUNK + b"\n\n" + BARE, "error", 429, 1), (CHUNK + b"\r\n\r\n" + STRAY + b"\r\n", "error", 429, 1),
    (b": hi\n\n\n" + STRAY + b"\n\n", "error", 429, 0), (CHUNK + b"\n\n[" + BARE + b"]\n\n" + CHUNK + b"\n\n", "error", 429, 2),
    (CHUNK + b'\n\n{"id": 1}\n\n', None, None, 1), (CHUNK + b"\n\n" + STOP + b"\n\ndata: [DONE]\n\n" + BARE, "[DONE]", None, 3),
    # an error that is none
    (CHUNK[:-1] + b',"error":{"code":0,"message":""}}\n\n' + STOP + b"\n\ndata: [DONE]\n\n", "[DONE]", None, 3),
    # events without the empty line between them (rexxars/eventsource-parser#31)
    (CHUNK + b"\n" + CHUNK + b"\n" + STOP + b"\ndata: [DONE]\n\n", "[DONE]", None, 1),
    (CHUNK + b"\n\n" + CHUNK + b"\n" + STOP + b"\n\n", "finish_reason", None, 2),
    (CHUNK + b"\n" + STOP + b"\ndata: {\"choi", "finish_reason", None, 1),
    (CHUNK + b"\ndata: " + BARE + b"\n\n", "error", 429, 1), (CHUNK + b"\ndata: {\"cho", None, None, 1)])
def test_events_that_are_not_framed_as_such(stream, terminal, code, events):
    for chunks in cuts(stream, 60):
        got = read(chunks, "chat", "text/event-stream", None, True)
        assert (got["terminal"], (got["error"] or {}).get("code"), got["events"]) == (terminal, code, events)
        assert (got["usage"] or {}).get("input_tokens") == (5 if STOP in stream else None)


@pytest.mark.parametrize("before, piece, nothing", [
    (b"", b": hi\n\n", True), (b"", b'event: ping\ndata: {"type": "ping"}\n\n', True), (CHUNK + b"\n\n", b": hi\n\n\n: ho\n", True),
    (CHUNK + b"\n\n", b'data: {"type":"keepalive","seq":7}\r\n\r\n', True), (CHUNK + b"\n\n", b"data:\n\nid: 1\nretry: 5\n\n", True),
    (b"", b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n', True), (b"", b'data: {"choices":[', False),
    (CHUNK + b"\n\n", b": x \n\r\n" * 80 + b"y", False),  # in a time that grows no faster than the piece
    (CHUNK + b"\n\n", CHUNK + b"\n\n", False), (b"", BARE + b"\n\n", False), (b"", b" \n", True), (b"", b'{"id":', False),
    (CHUNK + b"\n\n", b'data: {"type": "ping"}\n\n' + CHUNK, False), (b"", b'data: {"error":"x"}\n\n', False)])
def test_what_is_nothing_of_an_answer(before, piece, nothing):
    reader = dialects.Reader("chat", "text/event-stream", None)
    reader.feed(before)
    reader.feed(piece)
    assert reader.says_nothing(piece) is nothing


def test_an_end_between_cheap_events_is_never_missed():
    cheap = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"x"}\n\n'
    for end in (b'data: {"type":"response.completed","response":{}}\n\n', b'data: {"type": "response.completed"}\n\n',
                b'event: response.completed\ndata: {}\n\n'):
        got = read([cheap * 50 + end + cheap], "responses", "text/event-stream", None, True)
        assert got["terminal"] == "response.completed"
        assert got["events"] == 52


def test_a_terminal_event_of_four_mib_in_16_kib_reads():
    event = (b'data: {"type":"response.completed","response":{"output_text":"' + b"x" * (4 << 20)
             + b'","usage":{"input_tokens":21,"output_tokens":22}}}\n\n')
    reader = dialects.Reader("responses", "text/event-stream", None)
    for at in range(0, len(event), 16384):
        reader.feed(event[at:at + 16384])
    reader.finish(True)
    assert (reader.usage["input_tokens"], reader.usage["output_tokens"], reader.not_decoded) == (21, 22, None)


def test_what_is_too_large_is_said():
    reader = dialects.Reader("responses", "application/json", None)
    reader.feed(b'{"id":"r1"')
    for _ in range(17):
        reader.feed(b" " * (1 << 20))
    reader.feed(b"}")
    reader.finish(True)
    assert (reader.not_decoded, reader.complete, reader.error) == ("too_large", False, None)
    reader = dialects.Reader("chat", "text/event-stream", None)
    reader.feed(b"data: ")
    for _ in range(17):
        reader.feed(b"x" * (1 << 20))
    reader.feed(b"\n\ndata: [DONE]\n\n")
    reader.finish(True)
    assert (reader.not_decoded, reader.terminal) == ("oversized_event", "[DONE]")


@pytest.mark.parametrize("dialect, kinds", sorted(dialect_events.PREAMBLE.items()))
def test_preamble_is_exactly_its_table(dialect, kinds):
    for kind in kinds + ("anything.else",):
        reader = dialects.Reader(dialect, "text/event-stream", None)
        reader.feed(b'data: {"type":"%s"}\n\n' % kind.encode())
        assert reader.content_seen is (kind not in kinds)


def test_mutated_bodies_never_raise_and_cuts_never_matter():
    rng = random.Random(11)
    bodies = [(data, wanted) for data, wanted in CORPUS.values() if len(data) < 4000]
    for _ in range(1500):
        data, wanted = rng.choice(bodies)
        mutated = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(mutated) + 1)
            what = rng.randrange(4)
            if what == 0:
                mutated[at:at + rng.randrange(1, 20)] = b""
            elif what == 1:
                mutated[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 8)))
            elif what == 2:
                mutated[at:at] = rng.choice((b"null", b"{}", b"[]", b'"error":', b"-1", b"\n\n", b"\r", b"1e999", b"{", b'"'))
            elif mutated:
                mutated[at % len(mutated)] ^= 1 << rng.randrange(8)
        dialect = rng.choice((wanted["dialect"], "chat", "responses", "messages", "generate_content", None))
        size = rng.choice((1, 7, 100, 5000))
        chunks = [bytes(mutated[at:at + size]) for at in range(0, len(mutated), size)]
        told = (dialect, wanted["content_type"], wanted["content_encoding"], rng.random() < 0.5)
        assert read(chunks, *told) == read([bytes(mutated)], *told), bytes(mutated)


def test_values_of_any_shape_never_raise():
    """Every field that is read, replaced by every JSON type."""
    shapes = (None, True, 0, -1, 1e300, "", "x", [], [None], [[]], {}, {"a": None}, [{}], {"message": {"a": 1}})
    keys = ("type", "response", "error", "usage", "choices", "delta", "message", "candidates", "promptFeedback", "id", "model",
            "usageMetadata", "status", "incomplete_details", "detail", "errors", "object", "code", "stop_reason")
    for dialect in list(dialect_events.READERS) + [None]:
        for key in keys:
            for shape in shapes:
                for kind in ("response.completed", "message_start", "message_delta", "error", "response.failed", None):
                    value = {"type": kind, "response": {key: shape}, "message": {key: shape}, "delta": {key: shape},
                             "error": {key: shape}, "choices": [{key: shape, "delta": shape}, shape],
                             "candidates": [{key: shape}, shape], "usage": {key: shape}, key: shape}
                    text = json.dumps(value).encode()
                    read([b"data: " + text + b"\n\n"], dialect, "text/event-stream", None, True)
                    read([text], dialect, "application/json", None, True)
                    if kind is None:
                        read([b"[" + text + b"]"], dialect, "application/json", None, True)

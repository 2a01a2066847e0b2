"""Event streams are read alike wherever they are cut: whole, byte by byte, at every offset, with anything behind them."""
from __future__ import annotations

import random

import pytest

from tests.corpora import cuts, named
from transport import sse

CORPUS = named("sse")


def events_of(chunks, limit=sse.LIMIT):
    parser = sse.Parser(limit)
    found = [event for chunk in chunks for event in parser.feed(chunk)]
    found += parser.finish()
    assert not parser.pending
    return [[event.event, event.data.decode(), event.complete] for event in found]


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_corpus_at_every_cut(name):
    data, wanted = CORPUS[name]
    for chunks in cuts(data):
        assert events_of(chunks) == wanted["events"]


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_what_stands_behind_changes_nothing_before_it(name):
    data, wanted = CORPUS[name]
    whole = [event for event in wanted["events"] if event[2]]
    for tail in (b"\n\n: comment\n\n", b"\n\n\xff\xfe\x00", b"\n\ndata", b"\n\nevent: x\n"):
        found = events_of([data + tail])
        assert found[:len(whole)] == whole


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_a_region_counts_as_many_events_as_it_gives(name):
    data, _ = CORPUS[name]
    for chunks in cuts(data):
        counter, parser = sse.Parser(), sse.Parser()
        for chunk in chunks:
            assert sse.count_events(counter.take(chunk)) == len(parser.feed(chunk))


LIKE = b"event: a.delta\ndata: {\"type\":\"a.delta\",\"d\":\"%d\"}\n\n"


@pytest.mark.parametrize("odd, count", [
    (b"", 9),
    (b": comment\n\n", 0),
    (b"event: b\ndata: {}\n\n", 0),
    (b"event: a.delta\ndata: {\"type\":\"a.delta\",\ndata: \"d\":1}\n\n", 0),
    (b"event: a.delta\n\n", 0),
    (b"\n", 0),
])
def test_like_events_are_counted_only_where_nothing_else_stands(odd, count):
    head = b'event: a.delta\ndata: {"type":"a.delta",'
    region = LIKE % 1 * 5 + odd + LIKE % 2 * 4
    assert sse.count_alike(region, head) == count


def test_an_event_of_16_mib_is_read_and_a_longer_one_is_skipped_and_counted():
    parser = sse.Parser()
    big = b"data: " + b"x" * (16 * 1024 * 1024 - 100) + b"\n\n"
    seen = []
    for at in range(0, len(big), 65536):
        seen += parser.feed(big[at:at + 65536])
    assert [len(event.data) for event in seen] == [16 * 1024 * 1024 - 100]
    assert parser.oversized == 0


@pytest.mark.parametrize("cut", [65536, 1 << 20, (1 << 20) + 1, 2 << 20, 10 << 20])
def test_a_large_event_is_one_piece_of_bytes_however_it_is_cut(cut):
    event, parser, seen = b"data: " + b"x" * (3 << 20), sse.Parser(), []
    stream = event + b"\n\n" + event
    for at in range(0, len(stream), cut):
        seen += parser.feed(stream[at:at + cut])
    seen += parser.finish()
    assert [(type(one.data), one.data == event[6:], one.complete) for one in seen] == [(bytes, True, True), (bytes, True, False)]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_an_oversized_event_is_skipped_at_every_cut(end):
    data = b"data: 1" + end + b"data: " + b"x" * 300 + end + b"data: 2" + end
    for chunks in cuts(data):
        parser = sse.Parser(limit=100)
        found = [event.data for chunk in chunks for event in parser.feed(chunk)] + [e.data for e in parser.finish()]
        assert (found, parser.oversized) == ([b"1", b"2"], 1)


def test_an_oversized_event_at_the_end_is_no_event():
    parser = sse.Parser(limit=100)
    assert parser.feed(b"data: 1\n\n")[0].data == b"1"
    for _ in range(50):
        assert parser.feed(b"data: " + b"y" * 60) == []
    assert (parser.finish(), parser.oversized) == ([], 1)


def test_pending_tells_whether_bytes_are_held():
    parser = sse.Parser()
    assert not parser.pending
    parser.feed(b"\xef")
    assert parser.pending
    parser.feed(b"\xbb\xbfdata: 1\n")
    assert parser.pending
    assert parser.feed(b"\n")[0].data == b"1"
    assert not parser.pending


def test_random_bytes_never_raise_and_cuts_never_matter():
    rng = random.Random(7)
    alphabet = [b"data", b"event", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"x", b"\xef\xbb\xbf", b"\xff", b"{", b"\x00"]
    for _ in range(1500):
        data = b"".join(rng.choice(alphabet) for _ in range(rng.randrange(40)))
        wanted = events_raw([data])
        for _ in range(4):
            marks = sorted(rng.randrange(len(data) + 1) for _ in range(3))
            pieces = [data[a:b] for a, b in zip([0] + marks, marks + [len(data)])]
            assert events_raw(pieces) == wanted, data


def events_raw(chunks):
    parser = sse.Parser()
    found = [event for chunk in chunks for event in parser.feed(chunk)] + parser.finish()
    return [(event.event, event.data, event.complete) for event in found]

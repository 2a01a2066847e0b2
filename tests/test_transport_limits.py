"""Promise: `limits` end the run at the proxy, in the caller's dialect and in words that no CLI repeats; main requests are the
conversation's, all others are auxiliary."""
from __future__ import annotations

import pytest

from tests.proxied import Proxied
from tests.rawserver import RawServer, json_answer

OK = json_answer()
RETRIED_WORDS = ("rate", "quota", "overload", "timeout", "timed out", "try again", "capacity", "unavailable")


def test_the_request_limit_ends_the_conversation(tmp_path):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url, limits={"requests": 3}, main_headers=["session-id"]) as proxy:
        main = [proxy.ask(b"%d" % n, headers=["session-id: s"]) for n in range(5)]
        other = [proxy.ask(b"%d" % n, headers=["session-id: other"]) for n in range(8)]
        summary = proxy.transport.summary()
        assert proxy.transport.final_answer_kind == "request_limit" and proxy.transport.final_answer_at and proxy.notified
    assert [r.status for r in main] == [200] * 3 + [400] * 2 and [r.status for r in other] == [200] * 6 + [400] * 2
    assert summary["limit"] == "request_limit" and summary["refused"] == 4
    message = main[-1].json["error"]["message"].lower()
    assert not [word for word in RETRIED_WORDS if word in message.replace("allowance of model requests", "")], message
    assert main[-1].header(b"x-should-retry") == b"false"


@pytest.mark.parametrize("limits, rule", [({"total_tokens": 10}, "token_limit"), ({"output_tokens": 4}, "token_limit")])
def test_token_limits(tmp_path, limits, rule):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url, limits=limits) as proxy:
        replies = []
        for n in range(3):
            replies.append(proxy.ask(b'{"n":%d}' % n).status)
            proxy.records(n + 1)
    assert replies == [200, 200, 400] and proxy.transport.summary()["limit"] == rule
    assert proxy.transport.summary()["usage"]["total_tokens"] == 10


@pytest.mark.parametrize("api, target, path", [("messages", "/v1/messages", ("error", "type")), ("chat",
    "/v1/chat/completions", ("error", "code")),
                                               ("generate_content", "/v1beta/models/g:generateContent", ("error", "status"))])
def test_a_refusal_speaks_the_callers_dialect(tmp_path, api, target, path):
    with RawServer([["rst"]]) as server, Proxied(tmp_path, "http://127.0.0.1:%d" % server.port, api=api,
        retry={"max_attempts": 1}) as proxy:
        reply = proxy.ask(b"{}", target=target)
    said = reply.json
    for name in path:
        said = said[name]
    assert reply.status == 502 and isinstance(said, str) and reply.header(b"content-type") == b"application/json"


def test_repeats_that_the_latch_answers_use_up_no_limit(tmp_path):
    busy = json_answer(b'{"error":{"message":"busy"}}', b"503 No")
    with RawServer([[busy]]) as server, Proxied(tmp_path, server.url, limits={"requests": 3}, retry={"max_attempts": 1}) as proxy:
        assert [proxy.ask(b"{}").status for _ in range(6)] == [503] * 6 and proxy.transport.summary()["limit"] is None
        assert [proxy.ask(b'{"n":%d}' % n).status for n in range(3)] == [503, 503, 400]
    assert server.turns == 3


def test_main_is_the_conversation_of_the_first_request(tmp_path):
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url, main_headers=["session-id"],
        identity_headers=["thread-id"]) as proxy:
        for headers in ([], ["session-id: a", "thread-id: t1"], ["session-id: b", "thread-id: t2"], ["session-id: a",
            "thread-id: t3"], []):
            assert proxy.ask(b'{"model":"m"}', headers=headers).status == 200
    records = proxy.records()
    # the first request had no header: its model and tools are the mark until the header is seen
    assert [r["main"] for r in records] == [True, True, False, True, False]
    assert records[1]["identity"] == {"thread-id": "t1"} and set(proxy.transport.summary()["threads"]) == {"t1", "t2", "t3"}


def test_a_sub_agent_that_names_its_parent_is_main(tmp_path):
    """OpenCode and Kilocode: each session its own id, a sub-agent's requests its parent's beside it."""
    cases = [("session: root", True), ("session: child\r\nparent: root", True), ("session: other", False),
             ("session: grandchild\r\nparent: child", True), ("session: alien\r\nparent: other", False), ("session: grandchild", True)]
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url, main_headers=["session", "parent"]) as proxy:
        for headers, _ in cases:
            assert proxy.ask(b'{"model":"m"}', headers=headers.split("\r\n")).status == 200
    assert [record["main"] for record in proxy.records()] == [main for _, main in cases]


def test_a_probe_that_is_no_model_request_is_no_failed_side_request(tmp_path):
    """Hermes asks for lists of models first; a 404 there is no trouble of the run's. A model request that fails is."""
    with RawServer([[json_answer(status=b"404 Not Found")]]) as server, Proxied(tmp_path, server.url) as proxy:
        assert proxy.ask(b"", "GET", "/api/v1/models").status == 404
        assert proxy.transport.summary()["aux_failed"] == 0
        proxy.ask(b'{"model":"m"}')
        proxy.ask(b'{"model":"other"}')
        proxy.records(3)
        assert (proxy.transport.summary()["aux_failed"], proxy.transport.summary()["main"]["failed"]) == (1, 1)


def test_without_headers_model_and_tools_are_the_mark(tmp_path):
    bodies = [b'{"model":"m","tools":[{"name":"b"},{"name":"a"}]}', b'{"model":"small"}',
        b'{"model":"m","tools":[{"name":"a"},{"name":"b"}],"x":1}']
    with RawServer([[OK]]) as server, Proxied(tmp_path, server.url) as proxy:
        for body in bodies:
            proxy.ask(body)
    assert [r["main"] for r in proxy.records()] == [True, False, True]

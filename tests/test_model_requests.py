"""Which requests are model requests, and what a request body of any size says about model, tools and streaming."""
from __future__ import annotations

import json

import pytest

from transport.dialects import describe_request, dialect_of


@pytest.mark.parametrize("method, path, dialect", [
    ("POST", "/v1/responses", "responses"), ("post", "/v1/responses/", "responses"),
    ("POST", "/openai/responses?api-version=1", "responses"),
    ("POST", "/v1/responses/compact", "responses"), ("POST", "/v1/chat/completions", "chat"),
    ("POST", "/openai/deployments/d/chat/completions?api-version=1", "chat"), ("POST", "/v1/messages?beta=true", "messages"),
    ("POST", "/v1beta/models/g:generateContent", "generate_content"),
    ("POST", "/v1beta/models/g:streamGenerateContent?alt=sse", "generate_content"),
    ("GET", "/v1/responses", None), ("HEAD", "/v1/messages", None), ("POST", "/v1/messages/count_tokens", None),
    ("POST", "/v1beta/models/g:countTokens", None), ("POST", "/v1/embeddings", None), ("POST", "/v1/messages/batches", None),
    ("POST", "/", None), ("POST", "", None), ("POST", "/x?y=/v1/responses", None), ("GET", "/v1/models", None),
])
def test_dialects(method, path, dialect):
    assert dialect_of(method, path) == dialect


TOOLS = [
    ("responses", "/v1/responses", [{"type": "function", "name": "f"}, {"type": "web_search"}], ["f", "web_search"]),
    ("chat", "/v1/chat/completions", [{"type": "function", "function": {"name": "f"}}], ["f"]),
    ("messages", "/v1/messages", [{"name": "f", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}], ["f", "bash"]),
    ("generate_content", "/v1beta/models/g:streamGenerateContent", [{"functionDeclarations": [{"name": "f"}, {"name": "h"}]},
                                                                    {"googleSearch": {}}], ["f", "h"]),
]


@pytest.mark.parametrize("dialect, path, tools, names", TOOLS)
@pytest.mark.parametrize("padding", [0, 3 << 20])
def test_bodies_of_any_size(dialect, path, tools, names, padding):
    body = {"model": "m", "input": [{"text": "x" * padding, "model": "not this"}], "tools": tools, "stream": True}
    if dialect == "generate_content":
        del body["model"], body["stream"]
    said = describe_request(dialect, path, json.dumps(body).encode())
    assert said == {"model": "g" if dialect == "generate_content" else "m", "tools": names, "stream": True}


def test_azure_names_its_model_in_the_path():
    assert describe_request("chat", "/openai/deployments/d1/chat/completions?x=1", b"{}")["model"] == "d1"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"model":5,"tools":7,"stream":"yes"}', None,
                                  b'{"tools":[null,5,{"name":5},{"function":5},{"functionDeclarations":[5,{}]},{}]}',
                                  b"[" * 100000, b'"' * (2 << 20), b"{" * (2 << 20), b'{"a":"' + b'\\"' * (2 << 20)],
                         ids=lambda body: repr(body)[:30])
def test_odd_bodies_say_nothing_and_never_raise(body):
    assert describe_request("chat", "/v1/chat/completions", body) == {"model": None, "tools": [], "stream": False}

"""An error body of any known provider gets the kind that its cause deserves; code before status, delay beats quota words."""
from __future__ import annotations

import json
import random
import time

import pytest

from tests.corpora import cuts, named
from transport import provider_errors, retry
from transport.dialects import Reader

CORPUS = named("errors")
KINDS = set(provider_errors.HEALS)


def kind_of(chunks, wanted):
    reader = Reader(wanted["dialect"], wanted["content_type"], None)
    for chunk in chunks:
        reader.feed(chunk)
    reader.finish(True)
    delay = retry.asked_delay(wanted["headers"], reader.retry_delay, 0.0)[0]
    kind = provider_errors.classify(wanted["status"], reader.error, wanted["content_type"], reader.excerpt, delay)
    return kind, reader.retry_delay


@pytest.mark.parametrize("name", sorted(CORPUS))
def test_corpus(name):
    data, wanted = CORPUS[name]
    assert kind_of([data], wanted) == (wanted["kind"], wanted["body_delay"])
    for chunks in cuts(data, 40):
        assert kind_of(chunks, wanted) == (wanted["kind"], wanted["body_delay"])


def test_every_row_is_a_known_kind_and_says_its_source():
    for table in (provider_errors.CODES, provider_errors.PHRASES, provider_errors.FAMILIES):
        for what, kind, source in table:
            assert kind in KINDS and source
            assert not isinstance(what, str) or what == what.lower()
    codes = [row[0] for row in provider_errors.CODES + provider_errors.FAMILIES]
    assert len(codes) == len(set(codes)), "a code that stands twice"
    assert set(provider_errors.STATUSES.values()) <= KINDS
    assert set(provider_errors.FINISHES.values()) - {None} <= KINDS


@pytest.mark.parametrize("code, kind, source", provider_errors.CODES)
def test_a_telling_code_decides_under_every_status(code, kind, source):
    for status in (200, 400, 401, 404, 429, 500, 503, None):
        for error in ({"code": code, "type": None, "message": None}, {"code": None, "type": code.upper(), "message": "x"}):
            assert provider_errors.classify(status, error, "application/json", None, 5.0) == kind


@pytest.mark.parametrize("status, kind", [
    (200, None), (204, None), (301, "unexpected_response"), (400, "invalid_request"), (401, "authentication"),
    (402, "quota_exhausted"), (403, "permission"), (404, "model_not_found"), (405, "model_not_found"), (408, "model_timeout"),
    (409, "server_error"), (410, "model_not_found"), (413, "unexpected_response"), (422, "invalid_request"), (429, "rate_limited"),
    (500, "server_error"), (502, "server_error"), (503, "overloaded"), (504, "server_error"), (520, "server_error"), (529, "overloaded"),
    (599, "server_error"), (None, None),
])
def test_a_bare_status(status, kind):
    assert provider_errors.classify(status, None) == kind


@pytest.mark.parametrize("dialect_reason, kind", [
    ("content_filter", "refusal"), ("refusal", "refusal"), ("SAFETY", "refusal"), ("max_output_tokens", "output_limit"),
    ("length", "output_limit"), ("max_tokens", "output_limit"), ("MAX_TOKENS", "output_limit"), ("stop", None),
    ("model_context_window_exceeded", "context_length"), ("tool_use", None), ("new_reason", None), (None, None),
    ("Length", "output_limit"), ("IMAGE_SAFETY", "refusal"), ("sensitive", "refusal"), ("OTHER", None),
])
def test_finish_reasons(dialect_reason, kind):
    assert provider_errors.finish_kind(dialect_reason) == kind


INVALID = {"code": None, "type": "invalid_request_error"}
JUDGED = [
    # (status, error, excerpt, kind)
    (500, dict(INVALID, message="Something broke"), None, "server_error"),
    (503, {"code": "invalid_argument", "type": None, "message": "x"}, None, "overloaded"),
    (200, dict(INVALID, message="Bad"), None, "invalid_request"),  # inside a stream there is no status to say more
    (500, dict(INVALID, message="This model's maximum context length is 10 tokens"), None, "context_length"),
    (500, {"code": "rate_limit_exceeded", "type": "invalid_request_error", "message": "x"}, None, "rate_limited"),
    (413, None, None, "unexpected_response"),
    (413, None, "Request Entity Too Large", "unexpected_response"),
    (413, {"code": None, "type": None, "message": "Payload too large"}, None, "context_length"),
    (400, dict(INVALID, message='Invalid input: "the user wrote: missing api key"'), None, "invalid_request"),
    (400, dict(INVALID, message="Invalid value in input[3]: missing api key"), None, "invalid_request"),
    (422, dict(INVALID, message="input.text: the words invalid token are not allowed"), None, "invalid_request"),
    (400, dict(INVALID, message="Incorrect API key provided: sk-1***. Look at https://x"), None, "authentication"),
    (400, dict(INVALID, message="Error: API key not valid."), None, "authentication"),
    (401, dict(INVALID, message="The gateway says: invalid api key"), None, "authentication"),
    (400, dict(INVALID, message='Bad text "our maximum context length is small" in item 3'), None, "invalid_request"),
    (400, dict(INVALID, message='Bad text `prompt is too long` in item 3'), None, "invalid_request"),
    (400, dict(INVALID, message='Bad text "you exceeded your current quota" in item 3'), None, "invalid_request"),
    (404, dict(INVALID, message='The model "gpt-9" does not exist'), None, "model_not_found"),
    (400, {"code": 400, "type": None, "message": 'OpenAIException - {"error": {"message": "This model\'s maximum context length is '
                                                 '8192 tokens.", "type": "x"}}'}, None, "context_length"),
    (400, {"code": None, "type": None, "message": 'x', "detail": '{\\"message\\": \\"prompt is too long: 9 tokens\\"}'}, None,
     "context_length"),
    # the provider's own error as text within the gateway's: its code says which
    (200, {"code": None, "type": None, "message": '{"code":"insufficient_quota","message":"no money"}'}, None, "quota_exhausted"),
    (502, {"code": 502, "type": None, "message": "Provider returned error", "detail": '{"type":"error","error":{"type":"overloaded_error"}}'},
     None, "overloaded"),
    (500, {"code": None, "type": None, "message": 'litellm.APIError: OpenAIException - {\\"error\\": {\\"code\\": \\"invalid_api_key\\"}}'},
     None, "authentication"),
    (400, dict(INVALID, message='Bad value in input[3].output: {"error": {"code": "insufficient_quota"}}'), None, "invalid_request"),
    # a limit in words only, under the statuses that gateways choose for it
    (403, {"code": None, "type": None, "message": "API rate limit exceeded for user ID 1."}, None, "rate_limited"),
    (200, {"code": None, "type": None, "message": "Too many requests, try later"}, None, "rate_limited"),
    (200, {"code": None, "type": None, "message": "overloaded, try later"}, None, "overloaded"),
    (400, dict(INVALID, message="Bad value in input[3].output: rate limit exceeded"), None, "invalid_request"),
]


@pytest.mark.parametrize("status, error, excerpt, kind", JUDGED)
def test_what_is_quoted_mislabelled_or_not_said(status, error, excerpt, kind):
    assert provider_errors.classify(status, error, None, excerpt) == kind


# Bodies as users of these services reported them: (status, body, kind). A message alone stands for {"error": {"message": ...}}.
GOOGLE_MINUTE = "Quota exceeded for aiplatform.googleapis.com/generate_content_input_tokens_per_minute_per_base_model with base model: g."
REPORTED = [
    (429, GOOGLE_MINUTE, "rate_limited"),
    (429, "Quota exceeded for quota metric 'Generate Content API requests per minute' and limit 'x' of service 'y'", "rate_limited"),
    (429, "Quota exceeded for quota metric 'Requests' and limit 'Requests per day' of service 'y'", "quota_exhausted"),
    (429, {"code": "Throttling.AllocationQuota", "message": "Allocated quota exceeded, please increase your quota limit."}, "rate_limited"),
    (429, {"message": "Too many tokens, please wait before trying again."}, "rate_limited"),
    (412, "Account a is suspended, possibly due to reaching the monthly spending limit or failure to pay", "quota_exhausted"),
    (403, {"code": "x", "error": "Your newly created team doesn't have any credits yet."}, "quota_exhausted"),
    (403, "Key limit exceeded (total limit).", "quota_exhausted"),
    (401, "Authentication Error, ExceededBudget: Crossed spend within 1d", "quota_exhausted"),
    (403, {"statusCode": 403, "message": "Out of call volume quota. Quota will be replenished in 02:15:30."}, "quota_exhausted"),
    (402, {"error": {"message": "no", "code": "quota_exceeded"}}, "quota_exhausted"),
    (500, {"type": "error", "error": {"type": "api_error", "message": "insufficient balance (1008)"}}, "quota_exhausted"),
    (200, {"choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, "quota_exhausted"),
    (200, {"choices": [{"index": 0}], "base_resp": {"status_code": 0, "status_msg": ""}}, None),
    (200, {"choices": [], "prompt_filter_results": []}, "unexpected_response"),
    (200, {"choices": None}, "unexpected_response"),
    (400, "This organization has been disabled.", "permission"),
    (400, "Bad value in input[3].output: the organization has been disabled", "invalid_request"),
    (400, {"error": {"code": 400, "status": "FAILED_PRECONDITION", "message": "User location is not supported for the API use."}}, "permission"),
    (400, "Your organization must be verified to use the model `o3`.", "permission"),
    (403, {"message": "The security token included in the request is expired", "__type": "ExpiredTokenException"}, "authentication"),
    (400, {"message": "The provided model identifier is invalid."}, "model_not_found"),
    (400, {"detail": "The 'm' model is not supported when using Codex with a ChatGPT account."}, "model_not_found"),
    (405, {"detail": "Method Not Allowed"}, "model_not_found"),
    (400, "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)", "context_length"),
    (400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}, "context_length"),
    (400, "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292.", "context_length"),
    (400, "prompt token count of 140000 exceeds the limit of 128000", "context_length"),
    (413, "Request body too large for gpt-4o model. Max size: 8000 tokens.", "context_length"),
    (400, 'litellm.BadRequestError: VertexAIException - {"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID"}]}}', "authentication"),
    (400, "Error code: 400 - {'error': {'message': 'the tool said: invalid api key'}}", "invalid_request"),
    (500, {"error": {"error": {"message": "x", "code": "insufficient_quota"}}}, "quota_exhausted"),
    (400, {"error": {"message": {"error": {"message": "prompt is too long: 2 tokens > 1"}}}}, "context_length"),
    (400, {"success": False, "error": [{"code": 2001, "message": "Invalid model name"}]}, "model_not_found"),
    (400, {"message": {"code": "model_not_found"}}, "model_not_found"),
    (403, {"status": 403, "title": "Out of credits"}, "quota_exhausted"),
    (200, {"choices": [{"error": {"code": 429, "message": "x"}, "finish_reason": "error", "message": {}}]}, "rate_limited"),
    (200, {"choices": [{"error": {"code": 502, "message": "x"}, "finish_reason": None}]}, "server_error"),
    (200, {"choices": [{"error": {"code": 502, "message": "x"}, "finish_reason": "stop"}]}, None),
    (429, {"error": {"code": "1113", "message": "\u4f59\u989d\u4e0d\u8db3\u6216\u65e0\u53ef\u7528\u8d44\u6e90\u5305"}}, "quota_exhausted"),
    (400, {"error": {"code": "1301", "message": "\u53ef\u80fd\u5305\u542b\u4e0d\u5b89\u5168\u6216\u654f\u611f\u5185\u5bb9"}}, "refusal"),
    (429, "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day", "quota_exhausted"),
    (429, {"type": "error", "error": {"type": "rate_limit_error", "message": "Extra usage is required for long context requests."}},
     "quota_exhausted"),
    (429, "Your prepayment credits are depleted.", "quota_exhausted"),
    (429, "Your project has exceeded its monthly spending cap.", "quota_exhausted"),
    (429, "You've reached your monthly included spend limit of $20", "quota_exhausted"),
    (429, {"errors": [{"message": "you have used up your daily free allocation of 10,000 neurons", "code": 4006}]}, "quota_exhausted"),
    (400, {"error": {"code": "tool_use_failed", "type": "invalid_request_error", "message": "Failed to call a function."}}, "server_error"),
    (400, "The number of tokens to keep from the initial prompt is greater than the context length.", "context_length"),
    (400, "Context size has been exceeded.", "context_length"),
    (400, "Unable to submit request because the input token count is 40000 but the model only supports up to 32768.", "context_length"),
    (400, "Request payload size exceeds the limit: 20971520 bytes.", "context_length"),
    (500, "context shift is disabled", "context_length"),
    (400, {"message": "Invocation of model ID m with on-demand throughput isn\u2019t supported."}, "model_not_found"),
    (403, {"message": "The request signature we calculated does not match the signature you provided."}, "authentication"),
    (403, b"error code: 1010", "unexpected_response"),
    (429, b"error code: 1015", "rate_limited"),
    (418, b"I'm a teapot", "unexpected_response"),
]


@pytest.mark.parametrize("status, body, kind", REPORTED)
def test_what_services_were_reported_to_say(status, body, kind):
    body = {"error": {"message": body}} if isinstance(body, str) else body
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    wanted = {"dialect": "chat", "content_type": "text/plain" if data is body else "application/json", "headers": [], "status": status}
    assert kind_of([data], wanted)[0] == kind


@pytest.mark.parametrize("body, kind", [
    ({"status": "failure", "message": "Portkey Error: Invalid API Key"}, "authentication"), ({"status": 200, "title": "x"}, "server_error"),
    ({"status": "ok"}, "unexpected_response"), ({"status": "completed"}, None)])
def test_a_status_of_a_gateways_own_makes_no_response(body, kind):
    wanted = {"dialect": "responses", "content_type": "application/json", "headers": [], "status": 200}
    assert kind_of([json.dumps(body).encode()], wanted)[0] == kind


def test_what_heals():
    for kind in ("authentication", "permission", "model_not_found", "quota_exhausted", "invalid_request"):
        assert provider_errors.refuses_retry(kind)
    for kind in ("rate_limited", "overloaded", "server_error", "unexpected_response", None, "new"):
        assert not provider_errors.refuses_retry(kind)


@pytest.mark.parametrize("message", [
    "Rate limit reached. See https://example.com/quota", "Please see our usage page", "No credits card needed here",
    "The model said: I do not exist", "context", "key", "tokens",
])
def test_words_alone_decide_nothing(message):
    assert provider_errors.classify(429, {"code": None, "type": None, "message": message}) == "rate_limited"


def test_any_text_is_classified_in_bounded_time():
    """Phrases meet text from strangers: hostile repetition must not make a pattern backtrack."""
    words = ["model ", "context ", "exceeds the ", "your ", "usage ", "limit ", "`inputs` ", "request too large for ", "a", ".",
             "input token count ", "violates ", "content ", " ", "'", "maximum ", "flagged "]
    rng = random.Random(3)
    started = time.monotonic()
    for word in words:
        provider_errors.by_body({"code": None, "type": None, "message": word * 5000})
    for _ in range(300):
        text = "".join(rng.choice(words) for _ in range(600))
        provider_errors.by_body({"code": rng.choice((None, 1, "x", "9" * 50)), "type": "\u0663\u0663\u0663", "message": text})
    assert time.monotonic() - started < 30

"""What a provider's error means: one table from code, phrase and status to a failure kind. Pure.

Read from the top, the first row that matches decides, so the order is the rule (DESIGN 11: the body's code decides before
the status):
  1. telling codes (exact, without case): they mean one thing wherever they stand;
  2. phrases in the message that say more than a general code beside them: size, policy, quota, model, key. A quota
     phrase beside a delay (a header's or the body's) is a rate limit: Google calls both "quota", and a wait is an offer;
  3. general codes and types (rate_limit_error, invalid_request_error, google.rpc.Code names): families, not causes;
  4. a numeric code in the body (OpenRouter, LiteLLM), then the HTTP status.
What a message quotes (of the prompt, of a tool's output) is not the provider's own word: quoted prose is not looked at, and under
400 and 422, where requests are quoted, a key, a rate or an error within the message counts only where the message begins with it.
General codes of the family invalid_request do not outvote a 5xx: the server says that it failed, and calls everything so.
A page (HTML) or something undecodable is `unexpected_response`, but 408, 429 and 5xx keep their meaning: gateways answer
those with pages. `Request too large` for a per-minute limit comes before the rate limit that it is labelled as, because
no wait heals it. A 413 is a full context where the API says so; one with no JSON comes from a gateway in between and says nothing
about the model's context, so it is `unexpected_response` with or without a page.
Sources per row: OA = OpenAI error codes guide and API errors seen in public issues; AN = Anthropic API errors; GO = Google
AIP-193 / google.rpc.Code and Gemini troubleshooting; AZ = Azure OpenAI content filtering and error reference; OR =
OpenRouter errors; VL / SG / LL / TGI / OLL / LCPP = vLLM, SGLang, LiteLLM, text-generation-inference, Ollama, llama.cpp
server sources; CX = measured with Codex CLI 0.144 and 0.171; DS, MO, XAI, GROQ, TOG, DASH, BED, CO
(Cohere), FW (Fireworks), ZAI (Zhipu), MM (MiniMax), GH (GitHub Models and Copilot), LMS (LM Studio), NA (new-api), CF
(Cloudflare), HF (Hugging Face): the vendors' error pages and public issues.
"""
from __future__ import annotations

import re

# Which kinds a later repeat of the same request can find gone. False: such an answer may be latched (DESIGN 11).
HEALS = {
    "rate_limited": True, "overloaded": True, "server_error": True, "model_timeout": True, "connection": True,
    "stream_interrupted": True, "unexpected_response": True,
    "quota_exhausted": False, "authentication": False, "permission": False, "model_not_found": False,
    "invalid_request": False, "tls_failed": False, "context_length": False, "refusal": False, "output_limit": False,
}


def refuses_retry(kind: str | None) -> bool:
    """True for kinds that no repeat of the same request can heal."""
    return HEALS.get(kind or "") is False


def _phrases(*patterns: str) -> re.Pattern[str]:
    """One case-blind pattern; all parts are bounded, so the cost is linear in the 2,000 characters looked at."""
    return re.compile("|".join(patterns), re.IGNORECASE)


# (where, what, kind, source)
CODES = (
    ("context_length_exceeded", "context_length", "OA, GROQ, LL"),
    ("string_above_max_length", "context_length", "OA: one string over the limit"),
    ("exceed_context_size_error", "context_length", "LCPP"),
    ("contextwindowexceedederror", "context_length", "LL"),
    ("tool_use_failed", "server_error", "GROQ: 400; the model's call could not be read, the next one may"),
    ("json_validate_failed", "server_error", "GROQ: 400; likewise"),
    ("model_max_prompt_tokens_exceeded", "context_length", "GH"),
    ("tokens_limit_reached", "context_length", "GH: larger than the model takes"),
    ("request_too_large", "context_length", "AN: 413, over 32 MB"),
    ("model_context_window_exceeded", "context_length", "AN"),
    ("insufficient_quota", "quota_exhausted", "OA"),
    ("credit_balance_exhausted", "quota_exhausted", "OA"),
    ("organization_spend_limit_exceeded", "quota_exhausted", "OA"),
    ("project_spend_limit_exceeded", "quota_exhausted", "OA"),
    ("organization_usage_limit_exceeded", "quota_exhausted", "OA"),
    ("billing_hard_limit_reached", "quota_exhausted", "OA"),
    ("billing_not_active", "quota_exhausted", "OA"),
    ("billing_error", "quota_exhausted", "AN"),
    ("usage_limit_reached", "quota_exhausted", "CX: plan limit"),
    ("usage_not_included", "quota_exhausted", "CX: plan does not include it"),
    ("workspace_owner_credits_depleted", "quota_exhausted", "CX"),
    ("budget_exceeded", "quota_exhausted", "LL"),
    ("insufficient_balance", "quota_exhausted", "DS, MO"),
    ("insufficient_balance_error", "quota_exhausted", "MM"),
    ("exceeded_current_quota_error", "quota_exhausted", "MO"),
    ("arrearage", "quota_exhausted", "DASH"),
    ("allocationquota.freetieronly", "quota_exhausted", "DASH: under 403"),
    ("insufficient_user_quota", "quota_exhausted", "NA: under 403"),
    ("pre_consume_token_quota_failed", "quota_exhausted", "NA: under 403"),
    ("billing_disabled", "quota_exhausted", "GO: ErrorInfo reason"),
    ("content_filter", "refusal", "OA, AZ"),
    ("content_policy_violation", "refusal", "OA, LL"),
    ("contentpolicyviolationerror", "refusal", "LL"),
    ("responsibleaipolicyviolation", "refusal", "AZ: innererror"),
    ("cyber_policy", "refusal", "CX"),
    ("bio_policy", "refusal", "CX"),
    ("replay_mismatch", "invalid_request", "ours: refusals.py"),
    ("invalid_prompt", "refusal", "OA: prompt flagged by the usage policy"),
    ("moderation_blocked", "refusal", "OA"),
    ("data_inspection_failed", "refusal", "DASH"),
    ("datainspectionfailed", "refusal", "DASH"),
    ("invalid_api_key", "authentication", "OA, LL"),
    ("invalid_authentication_error", "authentication", "MO"),
    ("incorrect_api_key_error", "authentication", "MO"),
    ("missing_api_key", "authentication", "OA-like servers"),
    ("token_expired", "authentication", "CX"),
    ("expired_api_key", "authentication", "GROQ"),
    ("account_deactivated", "authentication", "OA"),
    ("api_key_invalid", "authentication", "GO: ErrorInfo reason, under 400 INVALID_ARGUMENT"),
    ("api_key_expired", "authentication", "GO"),
    ("token_not_found_in_db", "authentication", "LL"),
    ("expiredtokenexception", "authentication", "BED: under 403"),
    ("unrecognizedclientexception", "authentication", "BED: under 403"),
    ("unsupported_country_region_territory", "permission", "OA"),
    ("unsupported_location", "permission", "GO"),
    ("service_disabled", "permission", "GO: API not enabled in the project"),
    ("organization_restricted", "permission", "GROQ"),
    ("key_model_access_denied", "permission", "LL"),
    ("model_not_found", "model_not_found", "OA"),
    ("model_not_exist", "model_not_found", "DASH"),
    ("deploymentnotfound", "model_not_found", "AZ"),
    ("model_decommissioned", "model_not_found", "GROQ"),
    ("model_deprecated", "model_not_found", "OA"),
    ("model_not_supported", "model_not_found", "GH"),
    ("invalid_model", "model_not_found", "OR, TOG"),
    ("unavailable_model", "model_not_found", "GH"),
    ("throttling.allocationquota", "rate_limited", "DASH: tokens per minute, in words of a quota"),
    ("server_is_overloaded", "overloaded", "OA, CX"),
    ("slow_down", "overloaded", "OA, CX"),
    ("overloaded_error", "overloaded", "AN"),
    ("overloaded", "overloaded", "OA-like servers; TGI error_type"),
    ("engine_overloaded_error", "overloaded", "MO"),
    ("engine_overloaded", "overloaded", "OA"),
    ("service_unavailable_error", "overloaded", "OA"),
    ("no_capacity", "overloaded", "AZ"),
    ("nocapacity", "overloaded", "AZ"),
    ("timeout_error", "model_timeout", "AN: 504"),
    ("deadline_exceeded", "model_timeout", "GO"),
    ("modeltimeoutexception", "model_timeout", "BED"),
)

QUOTA = _phrases(r"exceeded your current quota", r"check your plan and billing", r"credit balance is (?:too low|exhausted)",
                 r"insufficient (?:credits?|(?:account )?balance|funds|quota)",
                 r"(?:out of|not enough|more|add|any|purchase|buy) credits", r"key limit exceeded", r"call volume quota",
                 r"suspended, possibly due to [^\n]{0,60}spending limit", r"exceeded your [a-z ]{1,40} allowance",
                 r"billing (?:hard )?limit", r"billing details", r"(?:prepayment|prepaid) credits are depleted",
                 r"exceeded its monthly spending cap", r"daily free allocation", r"free-models-per-day",
                 r"extra usage is required", r"(?:reached|hit|exceeded) your monthly included",
                 r"\u4f59\u989d\u4e0d\u8db3", r"\u989d\u5ea6\u4e0d\u8db3",  # too little "balance", too little "quota": ZAI, NA
                 r"account is not active", r"payment (?:is )?required",
                 r"(?:usage|spend(?:ing)?|monthly|credit) limit (?:has been |was )?(?:reached|exceeded|hit)",
                 r"(?:reached|hit|exceeded) your (?:specified )?(?:[a-z]{1,20} )?(?:usage|spend(?:ing)?|monthly|credit) limit",
                 r"quota (?:has been |was |is )?(?:exceeded|exhausted)", r"budget has been exceeded", r"exceeded ?budget")

PHRASES = (
    (_phrases(r"maximum context length", r"context (?:window|length|size|limit)s?(?: of| is| was| has been)? ?(?:[a-z]{1,20} )?"
              r"(?:exceed|too|limit|reached|[0-9])", r"(?:exceeds?|exceeded|over|(?:larg|long|great)er than|ran out of room in) "
              r"(?:the |this |its )?(?:model'?s? )?(?:maximum |available |max )?context"),
     "context_length", "OA, VL, SG, OR, LCPP, LMS"),
    (_phrases(r"prompt is too long", r"input is too long", r"prompt too long", r"ContextWindowExceededError",
              r"input tokens exceed", r"input length and `?max_tokens`? exceed", r"context shift is disabled"),
     "context_length", "AN, BED, OLL, LL, OA, LCPP"),
    (_phrases(r"input token count [^.]{0,40}exceeds? the maximum", r"exceeds the maximum number of tokens allowed",
              r"input token count is [0-9]{1,12} but the model only supports", r"request payload size exceeds the limit"),
     "context_length", "GO"),
    (_phrases(r"(?:longer than|exceeds?) the (?:maximum )?model(?:'s)? (?:maximum )?(?:context |sequence )?(?:length|len)",
              r"exceeds the maximum allowed length", r"please reduce the length of the (?:messages|input|prompt)",
              r"maximum prompt length", r"input token(?:s| count)? ?(?:must|should) be (?:less|smaller|<)",
              r"`inputs` (?:tokens )?(?:\+ `max_new_tokens` )?must (?:be <=|have less than)", r"range of input length should be",
              r"request too large for [^\n]{1,120} (?:on|in organization)", r"please reduce your message size",
              r"exceeded model token limit", r"total message size [0-9]{1,12} exceeds limit",
              r"prompt exceeds max(?:imum)? length",
              r"number of tokens in the prompt cannot exceed", r"prompt token count of [0-9]{1,12} exceeds",
              r"request body too large for [^ ]{1,80} model"),
     "context_length", "VL, SG, XAI, TGI, DASH, GROQ, OA, MO, ZAI, CO, GH"),
    (_phrases(r"content management policy", r"content[ _-]?filter(?:ing)? ?(?:policy|triggered)", r"usage polic(?:y|ies)",
              r"output blocked by content", r"flagged (?:as|by|for)", r"input was flagged", r"^moderation: ",
              r"rejected (?:as a result of|by) (?:our |the )?safety system", r"violat(?:es|ing|ion of) (?:our |the )?"
              r"(?:[a-z]{1,20} )?(?:content|usage|safety) polic", r"data may contain inappropriate content",
              r"prompt was blocked", r"content exists risk", r"ContentPolicyViolationError",
              r"\u4e0d\u5b89\u5168\u6216\u654f\u611f\u5185\u5bb9"),  # "unsafe or sensitive content": ZAI
     "refusal", "AZ, AN, OA, OR, DASH, DS, ZAI"),
    (_phrases(r"quota exceeded for [^\n]{0,200}per[ _]?(?:second|minute)", r"quota exceeded for aiplatform"), "rate_limited",
     "GO: a quota that is one of a minute"),
    (QUOTA, "quota_exhausted", "OA, AN, GO, OR, DS, LL, XAI, FW, AZ, GH, CF, HF, ZAI, NA: without a delay"),
    (_phrases(r"api[ _-]?key (?:is )?(?:not valid|invalid|expired|missing)",
              r"(?:invalid|incorrect|missing|no|expired) (?:or missing )?api[ _-]?key", r"invalid x-api-key",
              r"invalid (?:bearer )?token", r"authentication (?:failed|fails|error)", r"no auth credentials",
              r"could not resolve authentication", r"invalid authentication credentials",
              r"security token included in the request is (?:invalid|expired)",
              r"request signature we calculated does not match"),
     "authentication", "OA, AN, GO, OR, DS, VL, BED"),
    (_phrases(r"organization has been disabled", r"(?:user )?location is not supported",
              r"access to [a-z ]{1,40} not allowed from unsupported", r"(?:your )?organization must be verified"),
     "permission", "AN, GO, OA: under 400"),
    (_phrases(r"model [`'\"]?[^ ]{1,200} (?:does not exist|not found|is not found|was not found|not exist)",
              r"models/[^ ]{1,200} is not found", r"not a valid model id", r"no endpoints found for",
              r"invalid model name", r"(?:unknown|no such|unsupported) model", r"^model: [^ ]{1,200}$",
              r"model(?:_not_found| not found)", r"api deployment for this resource does not exist", r"model not exist",
              r"model identifier is invalid", r"model is not supported", r"with on-demand throughput isn.t supported"),
     "model_not_found", "OA, VL, GO, OR, LL, OLL, AN, AZ, DS, BED, CX, GH"),
    (_phrases(r"(?:engine|model|server|service|system)s? (?:is |are )?(?:currently |temporarily )?(?:overloaded|at capacity)",
              r"currently experiencing high demand", r"^overloaded\b"), "overloaded", "OA, AN, GO, CX"),
    (_phrases(r"rate[ _-]?limit(?:s|ing)?(?: has been| was)? (?:reached|exceeded|hit)", r"too many requests",
              r"(?:exceeded|hit|reached) (?:your |the |a )?(?:[a-z]{1,20} )?rate[ _-]?limit"),
     "rate_limited", "OA, AN, OR, GitHub Models (under 403), gateways without a code"),
)

FAMILIES = (
    ("quota_exceeded", "quota_exhausted", "GH, DASH: without a delay"),
    ("rate_limit_exceeded", "rate_limited", "OA, AZ"),
    ("rate_limit_error", "rate_limited", "AN"),
    ("rate_limited", "rate_limited", "gateways"),
    ("rate_limit_reached_error", "rate_limited", "MO"),
    ("ratelimitreached", "rate_limited", "AZ"),
    ("ratelimiterror", "rate_limited", "LL, VL"),
    ("throttling_error", "rate_limited", "LL"),
    ("throttlingexception", "rate_limited", "BED"),
    ("throttling", "rate_limited", "DASH"),
    ("throttling.ratequota", "rate_limited", "DASH"),
    ("too_many_requests", "rate_limited", "AZ, OR"),
    ("toomanyrequests", "rate_limited", "AZ"),
    ("resource_exhausted", "rate_limited", "GO"),
    ("requests", "rate_limited", "OA: type of a request limit"),
    ("tokens", "rate_limited", "OA: type of a token limit"),
    ("authentication_error", "authentication", "AN, OA, LL"),
    ("authenticationerror", "authentication", "LL"),
    ("unauthenticated", "authentication", "GO"),
    ("unauthorized", "authentication", "AZ, VL"),
    ("permission_error", "permission", "AN"),
    ("permission_denied", "permission", "GO"),
    ("permissiondenied", "permission", "AZ"),
    ("insufficient_permissions", "permission", "OA"),
    ("access_denied", "permission", "OA-like servers"),
    ("forbidden", "permission", "AZ"),
    ("accessdeniedexception", "permission", "BED"),
    ("not_found_error", "model_not_found", "AN"),
    ("notfounderror", "model_not_found", "VL, SG, LL"),
    ("not_found", "model_not_found", "GO"),
    ("resourcenotfoundexception", "model_not_found", "BED"),
    ("unavailable", "overloaded", "GO"),
    ("serviceunavailable", "overloaded", "AZ"),
    ("serviceunavailableexception", "overloaded", "BED"),
    ("modelnotreadyexception", "overloaded", "BED"),
    ("server_error", "server_error", "OA, CX"),
    ("api_error", "server_error", "AN"),
    ("internal_error", "server_error", "OA-like servers"),
    ("internal", "server_error", "GO"),
    ("unknown", "server_error", "GO"),
    ("internalservererror", "server_error", "VL, SG, LL, AZ"),
    ("internal_server_error", "server_error", "LL, VL"),
    ("internalserverexception", "server_error", "BED"),
    ("modelstreamerrorexception", "server_error", "BED"),
    ("modelerrorexception", "server_error", "BED"),
    ("generation_error", "server_error", "TGI"),
    ("invalid_request", "invalid_request", "CX"),
    ("invalid_request_error", "invalid_request", "OA, AN"),
    ("badrequesterror", "invalid_request", "VL, SG, LL"),
    ("badrequest", "invalid_request", "AZ"),
    ("invalid_argument", "invalid_request", "GO"),
    ("failed_precondition", "invalid_request", "GO"),
    ("out_of_range", "invalid_request", "GO"),
    ("unimplemented", "invalid_request", "GO"),
    ("validationexception", "invalid_request", "BED"),
    ("validation", "invalid_request", "TGI"),
    ("invalid_value", "invalid_request", "OA"),
    ("unsupported_parameter", "invalid_request", "OA"),
    ("unsupported_value", "invalid_request", "OA"),
)

# RFC 9110 section 15, RFC 6585, and the vendors' own 402, 498, 499, 52x, 529. 405 is a base URL that is no model API's, as 404
# may be; 409 is a lock that timed out (OA's and AN's own clients repeat it), 410 a model that was withdrawn, 418 a gateway that
# takes the client for a bot.
STATUSES = {
    400: "invalid_request", 401: "authentication", 402: "quota_exhausted", 403: "permission", 404: "model_not_found",
    405: "model_not_found", 407: "unexpected_response", 408: "model_timeout", 409: "server_error", 410: "model_not_found",
    413: "context_length", 418: "unexpected_response", 424: "server_error", 425: "server_error",
    429: "rate_limited", 451: "permission", 498: "overloaded", 499: "server_error",
    503: "overloaded", 504: "server_error", 529: "overloaded",
}

# Finish reasons of an answer that was given, all dialects, BED and ZAI too; written in lower case, gateways change it.
FINISHES = {
    "content_filter": "refusal", "refusal": "refusal", "cyber_policy": "refusal", "bio_policy": "refusal",
    "safety": "refusal", "blocklist": "refusal", "prohibited_content": "refusal", "spii": "refusal", "jailbreak": "refusal",
    "recitation": "refusal", "image_safety": "refusal", "model_armor": "refusal", "content_filtered": "refusal",
    "guardrail_intervened": "refusal", "sensitive": "refusal",
    "max_output_tokens": "output_limit", "length": "output_limit", "max_tokens": "output_limit",
    "model_length": "context_length", "model_context_window_exceeded": "context_length",
}

# Finish reasons of an answer that the server broke off: Responses, SGLang and vLLM, OR, DS, ZAI.
BROKEN_OFF = ("cancelled", "incomplete", "abort", "error", "insufficient_system_resource", "network_error")

_CODES = {code: kind for code, kind, _ in CODES}
_FAMILIES = {code: kind for code, kind, _ in FAMILIES}
_LOOKED_AT = 2000
_QUOTED = re.compile(r'"[^"]*"|`[^`]*`')
_BEGINNING = 12  # characters of a prefix such as `Error: `
_WRAPPED = re.compile(r"(?:[\w.]{0,60}(?:Error|Exception|Error code: [0-9]{3})\b(?::| -)? ?(?:- )?){1,4}")  # LL, SDKs' words
QUOTING = (400, 422)  # statuses under which providers quote the request
_QUOTABLE = ("authentication", "permission", "rate_limited")  # what a tool's output may well say too
_NESTED = re.compile(r'\\?"(?:code|type|status|reason)\\?"\s{0,4}:\s{0,4}\\?"([A-Za-z_.]{3,60})\\?"')


def finish_kind(reason: str | None, terminal: str | None = None) -> str | None:
    """refusal, output_limit, context_length, or None for an ordinary end. Whatever blocked a prompt (Gemini), it is a refusal."""
    return "refusal" if terminal == "blockReason" else FINISHES.get((reason or "").lower())


def status_kind(status: int | None) -> str | None:
    """What a status says alone; None for 1xx, 2xx and no status."""
    if status is None or status < 300:
        return None
    if status < 400:
        return "unexpected_response"
    return STATUSES.get(status, "invalid_request" if status < 500 else "server_error")


def is_page(content_type: str | None, excerpt: str | None) -> bool:
    """True for HTML, by its type or its first bytes, and for what Cloudflare says to clients that take no HTML."""
    text = (excerpt or "").lstrip("\ufeff \t\r\n")
    return "html" in (content_type or "").lower() or text[:1] == "<" or text.startswith("error code: 1")


def classify(status: int | None, error: dict | None, content_type: str | None = None, excerpt: str | None = None,
             delay: object = None) -> str | None:
    """The failure kind of an answer, or None where it is no failure.

    status: HTTP status or None; error: Reader.error; excerpt: Reader.excerpt (a body that is no JSON); delay: anything
    but None when a header or the body asked for a wait.
    """
    kind = by_body(error, delay, status) if error else None
    if kind is not None:
        return kind
    if error is None and is_page(content_type, excerpt):
        return status_kind(status) if status in (408, 429) or (status or 0) >= 500 else "unexpected_response"
    if error is None and excerpt and (status or 0) >= 400:
        kind = _by_phrase(excerpt, delay, status)
    if kind is None and error is None and status == 413:
        return "unexpected_response"
    if kind is None:
        kind = _with_delay(status_kind(status), delay)
    if kind is None and error is not None:
        return "server_error"  # an error inside a 2xx that says nothing more
    return "unexpected_response" if kind is None and excerpt else kind


def by_body(error: dict, delay: object = None, status: int | None = None) -> str | None:
    """What the error object says: codes, phrases, families, numeric code; None where it says nothing known."""
    words = [str(error.get(name)).strip().lower() for name in ("code", "type") if error.get(name) is not None]
    words += _nested_words(error.get("detail"), status) + _nested_words(error.get("message"), status)
    for word in words:
        if word in _CODES:
            return _CODES[word]
    for text in (error.get("message"), error.get("detail")):
        kind = _by_phrase(text, delay, status)
        if kind is not None:
            return kind
    for word in words:
        if word in _FAMILIES and not (_FAMILIES[word] == "invalid_request" and (status or 0) >= 500):
            return _with_delay(_FAMILIES[word], delay)
    for word in words:
        if word.isdigit() and len(word) == 3 and word.isascii() and int(word) >= 400:
            return _with_delay(status_kind(int(word)), delay)
    return None


def _nested_words(text: object, status: int | None) -> list[str]:
    """Codes and types of an error within an error: gateways put the provider's body into a text (OR, LL)."""
    if not isinstance(text, str):
        return []
    text = text[:_LOOKED_AT]
    begin = text.find("{")
    if begin < 0 or status in QUOTING and begin > _beginning(text):
        return []
    return [word.lower() for word in _NESTED.findall(text[begin:])]


def _by_phrase(text: object, delay: object, status: int | None) -> str | None:
    if not isinstance(text, str):
        return None
    text = _QUOTED.sub(_unquoted, text[:_LOOKED_AT])
    for pattern, kind, _ in PHRASES:
        found = pattern.search(text)
        if found and not (kind in _QUOTABLE and status in QUOTING and found.start() > _beginning(text)):
            return _with_delay(kind, delay)
    return None


def _beginning(text: str) -> int:
    """Where a text's own beginning ends: a short prefix, after the names of exceptions that it was passed on in."""
    found = _WRAPPED.match(text)
    return _BEGINNING + (found.end() if found else 0)


def _unquoted(found: re.Match[str]) -> str:
    """Quoted prose goes; a quoted name (a model's) and a JSON value (an error within an error) stay."""
    before, quoted = found.string[: found.start()].rstrip(" "), found.group()
    return quoted if before.endswith((":", "\\")) or not re.search(r"\s", quoted) else '""'


def _with_delay(kind: str | None, delay: object) -> str | None:
    """402 and quota phrases beside a delay are limits that pass (OR: in-flight budget; GO: RetryInfo)."""
    return "rate_limited" if kind == "quota_exhausted" and delay is not None else kind

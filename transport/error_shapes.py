"""Where an error stands in a JSON value: the shapes that providers, gateways and frameworks use. Pure.

`error_of(value)` gives {"code", "type", "message"} (each a bounded str, an int for numeric codes, or None), with `detail`
beside them where a gateway wraps the provider's own words (OpenRouter's metadata.raw), or None where there is no error.
Shapes: {"error": {...}} (OpenAI, Google, Azure with `innererror`, OpenRouter, LiteLLM); {"error": "text"} (Ollama, TGI);
{"type": "error", "error": {...}} (Anthropic); {"type": "error", "code", "message"} (Responses `error` event);
{"response": {"error": {...}}} (response.failed); {"object": "error", "message"} (vLLM, Mistral); {"detail": ...} (FastAPI);
{"errors": [{...}]} (Cloudflare); {"message", "__type"} (AWS); [{...}] (Google, streaming endpoint); {"base_resp": {"status_code",
"status_msg"}} (MiniMax, under 200; 0 is a success); {"choices": [{"error": {...}}]} (OpenRouter, under 200); {"status", "title"}.
Google's `status` and ErrorInfo `reason` are the telling words there, so they come out as `type` and `code`.
"""
from __future__ import annotations

_LONGEST = 4000


def text_of(value: object, limit: int = _LONGEST) -> str | None:
    """A string that is safe to write as UTF-8 (no lone surrogates) and bounded; None for other things."""
    if not isinstance(value, str):
        return None
    return value[:limit] if value.isascii() else value[:limit].encode("utf-8", "replace").decode("utf-8")


def _code(value: object) -> str | int | None:
    if isinstance(value, bool):
        return None
    return value if isinstance(value, int) else text_of(value, 200)


def _result(code: object, kind: object, message: object, detail: object = None) -> dict:
    error = {"code": _code(code), "type": text_of(kind, 200), "message": text_of(message)}
    if isinstance(detail, str) and detail:
        error["detail"] = text_of(detail)
    return error


def innermost(error: dict) -> dict:
    """Gateways wrap a body that they were given: {"error": {"error": {...}}}, {"error": {"message": {...}}}."""
    for _ in range(4):
        inner = next((error[name] for name in ("error", "message") if isinstance(error.get(name), dict) and error[name]), None)
        if inner is None:
            break
        error = inner
    return error


def _from_object(error: dict) -> dict:
    error = innermost(error)
    code, kind = error.get("code"), error.get("type") or error.get("status") or error.get("__type")
    wrapped = error.get("provider_specific_fields")
    inner = error.get("innererror") or (wrapped.get("innererror") if isinstance(wrapped, dict) else None)
    if isinstance(inner, dict) and isinstance(inner.get("code"), str):
        code = inner["code"]  # Azure, also through LiteLLM: the outer code may be a bare 400, the inner one says which
    details = error.get("details")
    for one in details[:64] if isinstance(details, list) else ():
        if isinstance(one, dict) and isinstance(one.get("reason"), str):
            code = one["reason"]  # google.rpc.ErrorInfo, e.g. API_KEY_INVALID
            break
    metadata = error.get("metadata")
    detail = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(metadata.get("reasons"), list):
        detail = "moderation: " + ", ".join(str(text_of(one, 50)) for one in metadata["reasons"][:10])
    message = error.get("message")
    return _result(code, kind, message if message is not None else error.get("msg"), detail)


def _first_message(value: object) -> object:
    """FastAPI's `detail`: a sentence, an object with one, or a list of {"msg"}."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        return value.get("message") or value.get("msg") or value.get("error")
    return value


def error_of(value: object, strict: bool = False) -> dict | None:
    """The error in a JSON value. `strict`: only what calls itself an error; else also a bare `detail` or `message`, which
    is right for a body that is no answer of its dialect."""
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, list) and error:
        error = error[0]  # Cloudflare's AI Gateway
    if isinstance(error, dict) and any(error.values()):  # some servers put an empty one into every event
        found = _from_object(error)
        return found if value.get("type") != "error" or found["type"] else dict(found, type="error")
    if isinstance(error, str) and error:
        return _result(value.get("code"), value.get("error_type") or value.get("type"), value.get("message") or error,
                       error if value.get("message") else None)
    if value.get("type") == "error" or value.get("object") == "error" or error is True:
        return _from_object(value)
    base = value.get("base_resp")
    if isinstance(base, dict) and base.get("status_code"):
        return _result(base["status_code"], None, base.get("status_msg"))
    response = value.get("response")
    if isinstance(response, dict) and response.get("error"):
        return error_of({"error": response["error"]}, strict=True)
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    if choice.get("error") and choice.get("finish_reason") in (None, "", "error"):  # else the answer ended well all the same
        return error_of({"error": choice["error"]}, strict=True)
    return None if strict else _loose(value)


def _loose(value: dict) -> dict | None:
    errors = value.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        return _from_object(errors[0])
    if value.get("detail"):
        detail = value["detail"]
        if isinstance(detail, dict) and isinstance(detail.get("error"), dict):
            return _from_object(detail["error"])
        return _result(value.get("code"), value.get("type"), _first_message(detail))
    message = next((value[name] for name in ("message", "msg", "error_msg", "Message", "title") if value.get(name)), None)
    if isinstance(message, dict):
        return _from_object(value)
    if isinstance(message, str):
        return _result(value.get("code") or value.get("error_code"), value.get("type") or value.get("__type"), message)
    return None

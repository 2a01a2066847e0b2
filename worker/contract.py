"""The input document: what is wrong with a bad one, and what the run gets from a good one.

The rules are a JSON Schema, input.schema.json beside this file: `violation` reads the subset of it that is used there,
and `schema input` prints it. `load` returns a *job*: a plain dict in which every field has a value. Whatever is wrong is
one `BadInput` whose sentence names the field (exit 65); nothing has been started or written by then.
"""
from __future__ import annotations

import json
import os

from worker.version import data

INPUT = json.loads(data("worker/input.schema.json"))
# Fields that are refused in a file, because a file can be read by the agent (DESIGN 6).
ONLY_ON_STDIN = (("model", "api_key"), ("seal_key",))
EITHER = (("prompt", "prompt_file"), ("model", "model_base_url"))
KEY_SOURCES = ("api_key_file", "api_key_env", "api_key")

_TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict}
_ARTICLE = {"array": "a list", "object": "an object", "integer": "a whole number"}


class BadInput(Exception):
    """One sentence that names the field or file; becomes exit code 65."""


def violation(schema, value, name):
    """Why `value` does not fit `schema` (one sentence that starts with the field's name), or None."""
    kind = schema["type"]
    if isinstance(kind, list):  # [type, "null"], in the outcome's schemas
        if value is None:
            return None
        kind = kind[0]
    if not isinstance(value, _TYPES[kind]) or (kind in ("integer", "number") and isinstance(value, bool)):
        return "%s: must be %s" % (name, _ARTICLE.get(kind, "a " + kind))
    return _CHECKS[kind](schema, value, name)


def _text(schema, value, name):
    if len(value) < schema.get("minLength", 0):
        return "%s: must have at least %d characters" % (name, schema["minLength"])
    if "enum" in schema and value not in schema["enum"]:
        return "%s: must be one of %s" % (name, ", ".join(schema["enum"]))
    if "pattern" in schema and not all(part.isascii() and part.isdigit() for part in value.split(":", 1)):
        return "%s: must be UID or UID:GID in digits" % name  # the one pattern there is
    if "\0" in value and name != "prompt":
        return "%s: must not contain a NUL character" % name
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return "%s: contains half of a surrogate pair, which is no character" % name
    return None


def _number(schema, value, name):
    if not value - value == 0:  # neither NaN nor an infinity
        return "%s: must be finite" % name
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        return "%s: must be more than %g" % (name, schema["exclusiveMinimum"])
    for bound, wrong, word in (("minimum", lambda low: value < low, "least"), ("maximum", lambda top: value > top, "most")):
        if bound in schema and wrong(schema[bound]):
            return "%s: must be at %s %d" % (name, word, schema[bound])
    return None


def _list(schema, value, name):
    if len(value) < schema.get("minItems", 0):
        return "%s: must not be empty" % name
    return _first(violation(schema["items"], item, "%s[%d]" % (name, i)) for i, item in enumerate(value))


def _object(schema, value, name):
    dot = name + "." if name else ""
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if others is False:
        unknown = sorted(key for key in value if key not in known)
        if unknown:
            return "%s%s: is not a field of the input document" % (dot, unknown[0])
    return _first(violation(known.get(key, others), item, dot + key)
                  for key, item in value.items() if key in known or isinstance(others, dict))


def _first(reasons):
    return next((reason for reason in reasons if reason), None)


_CHECKS = {"string": _text, "boolean": lambda *_: None, "integer": _number, "number": _number,
           "array": _list, "object": _object}


def filled(schema, value):
    """`value` with every field of `schema`: its own, else the default, else None."""
    return {key: value.get(key, field.get("default")) for key, field in schema["properties"].items()}


def load(source, text):
    """The job in document `text`; `source` is its path, or `-` for standard input.  Raises BadInput."""
    document = _parse(text)
    reason = (violation(INPUT, document, "") if isinstance(document, dict) else "the input document: must be an object")
    reason = reason or _cross_check(document, source)
    if reason:
        raise BadInput(reason)
    job = filled(INPUT, document)
    job["retry"], job["limits"] = (
        filled(INPUT["properties"][name], job[name] or {}) for name in ("retry", "limits"))
    job["directory"] = job["directory"] or os.path.dirname(os.path.abspath(source))
    job["invocation_id"] = job["invocation_id"] or "run-" + os.urandom(8).hex()
    job["nonce"] = job["nonce"] or os.urandom(16).hex()
    job["model"] = _model(job)
    job["prompt"] = _prompt(job)
    job["user"] = _user(job["agent_user"])
    return job


def _parse(text):
    def pairs(items):
        found = dict(items)
        if len(found) < len(items):
            names = [key for key, _ in items]
            raise BadInput("%s: is given twice" % next(key for key in names if names.count(key) > 1))
        return found

    def constant(word):
        raise BadInput("the input document: %s is not JSON" % word)

    try:
        return json.loads(text.decode("utf-8-sig"), object_pairs_hook=pairs, parse_constant=constant)
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise BadInput("the input document: is not JSON (%s)" % str(error)[:200]) from None


def _cross_check(document, source):
    model = document.get("model", {})
    for one, other in EITHER:
        if one in document and other in document:
            return "%s: cannot be given together with %s" % (one, other)
    keys = [key for key in KEY_SOURCES if key in model]
    if len(keys) > 1:
        return "model.%s: cannot be given together with model.%s" % (keys[1], keys[0])
    if source == "-" and "directory" not in document:
        return "directory: is required with `run -`"
    for path in ONLY_ON_STDIN if source != "-" else ():
        if path[-1] in (model if len(path) > 1 else document):
            return "%s: is only accepted with `run -` (a file could be read by the agent)" % ".".join(path)
    if "model" in document and ("base_url" in model) == ("socket" in model):
        return "model.base_url: give either base_url or socket"
    bad = next((key for key in document.get("env", {}) if not key or "=" in key or "\0" in key), None)
    return "env: %r is no variable name" % bad if bad is not None else _bad_url(document, model)


def _bad_url(document, model):
    field = "model_base_url" if "model_base_url" in document else "model.base_url"
    url = document.get("model_base_url", model.get("base_url"))
    if url is None:
        return None
    scheme, _, rest = url.partition("://")
    host = rest.split("/")[0].split("?")[0]
    if scheme.lower() not in ("http", "https") or not host or host.startswith(":"):
        return "%s: must be an http:// or https:// URL with a host" % field
    if not url.isascii() or any(c <= " " or c in "#\\\x7f" for c in url) or "@" in host:
        return "%s: must not contain spaces, control or non-ASCII characters, a fragment or a user name" % field
    port = host.rpartition("]")[2].partition(":")[2]
    if port and not (port.isdigit() and 0 < int(port[:6]) < 65536):
        return "%s: has no valid port" % field
    return None


def _model(job):
    if job["model"] is None and job["model_base_url"] is None:
        return None
    # The reference's short form: the key stands in `env` and is replaced there by the run's token.
    short = {"base_url": job["model_base_url"], "api": "responses"} if job["model"] is None else job["model"]
    model = filled(INPUT["properties"]["model"], short)
    model["key"] = model.pop("api_key")
    if job["model"] is None:
        model["key"] = job["env"].get("OPENAI_API_KEY")
    elif model["api_key_env"]:
        model["key"] = os.environ.get(model["api_key_env"])
        if not model["key"]:
            raise BadInput("model.api_key_env: the variable %s is not set" % model["api_key_env"])
    elif model["api_key_file"]:
        model["key"] = read_file(model["api_key_file"], "model.api_key_file").decode("utf-8", "replace").strip()
    if model["key"] is not None and (not model["key"].isprintable() or not model["key"].isascii() or not model["key"]):
        raise BadInput("model: the key must be printable ASCII without line ends")
    return model


def _user(text):
    if text is None:
        return None
    if os.geteuid() != 0:
        raise BadInput("agent_user: the worker must be root to start the agent as another user")
    uid, _, gid = text.partition(":")
    return int(uid), int(gid or uid)


def _prompt(job):
    if job["prompt_file"]:
        return read_file(job["prompt_file"], "prompt_file")
    return None if job["prompt"] is None else job["prompt"].encode("utf-8")


def read_file(path, field):
    """The whole of a file that the input document names.  Raises BadInput with the field's name."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise BadInput("%s: %s cannot be read (%s)" % (field, path, getattr(error, "strerror", None) or error)) from None

"""What is wrong with an input document, in words: one sentence per broken rule, loaded only when there is one."""
from __future__ import annotations

TYPES = {"string": "a string", "boolean": "true or false", "integer": "a whole number", "number": "a number",
         "array": "a list", "object": "an object"}
# rule -> the sentence; %s is what the schema (or the rule) asks
SENTENCES = {
    "enum": "must be one of %s",
    "minLength": "must have at least %s characters",
    "minItems": "must not be empty",
    "minimum": "must be at least %s",
    "exclusiveMinimum": "must be more than %s",
    "maximum": "must be finite and at most %s",
    "pattern": "must be UID or UID:GID in digits, below 4294967295",
    "depth": "must not be nested more than %s levels deep",
    "nul": "must not contain a NUL character",
    "surrogate": "contains half of a surrogate pair, which is no character",
    "either": "cannot be given together with %s",
    "required": "is required with `run -`",
    "stdin": "is only accepted with `run -` (a file could be read by the agent)",
    "variable": "%r is no variable name",
    "header": "%r is no header that can be added (a token, printable ASCII, nothing about framing)",
    "endpoint": "give one of base_url, socket and replay",
    "url": "must be an http:// or https:// URL with a host",
    "url characters": "must not contain spaces, control or non-ASCII characters, a fragment or a user name",
    "port": "has no valid port",
}


def sentence(name, rule, asked):
    """`NAME: what it must be`."""
    name = name or "the input document"
    if rule == "type":
        return "%s: %s" % (name, "is not a field of the input document" if asked == "null" else "must be " + TYPES[asked])
    text = SENTENCES[rule]
    asked = ", ".join(asked) if isinstance(asked, list) else asked
    return "%s: %s" % (name, text % asked if "%" in text else text)

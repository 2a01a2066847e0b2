"""The input document. Its rules are a JSON Schema, input.schema.json: `violation` reads the keywords that are used there,
`schema input` prints it. `load` returns a *job*: a plain dict in which every field has a value. Whatever is wrong is one
`BadInput` whose sentence (complaints.py) names the field: exit 65, and nothing has been started or written by then.
"""
from __future__ import annotations

import json
import os
import stat

from worker.version import FILES

SCHEMA = "worker/input.schema.json"


def _schema():
    if FILES:
        return FILES[SCHEMA]
    with open(__file__.replace("worker/contract.py", SCHEMA), "rb") as file:  # a source tree
        return file.read()


INPUT = json.loads(_schema())
TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict,
         "null": ()}
# keyword of the schema -> whether a value of the right type keeps it
KEYWORDS = {
    "enum": lambda allowed, value: value in allowed,
    "minLength": lambda least, value: len(value) >= least,
    "minItems": lambda least, value: len(value) >= least,
    "minimum": lambda least, value: value >= least,
    "exclusiveMinimum": lambda bound, value: value > bound,
    "maximum": lambda most, value: value <= most,  # false for NaN and infinity, too
    "pattern": lambda _, value: all(map(_is_id, value.split(":", 1))),  # UID[:GID]
}
_NAME = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"  # of a header: RFC 9110 5.6.2
_FRAMING = ("connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
DEEPEST = 100  # levels of `labels`
# Refused in a file, because a file can be read by the agent (DESIGN 6).
ONLY_ON_STDIN = (("model", "api_key"), ("", "seal_key"))
EITHER = (("", "prompt", "prompt_file"), ("", "model", "model_base_url"), ("model", "api_key_env", "api_key_file"),
          ("model", "api_key", "api_key_env"), ("model", "api_key", "api_key_file"))


class BadInput(Exception):
    """One sentence that names the field or file; becomes exit code 65."""


def _is_id(text):
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 0xFFFFFFFF  # -1 would mean: stay root


def _can_be_added(name, value):
    return name and name not in _FRAMING and not name.strip(_NAME) and value.isascii() and value.isprintable()


def violation(schema, value, name=""):
    """(dotted name, keyword, what the schema asks) of the first rule that `value` breaks, or None."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if value is None and "null" in kinds:
        return None
    kind = kinds[0]
    if not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return name, "type", kind
    for keyword, asked in schema.items():
        if keyword in KEYWORDS and not KEYWORDS[keyword](asked, value):
            return name, keyword, asked
    if kind == "string":
        half = any("\ud800" <= c <= "\udfff" for c in value) if not value.isascii() else False
        broken = "surrogate" if half else "nul" if "\0" in value and name != "prompt" else None
        return broken and (name, broken, None)
    inner = ((schema["items"], item, "%s[%d]" % (name, at)) for at, item in enumerate(value)) if kind == "array" else ()
    return _first(violation(*each) for each in (_fields(schema, value, name) if kind == "object" else inner))


def _fields(schema, value, name):
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key, item in value.items():
        if key not in known and others is False:
            yield {"type": "null"}, item, (name + "." + key).lstrip(".")
        elif key in known or others is not True:
            yield known.get(key, others), item, (name + "." + key).lstrip(".")


def _first(found):
    return next((each for each in found if each), None)


def filled(schema, value):
    """`value` with every field of `schema`: its own, else the default, else None."""
    return {key: value.get(key, field.get("default")) for key, field in schema["properties"].items()}


def load(source, text):
    """The job in document `text` (bytes); `source` is its path, or `-` for standard input. Raises BadInput."""
    document = parse(text)
    broken = violation(INPUT, document) or _first(rule(document, source) for rule in (_either, _stdin_only, _labels, _endpoint))
    if broken:
        from worker.complaints import sentence

        raise BadInput(sentence(*broken))
    job = filled(INPUT, document)
    for at, secret in enumerate(job["redact"]):
        if not any(c.isalpha() for c in secret):
            raise BadInput("redact[%d]: must contain a letter (a number would be blanked out of numbers)" % at)
    job["retry"], job["limits"] = (filled(INPUT["properties"][name], job[name] or {}) for name in ("retry", "limits"))
    job["directory"] = job["directory"] or os.path.dirname(os.path.abspath(source))
    job["invocation_id"] = job["invocation_id"] or "run-" + os.urandom(8).hex()
    job["nonce"] = job["nonce"] or os.urandom(16).hex()
    job["model"] = _model(job)
    if job["prompt_file"]:
        job["prompt"] = read_file(job["prompt_file"], "prompt_file")
    elif job["prompt"] is not None:
        job["prompt"] = job["prompt"].encode("utf-8")
    job["user"] = job["agent_user"] and (*map(int, job["agent_user"].split(":")), int(job["agent_user"].split(":")[0]))[:2]
    if job["user"] and os.geteuid() != 0:
        raise BadInput("agent_user: the worker must be root to start the agent as another user")
    return job


def parse(text):
    """The document in `text` (bytes). Raises BadInput."""
    constants: list = []  # also what stands for each of them

    def pairs(items):
        found = dict(items)
        for key, value in items:
            if value is constants:
                raise BadInput("%s: %s is not JSON" % (key, constants[-1]))
        if len(found) < len(items):
            names = [key for key, _ in items]
            raise BadInput("%s: is given twice" % next(key for key in names if names.count(key) > 1))
        return found

    def constant(word):
        constants.append(word)
        return constants

    try:
        document = json.loads(text.decode("utf-8-sig"), object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise BadInput("the input document: is not JSON (%s)" % str(error)[:200]) from None
    if constants:
        raise BadInput("the input document: %s is not JSON" % constants[0])
    return document


def _either(document, source):
    for part, one, other in EITHER:
        fields = document.get(part, {}) if part else document
        if one in fields and other in fields:
            return (part + "." + one).lstrip("."), "either", (part + "." + other).lstrip(".")


def _stdin_only(document, source):
    if source == "-" and "directory" not in document:
        return "directory", "required", None
    for part, name in ONLY_ON_STDIN if source != "-" else ():
        if name in (document.get(part, {}) if part else document):
            return (part + "." + name).lstrip("."), "stdin", None


def _labels(document, source):
    if _deeper(document.get("labels"), DEEPEST):  # they are written again at the end, when it is too late to refuse them
        return "labels", "depth", DEEPEST


def _deeper(value, levels):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not levels or any(_deeper(one, levels - 1) for one in inner)


def _endpoint(document, source):
    bad = [key for key in document.get("env", {}) if not key or "=" in key or "\0" in key]
    if bad:
        return "env", "variable", bad[0]
    model = document.get("model", {})
    wrong = [name for name, value in model.get("headers", {}).items() if not _can_be_added(name.lower(), value)]
    if wrong:
        return "model.headers", "header", wrong[0]
    if "model" in document and sum(name in model for name in ("base_url", "socket", "replay")) != 1:
        return "model.base_url", "endpoint", None
    field = "model_base_url" if "model_base_url" in document else "model.base_url"
    url = document.get("model_base_url", model.get("base_url", "http://unix"))
    scheme, _, rest = url.partition("://")
    host = rest.split("/")[0].split("?")[0]
    port = host.rpartition("]")[2].partition(":")[2]
    if scheme.lower() not in ("http", "https") or not host or host.startswith(":"):
        return field, "url", None
    if not url.isascii() or any(c <= " " or c in "#\\\x7f" for c in url) or "@" in host:
        return field, "url characters", None
    return (field, "port", None) if port and not (port.isdigit() and 0 < int(port[:6]) < 65536) else None


def _model(job):
    if job["model"] is None and job["model_base_url"] is None:
        return None
    # The reference's short form: the key stands in `env`, and the run's token takes its place there.
    short = {"base_url": job["model_base_url"], "api": "responses"} if job["model"] is None else job["model"]
    model = filled(INPUT["properties"]["model"], short)
    if model["replay"]:
        from worker.replaying import prepare

        wrong = prepare(job, model)
        if wrong:
            raise BadInput("model.replay: " + wrong)
    model["key"] = model.pop("api_key") if job["model"] else job["env"].get("OPENAI_API_KEY")
    if model["api_key_env"]:
        model["key"] = os.environ.get(model["api_key_env"])
        if not model["key"]:
            raise BadInput("model.api_key_env: the variable %s is not set" % model["api_key_env"])
    elif model["api_key_file"]:
        model["key"] = read_file(model["api_key_file"], "model.api_key_file").decode("utf-8", "replace").strip()
        if not (model["keep_key_file"] or os.access(os.path.dirname(os.path.abspath(model["api_key_file"])), os.W_OK)):
            raise BadInput("model.api_key_file: %s cannot be removed; set keep_key_file" % model["api_key_file"])
    if model["key"] is not None and not (model["key"] and model["key"].isascii() and model["key"].isprintable()):
        raise BadInput("model: the key must be printable ASCII without line ends")
    if (model["base_url"] or "").lower().startswith("https:"):
        model["ca_file"] = model["ca_file"] or os.environ.get("SSL_CERT_FILE")
    if model["ca_file"] and b"-----BEGIN " not in read_file(model["ca_file"], "model.ca_file"):
        raise BadInput("model.ca_file: %s has no certificate in PEM form" % model["ca_file"])
    return model


def read_file(path, field):
    """The whole of a file that the input document names. Raises BadInput with the field's name."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no regular file")  # a FIFO might never be written to
            return file.read()
    except (OSError, ValueError) as error:
        raise BadInput("%s: %s cannot be read (%s)" % (field, path, getattr(error, "strerror", None) or error)) from None

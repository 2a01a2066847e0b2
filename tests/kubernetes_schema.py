"""The part of Kubernetes' published API that a Job manifest uses, as data, and a check of a manifest against it.

`python3 -m tests.kubernetes_schema` makes tests/corpus/kubernetes_job.json from the installed PyPI package `kubernetes` (the official
client, which is generated from the API's published OpenAPI document): {type: {field: [type of its value, required]}}. No descriptions
are taken. Values are str, int, bool, object, TYPE, list[...] or dict(str, ...).
"""
from __future__ import annotations

import json
import os
import re
import sys

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "kubernetes_job.json")
SIMPLE = {"str": str, "int": int, "bool": bool, "float": (int, float)}


def complaints(value, kind, types, where):
    """One sentence per fault of `value`, which must be of type `kind`."""
    inner = re.match(r"(?:[Ll]ist\[(.+)\]|[Dd]ict[(\[]str, (.+)[)\]])$", kind)
    if inner and inner.group(1):
        if not isinstance(value, list):
            yield "%s: is no list" % where
            return
        for at, one in enumerate(value):
            yield from complaints(one, inner.group(1), types, "%s[%d]" % (where, at))
    elif inner:
        for name, one in value.items() if isinstance(value, dict) else ():
            yield from complaints(one, inner.group(2), types, "%s.%s" % (where, name))
    elif kind in types:
        if not isinstance(value, dict):
            yield "%s: is no object" % where
            return
        for name, one in value.items():
            if name not in types[kind]:
                yield "%s: %s has no field %s" % (where, kind, name)
            else:
                yield from complaints(one, types[kind][name][0], types, "%s.%s" % (where, name))
        yield from ("%s: %s is required" % (where, name) for name, field in types[kind].items() if field[1] and name not in value)
    elif kind in SIMPLE and (not isinstance(value, SIMPLE[kind]) or (kind == "int" and isinstance(value, bool))):
        yield "%s: %r is no %s" % (where, value, kind)


def make():
    from kubernetes import client

    types, queue = {}, ["V1Job"]
    while queue:
        name = queue.pop()
        if name in types:
            continue
        model = getattr(client, name)
        required = {field.serialization_alias or own for own, field in model.model_fields.items() if field.is_required()}
        types[name] = {model.attribute_map[own]: [kind, model.attribute_map[own] in required]
                       for own, kind in model.openapi_types.items()}
        queue += [word for kind in model.openapi_types.values() for word in re.findall(r"\w+", kind) if hasattr(client, word)]
    lines = ",\n".join(" %s: %s" % (json.dumps(name), json.dumps(types[name], sort_keys=True)) for name in sorted(types))
    with open(PATH, "w") as file:
        file.write('{"types": {\n%s\n}}\n' % lines)
    print("%d types" % len(types))


if __name__ == "__main__":
    sys.exit(make())

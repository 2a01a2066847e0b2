"""`schema NAME`: the JSON Schema of a document, made from the table that validates it."""
from __future__ import annotations

import json

from worker import cli
from worker.host import terminal
from worker.host.arguments import Misuse, parse
from worker.schemas import SCHEMAS, published


def main(words):
    try:
        (name,), _ = parse(words, 1)
        if name not in SCHEMAS:
            raise Misuse("%r is no document; there are %s" % (name, ", ".join(SCHEMAS)))
    except Misuse as error:
        return cli.misuse("schema", str(error))
    return 0 if terminal.write(json.dumps(published(name), indent=2) + "\n") else cli.NO_DIRECTORY

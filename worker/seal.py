"""The seal: a host that gave the run a key can tell its result from a forged one, also when it was not attached."""
from __future__ import annotations

import hashlib
import hmac
import json

from worker.documents import strict_json


def seal(result, key):
    """HMAC-SHA256 (hex) over the canonical result without its own seal: sorted names, no spaces, UTF-8.

    The result lists size and hash of every other file, so the seal covers them too.
    """
    bare = {name: value for name, value in result.items() if name != "seal"}
    text = json.dumps(json.loads(strict_json(bare)), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hmac.new(key, text.encode("utf-8"), hashlib.sha256).hexdigest()

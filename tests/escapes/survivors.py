"""Who is left: processes whose command line has a token."""
from __future__ import annotations

import os


def of(token):
    """[(pid, command line)] of every process that lives (a zombie has no command line) and names the token."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open("/proc/%s/cmdline" % name, "rb") as file:
                    words = file.read()
            except OSError:
                continue
            if token.encode() in words:
                found.append((int(name), words.replace(b"\0", b" ").decode("utf-8", "replace")))
    return found

"""The commands: which module's `main(arguments)` answers to which word. Exit codes: DESIGN 5 (sysexits where they exist)."""
from __future__ import annotations

import os
import signal
import sys

COMMANDS = {"run": "worker.sandbox_runner", "stop": "worker.stopping", "status": "worker.host.status",
            "verify": "worker.host.verify", "show": "worker.host.show", "verdict": "worker.host.verdict",
            "schema": "worker.host.schema", "explode": "worker.host.explode", "proxy": "worker.proxying",
            "recover": "worker.recovering", "doctor": "worker.doctor", "install": "worker.host.install",
            "export": "worker.host.export", "summarize": "worker.host.summarize", "report": "worker.host.report",
            "pack": "worker.host.pack", "unpack": "worker.host.unpack",
            "carry": "worker.host.carry"}
LONGEST = 4000  # characters of a sentence
GRADE, USAGE, BAD_INPUT, NO_OUTCOME, MASK, FAILED, NO_DIRECTORY, RETRY = 0, 64, 65, 66, 69, 70, 73, 75


def say(sentence):
    """One sentence on stderr, a line that no name in it can break or colour; a closed stderr is no reason to fail."""
    clean = "".join(one if one.isprintable() else "?" for one in str(sentence)[:LONGEST].replace("\n", " "))
    try:
        os.write(2, ("sandbox-worker: %s\n" % clean).encode("utf-8", "replace"))
    except OSError:
        pass


def misuse(word, reason):
    from worker.usage_text import USAGE_LINES

    say("%s: %s; usage: sandbox-worker.pyz %s" % (word, reason, USAGE_LINES[word]))
    return USAGE


def main(arguments):
    word, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if word not in COMMANDS:
        from worker.usage_text import answer

        return answer(word, say)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, the kernel reaps our children and nothing tells us
    __import__(COMMANDS[word])
    return sys.modules[COMMANDS[word]].main(rest)

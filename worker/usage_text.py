"""The usage of every command, and what is said to a word that is none."""
from __future__ import annotations

import os

from worker.host import terminal
from worker.version import VERSION

USAGE_LINES = {
    "run": "run INPUT.json | run -",
    "stop": "stop DIR",
    "recover": "recover DIR",
    "proxy": "proxy --upstream URL | --replay OUT [--replay-failures] --dir DIR [--api A]"
             " [--key-file F | --key-env V] [--hold H] [--bodies B] [--auth A]"
             " [--max-attempts N] [--max-wait S] [--budget S] [--requests N] [--total-tokens N] [--ca-file F]"
             " [--first-byte-timeout S] [--idle-timeout S] [--socket PATH] [--watch-stdin]",
    "status": "status DIR [--follow] [--json]",
    "verify": "verify OUT [--nonce N] [--manifest FILE] [--seal-key-file FILE]",
    "show": "show OUT",
    "verdict": "verdict OUT",
    "export": "export OUT --format atif|otel|responses|bundle [-o FILE] [--unverified] [--nonce N] [--manifest FILE]"
              " [--seal-key-file FILE]",
    "schema": "schema input|launch|attempt|cleanup|observations|result",
    "install": "install NAME [--version V] [--prefix DIR] [--archive FILE] [--node FILE] [--python FILE] [--machine M]",
    "summarize": "summarize OUT... | - [--to DIR] [--json | --tsv]",
    "explode": "explode DIR",
    "doctor": "doctor [--harness NAME] [--dir DIR] [--json]",
    "report": "report OUT [-o FILE]",
    "pack": "pack DIR [--text]",
    "unpack": "unpack OUT [--max-files N] [--max-bytes N]",
    "carry": "carry STEP ... (the steps of sandboxctl)",
}
USAGE = 64


def usage():
    lines = "".join("  %s\n" % line for line in USAGE_LINES.values())
    return "usage: sandbox-worker.pyz COMMAND ...\n%sversion %s; README.md explains each\n" % (lines, VERSION)


def answer(word, say):
    """Print what `word` asks for, or say why it is no command; the exit code."""
    texts = {"-h": usage, "--help": usage, "help": usage, "--version": lambda: "sandbox-worker %s\n" % VERSION}
    if word in texts:
        terminal.write(texts[word]())
        return 0
    say("%r is no command" % word if word else "a command is missing")
    try:
        os.write(2, usage().encode())
    except OSError:
        pass
    return USAGE

"""Whose a request of Gemini CLI is.  Its headers name the run and its transcripts no response, so the request's body tells:
only a sub-agent is offered the tool that ends it, and its first words are its prompt (0.61.0)."""

from __future__ import annotations

import json
import os

from worker.harnesses.codex_lines import text_of

SUB_AGENTS_TOOL = "complete_task"
LARGEST = 64 << 20


def owner(run, root, prompts):
    """thread_of(attempt).  root: the root's thread; prompts: [(the first words, thread)] of the sub-agents' chats.  None for a
    sub-agent's request where no chat, or more than one, began like it, and where no body was kept."""
    known = {}  # by the body's hash: of the same bodies only the first is kept

    def thread_of(attempt):
        if not attempt.get("main"):
            return None
        if not prompts:
            return root
        sha256 = attempt.get("request_sha256")
        if known.get(sha256) is None:
            known[sha256] = whose(body_of(run, attempt), root, prompts)
        return known[sha256]

    return thread_of


def body_of(run, attempt):
    """The request's JSON object as the proxy recorded it, or None."""
    names = [name for name in attempt.get("bodies") or () if isinstance(name, str) and name.endswith(".request")]
    try:
        fd = os.open(names[0], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=run["dirfd"])
        with os.fdopen(fd, "rb") as file:
            body = json.loads(file.read(LARGEST).decode("utf-8", "replace"))
    except (IndexError, OSError, ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def whose(body, root, prompts):
    if body is None:
        return None
    if SUB_AGENTS_TOOL not in offered(body):
        return root
    began = first_words(body.get("contents"))
    found = [thread for prompt, thread in prompts if prompt == began]
    return found[0] if len(found) == 1 else prompts[0][1] if len(prompts) == 1 else None


def offered(body):
    """Names of the tools that the model is offered."""
    names = set()
    for tool in body.get("tools") if isinstance(body.get("tools"), list) else ():
        declared = tool.get("functionDeclarations") if isinstance(tool, dict) else None
        names.update(text_of(one.get("name")) for one in declared or () if isinstance(one, dict))
    return names


def first_words(contents):
    """The first text of a list of messages, or None."""
    for said in contents if isinstance(contents, list) else ():
        for part in said.get("parts") or () if isinstance(said, dict) else ():
            if isinstance(part, dict) and text_of(part.get("text")):
                return part["text"]
    return None

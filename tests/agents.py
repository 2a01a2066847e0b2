"""Small scripted agents: real child programs of a run, made of a few lines."""
from __future__ import annotations

import json
import sys

ASK = """
import json, os, sys, urllib.request, urllib.error
def ask(body=None, path="/responses", headers=()):
    url = os.environ["SANDBOX_WORKER_MODEL_URL"] + path
    data = json.dumps(body or {"model": "m", "input": "hello", "stream": True}).encode()
    request = urllib.request.Request(url, data=data, headers=dict({
        "Authorization": "Bearer " + os.environ["SANDBOX_WORKER_TOKEN"], "Content-Type": "application/json"}, **dict(headers)))
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
def say(**event):
    print(json.dumps(event), flush=True)
"""
DONE = {"type": "turn.completed", "usage": {"input_tokens": 5, "cached_input_tokens": 0, "output_tokens": 2}}


def python(source):
    """argv of an agent in Python; `ask(...)` and `say(...)` are there."""
    return [sys.executable, "-c", ASK + source]


def shell(source):
    return ["/bin/sh", "-c", source]


def printing(*events, code=0):
    """argv of an agent that prints these events (dicts, or text as it stands) and exits."""
    text = "".join((event if isinstance(event, str) else json.dumps(event)) + "\n" for event in events)
    return [sys.executable, "-c", "import sys; sys.stdout.write(%r); sys.exit(%d)" % (text, code)]

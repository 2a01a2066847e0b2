"""A small agent for any of the four dialects: `generic_agent.py API < prompt`. It asks, runs the shell commands that the model
calls for, tells their output, and ends with the model's last words as a JSON line. It asks nothing twice.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.abspath(__file__).rsplit("/tests/", 1)[0])
from tests.conformance import dialects  # noqa: E402

PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOL = {"name": "shell", "description": "Run a command."}
PATHS = {"responses": "/responses", "chat": "/chat/completions", "messages": "/v1/messages",
         "generate_content": "/v1beta/models/mock-model:streamGenerateContent?alt=sse"}


class Responses:
    def begin(self, prompt):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}]

    def body(self, said):
        return {"model": "mock-model", "stream": True, "input": said, "instructions": "Work.",
                "tools": [dict(TOOL, type="function", parameters=PARAMETERS)]}

    def answered(self, texts, calls):
        return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]} for text in texts] + [
            {"type": "function_call", "call_id": identity, "name": "shell", "arguments": arguments} for identity, arguments in calls]

    def output(self, identity, text):
        return [{"type": "function_call_output", "call_id": identity, "output": text}]


class Chat:
    def begin(self, prompt):
        return [{"role": "user", "content": prompt}]

    def body(self, said):
        return {"model": "mock-model", "stream": True, "stream_options": {"include_usage": True}, "messages": said,
                "tools": [{"type": "function", "function": dict(TOOL, parameters=PARAMETERS)}]}

    def answered(self, texts, calls):
        return [{"role": "assistant", "content": "".join(texts) or None, "tool_calls": [
            {"id": identity, "type": "function", "function": {"name": "shell", "arguments": arguments}} for identity, arguments in calls]}]

    def output(self, identity, text):
        return [{"role": "tool", "tool_call_id": identity, "content": text}]


class Messages:
    def begin(self, prompt):
        return [{"role": "user", "content": prompt}]

    def body(self, said):
        return {"model": "mock-model", "stream": True, "max_tokens": 1000, "messages": said,
                "tools": [dict(TOOL, input_schema=PARAMETERS)]}

    def answered(self, texts, calls):
        blocks = [{"type": "text", "text": text} for text in texts]
        blocks += [{"type": "tool_use", "id": identity, "name": "shell", "input": json.loads(arguments)} for identity, arguments in calls]
        return [{"role": "assistant", "content": blocks}]

    def output(self, identity, text):
        return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": identity, "content": text}]}]


class GenerateContent:
    def begin(self, prompt):
        return [{"role": "user", "parts": [{"text": prompt}]}]

    def body(self, said):
        return {"contents": said, "tools": [{"functionDeclarations": [dict(TOOL, parameters=PARAMETERS)]}]}

    def answered(self, texts, calls):
        parts = [{"text": text} for text in texts]
        parts += [{"functionCall": {"id": identity, "name": "shell", "args": json.loads(arguments)}} for identity, arguments in calls]
        return [{"role": "model", "parts": parts}]

    def output(self, identity, text):
        response = {"id": identity, "name": "shell", "response": {"output": text}}
        return [{"role": "user", "parts": [{"functionResponse": response}]}]


TALKS = {"responses": Responses(), "chat": Chat(), "messages": Messages(), "generate_content": GenerateContent()}


def ask(api, body):
    """Told of the answer; OSError with the reason where there is none."""
    token = os.environ["SANDBOX_WORKER_TOKEN"]
    request = urllib.request.Request(os.environ["SANDBOX_WORKER_MODEL_URL"] + PATHS[api], json.dumps(body).encode(), {
        "Content-Type": "application/json", "Authorization": "Bearer " + token})
    with urllib.request.urlopen(request) as answer:
        told = dialects.told(api, answer.read(), answer.headers.get_content_type() == "text/event-stream")
    if not told.ok:
        raise OSError("the answer has no end")
    return told


def main(api):
    talk, said = TALKS[api], None
    said = talk.begin(sys.stdin.read())
    while True:
        told = ask(api, talk.body(said))
        calls = [(item[1], item[2]) for item in told.items if item[0] == "function_call"]
        if not calls:
            return "".join(told.words())
        said += talk.answered(told.words(), calls)
        for identity, arguments in calls:
            done = subprocess.run(["/bin/sh", "-c", json.loads(arguments)["command"]], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            said += talk.output(identity, "exit code %d\n%s" % (done.returncode, done.stdout.decode()))


if __name__ == "__main__":
    try:
        print(json.dumps({"type": "result", "is_error": False, "result": main(sys.argv[1])}), flush=True)
    except (OSError, ValueError) as failure:
        print(json.dumps({"type": "result", "is_error": True, "result": str(failure)}), flush=True)
        sys.exit(1)

"""A small agent that any program could be: asks a model over the Responses API, runs the shell commands it is told to, and
prints what it does as JSON lines. It knows the model's address and its token from the environment, and nothing else.

Standard library, Python 3.8+. Prompt on stdin; exit 0 when the model has said its last word, 1 when it could not be asked.
"""
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

MODEL_URL = os.environ["SANDBOX_WORKER_MODEL_URL"]
TOKEN = os.environ["SANDBOX_WORKER_TOKEN"]
TOOL = {"type": "function", "name": "exec_command", "description": "Run a shell command",
        "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}}


def say(kind, **fields):
    print(json.dumps(dict(type=kind, **fields)), flush=True)


def ask(conversation):
    """One model request -> the finished response object; its text is printed as it comes."""
    body = {"model": "demo-model", "stream": True, "input": conversation, "tools": [TOOL]}
    request = urllib.request.Request(MODEL_URL + "/responses", json.dumps(body).encode(),
                                     {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"})
    finished = None
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                event = json.loads(line[6:].decode())
                if event["type"] == "response.output_text.delta":
                    say("text", delta=event["delta"])
                elif event["type"] == "response.completed":
                    finished = event["response"]
    if finished is None:
        raise OSError("the stream ended without response.completed")
    return finished


def use_tool(call):
    """Run the command; -> what the model gets to see."""
    command = json.loads(call["arguments"])["cmd"]
    say("tool.started", call_id=call["call_id"], command=command)
    done = subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.stdout.decode(errors="replace")
    say("tool.completed", call_id=call["call_id"], exit_code=done.returncode, output=output)
    return {"type": "function_call_output", "call_id": call["call_id"], "output": output}


def main():
    conversation = [{"role": "user", "content": sys.stdin.read()}]
    while True:
        try:
            response = ask(conversation)
        except (OSError, ValueError) as error:
            say("failed", message=str(error))
            return 1
        conversation += response["output"]
        calls = [item for item in response["output"] if item["type"] == "function_call"]
        if not calls:
            words = [part["text"] for item in response["output"] for part in item.get("content") or () if "text" in part]
            say("result", is_error=False, result="".join(words), usage=response["usage"])
            return 0
        conversation += [use_tool(call) for call in calls]


if __name__ == "__main__":
    sys.exit(main())

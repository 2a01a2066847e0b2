"""Outcome directories made by hand, for what no real run shows in a second: hundreds of calls, hostile text everywhere."""

from __future__ import annotations

import hashlib
import json
import os

START = 1796023590.0
BIDI, ESCAPE, HALF = "\u202egnp.exe\u2066", "\x1b[31;1mred\x1b[0m\x1b]0;title\x07", "\ud83d"
HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 2'>",
    "javascript:window.pwned=3",
    "\"'><svg onload=window.pwned=4>",
    "</style></title></textarea><iframe src='javascript:parent.pwned=5'></iframe>",
    "--><!--<script>window.pwned=6</script>",
    BIDI,
    ESCAPE,
    HALF + "\udc00" + HALF,
    "\0\x01\x7f\x9b\ufeff\u200b\u2028",
    "<base href=//example.test/><link rel=stylesheet href=//example.test/x.css><meta http-equiv=refresh content='0;url=//example.test'>",
    "&lt;b&gt;&#x3c;script&#x3e;",
    "x" * 300 + "<wbr>" * 20,
    "\u0430\u0301" * 50,
    "%s %d {0} ${x} `y` \\u003cscript\\u003e",
)


def attempt(seq, **more):
    begin = START + seq
    return dict(
        {
            "seq": seq,
            "request": seq,
            "fingerprint": "POST /v1/responses %d" % seq,
            "attempt": 1,
            "invocation_id": "run-1",
            "main": True,
            "method": "POST",
            "path": "/v1/responses",
            "dialect": "responses",
            "model": "m",
            "identity": {},
            "user_agent": "cli",
            "started_at": begin,
            "sent_at": begin,
            "first_byte_at": begin + 0.2,
            "ended_at": begin + 0.5,
            "status": 200,
            "response_id": "resp_%d" % seq,
            "response_headers": {},
            "retry_after": None,
            "wait": None,
            "decision": "forwarded",
            "rule": "success",
            "failure": None,
            "provider_error": None,
            "error": None,
            "request_bytes": 100,
            "request_sha256": "0" * 64,
            "response_bytes": 100,
            "events": 3,
            "terminal": "response.completed",
            "finish": "completed",
            "stream_error": None,
            "usage": {"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050},
            "reused_connection": True,
            "ambiguous": False,
            "bodies": ["bodies/%06d.request" % seq, "bodies/%06d.response" % seq],
        },
        **more,
    )


def result_of(identity, calls, said):
    return dict(
        identity,
        schema="sandbox-worker/result/1",
        version="0.1.0",
        bundle={},
        return_code=0,
        timed_out=False,
        cleanup_confirmed=True,
        error=None,
        hostname="box",
        pid=2,
        started_at=START,
        ended_at=START + calls + 3,
        duration_ms=1000 * (calls + 3),
        labels={},
        harness={"name": "codex", "version": "0.144.4", "tested": []},
        final_message=said,
        usage={"chosen": {"input_tokens": 1000 * (calls + 1), "output_tokens": 50 * (calls + 1), "source": "wire"}},
        counts={"requests": calls + 1, "attempts": calls + 1, "retries": 0, "wait_s": 0.0, "tool_calls": calls},
        warnings=[{"code": "recovered_errors", "detail": "1 main requests recovered"}],
        gaps=1,
        sandbox={},
        resources={},
        outcome={
            "status": "completed",
            "kind": "completed",
            "fault": "none",
            "code": None,
            "http_status": None,
            "message": "The agent reported success.",
            "evidence": {"source": "event", "seq": calls + 1, "return_code": 0},
        },
        disposition={"action": "grade", "reason": "completed", "verify_allowed": True},
        exports={},
    )


def documents(calls=3, output="one\n", said="All done."):
    """{file: document} of a completed run with so many tool calls."""
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Do the task."}]}]
    tools = []
    for number in range(1, calls + 1):
        name = "call_%d" % number
        items += [
            {"type": "function_call", "name": "shell", "call_id": name, "arguments": json.dumps({"cmd": "echo %d" % number})},
            {"type": "function_call_output", "call_id": name, "output": output},
        ]
        tools.append(
            {
                "kind": "tool_call",
                "invocation_id": "run-1",
                "tool_call_id": name,
                "tool_name": "shell",
                "started_at": START + number + 0.5,
                "completed_at": START + number + 0.8,
                "duration_ms": 300.0,
                "timing_source": "artifact",
                "status": "failed" if number % 7 == 3 else "completed",
                "error_type": None,
            }
        )
    items.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": said}]})
    attempts = [attempt(seq) for seq in range(1, calls + 2)]
    agent = {
        "kind": "agent_invocation",
        "invocation_id": "run-1",
        "parent_invocation_id": None,
        "spawned_by_tool_call_id": None,
        "status": "completed",
        "duration_ms": 1000.0 * calls,
        "error_type": None,
        "conversation": items,
        "model_calls": [
            {"model_call_id": str(one["seq"]), "response_id": one["response_id"], "attempts": [one["seq"]]} for one in attempts
        ],
    }
    gap = {"code": "usage_omitted", "invocation_id": "run-1", "detail": "once", "file": "native/x.jsonl", "offset": 7, "count": 2}
    identity = {"nonce": "n", "invocation_id": "run-1"}
    return {
        "result.json": result_of(identity, calls, said),
        "model_attempts.jsonl": attempts,
        "observations.json": {"source": "codex", "records": [agent] + tools, "gaps": [gap]},
        "cleanup.json": dict(
            identity,
            cleanup_confirmed=True,
            return_code=0,
            timed_out=False,
            error=None,
            proof="echild",
            signals=[{"signal": "SIGINT", "at": START + 1}],
            killed=[{"pid": 7, "argv": ["sleep", "985"], "age_s": 3.0, "state": "S", "escaped": "setsid"}],
            killed_count=4097,
        ),
        "launch.json": dict(identity, launched_at=START + 0.4, agent_pid=5, command=["codex", "exec"], cwd="/app", timeout=60),
        "events.jsonl": [[START, {"type": "turn.started"}]],
        "stderr.log": "a warning\n",
    }


def answer(seq):
    item = {"type": "function_call", "id": "fc_%d" % seq, "call_id": "call_%d" % seq}
    return (
        b"event: response.output_item.done\ndata: %s\n\n"
        % json.dumps({"type": "response.output_item.done", "item": item}).encode()
    )


def write(folder, documents, body=answer):
    """The directory of these documents, with bodies and a manifest. -> its path"""
    os.makedirs(os.path.join(str(folder), "bodies"))
    found = {}
    for name, value in documents.items():
        if name != "result.json":
            found[name] = (
                value
                if isinstance(value, str)
                else "".join(json.dumps(line) + "\n" for line in value)
                if name.endswith("l")
                else json.dumps(value)
            ).encode("utf-8", "surrogatepass")
    for record in documents["model_attempts.jsonl"]:
        seq = record.get("seq") if isinstance(record, dict) else None
        if isinstance(seq, int) and 0 < seq < 10**6:
            found["bodies/%06d.request" % seq], found["bodies/%06d.response" % seq] = b"{}", body(seq)
    result = dict(documents["result.json"])
    result.setdefault(
        "files", {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in found.items()}
    )
    found["result.json"] = json.dumps(result).encode()
    for name, data in found.items():
        with open(os.path.join(str(folder), name), "wb") as file:
            file.write(data)
    return str(folder)


def replaced(value, other):
    """A copy in which `other(path, leaf)` stands for every leaf; keys stay."""

    def walk(value, path):
        if isinstance(value, dict):
            return {key: walk(one, path + (key,)) for key, one in value.items()}
        if isinstance(value, list):
            return [walk(one, path + (index,)) for index, one in enumerate(value)]
        return other(path, value)

    return walk(value, ())


def hostile():
    """A run in which every text is hostile, but for the words by which a reader finds its way."""
    kept, number = (
        {
            "kind",
            "type",
            "role",
            "status",
            "tool_call_id",
            "call_id",
            "decision",
            "bodies",
            "parent_invocation_id",
            "spawned_by_tool_call_id",
        },
        iter(range(10**6)),
    )

    def other(path, leaf):
        if not isinstance(leaf, str) or kept & set(map(str, path)):
            return leaf
        return HOSTILE[next(number) % len(HOSTILE)]

    found = {
        name: replaced(value, other) if not isinstance(value, str) else "\n".join(HOSTILE)
        for name, value in documents(calls=30, output="".join(HOSTILE)).items()
    }
    items = found["observations.json"]["records"][0]["conversation"]
    items.insert(3, {"type": "message", "role": "assistant", "content": "<script>window.pwned=7</script>" + "y" * (10 << 20)})
    items += [{"type": text, "role": text, "content": [{"type": text, "text": text}]} for text in HOSTILE]
    for index, text in enumerate(HOSTILE):
        items += [
            {"type": "function_call", "name": text, "call_id": text, "arguments": text},
            {"type": "function_call_output", "call_id": text, "output": [{"type": "input_text", "text": text}]},
        ]
        found["model_attempts.jsonl"].append(
            attempt(
                100 + index,
                path=text,
                failure=text,
                rule=text,
                decision=text,
                status=text,
                provider_error={"message": text},
                bodies=[text],
            )
        )
    return found

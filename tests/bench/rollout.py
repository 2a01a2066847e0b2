"""A Codex rollout of any size: turns of reasoning, a command with its output, a message, a token count. Always the same.

Line sizes as in real ones: median 0.6 KB, mean 1.8 KB, a tenth over 4 KB, the largest 70 KB.
"""
from __future__ import annotations

import json
import random

THREAD = "00000000-0000-7000-8000-000000000001"
WORDS = "the a file test error line value of in to and return import def class self path name not none true for".split()


def text(chance, size):
    words = []
    while size > 0:
        words.append(chance.choice(WORDS))
        size -= len(words[-1]) + 1
    return " ".join(words) + "\n\t\"quoted\" \u00e9"


def write(path, turns=None, size=None):
    """Until there are so many tool calls, or bytes. -> number of tool calls."""
    chance, done, total = random.Random(1), 0, {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0,
                                                "reasoning_output_tokens": 0, "total_tokens": 0}
    texts = [text(chance, length) for length in (120, 300, 500, 800, 1500, 2500, 5000, 10000, 69000)]
    weights = (12, 12, 12, 14, 14, 14, 12, 8, 2)
    with open(path, "w") as file:
        def put(kind, payload):
            stamp = "2026-01-02T%02d:%02d:%02d.%03dZ" % (3 + done // 36000, done // 600 % 60, done // 10 % 60, done % 10 * 100)
            file.write(json.dumps({"timestamp": stamp, "type": kind, "payload": payload}, separators=(",", ":")) + "\n")

        put("session_meta", {"id": THREAD, "timestamp": "2026-01-02T03:04:05.000Z", "cwd": "/", "originator": "codex_exec",
                             "cli_version": "0.144.4", "source": "exec", "model_provider": "m"})
        put("response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "do it"}]})
        while done < (turns or 1 << 60) and (size is None or file.tell() < size):
            call = "call_%06d" % done
            put("response_item", {"type": "reasoning", "summary": [{"type": "summary_text", "text": chance.choice(texts[:3])}],
                                  "encrypted_content": "x" * chance.choice((1400, 2400, 3800, 6400))})
            put("event_msg", {"type": "agent_reasoning", "text": chance.choice(texts[:3])})
            put("response_item", {"type": "function_call", "name": "shell_command", "call_id": call,
                                  "arguments": json.dumps({"command": "sed -n 1,%dp file" % done, "workdir": "/"})})
            output = "Exit code: 0\nWall time: 0.1 seconds\nOutput:\n" + chance.choices(texts, weights)[0]
            put("response_item", {"type": "function_call_output", "call_id": call, "output": output})
            put("response_item", {"type": "message", "role": "assistant",
                                  "content": [{"type": "output_text", "text": chance.choice(texts[:4])}]})
            put("event_msg", {"type": "agent_message", "message": chance.choice(texts[:4])})
            for name, more in (("input_tokens", 900), ("output_tokens", 100), ("total_tokens", 1000)):
                total[name] += more
            put("event_msg", {"type": "token_count", "info": {"total_token_usage": total, "last_token_usage": {
                "input_tokens": 900, "cached_input_tokens": 0, "output_tokens": 100, "reasoning_output_tokens": 0,
                "total_tokens": 1000}}, "rate_limits": None})
            done += 1
        put("event_msg", {"type": "task_complete", "last_agent_message": "done"})
    return done

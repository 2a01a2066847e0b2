"""Any other program: an argv, a prompt on stdin, exit 0 means success.

Launch path (budget 80 lines).  The local endpoint stands in SANDBOX_WORKER_MODEL_URL and SANDBOX_WORKER_TOKEN and under the
names that the vendors' SDKs read (openai-python OPENAI_BASE_URL, OPENAI_API_KEY; anthropic-sdk ANTHROPIC_BASE_URL,
ANTHROPIC_API_KEY; python-genai GOOGLE_GEMINI_BASE_URL, GEMINI_API_KEY, GOOGLE_API_KEY); variables that `env` sets win, but a
key variable of the input document is the caller's own business only when the caller also points the CLI somewhere else.
"""

from __future__ import annotations

import signal

NAME = "generic"
PROGRAMS = ()
TESTED = ()
APIS = ("responses", "chat", "messages", "generate_content")
STOP_SIGNAL = signal.SIGTERM
GRACE = 5.0
HOLD = "first_event"
MAIN_HEADERS = ()
IDENTITY_HEADERS = ()
READER = "worker.harnesses.generic_reader"
CLIENT_TIMER = None
EXIT_ZERO_IS_SUCCESS = True

SDK_NAMES = {
    "responses": (("OPENAI_BASE_URL",), ("OPENAI_API_KEY",)),
    "chat": (("OPENAI_BASE_URL",), ("OPENAI_API_KEY",)),
    "messages": (("ANTHROPIC_BASE_URL",), ("ANTHROPIC_API_KEY",)),
    "generate_content": (("GOOGLE_GEMINI_BASE_URL",), ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
}


def endpoint_env(job, base_url, token):
    """Where the local endpoint is, under our names and the SDKs'.  A URL that the document's env sets keeps its key too."""
    env = {"SANDBOX_WORKER_MODEL_URL": base_url, "SANDBOX_WORKER_TOKEN": token}
    url_names, key_names = SDK_NAMES[job["model"]["api"]]
    given = job.get("env") or {}
    if not any(name in given for name in url_names):
        env.update((name, base_url) for name in url_names)
        env.update((name, token) for name in key_names)
    return env


def prepare(job, base_url, token, state_dir, which=None):
    """See worker/harnesses/README.md.  The command is the caller's, word for word."""
    command = list(job.get("command") or ())
    env = endpoint_env(job, base_url, token) if base_url and job.get("model") else {}
    return {
        "argv": command,
        "given_argv": command,
        "program": command[0] if command else None,
        "env": env,
        "state": None,
        "stdin": "prompt" if job.get("prompt") is not None else "null",
        "prompt_in_argv": False,
        "notes": [],
    }

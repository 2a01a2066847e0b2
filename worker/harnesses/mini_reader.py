"""From mini-swe-agent's trajectory file to evidence (2.4.6, format mini-swe-agent-1.1).

There are no events: stdout is text for people, and JSON that a tool prints there is only counted (Live as it is).
`trajectory.json` is one JSON document: `info.exit_status` says how it ended (`Submitted` is the only success; a name that ends
in Error is an exception of the provider's client), `messages` are Chat Completions messages with an `extra`: of an answer the
whole `response`, of a tool the real `returncode`.  Measured:
  - zero usage is how litellm writes that the provider sent none;
  - the command that submits did run and exited 0, but its own message says -1, `action was not executed`;
  - the transcript counts steps, not HTTP attempts; without a file the run was ended within its first step.
"""

from __future__ import annotations

import os

from worker.harnesses import mini, reading
from worker.harnesses.codex_lines import text_of
from worker.harnesses.live import Live

__all__ = ("ERRORS", "Live", "collect")

LIMITS = ("LimitsExceeded", "TimeExceeded")
NOT_EXECUTED = "action was not executed"
# Exception classes of litellm and the OpenAI SDK, as exit_status names them; (pattern, kind, only without a wire, source)
ERRORS = (
    (r"^ContextWindowExceededError", "context_length", False, "litellm's exception"),
    (r"^ContentPolicyViolationError", "refusal", False, "litellm's exception"),
    (r"^RateLimitError.*(?i:quota|billing)", "quota_exhausted", True, "HTTP 429"),
    (r"^RateLimitError", "rate_limited", True, "HTTP 429"),
    (r"^AuthenticationError", "authentication", True, "HTTP 401"),
    (r"^PermissionDeniedError", "permission", True, "HTTP 403"),
    (r"^NotFoundError", "model_not_found", True, "HTTP 404"),
    (r"^ServiceUnavailableError", "overloaded", True, "HTTP 503"),
    (r"^(InternalServerError|APIConnectionError).*Connection error", "connection", True, "refused, reset or cut"),
    (r"^(InternalServerError|BadGatewayError|APIError)", "server_error", True, "HTTP 5xx"),
    (r"^(Timeout|APITimeoutError)", "model_timeout", True, "no answer in time"),
    (r"^(BadRequestError|UnprocessableEntityError|UnsupportedParamsError)", "invalid_request", True, "HTTP 400"),
)


def collect(run):
    """Evidence of one run; see worker/harnesses/README.md."""
    story = reading.Reading(run)
    story.gaps.add("event_times_unavailable", "the CLI prints no events")
    name = (run.get("baseline") or {}).get("trajectory") or mini.TRAJECTORY
    native = story.copy(name) if exists(story, name) else None
    document = story.whole(native) if native else None
    agent = story.agent(native or name)
    if native is None:
        story.gaps.add("agent_artifact_unavailable", "no trajectory file: the first step did not end")
    trajectory = Trajectory(agent, document or {})
    trajectory.read()
    live = run["live"]
    if trajectory.exit_status in LIMITS:
        live.limit = "turn_limit"
    owners = frozenset(agent.responses)
    version = text_of(trajectory.info.get("mini_version"))
    warnings = list(live.warnings)
    if version and version not in mini.TESTED:
        warnings.append({"code": "untested_version", "detail": version})
    return story.evidence(
        lambda attempt: agent.thread if attempt.get("main") or attempt.get("response_id") in owners else "side",
        final_message=trajectory.final_message(), version=version, terminal=trajectory.terminal(),
        error_text=trajectory.error_text(), warnings=warnings,
    )  # fmt: skip


def exists(story, name):
    """Is there anything of that name?  (What it is, is looked at when it is opened.)"""
    try:
        return story.root_fd is not None and os.stat(name, dir_fd=story.root_fd, follow_symlinks=False) is not None
    except OSError:
        return False


class Trajectory:
    """The document's messages, entered into the `agent`."""

    def __init__(self, agent, document):
        self.agent, messages = agent, document.get("messages")
        self.messages = [one for one in messages if isinstance(one, dict)] if isinstance(messages, list) else []
        self.info = document.get("info") if isinstance(document.get("info"), dict) else {}
        self.exit_status = text_of(self.info.get("exit_status"))
        self.exit_text = None
        self.skipped = sum(one.get("role") == "tool" and NOT_EXECUTED in str(one)[:4000] for one in self.messages)

    def read(self):
        for index, message in enumerate(self.messages):
            extra = message.get("extra") if isinstance(message.get("extra"), dict) else {}
            at = extra.get("timestamp")
            at = float(at) if isinstance(at, (int, float)) and not isinstance(at, bool) and 0 < at < 1e11 else None
            self.agent.seen(at)
            handler = HANDLERS.get(message.get("role")) if isinstance(message.get("role"), str) else None
            if handler is None:
                self.agent.count_unknown("message/%s" % message.get("role"))
            else:
                handler(self, index, message, extra, at)
        success = self.terminal() == "success"
        self.agent.status = "completed" if success else "failed" if self.exit_status else "incomplete"
        self.agent.error = None if success else self.exit_status or "no_exit"

    def on_prompt(self, index, message, extra, at):
        text = content_of(message)
        if text:
            self.agent.conversation.append(reading.message(message["role"], text))
        self.answer(index, extra)  # an answer in a wrong format is kept beside the complaint about it

    def on_assistant(self, index, message, extra, at):
        thought, text = text_of(message.get("reasoning_content")), content_of(message)
        if thought:
            self.agent.conversation.append(reading.reasoning(thought))
        if text:
            self.agent.conversation.append(reading.message("assistant", text))
            self.agent.last_message = text
        for call in message.get("tool_calls") or () if isinstance(message.get("tool_calls"), list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                identity, name = text_of(call.get("id")), text_of(function.get("name")) or "bash"
                self.agent.conversation.append(reading.function_call(identity, name, function.get("arguments")))
                self.agent.tools.call(identity, name, at, index)
        self.answer(index, extra)

    def answer(self, index, extra):
        """The response that a message holds: its id and its usage."""
        response = extra.get("response")
        if isinstance(response, dict):
            if text_of(response.get("id")):
                self.agent.responses.append(response["id"])
            self.agent.used(index, usage_of(response.get("usage")))

    def on_tool(self, index, message, extra, at):
        identity, text = text_of(message.get("tool_call_id")), content_of(message)
        raw = text_of(extra.get("raw_output"))
        self.agent.conversation.append(reading.function_call_output(identity, text or raw or ""))
        if identity is None:
            self.agent.gap("tool_output_orphan", "a tool message without tool_call_id", index)
            return
        self.agent.tools.output(identity, self.result_of(extra, text or ""), at, index)

    def result_of(self, extra, text):
        """(status, error_type) by the real exit status.  The submitting command's is -1 by mistake and was 0; of several in
        one answer nothing says which submitted and which were not run."""
        code, problem = extra.get("returncode"), text_of(extra.get("exception_info")) or ""
        if code == -1 and NOT_EXECUTED in problem + text:
            alone = self.exit_status == "Submitted" and self.skipped == 1
            return ("completed", None) if alone else (None, None)
        if "timed out" in problem:
            return "timeout", "timeout"
        if problem:
            return "failed", text_of((extra.get("extra") or {}).get("exception_type")) or "tool_error"
        if isinstance(code, int) and not isinstance(code, bool):
            return ("completed", None) if code == 0 else ("failed", "exit_code_%d" % code)
        return None, None

    def on_exit(self, index, message, extra, at):
        self.exit_status = text_of(extra.get("exit_status")) or self.exit_status
        self.exit_text = text_of(message.get("content")) or text_of(extra.get("exception_str"))

    def terminal(self):
        if self.exit_status is None:
            return None
        return "success" if self.exit_status == "Submitted" else "failure"

    def error_text(self):
        if self.terminal() != "failure":
            return None
        return "%s: %s" % (self.exit_status, (self.exit_text or "")[:2000])

    def final_message(self):
        """What was submitted, else the last words of the model."""
        return text_of(self.info.get("submission")) or self.agent.last_message if self.terminal() == "success" else None


HANDLERS = {
    "system": Trajectory.on_prompt, "user": Trajectory.on_prompt, "assistant": Trajectory.on_assistant,
    "tool": Trajectory.on_tool, "exit": Trajectory.on_exit,
}  # fmt: skip


def content_of(message):
    """The text of a Chat Completions message: a string, or text parts."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str)) or None
    return text_of(content)


def usage_of(raw):
    """Chat Completions figures in ours."""
    if not isinstance(raw, dict):
        return None
    given, output = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
    cached = given.get("cached_tokens") if isinstance(given, dict) else None
    thought = output.get("reasoning_tokens") if isinstance(output, dict) else None
    return reading.figures(raw.get("prompt_tokens"), raw.get("completion_tokens"), cached, None, thought)

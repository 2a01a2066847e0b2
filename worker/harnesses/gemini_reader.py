"""From Gemini CLI's stdout and chat files to evidence (0.61.0).

stdout: `init`, `message` (assistant deltas, a repeated stream repeats them unmarked), `tool_use`, `tool_result`, `error`,
`result`.  No thoughts, exit codes, usage per step or finish reasons stand there.  The transcript is
`<GEMINI_CLI_HOME>/.gemini/tmp/<project>/chats/session-<time>-<first 8 of the session>.jsonl`, a log: a later record with the
same id takes an earlier one's place, `$set.messages` the whole list's (a failed first turn erases its prompt that way; what
was erased is kept here, with a gap).  `tokens: null` is the only sign that the provider sent no usage.  A shell's exit status
is a line in the text of its response, absent where it is 0.
"""

from __future__ import annotations

import os
import re
import stat

from worker.harnesses import gemini, gemini_wire, live, reading
from worker.harnesses.codex_lines import text_of, unix_time
from worker.harnesses.live import keep, words

__all__ = ("ERRORS", "Live", "collect")

REPORT = re.compile(r"gemini-client-error-[\w.-]+\.json")  # it writes the whole conversation there, outside of its home
LARGEST_REPORT = 64 << 20
LONGEST_MESSAGE = 1 << 20  # characters of deltas that are put together
LOOP = "Loop detected"
TURN_LIMITS = ("FatalTurnLimitedError",)
SHELL = "run_shell_command"
# At the end of a shell's response; a line that the command itself printed stands before it.
EXIT = re.compile(
    r"(?:^|\n)Exit Code: (-?\d+)\n(?:Signal: [^\n]*\n)?(?:Background PIDs: [^\n]*\n)?(?:Process Group PGID: \d+\n?)?"
    r"(?:</untrusted_context>)?\s*\Z"
)
SIGNAL = re.compile(
    r"\nSignal: ([^\n]+)\n(?:Background PIDs: [^\n]*\n)?(?:Process Group PGID: \d+\n?)?(?:</untrusted_context>)?\s*\Z"
)
TIMEOUT = re.compile(r"automatically cancelled because it (exceeded|did not produce)|Command timed out|timed out after")
# (pattern, kind, does it count only without a wire, where it was seen)
ERRORS = (
    (r"(?i)exceeds the maximum number of tokens|context window", "context_length", False, "HTTP 400 and the CLI's own check"),
    (r"(?i)exhausted your (daily|capacity)|quota.*(day|daily)|QuotaFailure", "quota_exhausted", True, "HTTP 429, daily quota"),
    (r"\"code\": ?429|RESOURCE_EXHAUSTED|status: ?429", "rate_limited", True, "HTTP 429"),
    (r"\"code\": ?401|UNAUTHENTICATED|API key not valid|Invalid auth method", "authentication", True, "HTTP 401 and 400"),
    (r"\"code\": ?403|PERMISSION_DENIED", "permission", True, "HTTP 403"),
    (r"\"code\": ?404|NOT_FOUND|ModelNotFound", "model_not_found", True, "HTTP 404"),
    (r"\"code\": ?(503|529)|UNAVAILABLE|overloaded", "overloaded", True, "HTTP 503 and 529"),
    (r"\"code\": ?5\d\d|INTERNAL", "server_error", True, "HTTP 500"),
    (r"\"code\": ?4\d\d|INVALID_ARGUMENT", "invalid_request", True, "HTTP 400"),
    (r"without a finish reason|empty response|malformed function call", "stream_interrupted", True, "clean end, empty reply"),
    (r"fetch failed|terminated|ECONNRE|socket hang up", "connection", True, "refused, reset, cut"),
)


class Live(live.Live):
    """`open` holds (name, parameters, time) of a call."""

    HANDLERS = {
        "init": "on_init", "message": "on_message", "tool_use": "on_tool_use", "tool_result": "on_tool_result",
        "error": "on_error", "result": "on_result",
    }  # fmt: skip

    def __init__(self):
        super().__init__()
        self.looped, self.speaking = False, False

    def on_init(self, event):
        self.thread_id = self.thread_id or words(event.get("session_id"))

    def on_message(self, event):
        text = words(event.get("content")) or ""
        if event.get("role") != "assistant":
            return
        before = self.partial_message if self.speaking and self.partial_message else ""
        self.partial_message = (before + text)[:LONGEST_MESSAGE]
        self.messages += not self.speaking
        self.speaking = True

    def on_tool_use(self, event):
        self.speaking = False
        name, identity, given = words(event.get("tool_name")) or "tool", words(event.get("tool_id")), event.get("parameters")
        self.begin(name, identity, given, (name, given, unix_time(event.get("timestamp"))))

    def on_tool_result(self, event):
        self.open.pop(words(event.get("tool_id")), None)

    def on_error(self, event):
        text = words(event.get("message")) or ""
        if event.get("severity") == "error":
            keep(self.errors, text)
            self.message = text
        else:
            self.looped = self.looped or text.startswith(LOOP)
            self.warn("cli_warning", text)

    def on_result(self, event):
        """Success only with no error and no loop before it: the CLI says `success` for a loop, too."""
        error = event.get("error") if isinstance(event.get("error"), dict) else {}
        failed = event.get("status") != "success" or self.looped or bool(self.errors)
        self.terminal = "failure" if failed else "success"
        said = words(error.get("message")) or (self.errors[-1] if self.errors else None)
        self.message = (said or (LOOP if self.looped else "the result says error")) if failed else None
        self.final_message = None if failed else self.partial_message
        self.limit = "turn_limit" if error.get("type") in TURN_LIMITS else None
        self.usage = event.get("stats")


def collect(run):
    """Evidence of one run; see worker/harnesses/README.md."""
    story, session, before = reading.Reading(run), run["live"].thread_id, run.get("baseline") or {}
    reading.deny_success(run)
    take_reports(story, run, (run.get("env") or {}).get("TMPDIR") or os.environ.get("TMPDIR") or "/tmp")
    every = story.find(".gemini", lambda name: name.endswith((".jsonl", ".txt")), 6)
    chats = [path for path in every if path.endswith(".jsonl") and "/chats/" in path and path not in before]
    roots = [path for path in chats if path.split("/chats/")[1].count("/") == 0]
    chosen = [path for path in roots if path.endswith("-%s.jsonl" % session[:8])] if session else roots
    if len(chosen) != 1:
        code = "transcript_ambiguous" if chosen else "agent_artifact_unavailable"
        story.gaps.add(code, "%d chat files for session %s" % (len(chosen), session))
        return story.evidence(lambda attempt: None, **known(run, None))
    root = read_chat(story, chosen[0], story.run["invocation_id"], session)
    prompts, told = [], {identity for identity, _, _ in root.calls}
    for path in chats:
        if path not in roots and session and ("/%s/" % session in path or "/%s/" % root.session in path):
            chat = read_chat(story, path, path.rsplit("/", 1)[1][: -len(".jsonl")], None)
            prompts.append((chat.prompt, chat.agent.thread))
            told.update(identity for identity, _, _ in chat.calls)
            chat.agent.parent, chat.agent.spawned_by = story.run["invocation_id"], root.spawned(chat)
            if chat.agent.spawned_by is None:
                chat.agent.gap("subagent_spawn_unlinked")
    for path in every:
        if "/tool-outputs/" in path and path.endswith(".txt"):
            story.copy(path, "tool-output-" + path.rsplit("/", 1)[1])
    root.add_open({identity: call for identity, call in run["live"].open.items() if identity not in told})
    return story.evidence(gemini_wire.owner(run, root.agent.thread, prompts), **known(run, root))


def take_reports(story, run, folder):
    """Move this run's error reports (they name its state directory) from the directory for temporary files to native/."""
    try:
        names = [name for name in os.listdir(folder) if REPORT.fullmatch(name)]
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if names and run["state"] else None
    except OSError:
        return
    for name in sorted(names) if fd is not None else ():
        if report_of(fd, name, run["state"].encode()):
            story.copy(name, below=fd)
            try:
                os.unlink(name, dir_fd=fd)
            except OSError:  # no right to: then it stays
                pass
    if fd is not None:
        os.close(fd)


def report_of(folder_fd, name, mark):
    """Whether it is a plain file of this run's; anybody may have put things with such names there."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder_fd)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        return stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and about.st_size <= LARGEST_REPORT and mark in file.read()


def read_chat(story, path, invocation, session):
    native = story.copy(path)
    chat = Chat(story.agent(native or path, session or invocation, invocation))
    if native:
        for offset, record in story.objects(native):
            chat.survey(offset, record)
        for offset, record in story.objects(native):
            chat.read(offset, record)
        chat.finish()
    return chat


class Chat:
    """One chat file, read twice: which record of an id is its last, then those records in order."""

    def __init__(self, agent):
        self.agent, self.last, self.listed, self.session = agent, {}, set(), None
        self.terminal, self.prompt, self.calls = None, None, []

    def messages(self, record):
        """The message records that a line holds: itself, or those of `$set.messages`."""
        patch = record.get("$set")
        if not isinstance(patch, dict):
            return [record] if text_of(record.get("id")) else []
        listed = patch.get("messages")
        return [one for one in listed if isinstance(one, dict) and text_of(one.get("id"))] if isinstance(listed, list) else []

    def survey(self, offset, record):
        self.session = text_of(record.get("sessionId")) or self.session
        found = self.messages(record)
        if isinstance(record.get("$set"), dict) and isinstance(record["$set"].get("messages"), list):
            self.listed = set()
        for message in found:
            self.last[message["id"]] = offset
            self.listed.add(message["id"])

    def read(self, offset, record):
        for message in self.messages(record):
            if self.last.get(message["id"]) == offset:
                self.on_message(message, offset)

    def on_message(self, message, offset):
        kind, at = message.get("type"), unix_time(message.get("timestamp"))
        self.agent.seen(at)
        if kind == "user":
            for part in message.get("content") if isinstance(message.get("content"), list) else ():
                if isinstance(part, dict) and text_of(part.get("text")):
                    self.prompt = self.prompt or part["text"]
                    self.agent.conversation.append(reading.message("user", part["text"]))
        elif kind == "gemini":
            self.on_answer(message, at, offset)
        elif kind not in ("info", "error", "warning"):
            self.agent.count_unknown("message/%s" % kind)

    def on_answer(self, message, at, offset):
        for thought in message.get("thoughts") if isinstance(message.get("thoughts"), list) else ():
            if isinstance(thought, dict):
                parts = [text_of(thought.get("subject")), text_of(thought.get("description"))]
                self.agent.conversation.append(reading.reasoning(": ".join(part for part in parts if part)))
        text = text_of(message.get("content"))
        if text:
            self.agent.conversation.append(reading.message("assistant", text))
            self.agent.last_message = text
        called = False
        for call in message.get("toolCalls") if isinstance(message.get("toolCalls"), list) else ():
            if isinstance(call, dict):
                called = True
                self.on_call(call, at, offset)
        self.agent.used(message["id"], usage_of(message.get("tokens")))
        self.terminal = "success" if text and not called else None
        self.agent.status = "incomplete" if called or not text else "completed"

    def on_call(self, call, at, offset):
        identity, name = text_of(call.get("id")), text_of(call.get("name"))
        self.calls.append((identity, name, str(call.get("args"))[:4000]))
        self.agent.conversation.append(reading.function_call(identity, name, call.get("args")))
        record = self.agent.tools.call(identity, name or "tool", at, offset)
        if call.get("status") not in ("success", "error", "cancelled"):
            return  # it had not ended
        text, ended = response_text(call.get("result")), unix_time(call.get("timestamp"))
        self.agent.seen(ended)
        self.agent.conversation.append(reading.function_call_output(record["tool_call_id"], text))
        self.agent.tools.output(record["tool_call_id"], result_of(call, name, text), ended, offset)

    def add_open(self, begun):
        """Calls that stdout tells of and the transcript, which has a call when it has ended, does not: the CLI was killed."""
        for identity, (name, given, at) in begun.items():
            self.agent.conversation.append(reading.function_call(identity, name, given))
            self.agent.tools.call(identity, name, at, None)

    def spawned(self, chat):
        """The call that started a sub-agent, where only one call can have."""
        found = [identity for identity, name, args in self.calls if name == "invoke_agent"]
        return found[0] if len(found) == 1 else None

    def finish(self):
        erased = len(self.last) - len(self.listed.intersection(self.last))
        if erased:
            self.agent.gap("transcript_superseded", "%d records" % erased, key="erased")


def response_text(result):
    """The text that the model got: of the function responses, their output or error."""
    parts = []
    for one in result if isinstance(result, list) else ():
        response = one.get("functionResponse") if isinstance(one, dict) else None
        inner = response.get("response") if isinstance(response, dict) else None
        if isinstance(inner, dict):
            parts.append(text_of(inner.get("output")) or text_of(inner.get("error")) or "")
    return "\n".join(parts)


def result_of(call, name, text):
    """(status, error_type) of a tool call: the shell's exit line, then the CLI's status word."""
    status, tail = call["status"], text[-4000:]
    if TIMEOUT.search(text[:2000]):
        return "timeout", "timeout"
    if status == "cancelled":
        return "cancelled", "cancelled"
    if name == SHELL:
        exited, signalled = EXIT.search(tail), SIGNAL.search(tail)
        if exited:
            return ("completed", None) if int(exited.group(1)) == 0 else ("failed", "exit_code_" + exited.group(1))
        if signalled and signalled.group(1) not in ("(none)", "0"):
            return "failed", "signal_" + signalled.group(1)[:20]
    return ("completed", None) if status == "success" else ("failed", "tool_error")


def usage_of(tokens):
    """The CLI's figures in ours: its output leaves the thoughts out; null means that the provider sent none."""
    if not isinstance(tokens, dict):
        return None
    names = ("input", "output", "cached", "thoughts")
    given, output, cached, thoughts = (reading.number(tokens.get(name)) for name in names)
    whole = None if output is None else output + (thoughts or 0)
    return reading.figures(given, whole, cached, None, thoughts, tokens.get("total"))


def usage_of_result(stats):
    """result.stats: input counts cached in, output leaves thoughts out, which only the total shows."""
    if not isinstance(stats, dict):
        return None
    total, given, output = (reading.number(stats.get(name)) for name in ("total_tokens", "input_tokens", "output_tokens"))
    if total is None or given is None or output is None or total < given + output:
        return None
    return reading.figures(given, total - given, reading.number(stats.get("cached")), None, total - given - output, total)


def known(run, root):
    """The fields of the evidence that stdout and the root's transcript tell."""
    live = run["live"]
    version = reading.version_on_wire(run.get("wire"), r"GeminiCLI[a-z-]*/([0-9][^/\s]*)")
    warnings = list(live.warnings)
    if version and version not in gemini.TESTED:
        warnings.append({"code": "untested_version", "detail": version})
    last = root and root.agent.last_message
    return {
        "final_message": (last if root and root.terminal else live.final_message) if live.terminal == "success" else None,
        "version": version, "terminal": root and root.terminal, "error_text": live.message,
        "usage_events": usage_of_result(live.usage), "warnings": warnings,
    }  # fmt: skip

"""From Claude Code's session files to evidence (2.1.332).

`<CLAUDE_CONFIG_DIR>/projects/<cwd>/<session>.jsonl` is the root, `<session>/subagents/agent-<id>.jsonl` are its sub-agents
(`.meta.json` beside each names the tool call that started it), `<session>/tool-results/*` the outputs that were too long.  The
session is ours (`--session-id`), else the one that stdout or the requests announce.  Measured:
  - an `assistant` record holds one block; those of one message share `message.id` and the final usage, which counts once;
  - all zeros are how the CLI writes that the provider sent no usage;
  - the exit status of a command is the first line of a failed result's text, `Exit code N`; a result that did not fail is 0;
  - every HTTP attempt leaves an `api-request` record, also the repeats that stdout hides; it does not say how it ended.
"""

from __future__ import annotations

import re

from worker.harnesses import claude_code, reading
from worker.harnesses.claude_code_events import ERRORS, SYNTHETIC, Live, blocks, text_in
from worker.harnesses.codex_lines import text_of, unix_time

__all__ = ("ERRORS", "Live", "collect")

SESSION, AGENT = claude_code.IDENTITY_HEADERS[:2]
EXIT = re.compile(r"^(?:Error: )?Exit code (-?\d+)\b")
RESULTS = (  # how the text of a failed result begins -> status, error type
    (re.compile(r"Command timed out|timed out after \d+"), "timeout", "timeout"),
    (re.compile(r"^(<tool_use_error>)?\s*(Error: )?(No such tool|InputValidationError)"), "failed", "invalid_call"),
    (re.compile(r"interrupted by user|doesn't want to (proceed|take)|\[Request interrupted"), "cancelled", "interrupted"),
)
# Records that are no observation of what the agent did.
QUIET = frozenset(
    "attachment queue-operation last-prompt atis-latch tools-used api-request-shape api-request-blob cost-state summary "
    "file-history-snapshot progress custom-title ai-title agent-name mode permission-mode".split()
)


def collect(run):
    """Evidence of one run; see worker/harnesses/README.md."""
    story = reading.Reading(run)
    session = run["live"].thread_id or session_of(run)
    before = run.get("baseline") or {}
    every = story.find("projects", lambda name: True, 4)
    roots = [path for path in every if path.count("/") == 2 and path.endswith(".jsonl") and (path not in before or session)]
    chosen = [path for path in roots if path.endswith("/%s.jsonl" % session)] if session else roots
    if len(chosen) != 1:
        code = "transcript_ambiguous" if chosen else "agent_artifact_unavailable"
        story.gaps.add(code, "%d session files for session %s" % (len(chosen), session))
        return story.evidence(lambda attempt: None, **known(run, []))
    read_session(story, chosen[0], every, before)
    if len(roots) > 1:
        story.gaps.add("transcript_unrelated", "%d" % (len(roots) - 1))
    root = story.agents[0]
    hidden(story)
    return story.evidence(lambda attempt: thread_of(attempt, root.thread), **known(run, story.agents))


def session_of(run):
    """The session that the main requests name, where they agree."""
    if run.get("dirfd") is None:
        return None
    named = {reading.header(one, SESSION) for one in reading.read_attempts(run["dirfd"]) if one.get("main")} - {None}
    return named.pop() if len(named) == 1 else None


def thread_of(attempt, session):
    """A sub-agent's id, the session's id for the root, None for what names another session."""
    if reading.header(attempt, SESSION) != session:
        return None
    return reading.header(attempt, AGENT) or session


def read_session(story, path, every, before):
    folder = path[: -len(".jsonl")]
    session = folder.rsplit("/", 1)[1]
    native = story.copy(path)
    root = Transcript(story.agent(native or path, session), since=before.get(path, 0))
    for offset, record in story.objects(native) if native else ():
        root.feed(offset, record)
    for name in every:
        if name.startswith(folder + "/subagents/") and name.endswith(".jsonl"):
            read_subagent(story, name, every, before)
        elif name.startswith(folder + "/tool-results/"):
            story.copy(name, "tool-result-" + name.rsplit("/", 1)[1])


def read_subagent(story, path, found, before):
    native = story.copy(path)
    if native is None:
        return
    identity = path.rsplit("/", 1)[1][len("agent-") : -len(".jsonl")]
    agent = story.agent(native, identity, identity)
    agent.parent, meta = story.run["invocation_id"], path[: -len(".jsonl")] + ".meta.json"
    copied = story.copy(meta) if meta in found else None
    said = story.whole(copied) or {} if copied else {}
    agent.spawned_by = text_of(said.get("toolUseId"))
    if agent.spawned_by is None:
        agent.gap("subagent_spawn_unlinked")
    transcript = Transcript(agent, since=before.get(path, 0))
    for offset, record in story.objects(native):
        transcript.feed(offset, record)
    if agent.status == "unknown" and said.get("finished") is True:
        agent.status = "completed"


class Transcript:
    """One session file, record by record; what it says is entered into its `agent`."""

    def __init__(self, agent, since=0):
        self.agent, self.since, self.requests, self.errors = agent, since, 0, 0
        agent.transcript, agent.version, agent.terminal = self, None, None

    def feed(self, offset, record):
        kind = text_of(record.get("type")) or "untyped"
        current = offset >= self.since
        at = unix_time(record.get("timestamp"))
        self.agent.version = text_of(record.get("version")) or self.agent.version
        if kind in ("user", "assistant") and isinstance(record.get("message"), dict):
            if current:
                self.agent.seen(at)
            getattr(self, "on_" + kind)(record, record["message"], at if current else None, offset, current)
        elif kind == "system":
            self.on_system(record, at, current)
        elif kind == "api-request":
            self.requests += current
        elif kind not in QUIET:
            self.agent.count_unknown(kind)

    def on_user(self, record, message, at, offset, current):
        for block in blocks(message):
            if block.get("type") == "tool_result":
                self.on_tool_result(record, block, at, offset, current)
            elif text_of(block.get("text")):
                self.agent.conversation.append(reading.message("user", block["text"]))

    def on_tool_result(self, record, block, at, offset, current):
        identity, text = text_of(block.get("tool_use_id")), text_in(block)
        self.agent.conversation.append(reading.function_call_output(identity, text))
        if identity is None:
            self.agent.gap("tool_output_orphan", "a result without tool_use_id", offset)
        elif current:
            self.agent.tools.output(identity, result_of(block, text, record.get("toolUseResult")), at, offset)

    def on_assistant(self, record, message, at, offset, current):
        if message.get("model") == SYNTHETIC or record.get("isApiErrorMessage"):
            texts = [text_of(block.get("text")) for block in blocks(message)]
            if current and record.get("isApiErrorMessage"):
                self.agent.terminal, self.agent.error = "failure", "api_error"
                self.agent.status, self.error_text = "failed", next((text for text in texts if text), None)
            return  # the CLI's own words, not the model's
        for block in blocks(message):
            self.on_block(block, at, offset, current)
        identity = text_of(message.get("id"))
        if current and identity:
            if identity not in self.agent.calls_usage:
                self.agent.responses.append(identity)
            self.agent.used(identity, usage_of(message.get("usage")))
            self.agent.terminal, self.agent.error, self.agent.status = ending(message.get("stop_reason"))

    error_text = None

    def on_block(self, block, at, offset, current):
        kind, conversation = block.get("type"), self.agent.conversation
        if kind == "text" and text_of(block.get("text")):
            conversation.append(reading.message("assistant", block["text"]))
            if current:
                self.agent.last_message = block["text"]
        elif kind == "thinking" and text_of(block.get("thinking")):
            conversation.append(reading.reasoning(block["thinking"]))
        elif kind in ("tool_use", "server_tool_use"):
            identity, name = text_of(block.get("id")), text_of(block.get("name"))
            conversation.append(reading.function_call(identity, name, block.get("input")))
            if current:
                self.agent.tools.call(identity, name or "tool", at, offset)

    def on_system(self, record, at, current):
        kind = text_of(record.get("subtype"))
        if kind == "compact_boundary" and current:
            about = record.get("compactMetadata") if isinstance(record.get("compactMetadata"), dict) else {}
            self.agent.compactions.append({
                "kind": "context_compaction", "invocation_id": self.agent.invocation_id, "observed_at": at,
                "trigger": text_of(about.get("trigger")), "tokens_before": reading.number(about.get("preTokens")),
                "tokens_after": reading.number(about.get("postTokens")), "outcome": "completed", "summary": None,
                "first_kept_item_id": None, "before_model_call": None, "model_calls": [], "after_model_call": None,
            })  # fmt: skip
        elif kind == "api_error":
            self.errors += current


def ending(stop_reason):
    """(terminal, error type, status) that an answer's stop_reason gives to its agent, should it be the last one."""
    if stop_reason == "end_turn" or stop_reason == "stop_sequence":
        return "success", None, "completed"
    if stop_reason in ("refusal", "max_tokens", "model_context_window_exceeded"):
        return "failure", stop_reason, "failed"
    return None, "no_turn_end", "incomplete"


def result_of(block, text, beside):
    """(status, error_type) of a tool result; `beside` is the CLI's own record of it, a string for a failure."""
    if isinstance(beside, dict) and beside.get("interrupted") is True:
        return ("timeout", "timeout") if beside.get("timedOutAfterMs") else ("cancelled", "interrupted")
    if not block.get("is_error"):
        return "completed", None
    head = text[:4000]
    for pattern, status, error in RESULTS:
        if pattern.search(head):
            return status, error
    found = EXIT.match(head)
    return "failed", "exit_code_%s" % found.group(1) if found else "tool_error"


def usage_of(raw):
    """Anthropic's figures in ours: its input leaves out what was read from or written to the cache."""
    if not isinstance(raw, dict):
        return None
    cached, written = (reading.number(raw.get(name)) for name in ("cache_read_input_tokens", "cache_creation_input_tokens"))
    given = reading.number(raw.get("input_tokens"))
    whole = None if given is None else given + (cached or 0) + (written or 0)
    return reading.figures(whole, raw.get("output_tokens"), cached, written)


def usage_of_result(raw):
    """The sum over the models of a result's modelUsage."""
    total = [0, 0, 0, 0]
    for one in raw.values() if isinstance(raw, dict) else ():
        if not isinstance(one, dict):
            return None
        values = [reading.number(one.get(name)) for name in
                  ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")]  # fmt: skip
        if None in values:
            return None
        total = [left + right for left, right in zip(total, values)]
    return reading.figures(total[0] + total[2] + total[3], total[1], total[2], total[3])


def hidden(story):
    """HTTP attempts that the CLI made and nothing else tells of: its requests, less answers and told retries."""
    for agent in story.agents:
        told = len(agent.responses) + agent.transcript.errors + (agent.error == "api_error")
        if agent.transcript.requests > told:
            agent.gap("model_attempts_untold", "%d requests, %d told" % (agent.transcript.requests, told), key="requests")


def known(run, agents):
    """The fields of the evidence that stdout and the root's transcript tell."""
    live, root = run["live"], agents[0] if agents else None
    version = root and root.version or live.version or reading.version_on_wire(run.get("wire"), r"claude-cli/(\S+)")
    warnings = list(live.warnings)
    if version and version not in claude_code.TESTED:
        warnings.append({"code": "untested_version", "detail": version})
    if live.results > 1:
        warnings.append({"code": "several_results", "detail": "%d results; the last one counts" % live.results})
    return {
        "final_message": live.final_message if live.terminal else root and root.last_message, "version": version,
        "terminal": root and root.terminal, "error_text": root and root.transcript.error_text,
        "usage_events": usage_of_result(live.usage), "warnings": warnings,
    }  # fmt: skip

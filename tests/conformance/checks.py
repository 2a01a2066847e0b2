"""The nine kinds of evidence, each one function of a Played run: it yields a sentence for every disagreement.

Each compares what the run left with the endpoint's witness; none compares two of our own files only. A function that has
nothing to look at in a scenario returns a reason by raising NotApplicable, and still checks that nothing was invented.
"""
from __future__ import annotations

from tests import runs
from tests.conformance import dialects
from tests.conformance.runner import verifier
from tests.conformance.witness import NAMES, sha256

CLOCK = 0.25            # s: two processes stamp the same instant, each when it gets the processor; ordering is what counts
GENEROUS = 10.0         # s: hang guard of a wait
EXIT = {"grade": 0, "retry": 75, "mask": 69}


class NotApplicable(Exception):
    """args[0]: the reason."""


def invocations(played):
    """{thread id: agent_invocation record}, by the threads of the requests that each record's model calls own."""
    by_seq = {record["seq"]: exchange for exchange, record in played.exchanges()}
    found = {}
    for record in played.done.records("agent_invocation"):
        for call in record["model_calls"]:
            found.update((by_seq[seq].thread, record) for seq in call["attempts"] if seq in by_seq)
    return found


# -- 1 ------------------------------------------------------------------------------------------------------------------

def call_status(played):
    """Every exchange has one record with its status, failure, decision, times and transport phase."""
    scenario, pairs = played.scenario, played.exchanges()
    failures = scenario["failures"] or [None] * len(pairs)
    decisions = scenario["decisions"] or ["forwarded"] * len(pairs)
    if len(pairs) != len(failures):
        yield "the endpoint got %d requests, %d were scripted" % (len(pairs), len(failures))
    for (exchange, record), failure, decision in zip(pairs, failures, decisions):
        name = "attempt %d" % record["seq"]
        for field, wanted in (("status", exchange.status), ("failure", failure), ("decision", decision), ("main", True)):
            if record[field] != wanted:
                yield "%s: %s is %r, should be %r" % (name, field, record[field], wanted)
        if (record["first_byte_at"] is None) != (exchange.first_sent_at is None):
            yield "%s: first_byte_at is %r, the endpoint sent at %r" % (name, record["first_byte_at"], exchange.first_sent_at)
        stamps = [record["started_at"], record["sent_at"], record["first_byte_at"], record["ended_at"]]
        known = [stamp for stamp in stamps if stamp is not None]
        if known != sorted(known):
            yield "%s: times run backwards: %s" % (name, stamps)
        if exchange.first_sent_at and not record["sent_at"] - CLOCK <= exchange.first_sent_at <= record["first_byte_at"] + CLOCK:
            yield "%s: the endpoint's first byte is outside of sent_at..first_byte_at" % name
        if exchange.succeeded and record["terminal"] != exchange.told.last:
            yield "%s: terminal is %r, the endpoint sent %r" % (name, record["terminal"], exchange.told.last)
        if exchange.status == 200 and exchange.answer["ended"] == "rst" and (record["error"] or {}).get("phase") != "body":
            yield "%s: the endpoint broke the body, the record's error is %r" % (name, record["error"])


# -- 2 ------------------------------------------------------------------------------------------------------------------

def figures(usage):
    return usage and {name: usage[name] for name in NAMES}


def tokens(played):
    """Usage per attempt, its sum, the CLI's own total; unknown is null and has a gap."""
    scenario, done, usage = played.scenario, played.done, played.done.result["usage"]
    total, omitted = played.witness.usage()
    for exchange, record in played.exchanges():
        if figures(record["usage"]) != exchange.usage:
            yield "attempt %d: usage is %s, the endpoint told %s" % (record["seq"], record["usage"], exchange.usage)
        if record["usage_raw"] != (exchange.told.raw or None):
            yield "attempt %d: usage_raw is not what was sent" % record["seq"]
    if figures(usage["wire"]) != total:
        yield "the wire's sum is %s, should be %s" % (usage["wire"], total)
    chosen = usage["chosen"]
    if scenario["usage"] == "sum" and (figures(chosen) != total or chosen["completeness"] != "complete"):
        yield "chosen is %s, should be %s, complete" % (chosen, total)
    if scenario["usage"] == "unknown" and (any(figures(chosen).values()) or 0 in figures(chosen).values()):
        yield "no answer told usage, yet chosen is %s" % chosen
    if omitted and not {"usage_omitted", "partial_model_usage_unavailable"} & set(done.gaps()):
        yield "an answer told no usage and no gap says so"
    wanted = {"sum": played.witness.usage(whole=True)[0], "none": None}.get(scenario["transcript"], figures(usage["transcript"]))
    if known_to(played, figures(usage["transcript"])) != known_to(played, wanted):
        yield "the transcript's total is %s, should be %s" % (usage["transcript"], wanted)
    yield from told_by_events(played, total)


def known_to(played, usage):
    """Of the five figures those that the CLI's own transcript has; None where that is none."""
    return {name: usage[name] for name in played.harness.counted(played.version)} or None if usage else None


def told_by_events(played, total):
    """The total on stdout: of the root thread or of all, where the CLI tells one when it succeeds. Where it tells that of all, it
    tells one when it fails, too, with what it has counted by then."""
    kind, done = played.harness.events_total, played.done
    completed = done.outcome["kind"] == "completed"
    told = (done.result["usage"]["events"] or {}).get("total_tokens")
    counted = played.witness.of(played.witness.threads()[0]) if kind == "root" else played.witness.model
    wanted = sum(one.usage["total_tokens"] for one in counted if one.usage and one.succeeded)
    if kind == "sum" and not completed:
        return
    if told != (wanted if kind and total and completed else None):
        yield "the events' total is %s, the answers told %s" % (told, wanted)


# -- 3 ------------------------------------------------------------------------------------------------------------------

def steps(played):
    """Each question to the model is one model call of its thread, in order, with its response and turn."""
    owners = invocations(played)
    for thread in played.witness.threads():
        asked = played.witness.steps(thread)
        calls = owners[thread]["model_calls"] if thread in owners else []
        if len(calls) != len(asked):
            yield "thread %s: %d model calls recorded, %d were asked" % (thread, len(calls), len(asked))
        for call, attempts in zip(calls, asked):
            wanted = next((one.told.id for one in attempts if one.succeeded), call["response_id"])
            if call["response_id"] != wanted:
                yield "model call %s: response %r, the endpoint sent %r" % (call["model_call_id"], call["response_id"], wanted)
            turn = played.harness.turn(attempts[0])
            if call.get("turn_id") != turn:
                yield "model call %s: turn %r, the request says %r" % (call["model_call_id"], call.get("turn_id"), turn)
    yield from compactions(played)


def compactions(played):
    """Each compaction names the model call that made it, and what set it off, as its request said."""
    records = played.done.records("context_compaction")
    asked = [one for one in played.witness.all if one.asks and played.harness.compacts(one)]
    if len(records) != played.scenario["compactions"] or len(asked) != len(records):
        yield "%d compactions recorded, the endpoint was asked for %d" % (len(records), len(asked))
    for record, exchange in zip(records, asked):
        if [call["response_id"] for call in record["model_calls"]] != [exchange.told.id]:
            yield "the compaction's model_calls are %s, the endpoint sent %s" % (record["model_calls"], exchange.told.id)
        if record["trigger"] != played.harness.trigger(exchange):
            yield "the compaction's trigger is %s, the request says %s" % (record["trigger"], played.harness.trigger(exchange))


# -- 4 ------------------------------------------------------------------------------------------------------------------

def history(played):
    """The conversation has all that the model was shown and all that it answered, in that order, for each thread."""
    owners = invocations(played)
    for thread in played.witness.threads():
        had = [dialects.shape(item) for item in owners[thread]["conversation"]] if thread in owners else []
        had = played.harness.recorded(had)
        asked = played.witness.of(thread)
        compacted = [one.number for one in played.witness.all if one.asks and played.harness.compacts(one)]
        shown = [one for one in asked if not compacted or one.number < compacted[0]][-1]
        wanted = shown.asked() + [item[:3] for item in asked[-1].told.items if asked[-1].succeeded]
        rest = iter(had)
        lost = [item for item in wanted if item not in rest]
        if lost:
            yield "thread %s: the conversation lacks, or has elsewhere, %s" % (thread, str(lost[0])[:300])


# -- 5 ------------------------------------------------------------------------------------------------------------------

def tools(played):
    """Each tool call that the model made is one record under its native id, with its result and times."""
    made = [(one, call) for one in played.witness.model for call in one.calls()]
    harness, done = played.harness, played.done
    records = {record["tool_call_id"]: record for record in done.records("tool_call")}
    surplus = set(records) - {harness.call_id(call) for _, call in made}
    if surplus:
        yield "tool calls that the model never made: %s" % sorted(surplus)
    for (exchange, call), status in zip(made, played.scenario["tools"]):
        name, record = harness.call_id(call), records.get(harness.call_id(call))
        if record is None:
            yield "tool call %s is not recorded" % name
            continue
        if record["status"] != status or harness.tool_name(record["tool_name"]) != call["name"]:
            yield "tool call %s: %s %s, should be %s %s" % (name, record["tool_name"], record["status"], call["name"], status)
        later = next((one for one in played.witness.of(exchange.thread) if call["call_id"] in one.outputs()
                      or one.number > exchange.number and harness.compacts(one)), None)       # which may retell it as text
        if (later is None) != (status in ("incomplete", "cancelled")):
            yield "tool call %s is %s, but its output %s the endpoint" % (
                name, status, "never reached" if later is None else "reached")
        yield from tool_times(record, exchange, later)
    if not made and not surplus:
        raise NotApplicable("the model makes no tool call")


def tool_times(record, exchange, later):
    began, ended = record["started_at"], record["completed_at"]
    if began is None or began < exchange.first_sent_at - CLOCK:
        yield "tool call %s began at %s, the model asked for it at %s" % (record["tool_call_id"], began, exchange.first_sent_at)
    if later and (ended is None or not began <= ended <= later.at + CLOCK):
        yield "tool call %s ended at %s, its output went out at %s" % (record["tool_call_id"], ended, later.at)
    if record["status"] == "incomplete" and ended is not None:
        yield "tool call %s has an end, but no output was ever seen" % record["tool_call_id"]


# -- 6 ------------------------------------------------------------------------------------------------------------------

def outcome(played):
    """Outcome, disposition, exit codes, peers' names, receipt; what a verifier finds changes none of it."""
    done, wanted = played.done, dict(played.scenario["outcome"])
    action, found = wanted.pop("action"), played.done.result
    for name, value in wanted.items():
        if done.outcome[name] != value:
            yield "outcome.%s is %r, should be %r" % (name, done.outcome[name], value)
    if done.action != action or found["disposition"]["verify_allowed"] is not True:
        yield "disposition is %s, should be %s, verify allowed" % (found["disposition"], action)
    codes = {"run": done.code, "verdict": played.commands["verdict"][0], "verify": played.commands["verify"][0]}
    if codes != {"run": EXIT[action], "verdict": EXIT[action], "verify": 0}:
        yield "exit codes are %s" % codes
    if found["exports"]["gym"]["mask_sample"] != (action != "grade"):
        yield "Gym's mask_sample is %s" % found["exports"]["gym"]["mask_sample"]
    seq = done.outcome["evidence"].get("seq") if done.outcome["evidence"].get("source") == "attempt" else None
    bodies = [record["request_sha256"] for record in done.attempts if record["seq"] == seq]     # a latched one repeats another's
    if seq is not None and bodies not in [[played.witness.of(thread)[-1].sha256] for thread in played.witness.threads()]:
        yield "the outcome rests on attempt %s, which is not the last of its thread" % done.outcome["evidence"].get("seq")
    troubled = any(one.status != 200 for one in played.witness.all if one.asks) or any(played.scenario["failures"] or ())
    if done.outcome["kind"] == "completed" and troubled != ("recovered_errors" in done.warnings()):
        yield "warnings are %s; requests %s" % (done.warnings(), "failed on the way" if troubled else "never failed")
    yield from receipt(played)
    yield from last_words(played)
    if played.scenario["rejects"]:
        reward, again = verifier(done.work), done.document("result.json")
        if reward != 0.0 or again != found:
            yield "the verifier's reward is %s; the result %s" % (reward, "changed" if again != found else "is the same")


def last_words(played):
    last = played.witness.of(played.witness.threads()[0])[-1]
    said = last.told.words() if last.succeeded else []
    if played.done.result["final_message"] != (said[-1] if said and played.scenario["message"] else None):
        yield "final_message is %r, the endpoint's last words were %r" % (played.done.result["final_message"], said[-1:])
    if played.done.result["final_message"] != played.scenario["message"]:
        yield "final_message is %r, scripted was %r" % (played.done.result["final_message"], played.scenario["message"])


def receipt(played):
    done, word = played.done, played.scenario["killed"]
    if done.receipt["cleanup_confirmed"] is not True or not done.receipt["proof"]:
        yield "cleanup is not confirmed: %s" % done.receipt
    if done.receipt["return_code"] != played.scenario["exit"] or done.result["return_code"] != played.scenario["exit"]:
        yield "return_code is %s, should be %s" % (done.receipt["return_code"], played.scenario["exit"])
    named = [" ".join(one["argv"] or []) for one in done.receipt["killed"]]
    if word and not any(word in words for words in named):
        yield "the receipt does not name %r: %s" % (word, named)


# -- 7 ------------------------------------------------------------------------------------------------------------------

def payloads(played):
    """Bodies byte for byte as the endpoint got and sent them; no answer is not an empty answer; no key anywhere."""
    done = played.done
    for exchange, record in played.exchanges():
        name = "attempt %d" % record["seq"]
        names = record["bodies"] or []
        if record["request_bytes"] != exchange.size or record["response_bytes"] != len(exchange.body):
            yield "%s: %d bytes out, %d in; the endpoint got %d and sent %d" % (
                name, record["request_bytes"], record["response_bytes"], exchange.size, len(exchange.body))
        sent = "bodies/%06d.request" % first_of(played, record)
        if sha256(done.read(*sent.split("/"))) != exchange.sha256:
            yield "%s: %s is not what the endpoint got" % (name, sent)
        answer = [path for path in names if path.endswith(".response")]
        if bool(answer) != (exchange.status is not None):
            yield "%s: the endpoint %s, the record has %s" % (name, "sent nothing" if exchange.status is None else "sent", answer)
        if answer and done.read(*answer[0].split("/")) != exchange.body:
            yield "%s: %s is not what the endpoint sent" % (name, answer[0])
        if played.key not in (exchange.headers.get("authorization", "").replace("Bearer ", "", 1), exchange.headers.get("x-api-key"),
                              exchange.headers.get("x-goog-api-key")):
            yield "request %d reached the endpoint without the real key" % exchange.number
    leaks = [name for name, data in done.everything().items() if played.key.encode() in data]
    if leaks or not done.key_removed:
        yield "the key is in %s; its file %s" % (leaks, "was removed" if done.key_removed else "is still there")


def first_of(played, record):
    """seq of the first attempt with the same request body: it alone has the body on disk."""
    return min(one["seq"] for one in played.done.attempts if one["request_sha256"] == record["request_sha256"])


# -- 8 ------------------------------------------------------------------------------------------------------------------

def ownership(played):
    """Each attempt belongs to this run and to one invocation: that of the thread that the request named."""
    done, run = played.done, played.done.result["invocation_id"]
    owner = {}
    for record in done.records("agent_invocation"):
        for call in record["model_calls"]:
            for seq in call["attempts"]:
                if seq in owner:
                    yield "attempt %d has two owners" % seq
                owner[seq] = record["invocation_id"]
    by_thread = {}
    for exchange, record in played.exchanges():
        by_thread.setdefault(exchange.thread, set()).add(owner.get(record["seq"]))
        if record["invocation_id"] != run:
            yield "attempt %d names the run %s" % (record["seq"], record["invocation_id"])
    if any(len(owners) != 1 or None in owners for owners in by_thread.values()):
        yield "threads and their owners: %s" % by_thread
    owners = [next(iter(by_thread[thread])) for thread in played.witness.threads()]
    if len(set(owners)) != 1 + played.scenario["sub_agents"] or owners[0] != run:
        yield "%d owners for %d threads; the root's is %s" % (len(set(owners)), len(by_thread), owners[0])
    spawned = {record["spawned_by_tool_call_id"] for record in done.records("agent_invocation") if record["parent_invocation_id"]}
    made = {played.harness.call_id(call) for one in played.witness.model for call in one.calls() if call["name"] == played.harness.spawns}
    if spawned != made:
        yield "sub-agents are linked to the calls %s, the model spawned by %s" % (spawned, made)
    for name in ("launch", "cleanup", "result"):
        if done.document(name + ".json")["invocation_id"] != run:
            yield "%s.json names another run" % name


# -- 9 ------------------------------------------------------------------------------------------------------------------

def attempts_per_step(played):
    """Each attempt is in exactly one step, repeats under the step that they repeat, numbered, with the waits that there were."""
    pairs = played.exchanges()
    record_of = {exchange.number: record for exchange, record in pairs}
    sent = {record["seq"] for record in record_of.values()}            # not those that the latch answered
    grouped = [[seq for seq in call["attempts"] if seq in sent]
               for record in played.done.records("agent_invocation") for call in record["model_calls"]]
    wanted = [[record_of[one.number]["seq"] for one in step] for step in played.witness.steps()]
    if sorted(grouped) != sorted(wanted):
        yield "steps are made of attempts %s, the endpoint saw %s" % (sorted(grouped), sorted(wanted))
    for step in played.witness.steps():
        numbers = [record_of[one.number]["attempt"] for one in step]
        if numbers != list(range(1, len(step) + 1)):
            yield "the attempts of one request are numbered %s" % numbers
        for one, after in zip(step, step[1:]):
            if record_of[one.number]["request"] == record_of[after.number]["request"]:      # else the CLI's own repeat
                yield from wait_between(record_of[one.number], one, after)
    counts, steps = played.done.result["counts"], played.witness.steps()
    retries = sum(record_of[one.number]["request"] == record_of[after.number]["request"]
                  for step in steps for one, after in zip(step, step[1:]))
    repeats = len({record["request"] for record in played.done.attempts if record["main"]}) - len(steps)
    if repeats and not played.harness.repeats:
        yield "%d main requests more than the endpoint saw" % repeats
    seen = {"attempts": len(played.witness.all), "main_requests": len(steps) + repeats, "retries": retries}
    if {name: counts[name] for name in seen} != seen:
        yield "counts are %s; the endpoint saw %s" % (counts, seen)


def wait_between(record, one, after):
    waited, said = after.at - (one.first_sent_at or one.at), (record["wait"] or {}).get("seconds")
    if said is None or not said - CLOCK <= waited <= said + GENEROUS:
        yield "attempt %d: says that it waited %s s, the endpoint saw %.3f s" % (record["seq"], said, waited)
    elif one.asked_wait is not None and not one.asked_wait <= said <= one.asked_wait * 1.1 + 0.001:
        yield "attempt %d: asked to wait %s s, decided on %s s" % (record["seq"], one.asked_wait, said)


CHECKS = (("call status", call_status), ("tokens", tokens), ("steps", steps), ("history", history), ("tools", tools),
          ("outcome", outcome), ("payloads", payloads), ("ownership", ownership), ("attempts per step", attempts_per_step))


def judge(played):
    """{evidence: {"state": "fulfilled" | "limited" | "not fulfilled" | "not applicable", "reasons": [sentences]}}

    limited: not fulfilled, and every sentence is excused by a limit of the CLI's own, which is the reason that stands there."""
    found = {}
    for name, check in CHECKS:
        lacking = played.harness.lacks.get(name)
        excuse = lacking or played.scenario["not_applicable"].get(name)
        try:
            wrong = [] if lacking else list(check(played))
        except NotApplicable as reason:
            wrong, excuse = [], reason.args[0]
        except (AssertionError, KeyError, TypeError, OSError, IndexError) as broken:
            wrong = ["%s: %s" % (type(broken).__name__, broken)]
        own = [next((one.reason for one in limits_of(played) if one.evidence == name and one.pattern.search(each)), None)
               for each in wrong]
        if wrong and all(own):
            found[name] = {"state": "limited", "reasons": list(dict.fromkeys(own))}
            continue
        state = "not fulfilled" if wrong else "not applicable" if excuse else "fulfilled"
        found[name] = {"state": state, "reasons": wrong or ([excuse] if excuse else [])}
    return found


def limits_of(played):
    return [one for one in played.harness.limits if one.versions is None or played.version in one.versions]


__all__ = ("CHECKS", "NotApplicable", "judge", "runs")

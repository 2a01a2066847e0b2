"""The conversation: what was said, each tool call folded with its output, each turn with the attempt that brought it.

Items are Responses API items (observations.json, DESIGN 10).  How much of a text is shown depends on how many there are, so
that a page of 500 calls stays small; what is left out is said.
"""

from __future__ import annotations

import json
import re

from worker.html_page import anchor, cut, join, link, pill, section, tag
from worker.report.reading import listed, number, sequence
from worker.report.summary import duration, gaps, names
from worker.report.words import TOOL_TONES

ALL_TEXT, MOST, LEAST = 1_200_000, 20_000, 500  # characters of all texts; of one
MOST_ITEMS = 4000
CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "mcp_call", "computer_call")
ROLES = {"assistant": "The model", "user": "The task's side", "developer": "Instructions", "system": "Instructions"}
_IDS = re.compile(rb'"(?:id|call_id|tool_call_id|tool_use_id)"\s*:\s*"([^"\\]{1,200})"')
COMMANDS = ("cmd", "command", "path", "file_path", "query", "pattern", "url", "description")


def text_of(value):
    """The text in a content: a string, a list of parts, or anything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(filter(None, map(text_of, value)))
    if isinstance(value, dict):
        for name in ("text", "refusal", "content", "output", "thinking"):
            if isinstance(value.get(name), (str, list)):
                return text_of(value[name])
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)


def conversation(run):
    invocations = run.records("agent_invocation")
    calls = {
        (one.get("invocation_id"), one.get("tool_call_id")): one
        for one in run.records("tool_call")
        if all(isinstance(one.get(name), str) for name in ("invocation_id", "tool_call_id"))
    }
    shown_items = sum(min(MOST_ITEMS, len(listed(one.get("conversation")))) for one in invocations)
    most = max(LEAST, min(MOST, ALL_TEXT // max(1, shown_items)))
    parts = [invocation(run, one, calls, most) for one in invocations[:100]]
    buttons = tag(
        "p",
        tag("button", "Unfold all", type="button", data_fold="open"),
        " ",
        tag("button", "Fold all", type="button", data_fold="close"),
        klass="no-print",
    )
    empty = tag("p", "No conversation was recorded.")
    return section("conversation", "Conversation", buttons if parts else empty, *parts)


def invocation(run, one, calls, most):
    """One agent or sub-agent."""
    items, name = listed(one.get("conversation")), one.get("invocation_id")
    left_out, items = max(0, len(items) - MOST_ITEMS), items[:MOST_ITEMS]
    root = one.get("parent_invocation_id") is None
    parent = one.get("spawned_by_tool_call_id")
    head = tag("h3", "The agent" if root else "A sub-agent", " ", tag("span", str(name)[:80], klass="quiet mono"))
    spawned = (
        [tag("p", "Started by ", link(anchor("call", parent), "tool call %s" % str(parent)[:80]), klass="small")]
        if parent
        else []
    )
    marks = [
        link(anchor("gap", index), pill("gap", "odd"), " ", str(gap.get("code"))[:60], klass="small")
        for index, (gap, _) in enumerate(gaps(run))
        if gap.get("invocation_id") == name
    ]
    mine = tag("p", join(marks[:20], " \u00b7 ")) if marks else ""
    sources = turns(run, one, items)
    outputs = paired(items)
    body, used = [], {id(output) for found in outputs.values() for output in found}
    last = None
    for item in items:
        if id(item) in used:
            continue
        source = sources.get(id(item))
        if source is not None and source != last:
            body.append(
                tag(
                    "p",
                    "from ",
                    link(anchor("a", source), "attempt %s" % source),
                    klass="turn small quiet",
                    id=anchor("turn", source),
                )
            )
        last = source or last
        body.append(element(item, calls.get((str(name), call_id(item))), outputs.get(id(item), ()), most))
    if left_out:
        body.append(tag("p", "%d more items are in observations.json." % left_out, klass="quiet"))
    return tag("div", head, *spawned, mine, *body, klass="invocation", id=anchor("inv", name))


def call_id(item):
    found = item.get("call_id") or item.get("id")
    return found if isinstance(found, str) else None


def paired(items):
    """{id of the call's item: [its outputs]}, by call id."""
    by_id, found = {}, {}
    for item in items:
        kind = item.get("type")
        if kind in CALLS and call_id(item):
            by_id.setdefault(call_id(item), id(item))
        elif isinstance(kind, str) and kind.endswith("_output") and call_id(item) in by_id:
            found.setdefault(by_id[call_id(item)], []).append(item)
    return found


def turns(run, one, items):
    """{id of an item: sequence of the attempt that brought it}: by the ids in the recorded answer; by order where the answers are
    as many as the model's turns."""
    wanted = {str(seq) for call in listed(one.get("model_calls")) for seq in listed(call.get("attempts"), int)}
    answers = [
        record
        for record in run.attempts
        if str(record.get("seq")) in wanted and record.get("failure") is None and record.get("decision") == "forwarded"
    ]
    owner, found = {}, {}
    for record in answers:
        for name in listed(record.get("bodies"), str):
            for identity in _IDS.findall(run.body(name) or b"") if name.endswith(".response") else ():
                owner.setdefault(identity.decode("utf-8", "replace"), sequence(record))
    mine = [item for item in items if item.get("role") == "assistant" or item.get("type") in CALLS + ("reasoning",)]
    for item in mine:
        source = next(
            (owner[item[name]] for name in ("id", "call_id") if isinstance(item.get(name), str) and item[name] in owner), None
        )
        if source is not None:
            found[id(item)] = source
    if not found:
        found = by_order(items, set(map(id, mine)), answers)
    return found


def by_order(items, mine, answers):
    runs, before = [], False
    for item in items:
        if id(item) in mine:
            runs = runs if before else runs + [[]]
            runs[-1].append(id(item))
        before = id(item) in mine
    if len(runs) != len(answers):
        return {}
    return {one: sequence(record) for group, record in zip(runs, answers) for one in group}


def element(item, call, outputs, most):
    kind = item.get("type")
    if kind in CALLS:
        return tool(item, call or {}, outputs, most)
    if kind == "reasoning":
        text = text_of(item.get("summary")) or text_of(item.get("content"))
        return folded("Reasoning", block(text or "(not readable: the provider keeps it encrypted)", most), "reasoning", text)
    if kind == "message" or item.get("role"):
        return message(item, most)
    return folded(str(kind)[:60].replace("_", " ").capitalize(), block(text_of(item), most), "other", text_of(item))


def message(item, most):
    role, text = item.get("role"), text_of(item.get("content"))
    title = names(ROLES, role, str(role)[:40])
    if role in ("assistant", "user") and not text.lstrip().startswith("<"):
        return tag("article", tag("h4", title), block(text, most, "p"), klass="message " + role)
    return folded(title, block(text, most), "other", text)


def folded(title, body, klass, preview=""):
    return tag(
        "details", tag("summary", title, " ", tag("span", one_line(preview), klass="quiet preview")), body, klass="item " + klass
    )


def one_line(text, most=110):
    text = " ".join(text[: 4 * most].split())
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def block(text, most, name="pre"):
    text, left_out = cut(text, most)
    said = tag("p", "%d characters are left out here." % left_out, klass="quiet small") if left_out else ""
    return join([tag(name, text, klass="text"), said])


def tool(item, call, outputs, most):
    """A call and its output, folded; open where it failed."""
    given = next((item[name] for name in ("arguments", "input", "action") if item.get(name) is not None), "")
    status = call.get("status")
    start, end = number(call.get("started_at")), number(call.get("completed_at"))
    took = duration(end - start) if start is not None and end is not None and end >= start else ""
    name = str(item.get("name") or call.get("tool_name") or item.get("type"))[:80]
    head = tag(
        "summary",
        pill(str(status or "not observed")[:20], names(TOOL_TONES, status, "quiet")),
        " ",
        tag("strong", name),
        " ",
        tag("code", one_line(headline(given)), klass="preview"),
        " ",
        tag("span", took, klass="quiet small"),
    )
    results = [block(text_of(output.get("output")), most) for output in outputs]
    results = results or [tag("p", "No output was seen.", klass="quiet")]
    error = call.get("error_type")
    return tag(
        "details",
        head,
        tag("h4", "Called with"),
        block(text_of(given), most),
        tag("h4", "Gave back"),
        *results,
        tag("p", "Error: ", str(error)[:200]) if error else "",
        klass="item tool",
        id=anchor("call", call_id(item)),
        open=status in ("failed", "timeout"),
    )


def headline(given):
    """The part of a call's arguments that a person looks for first."""
    value = given
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return given
    found = next((value[name] for name in COMMANDS if value.get(name)), value) if isinstance(value, dict) else value
    return " ".join(map(str, found)) if isinstance(found, list) else found if isinstance(found, str) else text_of(found)

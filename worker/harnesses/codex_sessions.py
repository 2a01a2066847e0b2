"""Which rollout files are a run's.  A file is known by the thread id in its session_meta (else in its name), never by its age.

Also: what a thread had used before the run (`sizes` is read before the launch, `total_at` serves forked threads).
"""

from __future__ import annotations

import os
import re

from worker.gaps import Gaps
from worker.harnesses import transcript_files as files
from worker.harnesses.codex_lines import UUID, split, text_of
from worker.harnesses.codex_thread import Thread

ROLLOUT = re.compile(r"rollout-[0-9A-Za-z._-]{1,200}\.jsonl(\.gz|\.zst)?\Z")
DEPTH = 4  # sessions/YYYY/MM/DD
LONGEST_META = 4 << 20
MOST_FORKS = 8


def candidates(root, gaps):
    """Every rollout file below CODEX_HOME (open directory `root`), in path order."""
    return [Candidate(path, first_record(root, path)) for path in files.find(root, "sessions", ROLLOUT.match, DEPTH, gaps)]


def sizes(home):
    """{relative path: size} of the rollout files before the run: what lies below is not this run's."""
    found, gaps = {}, Gaps()
    try:
        root = files.open_directory(home)
    except OSError:
        return found
    try:
        for path in files.find(root, "sessions", ROLLOUT.match, DEPTH, gaps):
            found[path] = os.stat(path, dir_fd=root, follow_symlinks=False).st_size
    finally:
        os.close(root)
    return found


def total_at(root, known, base, forks):
    """The cumulative usage of thread base["thread_id"] at byte base["end_byte_offset"] of its file; None where unknown."""
    origin = [one for one in known if isinstance(base, dict) and one.id == base.get("thread_id")]
    end = base.get("end_byte_offset") if isinstance(base, dict) else None
    if len(origin) != 1 or not isinstance(end, int) or isinstance(end, bool) or forks <= 0:
        return None
    fd = files.open_file(root, origin[0].path, Gaps())
    if fd is None:
        return None
    thread = Thread(None, origin[0].path, Gaps(), NoHistory(), lambda record: None)
    try:
        data = files.pieces(fd, origin[0].path, Gaps(), files.MOST_BYTES) or ()
        thread.read(files.texts(until(data, end), origin[0].path, Gaps()))
    finally:
        os.close(fd)
    thread.close()
    if thread.total_seen:
        return thread.total if thread.total_valid else None
    return total_at(root, known, origin[0].meta.get("history_base"), forks - 1) if origin[0].forked else None


def until(data, end):
    """The pieces up to byte `end`."""
    for piece in data:
        yield piece[:end]
        end -= len(piece)
        if end <= 0:
            return


class NoHistory:
    """For reading figures only."""

    def add(self, at):
        pass

    add_event = add


class Candidate:
    """A rollout file and what its first record says."""

    __slots__ = ("path", "id", "session", "parent", "forked", "meta")

    def __init__(self, path, meta):
        named = UUID.findall(os.path.basename(path))
        self.path, self.meta = path, meta
        self.id = text_of(meta.get("id")) or (named[-1] if named else None)
        self.parent = text_of(meta.get("parent_thread_id")) or parent_of(meta.get("source"))
        self.session, self.forked = text_of(meta.get("session_id")), text_of(meta.get("forked_from_id"))


def parent_of(source):
    """The parent thread that `source` names (source.subagent.thread_spawn.parent_thread_id), or None."""
    for name in ("subagent", "thread_spawn", "parent_thread_id"):
        source = source.get(name) if isinstance(source, dict) else None
    return text_of(source)


def choose(candidates, thread, known, gaps):
    """Candidates of the run, the root first.  No guess: without a thread id, only a single new root will do."""
    if thread is None:
        roots = [one for one in candidates if not one.parent and one.path not in (known or ())]
        what = "%d new transcripts, and no thread id" % len(roots)
    else:
        roots = [one for one in candidates if one.id == thread]
        what = "%d transcripts of thread %s" % (len(roots), thread)
    if len(roots) != 1:
        gaps.add("transcript_ambiguous" if roots else "agent_artifact_unavailable", what, key="choice")
        return []
    chosen = roots + descendants(roots[0], candidates)
    for other in candidates:
        if other not in chosen:
            gaps.add("transcript_unrelated", None, file="sessions", key="others")
    return chosen


def descendants(root, candidates):
    """Sub-agents: files whose session is the root's or whose parent is known to belong to it, in path order."""
    family, grown = {root.id}, True
    while grown:
        grown = False
        for one in candidates:
            if one.id not in family and one.parent in family:
                family.add(one.id)
                grown = True
    same = [one for one in candidates if one.parent and one.session == root.id]
    return [one for one in candidates if one is not root and one.id != root.id and (one.id in family or one in same)]


def first_record(root, path):
    """session_meta's payload; empty where the first line is not readable."""
    fd = files.open_file(root, path, Gaps())
    if fd is None:
        return {}
    head = b""
    try:
        for piece in files.pieces(fd, path, Gaps(), LONGEST_META) or ():
            head += piece
            if b"\n" in piece:
                break
    finally:
        os.close(fd)
    try:
        _, kind, payload = split(head.split(b"\n", 1)[0].strip().decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return {}
    return payload if kind == "session_meta" and isinstance(payload, dict) else {}

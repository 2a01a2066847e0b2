"""The end of a run, seen from the host: take the evidence out, know that it is genuine, clean up inside."""
from __future__ import annotations

import os
import time

from worker import cli
from worker.host.arguments import ODD
from worker.host.channel import Channel, Lost, NoPython, Refused
from worker.host.handle import PRINTED
from worker.host.outcome_directory import NotReadable, faults, read_result
from worker.host.staging import BUNDLES, PLACES, PORTABLE, staged
from worker.host.unpack import MOST_BYTES, MOST_FILES, unpack
from worker.host.verify import manifest_of
from worker.session import RESULT, WRITES

TRIES = 3
SOON = 20.0  # s for an answer to what is only a kindness
EVERYTHING = (*WRITES, *BUNDLES, PORTABLE)
UNVERIFIED = "the outcome that came out of the sandbox is not the one that the run wrote: %s"
LOST_RUN = "the sandbox gave no outcome: %s"


def collect(handle):
    """0: all is here; 65: a part of it; 66: there is no result. What comes is written by `unpack` alone."""
    problem = None
    for attempt in range(TRIES):
        try:
            with Channel(handle["via"], handle["python"]) as channel:
                channel.become_command(staged(channel, handle), "pack", handle["dir"], *(["--text"] if handle["text"] else []))
                count, problem = unpack(channel.reader, handle.out, *limits(handle.given))
                if problem:
                    problem = channel.why(problem)
        except (Lost, NoPython) as lost:
            problem = str(lost)
        if problem is None:
            break
        cli.say("collecting: %s" % problem)
        time.sleep(attempt)
    if not os.path.exists(os.path.join(handle.out, RESULT)):
        cli.say("%s: there is no result in it" % handle["dir"])
        return cli.NO_OUTCOME
    return cli.BAD_INPUT if problem else 0


def limits(given):
    return [given.get(name, most) for name, most in (("--max-files", MOST_FILES), ("--max-bytes", MOST_BYTES))]


def verify(handle):
    """Is OUT what the run wrote? 0: yes; 70: no, then the host's own result stands in OUT and the other is set aside."""
    try:
        result = read_result(handle.out)
        printed = handle.path(PRINTED)
        manifest = manifest_of(printed) if os.path.exists(printed) else None
        found = faults(handle.out, result, handle["nonce"], manifest, handle.seal_key())
        if found and unsealed_by_nature(handle, result):
            found = faults(handle.out, result)
    except NotReadable as error:
        return doubt(handle, LOST_RUN % error)
    except ODD as error:
        return doubt(handle, UNVERIFIED % ("result.json is not in its shape (%s)" % type(error).__name__))
    for sentence in found:
        cli.say(sentence)
    return doubt(handle, UNVERIFIED % "; ".join(one[:300] for one in found[:5])) if found else 0


def unsealed_by_nature(handle, result):
    """Outcomes that could not be sealed, for nobody with the key was alive, and that claim nothing: one that `recover` made
    (nothing confirmed, never graded), and one of a run that our own `stop` kept from starting."""
    kind, action = result["outcome"]["kind"], result["disposition"]["action"]
    recovered = kind == "worker_error" and action != "grade" and result.get("cleanup_confirmed") is False
    fenced = kind == "cancelled" and result["outcome"]["status"] == "not_run" and handle["stopped"] and not handle["finished"]
    return result.get("seal") is None and (recovered or (fenced and result["files"] == {}))


def doubt(handle, sentence):
    cli.say(sentence)
    handle.conclude({"worker_error": sentence}, False)
    return cli.FAILED


def clean(handle, names=EVERYTHING):
    """Remove what was staged and what the run wrote; a directory that `stage` made goes as a whole."""
    try:
        with Channel(handle["via"], handle["python"]) as channel:
            found = channel.ask("clean", dir=handle["dir"], names=names, all=handle["own"])
    except (Lost, NoPython) as problem:
        cli.say("cleaning: %s" % problem)
        return cli.FAILED
    return 0 if found.get("left") == [] or not handle["own"] else cli.FAILED


def unstage(handle):
    """Nothing was started: what this command has put inside goes again, as far as it can be reached. Its answer may not have
    come, so where the directory's place is not known, it is looked for."""
    if handle.placing is None:
        return
    known, names = handle["dir"], (*BUNDLES, PORTABLE)
    try:
        with Channel(handle["via"], handle["python"]) as channel:
            for place in [known] if known else ["%s/%s" % (base, handle.placing) for base in PLACES.split()]:
                channel.ask("clean", SOON, dir=place, names=names, all=handle["own"] or not known)
    except (Lost, NoPython, Refused, OSError, *ODD) as problem:
        cli.say("what was staged may still be there (%s)" % problem)

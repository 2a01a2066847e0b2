"""`carry STEP [options] [OUT]`: the steps of sandboxctl.  Each opens its own connection.

    run        all of them, in order
    begin      read the input document, take OUT for a new run
    stage      a directory inside with the bundle in it, then the short form of `doctor`: what blocks a run ends it here
    attach     start the run on this connection, stay to its end        launch  start it and leave
    wait       until it has ended          status  how far it is        stop    end it, or keep it from ever starting
    collect    its evidence into OUT       verify  is it genuine        verdict what to do with it
    clean      remove what was put and written inside                   doctor  what will not work there

Exit codes are those of DESIGN 5; `attach` says 3 where the connection is lost and the run may go on.  What fails before
anything was started still leaves a result in OUT: launch_failed (nothing there can run the worker), cancelled, worker_error.
"""
from __future__ import annotations

import json
import os
import time

from worker import cli
from worker.bare_outcome import STOPPED, not_launched
from worker.contract import BadInput
from worker.documents import strict_json
from worker.host import attend, fetch, staging, terminal
from worker.host.arguments import ODD, Misuse, parse
from worker.host.attend import Interrupted, Signals
from worker.host.channel import ANSWER, Channel, Lost, NoPython, Refused, complain
from worker.host.handle import FOLDER, Handle, NotFresh, job_line, read_input
from worker.host.outcome_directory import NotReadable
from worker.host.show import plain
from worker.host.verdict import main as verdict_main
from worker.host.verify import main as verify_main

OPTIONS = ("--via", "--dir", "--out", "--input", "--key", "--python", "--on-lost", "--on-interrupt", "--patience",
           "--max-files", "--max-bytes", "--harness")
FLAGS = ("--text", "--detach", "--keep", "--progress", "--no-doctor", "--follow", "--json")
WISHES = ("stop", "continue")
NO_PYTHON = "nothing in the sandbox can run the worker (%s); install Python 3.8 or later there, or bring one with --python DIR"
REPORT = 1 << 20
NUMBERS = {"--max-files": int, "--max-bytes": int, "--patience": float}
ODD_ANSWER = "what came back from the sandbox is not in its shape (%s)"
STILL = "; the run is still in the sandbox: make room, then `sandboxctl wait`, `collect`, `verify` and `verdict` with this OUT"


def main(words):
    signals = Signals()
    step = words[0] if words else ""
    if step not in STEPS:
        return cli.misuse("carry", "%r is no step; there are %s" % (step, ", ".join(STEPS)))
    handles = []
    try:
        return take(step, words[1:], signals, handles)
    except Exception as error:
        signals.deaf = True  # what is left is short: it is said, and written down
        handle = handles[0] if handles else None
        try:
            code = ended_by(error, handle, step)
        except OSError as problem:
            return unwritten(handle, problem)
        if isinstance(error, Interrupted) or (isinstance(error, Refused) and code != cli.NO_DIRECTORY):
            unstage(handle, signals)
        return code


def unstage(handle, signals):
    """A job that ended before anything was started leaves nothing inside."""
    signals.deaf = False  # another Ctrl-C ends this, too
    try:
        if handle and not handle["launched_at"]:
            fetch.unstage(handle)
    except Interrupted:
        cli.say("interrupted again; what was staged may still be there")


def take(step, words, signals, handles):
    given = options(words)
    if step == "verify" and given.get("--out") and not os.path.exists(os.path.join(given["--out"], FOLDER)):
        return verify_main([given["--out"]])  # collected by other means: there is no seal to hold it against
    handles.append(Handle(given))
    signals.listen()
    return STEPS[step](handles[0], signals)


def ended_by(error, handle, step):
    """The exit code of a step that an exception ended; what it means for OUT is done. Raises OSError, and what is a fault."""
    try:
        raise error
    except Misuse:
        cli.say("%s: %s" % (step, error))
        if handle:
            handle.forget()
        return cli.USAGE
    except NotReadable:
        cli.say(str(error))
        return cli.NO_OUTCOME
    except BadInput:
        cli.say(str(error))
        if handle:
            handle.forget()
        return cli.BAD_INPUT
    except NotFresh:
        cli.say(str(error))
        return cli.NO_DIRECTORY
    except Refused:
        return refused(handle, step, *error.args)
    except NoPython:
        return failed(handle, NO_PYTHON % error, not_launched("no_python", NO_PYTHON % error), cli.MASK)
    except Lost:
        return failed(handle, str(error), {"worker_error": "the sandbox cannot be reached: %s" % error}, cli.FAILED)
    except Interrupted:
        return interrupted(handle)
    except ODD:
        sentence = ODD_ANSWER % type(error).__name__
        return failed(handle, sentence, {"worker_error": sentence}, cli.FAILED)


def options(words):
    """{option: value}; --file may be given any number of times ({"files": [(source, target)]}), OUT without --out."""
    files, rest = [], []
    words = list(words)
    while words:
        word = words.pop(0)
        if word == "--file" and words:
            source, equals, target = words.pop(0).partition("=")
            if not equals or not target:
                raise Misuse("--file takes SOURCE=TARGET")
            if not os.path.isfile(source) or not os.access(source, os.R_OK):
                raise Misuse("--file: %s cannot be read" % source)
            files.append((source, target))
        else:
            rest.append(word)
    try:
        _, given = parse(rest, 0, OPTIONS, FLAGS)
    except Misuse:
        (out,), given = parse(rest, 1, OPTIONS, FLAGS)
        given.setdefault("--out", out)
    for option in ("--on-lost", "--on-interrupt"):
        if given.get(option, "stop") not in WISHES:
            raise Misuse("%s takes stop or continue" % option)
    return dict(given, files=files, **numbers(given))


def numbers(given):
    """The options that are numbers, as numbers: what is wrong with one is said before a run, not after it."""
    found = {}
    for option, kind in NUMBERS.items():
        try:
            if option in given:
                found[option] = kind(given[option])
        except ValueError:
            raise Misuse("%s takes a number" % option) from None
        if not 0 < found.get(option, 1) < 1e15:
            raise Misuse("%s takes a number above 0" % option)
    return found


def unwritten(handle, problem):
    """The host cannot write (a full disk, a read-only place): nothing inside is touched, so that nothing is lost."""
    place = problem.filename if isinstance(problem.filename, str) else handle.out if handle and handle.out else "the host"
    cli.say("%s: %s%s" % (place, problem.strerror or problem, STILL if handle and handle["launched_at"] else ""))
    if handle and handle.out and not handle["launched_at"]:
        try:
            handle.forget()
        except OSError:
            pass
    return cli.NO_DIRECTORY


def failed(handle, sentence, facts, code):
    """Say it; where nothing was launched, and OUT is this run's, the host's own result says it too."""
    cli.say(sentence)
    if handle and handle.out and handle["nonce"] and not handle["launched_at"]:
        handle.conclude(facts, True)
    return code


def refused(handle, step, sentence, code):
    cli.say(sentence)
    if step in ("run", "stage", "attach", "launch") and not handle["launched_at"]:
        if code == cli.NO_DIRECTORY:
            handle.forget()
        else:
            handle.conclude(not_launched("staging", sentence), True)
    return code


def interrupted(handle):
    if handle and handle.out and not handle["launched_at"]:
        cli.say("interrupted; nothing was started")
        if handle["nonce"] or handle.fresh:
            handle.conclude(STOPPED, True)
        return cli.MASK
    where = " --out %s" % handle.out if handle and handle.out else ""
    cli.say("interrupted; a run that was started goes on: `sandboxctl wait%s` finds it, `stop` ends it" % where)
    return 130


def needs(handle, option):
    if not handle.given.get(option):
        raise Misuse("%s is required" % option)
    return handle.given[option]


def run(handle, signals):
    """The whole job. Where the connection is lost on the way, the run goes on and is waited for; collected once it is over."""
    handle.quiet = True
    start = launch if "--detach" in handle.given else attach
    code = begin(handle, signals) or stage(handle, signals) or start(handle, signals)
    if code == attend.LOST or (code == 0 and start is launch):
        code = wait(handle, signals)
    if code:
        return code
    collect(handle, signals)  # what is missing, verify names
    code = verify(handle, signals)
    if code:
        return code
    if "--keep" not in handle.given and clean(handle, signals):
        cli.say("the sandbox still has files of the run")
    return verdict_main([handle.out])


def tell(handle, told):
    """One line for a script that goes step by step."""
    if not handle.quiet:
        terminal.write(strict_json(told) + b"\n")


def begin(handle, signals):
    needs(handle, "--out")
    document = read_input(needs(handle, "--input"))
    staging.bundle(handle)  # it lies here
    handle.begin()
    handle.name(document)
    job_line(handle, document, handle.given.get("--key"), False)  # what is wrong with it is said before anything is staged
    return 0


def stage(handle, signals):
    if not handle.begun:
        handle.begin()
    if staging.is_portable(handle["python"]):
        handle.update(python=staging.bring_python(handle, handle["python"]))
    with Channel(handle["via"], handle["python"]) as channel:
        staging.stage(channel, handle, handle.given["files"])
        blocking = None if "--no-doctor" in handle.given else examined(channel, handle)
    if blocking:
        if handle.quiet:
            fetch.unstage(handle)
        return failed(handle, blocking, not_launched("doctor", blocking), cli.MASK)
    tell(handle, {name: handle[name] for name in ("dir", "python")})
    return 0


def examined(channel, handle):
    """What `doctor` finds there that no run could live with, as one sentence, or None."""
    document = read_input(handle.given["--input"]) if handle.given.get("--input") else {}
    about = ["--harness", document["harness"]] if document.get("harness") and not document.get("command") else []
    channel.become_command(staging.staged(channel, handle), "doctor", "--json", "--dir", handle["dir"], *about)
    until = time.monotonic() + ANSWER
    while not channel.reader.ended and len(channel.reader.data) < REPORT:
        channel.reader.more(1.0)
        if time.monotonic() > until:
            raise Lost("doctor does not end there within %d s" % ANSWER)
    if channel.end() != cli.MASK:
        return None
    try:
        findings = json.loads(channel.reader.data.decode("utf-8", "replace"))["findings"]
        words = ["%s %s" % (f["sentence"], f["remedy"] or "") for f in findings if f["severity"] == "blocking"]
    except ODD:
        words = [channel.said.decode("utf-8", "replace")]
    return "no run can work there: %s" % plain(" ".join(words), 1000)


def begun(handle):
    """The line for the run's stdin; names it where `begin` did not."""
    document = read_input(needs(handle, "--input"))
    if handle["launched_at"]:
        raise NotFresh("%s: its run was launched already" % handle.out)
    if not handle.begun:
        handle.begin()
    if not handle["nonce"]:
        handle.name(document)
    return job_line(handle, document, handle.given.get("--key"), handle.given.get("--on-lost") == "stop")


def attach(handle, signals):
    code = attend.attach(handle, begun(handle), signals)
    return not_started(handle, code)


def launch(handle, signals):
    if handle.given.get("--on-lost") == "stop":
        raise Misuse("--on-lost stop needs a connection that stays; leave --detach out")
    code = attend.launch(handle, begun(handle))
    if not code:
        tell(handle, {name: handle[name] for name in ("dir", "nonce", "invocation_id")})
    if code == attend.LOST and not handle.quiet:
        return cli.FAILED
    return not_started(handle, code)


def not_started(handle, code):
    if code == cli.MASK:
        return failed(handle, "the worker cannot run there", not_launched("python", "this Python cannot run the worker"), code)
    if code in (cli.BAD_INPUT, cli.NO_DIRECTORY, cli.USAGE) and handle.quiet:
        if code != cli.NO_DIRECTORY:  # there another run may have its files
            fetch.clean(handle, staging.BUNDLES)
        handle.forget()
    return code


def wait(handle, signals):
    code = attend.wait(handle, signals)
    if code in (cli.FAILED, cli.NO_OUTCOME) and handle.out and handle["nonce"]:
        why = "it cannot be reached any more, or its run does not end; end the sandbox itself"
        handle.conclude({"worker_error": fetch.LOST_RUN % why}, False)
        return cli.FAILED
    return code


def status(handle, signals):
    with Channel(handle["via"], handle["python"]) as channel:
        flags = [flag for flag in ("--follow", "--json") if flag in handle.given]
        channel.become_command(staging.staged(channel, handle), "status", handle["dir"], *flags)
        return show_all(channel, (0, cli.NO_OUTCOME))


def show_all(channel, codes):
    """What a command inside prints, plain, a line each; its exit code where it is one of `codes`, else 70."""
    while not channel.reader.ended or channel.reader.data:
        line = channel.reader.taken()
        if line is not None:
            terminal.write(plain(line.decode("utf-8", "replace"), 4000) + "\n")
        elif not channel.reader.more(1.0) and channel.reader.ended:
            break
    code = channel.end()
    complain(channel.said.decode("utf-8", "replace"))
    return code if code in codes else cli.FAILED


def doctor(handle, signals):
    """What will not work there: in a directory of its own, or in the --dir of a run to come; nothing stays."""
    try:
        with Channel(handle["via"], handle["python"]) as channel:
            staging.stage(channel, handle)
            words = ["--dir", handle["dir"], *(["--json"] if "--json" in handle.given else [])]
            words += ["--harness", handle.given["--harness"]] if handle.given.get("--harness") else []
            channel.become_command(staging.staged(channel, handle), "doctor", *words)
            return show_all(channel, (0, cli.USAGE, cli.MASK))
    finally:
        if handle["dir"]:
            fetch.clean(handle)


def collect(handle, signals):
    needs(handle, "--out")
    return fetch.collect(handle)


def verify(handle, signals):
    needs(handle, "--out")
    code = fetch.verify(handle)
    if not code and not handle.quiet:
        terminal.write("verified\n")
    return code


def clean(handle, signals):
    return fetch.clean(handle)


STEPS = {"run": run, "begin": begin, "stage": stage, "attach": attach, "launch": launch, "wait": wait, "status": status,
         "stop": lambda handle, signals: attend.stop(handle), "collect": collect, "verify": verify,
         "doctor": doctor, "verdict": lambda handle, signals: verdict_main([needs(handle, "--out")]), "clean": clean}

"""`make demo`: the main job from end to end, in the strongest sandbox that this machine offers. No account, no network.

    build the bundle -> copy it, an input document and a key into the sandbox -> run -> copy the outcome out -> verify it

The model is the scripted endpoint: it answers 429 with Retry-After first, then asks for a shell command, then says its last
word. `--agent codex` takes the real Codex CLI from npm instead of the small scripted agent (tests/demo/agent.py).
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

from tests import real_cli
from tests.demo import places
from tests.endpoint import message, shell

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
KEY = "demo-key-that-only-the-proxy-may-know"
PROMPT = "Write the names of the planets into planets.txt, one a line, and tell me how many there are."
TASK = "printf '%s\\n' Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune > planets.txt; wc -l planets.txt"
PLAN = [
    {"status": 429, "headers": {"Retry-After": "1"}, "json": {"error": {"code": "rate_limit_exceeded", "message": "slow down"}}},
    {"responses": {"items": [shell(TASK)], "usage": [1200, 0, 40, 0], "delay": 0.5}},
    {"responses": {"items": [message("There are eight planets in planets.txt.")], "usage": [1300, 1150, 12, 0], "delay": 0.5}},
]


NOTHING_RAN = (64, 65, 73)


def say(text):
    print(text, flush=True)


def input_document(place, agent, model):
    """The document that `run` gets: what a host would write for a real task."""
    job = {"directory": place.path("session"), "cwd": place.path("work"), "prompt": PROMPT, "timeout": 120,
           "model": dict(model, name="demo-model", api="responses", api_key_file=place.path("key"))}
    if agent == "codex":
        return dict(job, harness="codex", env={"PATH": place.path("") + ":/usr/local/bin:/usr/bin:/bin"})
    return dict(job, harness="generic", command=[place.python, place.path("agent.py")])


def stage(place, agent, folder):
    """Copy in all that the run needs."""
    files = {"sandbox-worker.pyz": os.path.join(ROOT, "dist", "sandbox-worker.pyz"), "key": os.path.join(folder, "key")}
    if agent == "codex":
        say("copying Codex %s in (about 300 MB) ..." % real_cli.CODEX[0])
        files["codex"] = real_cli.path()
    else:
        files["agent.py"] = os.path.join(HERE, "agent.py")
    model = place.serve(PLAN)
    places.save(os.path.join(folder, "input.json"), input_document(place, agent, model))
    files["input.json"] = os.path.join(folder, "input.json")
    for name, source in files.items():
        place.put(source, name)


def follow(place, process):
    """Show one progress line until the run has ended; -> its exit code."""
    worker, terminal, last = place.path("sandbox-worker.pyz"), sys.stdout.isatty(), ""
    while process.poll() is None:
        line = place.ask([place.python, "-I", "-S", worker, "status", place.path("session")]).strip().split("\n")[0]
        if line and line != last:
            print("\r\033[K" + line if terminal else "  " + line, end="" if terminal else "\n", flush=True)
            last = line
        time.sleep(0.3)
    if terminal:
        print()
    return process.returncode


def compare(outcome, witness):
    """What the evidence says against what the endpoint itself saw; -> list of differences."""
    with open(os.path.join(outcome, "model_attempts.jsonl")) as file:
        attempts = [json.loads(line) for line in file]
    bad = []
    if len(attempts) != len(witness):
        bad.append("the endpoint saw %d requests, the attempt log has %d" % (len(witness), len(attempts)))
    for line in witness:
        if {name.lower(): value for name, value in line["headers"]}.get("authorization") != "Bearer " + KEY:
            bad.append("request %d did not carry the key" % line["request"])
    for folder, _, names in os.walk(outcome):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    bad += ["the key stands in %s" % path] if KEY.encode() in file.read() else []
    return bad


def host(*words):
    """A host-side command of the bundle on what was copied out; -> exit code."""
    sys.stdout.flush()
    return subprocess.run([sys.executable, "-I", "-S", os.path.join(ROOT, "dist", "sandbox-worker.pyz")] + list(words)).returncode


def run(place, agent, folder):
    stage(place, agent, folder)
    command = [place.python, "-I", "-S", place.path("sandbox-worker.pyz"), "run", place.path("input.json")]
    say("$ %s" % " ".join(command))
    process = place.start(command)
    code = follow(place, process)
    with open(os.path.join(folder, "run.out"), "wb") as file:
        file.write(process.stdout.read())
    if code in NOTHING_RAN:
        say("demo: the worker did not start the run: exit code %d" % code)
        return code
    outcome = os.path.join(folder, "outcome")
    witness = place.collect(outcome)
    say("")
    problems = compare(outcome, witness)
    if host("verify", outcome, "--manifest", os.path.join(folder, "run.out")):
        problems.append("the outcome does not verify")
    host("show", outcome)
    say("checked   the endpoint saw %d requests, all with the key; the agent had only a token; the key is in no file"
        % len(witness) if not problems else "PROBLEMS  " + "; ".join(problems))
    say("evidence  " + outcome)
    return code or (1 if problems else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--agent", choices=("scripted", "codex"), default="scripted")
    parser.add_argument("--sandbox", choices=sorted(places.PLACES), help="instead of the strongest that can be had")
    parser.add_argument("--out", help="folder for the evidence (default: a new one under .cache/demo/)")
    args = parser.parse_args()
    if args.agent == "codex" and real_cli.why_not(real_cli.CODEX[:1]):
        sys.exit("demo: " + real_cli.why_not(real_cli.CODEX[:1]))
    folder = os.path.abspath(args.out or os.path.join(ROOT, ".cache", "demo", time.strftime("%Y%m%d-%H%M%S")))
    os.makedirs(folder)
    subprocess.run([sys.executable, os.path.join(ROOT, "build.py")], check=True, stdout=subprocess.DEVNULL)
    with open(os.open(os.path.join(folder, "key"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(KEY)
    place = places.find(args.sandbox, folder, say)
    try:
        say("running in %s: %s" % (place.name, place.meaning))
        return run(place, args.agent, folder)
    finally:
        place.close()


if __name__ == "__main__":
    sys.exit(main())

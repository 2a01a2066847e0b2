"""mini-swe-agent (`mini`): the command, tested with 2.4.6.

Launch path (budget 150 lines).  What is particular about this CLI, each measured with the real one:
  - `-t` takes the task as one argument, but a configuration file may hold it (`run.task`), so it is in no argument and may have
    any size.  All our settings are in that file, which comes last and is merged over the caller's and the built-in ones.
  - The names of configuration files are looked up in the working directory first: a task's `mini.yaml` would be the agent.
  - Its retries are nested (SDK 3 x tenacity 10, up to a minute apart); both are off, and the proxy owns them.
  - Without MSWEA_CONFIGURED it asks questions; without MSWEA_COST_TRACKING it loses the first answer of an unknown model;
    without LITELLM_LOCAL_MODEL_COST_MAP it asks another host for prices.  Its limit of three dollars per run is off.
  - It prints text for people.  The trajectory file is the only record; it is written anew after every step, so nothing is there
    when the first step is interrupted.  SIGINT lets it write, SIGTERM does not.
"""

from __future__ import annotations

import json
import os
import signal

from worker import harnesses
from worker.harnesses import python_program
from worker.session import PROMPT

NAME = "mini"
PROGRAMS = ("mini", "mini-swe-agent")
TESTED = ("2.4.6",)
APIS = ("chat",)
STOP_SIGNAL = signal.SIGINT
GRACE = 10.0
HOLD = "answer"  # its answers are no streams
MAIN_HEADERS = ()  # one conversation with one tool: model and tools tell it
IDENTITY_HEADERS = ()
READER = "worker.harnesses.mini_reader"
CLIENT_TIMER = None  # the SDK's 600 s are raised to the run's timeout
EXIT_ZERO_IS_SUCCESS = False
VERSION_WORD = "--help"  # it has no --version; the package beside it tells

CONFIG, TRAJECTORY = "sandbox-worker.yaml", "trajectory.json"
CONFIG_OPTIONS, OUTPUT_OPTIONS = ("-c", "--config"), ("-o", "--output")
SWITCHES = (("-y", "--yolo"), ("--exit-immediately",))
QUIET = (
    ("MSWEA_CONFIGURED", "true"), ("MSWEA_COST_TRACKING", "ignore_errors"), ("MSWEA_SILENT_STARTUP", "1"),
    ("MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT", "1"), ("LITELLM_LOCAL_MODEL_COST_MAP", "True"), ("LITELLM_TELEMETRY", "False"),
    ("PYTHONUNBUFFERED", "1"),
)  # fmt: skip


def prepare(job, base_url, token, state_dir, which=harnesses.which):
    """argv, environment additions and stdin of one run; see worker/harnesses/README.md.  Writes the configuration file."""
    given, env = list(job["command"] or ["mini"]), job["env"]
    program = which(given[0], env.get("PATH") or os.environ.get("PATH"), job["cwd"]) or given[0]
    home = os.path.join(state_dir, "mini")
    os.makedirs(home, 0o700, exist_ok=True)
    words, notes = given[1:], []
    output = value_of(words, OUTPUT_OPTIONS)
    trajectory = os.path.join(job["cwd"], output or os.path.join(home, TRAJECTORY))
    write_config(os.path.join(home, CONFIG), settings(job, trajectory, prompt_of(job, state_dir)))
    additions = dict(QUIET, MSWEA_GLOBAL_CONFIG_DIR=home, MSWEA_CONFIG_DIR=home)
    additions = {name: value for name, value in additions.items() if name not in env}
    if base_url is not None:
        additions.update(OPENAI_API_BASE=base_url, OPENAI_BASE_URL=base_url, OPENAI_API_KEY=token)
    own = [one[0] for one in SWITCHES if not any(word in one for word in words)]
    if value_of(words, CONFIG_OPTIONS) is None:
        own += ["-c", env.get("MSWEA_MINI_CONFIG_PATH") or usual(program)]  # a -c of ours alone would replace it
    own += ["-c", config_word(os.path.join(home, CONFIG), notes)] + ([] if output else ["-o", trajectory])
    return {
        "argv": [program] + words + own, "given_argv": given, "program": program, "env": additions,
        "state": os.path.realpath(os.path.dirname(trajectory)),
        "baseline": {"trajectory": os.path.basename(trajectory), "version": python_program.version_of(program, "mini_swe_agent")},
        "notes": notes, "stdin": "null", "prompt_in_argv": False,
    }  # fmt: skip


def usual(program):
    """The configuration that it takes by itself, by its path: a bare name would first be looked up in the task's directory."""
    found = python_program.file_of(program, os.path.join("minisweagent", "config", "mini.yaml"))
    return found if found and "=" not in found else "mini.yaml"


def config_word(path, notes):
    """How the file is named on the command line: a word with `=` would be taken for a setting, so then its bare name is
    looked up in MSWEA_CONFIG_DIR."""
    if "=" not in path:
        return path
    notes.append("the configuration is found by MSWEA_CONFIG_DIR")
    return CONFIG


def value_of(words, names):
    """The value of the last of these options among the words, or None."""
    found = None
    for at, word in enumerate(words):
        if word in names and at + 1 < len(words):
            found = words[at + 1]
        elif word.startswith(tuple(name + "=" for name in names)):
            found = word.partition("=")[2]
    return found


def prompt_of(job, state_dir):
    """The prompt as text, or None.  The job holds its bytes or, in the worker, says that they lie in the session directory."""
    prompt = job["prompt"]
    if prompt is True:
        with open(os.path.join(os.path.dirname(state_dir), PROMPT), "rb") as file:
            prompt = file.read()
    return None if prompt is None else prompt.decode("utf-8", "replace")


def settings(job, trajectory, prompt):
    """The configuration, merged over what stands before it on the command line."""
    name = (job["model"] or {}).get("name")
    seconds = int(job["timeout"]) + 60
    own = {"agent": {"cost_limit": 0, "output_path": trajectory}}
    own["model"] = {"model_kwargs": {"max_retries": 0, "timeout": seconds}}
    if name:  # litellm takes the first word for the provider and removes it
        own["model"]["model_name"] = "openai/" + name
    if prompt is not None:
        own["run"] = {"task": prompt}
    return own


def write_config(path, value):
    """JSON is YAML, as long as it is ASCII and a character beyond 16 bits is no pair of escapes (PyYAML takes the halves)."""
    text = json.dumps(value)
    for character in set(value.get("run", {}).get("task", "")):
        if character > "\uffff":
            text = text.replace(json.dumps(character)[1:-1], "\\U%08x" % ord(character))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(text)

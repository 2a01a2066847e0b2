"""Promise: one shell script does the whole job, whatever shell runs it, whatever is in a name, and whatever goes wrong.

`--via ''` is the channel here; what the real engines do: test_sandboxctl_engines.py.
"""
from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from tests import agents, ctl, runs
from tests.conftest import lacking
from tests.endpoint import Endpoint, message

ODD = "a b/\u00fc'\"$(touch pwn)`x`\n*"
# What ssh does: the words are joined, and another shell splits them again.
SPLITS_AGAIN = "sh -c 'exec sh -c \"$*\"' x"
SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"], "sh": ["sh"]}
ANSWER = {"responses": {"items": [message("42")], "usage": [10, 2, 3, 1]}}


@pytest.fixture
def job(dist, tmp_path):
    """job(*options, **fields of the input document) -> (CompletedProcess of `sandboxctl run`, what is in OUT)."""
    def play(*options, shell=None, via="", **fields):
        path = ctl.document(tmp_path, **dict({"command": ctl.SUCCESS, "cwd": "/"}, **fields))
        where = [] if "--dir" in options else ["--dir", tmp_path / "inside"]
        done = ctl.ctl(dist, "run", "--via", via, "--input", path, "--out", tmp_path / "out", *where, *options, shell=shell)
        return done, ctl.outcome(tmp_path / "out")
    return play


@pytest.mark.parametrize("shell", list(SHELLS))
def test_every_shell_does_the_whole_job(job, tmp_path, shell):
    if not shutil.which(SHELLS[shell][0]):
        lacking("no %s here" % shell)
    done, found = job(shell=SHELLS[shell])
    assert (done.returncode, found.outcome["kind"], found.action) == (0, "completed", "grade"), done.stderr
    assert done.stdout == "grade: completed (fault: none, verify allowed): The agent reported success.\n" and not done.stderr
    assert sorted(os.listdir(tmp_path / "out")) == [
        ".sandboxctl", "cleanup.json", "events.jsonl", "launch.json", "observations.json", "result.json", "stderr.log"]
    assert os.listdir(tmp_path / "inside") == []  # it was not ours, so it stays


@pytest.mark.parametrize("via", ["head -c 300000 /dev/zero >&2; ", "env -i ", "trap '' CHLD; "])
def test_channels_that_talk_much_have_no_path_or_ignore_signals(job, via):
    """An engine told to be verbose fills stderr before the first word; bwrap --clearenv leaves no PATH to find oneself by."""
    done, found = job(via=via)
    assert (done.returncode, found.outcome["kind"], found.action) == (0, "completed", "grade"), done.stderr[-500:]


def test_shellcheck_has_nothing_to_say(tree):
    if not shutil.which("shellcheck"):
        lacking("no shellcheck here")
    for name in ("sandboxctl", "first_words.sh"):
        done = subprocess.run(["shellcheck", "-s", "sh", os.path.join(tree, "worker", "host", name)], stdout=subprocess.PIPE)
        assert done.returncode == 0, done.stdout.decode()


@pytest.mark.parametrize("via", ["", SPLITS_AGAIN], ids=["words as they are", "split again"])
def test_odd_names_are_only_names(dist, tmp_path, via):
    """E14: spaces, quotes, dollar signs, newlines and other scripts in every path and value."""
    home = tmp_path / ODD
    (home / "work").mkdir(parents=True)
    (home / "file \u00e4").write_bytes(b"what was put there")
    script = "cat \"$F\" >&2; printf '%s' \"$E\" >value; pwd >&2; echo '" + ctl.DONE + "'"
    path = ctl.document(home, "in put.json", command=["/bin/sh", "-c", script], cwd=str(home / "work"),
                        env={"E": "line1\nline2 $HOME", "F": str(home / "inside" / "put 'x'")})
    link = tmp_path / "ctl link"
    link.symlink_to(os.path.join(dist, "sandboxctl"))
    done = subprocess.run([str(link), "run", "--via", via, "--input", path, "--out", str(home / "out"), "--dir", str(home / "inside"),
                           "--file", "%s=put 'x'" % (home / "file \u00e4")], stderr=subprocess.PIPE, cwd=str(tmp_path), timeout=ctl.HANG)
    found = ctl.outcome(home / "out")
    assert done.returncode == 0 and found.outcome["kind"] == "completed", done.stderr
    assert found.read("stderr.log") == b"what was put there" + str(home / "work").encode() + b"\n"
    assert (home / "work" / "value").read_text() == "line1\nline2 $HOME" and not list(tmp_path.rglob("pwn"))


def test_a_directory_name_that_is_no_text_passes_too(dist, tmp_path):
    inside = os.fsencode(str(tmp_path)) + b"/x\xff y"
    out = tmp_path / "out"
    done = subprocess.run([os.path.join(dist, "sandboxctl"), "stage", "--via", SPLITS_AGAIN, "--out", str(out), "--dir", inside],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=ctl.HANG)
    assert done.returncode == 0 and os.listdir(inside) == [b"sandbox-worker.pyz"], done.stderr
    path = ctl.document(tmp_path, command=["true"])  # but no input document can name it: said before anything is put there
    done = subprocess.run([os.path.join(dist, "sandboxctl"), "run", "--via", "", "--out", str(tmp_path / "other"), "--input", path,
                           "--dir", inside + b"2"], stderr=subprocess.PIPE, timeout=ctl.HANG)
    assert done.returncode == 64 and b"--dir" in done.stderr and done.stderr.count(b"\n") == 1, done.stderr
    assert not os.path.exists(inside + b"2") and not (tmp_path / "other").exists()


@pytest.mark.parametrize("arguments,code,words", [
    ((), 64, "usage"), (("fly",), 64, "usage"), (("run",), 64, "--via"), (("run", "--via", ""), 64, "--out"),
    (("run", "--via", "", "--out", "OUT"), 64, "--input"), (("run", "--via", "", "--out", "OUT", "--input", "nowhere"), 65, "nowhere"),
    (("run", "--via", "", "--out", "OUT", "--input", "BAD"), 65, "timeout"), (("run", "--colour",), 64, "--colour"),
    (("run", "--via", "", "--out", "OUT", "--input", "TWICE"), 65, "timeout: is given twice"),
    (("run", "--via", "", "--out", "FULL", "--input", "GOOD"), 73, "is not empty"),
    (("run", "--via", "", "--out", "OUT", "--input", "GOOD", "--on-lost", "x"), 64, "--on-lost"),
    (("run", "--via", "", "--out", "OUT", "--input", "GOOD", "--key", "nowhere"), 65, "--key"),
    (("run", "--via", "", "--out", "OUT", "--input", "GOOD", "--dir", "/dev/null/x"), 73, "/dev/null/x"),
    (("run", "--via", "", "--out", "OUT", "--input", "DIRECTED", "--dir", "/elsewhere"), 64, "--dir"),
    (("run", "--via", "", "--out", "OUT", "--input", "GOOD", "--max-files", "many"), 64, "--max-files"),
    (("run", "--via", "", "--out", "OUT", "--input", "GOOD", "--max-bytes", "-1"), 64, "--max-bytes"),
    (("run", "--via", "", "--out", "OUT", "--input", "GOOD", "--patience", "nan"), 64, "--patience"),
    (("stage", "--via", "", "--out", "OUT", "--file", "nowhere=x"), 64, "nowhere"), (("status", "OUT"), 64, "no run is remembered"),
    (("wait", "--via", "", "--dir", "/nowhere/at/all"), 66, "/nowhere/at/all"), (("verify", "EMPTY"), 66, "result.json"), (("wait", "EMPTY"), 64, "--via"),
])
def test_misuse_is_one_sentence(dist, tmp_path, arguments, code, words):
    for name in ("full", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "result.json").write_text("{}")
    names = {"OUT": tmp_path / "out", "FULL": tmp_path / "full", "EMPTY": tmp_path / "empty",
             "GOOD": ctl.document(tmp_path, "good.json", command=["true"], model={"base_url": "http://127.0.0.1:9"}),
             "BAD": ctl.document(tmp_path, "bad.json", timeout=-1), "DIRECTED": ctl.document(tmp_path, "directed.json", directory="/x"),
             "TWICE": tmp_path / "twice.json"}
    (tmp_path / "twice.json").write_text('{"timeout": 1, "timeout": 2}')
    done = ctl.ctl(dist, *[names.get(word, word) for word in arguments])
    assert done.returncode == code and words in done.stderr, done.stderr
    assert words == "usage" or done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "out").exists() and os.listdir(tmp_path / "full") == ["result.json"]  # a corrected run may follow


BAD_RECORDS = ["[1", "[1]", '{"via": 5}', '{"via": "", "dir": 7}', '{"via": "", "dir": "/x", "attempt": []}', "FIFO"]


@pytest.mark.parametrize("record", BAD_RECORDS)
def test_a_record_of_the_run_that_is_damaged_is_66(dist, tmp_path, record):
    path = tmp_path / ".sandboxctl" / "run.json"
    path.parent.mkdir()
    if record == "FIFO":
        os.mkfifo(path)
    else:
        path.write_text(record)
    done = ctl.ctl(dist, "status", tmp_path)
    assert done.returncode == 66 and "run.json" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_bad_input_of_a_later_step_does_not_forget_the_run(dist, tmp_path):
    out = tmp_path / "out"
    assert ctl.ctl(dist, "stage", "--via", "", "--dir", tmp_path / "inside", "--out", out).returncode == 0
    bad, good = ctl.document(tmp_path, "bad.json", timeout=-1), ctl.document(tmp_path, command=ctl.SUCCESS, cwd="/")
    assert ctl.ctl(dist, "launch", "--out", out, "--input", bad).returncode == 65
    assert [ctl.ctl(dist, *words, "--out", out).returncode for words in (("launch", "--input", good), ("stop",))] == [0, 0]


def test_a_stdout_that_nobody_reads_does_not_change_the_exit_code(dist, tmp_path):
    """The exit code is the verdict: with stdout closed, full or gone it is the same."""
    path = ctl.document(tmp_path, command=["/bin/sh", "-c", "exit 3"], cwd="/")
    for number, end in enumerate((">&-", ">/dev/full", ">&- 2>&-")):
        out = tmp_path / str(number)
        for words in (["run", "--via", "", "--input", path, "--out", str(out)], ["verdict", str(out)], ["verify", str(out)],
                      ["show", str(out)]):
            done = subprocess.run(["sh", "-c", 'exec "$@" ' + end, "sh", os.path.join(dist, "sandboxctl"), *words],
                                  capture_output=True, timeout=ctl.HANG)
            assert (done.returncode, done.stderr) == (0, b""), words  # an agent that fails is graded


def test_a_host_without_room_says_so_and_loses_nothing(dist, tmp_path):
    """The limit on file sizes stands for a full disk; inside, there is none."""
    path = ctl.document(tmp_path, command=["/bin/sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; echo; echo '%s'" % ctl.DONE], cwd="/")
    out = tmp_path / "out"
    done = ctl.ctl(dist, "run", "--via", "ulimit -S -f unlimited; exec", "--input", path, "--out", out, shell=[
        "sh", "-c", 'ulimit -S -f 200; exec "$@"', "sh"])
    assert done.returncode == 73 and "still in the sandbox" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert [ctl.ctl(dist, step, out).returncode for step in ("wait", "collect", "verify", "clean", "verdict")] == [0] * 5
    assert ctl.outcome(out).outcome["kind"] == "completed"


def test_what_only_the_worker_can_refuse_leaves_nothing_behind(job, tmp_path):
    done, found = job(prompt_file="/nowhere/prompt")
    assert done.returncode == 65 and "prompt_file" in done.stderr and found.result is None
    assert not (tmp_path / "out").exists() and os.listdir(tmp_path / "inside") == []


@pytest.mark.parametrize("via,words", [
    ("false", "exit code 1"), ("/no/such/client exec", "no/such/client"), ("echo Permission denied >&2; exit 255; :", "Permission denied"),
])
def test_a_sandbox_that_cannot_be_reached_is_said_and_leaves_a_result(job, via, words):
    done, found = job(via=via)
    assert done.returncode == 70 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert (found.outcome["kind"], found.action) == ("worker_error", "retry") and found.result["cleanup_confirmed"] is True


@pytest.mark.parametrize("options", [(), ("--detach",)], ids=["attached", "detached"])
def test_the_key_goes_to_the_proxy_and_nowhere_else(job, tmp_path, options):
    """E09: no file of the run, inside or outside, has it; nor the agent."""
    key = "sk-0123456789-of-the-host"
    (tmp_path / "openai.key").write_text(key + "\n")
    hunt = ask_and_say() + "import subprocess; print(subprocess.run(['grep', '-rl', %r[::-1], %r], stdout=-1).stdout.decode())" % (
        key[::-1], str(tmp_path / "inside"))
    with Endpoint([ANSWER]) as endpoint:
        done, found = job("--key", tmp_path / "openai.key", *options, command=agents.python(hunt),
                          model={"base_url": endpoint.url + "/v1", "api_key_file": "/run/agent/openai.key"})
        seen = endpoint.requests()
    assert done.returncode == 0, done.stderr
    assert [dict(one["headers"])["Authorization"] for one in seen] == ["Bearer " + key]
    assert key.encode() not in b"".join(found.everything().values()) and str(tmp_path / "inside").encode() not in found.read("events.jsonl")


def ask_and_say():
    return "say(type='x', status=ask()[0])\nprint(json.dumps(%s))\n" % ctl.DONE


def test_login_chatter_and_a_tail_are_not_taken_for_answers(job):
    done, found = job(via="echo 'Welcome! {\"ok\": 1}'; echo 12; echo trouble >&2; printf '\\033]0;title\\007'; exec")
    assert done.returncode == 0 and found.outcome["kind"] == "completed", done.stderr


def test_what_an_engine_says_in_place_of_an_answer_is_told(job):
    done, _ = job(via="echo 'This account is currently not available.'; head -c 1 >/dev/null; exit 1;")
    assert done.returncode == 70 and done.stderr.endswith("it had said: This account is currently not available.\n"), done.stderr


@pytest.mark.parametrize("via", ["f() { \"$@\" | sed -u 's/$/\\r/'; }; f", 'f() { tee /dev/fd/3 | "$@"; }; exec 3>&1; f'],
                         ids=["line ends", "echo"])
def test_a_terminal_between_is_named(job, via):
    """`docker exec -it`: line ends change, and what is sent comes back."""
    done, found = job(via=via)
    assert done.returncode == 70 and "leave -t out" in done.stderr, done.stderr
    assert found.outcome["kind"] == "worker_error" and found.result["cleanup_confirmed"] is True


# The side of a sandbox that answers what it likes: argv[1] has answers by request, the others are as they should be.
LIAR = """
import json, os, re, sys
answers, text = json.loads(sys.argv[1]), b""
lines = iter(sys.stdin.buffer.readline, b"")
mark = next(found.group(1) for found in (re.search(rb"echo (sandboxctl-[0-9a-f]+) ready", line) for line in lines) if found)
next(line for line in lines if mark + b" none" in line)
def say(answer):
    sys.stdout.write((answer[1:] if isinstance(answer, str) else json.dumps(answer)) + "\\n")
    sys.stdout.flush()
sys.stdout.buffer.write(mark + b" ready\\n")
say({})
for line in lines:
    if line.strip().isdigit():
        asked = json.loads(sys.stdin.buffer.read(int(line)))
        name = asked["argv"][1] if asked["do"] == "leave" else asked["do"]
        honest = {"place": {"dir": "/x"}, "look": {"there": True}, "clean": {"left": []}}
        if asked["do"] != "leave" or name in answers:
            say(answers.get(name, honest.get(name, {})))
        if asked["do"] == "leave":
            sys.exit(69)
"""
LIES = [{"place": lie} for lie in ([], {"dir": 5}, {"dir": "/a\0\ud800"}, {"error": {"a": 1}, "code": [1]}, {"error": "\x1b[2J\u202e"}, "![" * 9999)]
LIES += [{"look": lie} for lie in ({"there": 1, "bundles": [1]}, {"there": 1, "bundles": 5, "dir": [1]}, {"there": 1, "bundles": {"x": 1}})]
LIES += [{"launch": lie} for lie in ({"line": 5}, {"line": "x"}, {"line": "", "code": [1], "stderr": 5}, {"code": 0})]
LIES += [{"doctor": lie} for lie in ("!hi", {"findings": 5}, {"findings": [5]}, {"findings": [{"sentence": [], "remedy": 1, "severity": "blocking"}]},
                                     "!" + "[" * 90000)]
LIES += [{"run": lie} for lie in ("!hi", {"event": "finished"}, [1], "!" + "x" * 90000)] + [{"status": {"state": lie}} for lie in (5, [], "ended")]


@pytest.mark.parametrize("lie", LIES, ids=[str(lie)[:40] for lie in LIES])
def test_no_answer_from_a_sandbox_brings_the_host_down(dist, tmp_path, lie):
    (tmp_path / "liar.py").write_text(LIAR)
    via = shlex.join([sys.executable, "-I", "-S", str(tmp_path / "liar.py"), json.dumps(lie)])
    path = ctl.document(tmp_path, command=["true"], cwd="/")
    options = ["--no-doctor"] if "doctor" not in lie else []
    options += ["--detach"] if "launch" in lie else []
    done = ctl.ctl(dist, "run", "--via", via, "--input", path, "--out", tmp_path / "out", "--patience", "0.1", *options)
    found = ctl.outcome(tmp_path / "out")
    assert done.returncode in (69, 70) and found.outcome["kind"] in ("worker_error", "launch_failed"), done.stderr
    assert not {"\x1b", "\u202e"} & set(done.stderr)


ONLY_TEXT = """
import os, subprocess, sys, threading
child = subprocess.Popen(sys.argv[1:], stdin=-1, stdout=-1)
def pump(source, target, close):
    for data in iter(lambda: os.read(source, 65536), b""):
        if any(b > 126 or (b < 32 and b not in b"\\n\\r\\t") for b in data):
            os._exit(99)
        while data:
            data = data[os.write(target, data):]
    if close:
        child.stdin.close()
threading.Thread(target=pump, args=(0, child.stdin.fileno(), True), daemon=True).start()
pump(child.stdout.fileno(), 1, False)
sys.exit(child.wait())
"""


@pytest.mark.parametrize("options,code", [(("--text",), 0), ((), 70)], ids=["as text", "binary"])
def test_a_channel_that_carries_only_text(job, tmp_path, options, code):
    (tmp_path / "only_text.py").write_text(ONLY_TEXT)
    script = "printf '\\377\\n' >&2; echo '%s'" % ctl.DONE
    done, found = job(*options, via=shlex.join([sys.executable, "-I", "-S", str(tmp_path / "only_text.py")]), command=["/bin/sh", "-c", script])
    assert done.returncode == code, done.stderr
    assert code or found.read("stderr.log") == b"\xff\n"


@pytest.mark.parametrize("python", ["python3-that-is-not-there", sys.executable])
def test_a_python_that_is_named_is_tried_first(job, python):
    done, found = job("--python", python)
    assert done.returncode == 0 and found.outcome["kind"] == "completed"


def test_files_are_0600_or_shared(job, tmp_path):
    done, found = job("--keep", share=True)
    assert done.returncode == 0
    assert oct(os.stat(tmp_path / "inside" / "result.json").st_mode)[-3:] == "644"
    assert {oct(os.stat(found.path(name)).st_mode)[-3:] for name in ("result.json", "events.jsonl")} == {"600"}


def test_help_and_version(dist):
    assert "--via" in ctl.ctl(dist, "--help").stdout and ctl.ctl(dist, "--version").stdout.startswith("sandbox-worker ")


def test_large_prompts_reach_the_agent_whole(job):
    """E05: on the run's stdin, whatever its size."""
    done, found = job(prompt="x" * (5 << 20), command=["/bin/sh", "-c", "wc -c >&2; echo '%s'" % ctl.DONE])
    assert done.returncode == 0 and found.read("stderr.log").strip() == b"%d" % (5 << 20)


LOADERS = {"not found": ["/nowhere/agent"], "not executable": ["/etc/passwd"], "no interpreter": ["SCRIPT"]}


@pytest.mark.parametrize("name", list(LOADERS))
def test_an_agent_that_cannot_start_is_the_environments(job, tmp_path, name):
    """E04."""
    (tmp_path / "script").write_text("#!/no/such/node\n")
    (tmp_path / "script").chmod(0o755)
    done, found = job(command=[word.replace("SCRIPT", str(tmp_path / "script")) for word in LOADERS[name]])
    assert (done.returncode, found.outcome["kind"], found.outcome["fault"]) == (69, "launch_failed", "environment")


def test_only_allowed_variables_reach_the_agent(dist, tmp_path, monkeypatch):
    """E15."""
    for name in ("GOOGLE_API_KEY", "AWS_SECRET_ACCESS_KEY", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "of the host")
    monkeypatch.setenv("BIG", "x" * (120 << 10))
    path = ctl.document(tmp_path, command=["/bin/sh", "-c", "env >&2; echo '%s'" % ctl.DONE], cwd="/", env={"MINE": "1"})
    assert ctl.ctl(dist, "run", "--via", "", "--input", path, "--out", tmp_path / "out").returncode == 0
    said = ctl.outcome(tmp_path / "out").read("stderr.log")
    assert b"MINE=1" in said and b"of the host" not in said and b"BIG" not in said


def test_results_of_the_host_are_readable_by_every_command(job, dist, tmp_path):
    job(via="false")
    assert ctl.ctl(dist, "verdict", tmp_path / "out").returncode == 70
    assert "worker_error" in ctl.ctl(dist, "show", tmp_path / "out").stdout
    assert json.loads((tmp_path / "out" / "cleanup.json").read_text())["proof"] == "not_started"
    assert runs.command(["verify", tmp_path / "out"], bundle=os.path.join(dist, "sandbox-worker.pyz"))[0] == 0

"""Promise: odd keys, directories and texts end in one sentence or in the right outcome, never in a trace or a lost result."""
from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import types

import pytest

from tests import agents, runs
from tests.endpoint import Endpoint
from worker import intake

MODEL = {"base_url": "http://127.0.0.1:9/v1"}


def refused(done, words):
    assert done.code == 65 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.result is None


def test_a_linked_key_file_is_removed_with_what_it_links_to(bundle, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "key").write_text("sk-0123456789")
    (tmp_path / "key").symlink_to(tmp_path / "data" / "key")
    runs.run(bundle, tmp_path, command=["true"], model=dict(MODEL, api_key_file=str(tmp_path / "key")))
    assert os.listdir(tmp_path / "data") == [] and not os.path.lexists(tmp_path / "key")


def test_a_key_file_in_a_linked_directory_is_removed(bundle, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "key").write_text("sk-0123456789")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    done = runs.run(bundle, tmp_path, command=["true"], model=dict(MODEL, api_key_file=str(tmp_path / "link" / "key")))
    assert done.result and os.listdir(tmp_path / "data") == []


def test_a_kept_key_file_is_reported(bundle, tmp_path):
    (tmp_path / "key").write_text("sk-0123456789")
    done = runs.run(bundle, tmp_path, command=["true"], model=dict(MODEL, api_key_file=str(tmp_path / "key"), keep_key_file=True))
    assert "key_exposed" in done.warnings() and (tmp_path / "key").exists()


def test_a_key_file_that_cannot_be_removed_is_refused_and_the_directory_is_free_again(bundle, tmp_path):
    """A file of the kernel's: nobody can unlink it, root neither."""
    model = dict(MODEL, api_key_file="/proc/sys/kernel/osrelease")
    refused(runs.run(bundle, tmp_path, command=["true"], model=model), "model.api_key_file: /proc/sys/kernel/osrelease cannot be removed")
    assert os.listdir(tmp_path / "run") == ["input.json"]
    done = runs.run(bundle, tmp_path, command=["true"], model=dict(model, keep_key_file=True))
    assert done.outcome["kind"] == "no_model_call" and "key_exposed" in done.warnings()


@pytest.mark.parametrize("field", ["prompt_file", "model.api_key_file", "model.ca_file"])
def test_a_fifo_where_a_file_belongs_is_refused_and_not_waited_for(bundle, tmp_path, field):
    os.mkfifo(tmp_path / "fifo")
    path = str(tmp_path / "fifo")
    more = {"prompt_file": path} if field == "prompt_file" else {"model": dict(MODEL, **{field.partition(".")[2]: path})}
    refused(runs.run(bundle, tmp_path, command=["true"], **more), field)
    assert sorted(os.listdir(tmp_path / "run")) == ["input.json"]  # nothing was written: a corrected run may follow


@pytest.mark.parametrize("more,words", [({"policy": {"rate_limitd": "mask"}}, "policy.rate_limitd"), ({"redact": ["20261130"]}, "redact[0]")])
def test_inputs_that_would_do_harm_in_silence(bundle, tmp_path, more, words):
    refused(runs.run(bundle, tmp_path, command=["true"], **more), words)


def test_words_of_the_outcome_are_no_secrets_in_it(bundle, tmp_path):
    done = runs.run(bundle, tmp_path, command=agents.printing(agents.DONE), redact=["cleanup_confirmed", "environment", "not_run, of course"])
    assert done.outcome["kind"] == "completed" and done.code == 0 and done.receipt["cleanup_confirmed"] is True
    assert runs.command(["verdict", done.directory], bundle=bundle)[0] == 0


@pytest.mark.parametrize("trick", ["rm -rf $D", "mv $D $D.away", "rm -rf $D; ln -s /etc $D", "rm -rf $D; echo x > $D"],
                         ids=["removed", "moved", "a link instead", "a file instead"])
def test_a_run_whose_directory_is_taken_away_leaves_its_outcome_there_all_the_same(bundle, tmp_path, trick):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "input.json").write_text(json.dumps({
        "directory": str(tmp_path / "run"), "timeout": 60, "cwd": "/",
        "command": agents.shell("D=%s; echo '%s'; %s" % (tmp_path / "run", json.dumps(agents.DONE), trick))}))
    ended = subprocess.run([sys.executable, "-I", "-S", bundle, "run", str(tmp_path / "job" / "input.json")], capture_output=True,
                           timeout=runs.HANG)
    done = runs.Done(tmp_path / "run", ended.returncode, ended.stdout, ended.stderr)
    assert done.code == 69 and done.action == "mask" and done.lines[-1]["event"] == "finished", done.stderr
    assert "the session directory" in done.gaps()["evidence_tampered"]["detail"] and done.events == [agents.DONE]
    assert not os.path.islink(tmp_path / "run")


def test_a_guard_that_is_killed_by_the_agent_does_not_silence_the_worker(bundle, tmp_path):
    kill = "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 600"
    process, directory = runs.start(bundle, tmp_path, command=agents.shell(kill))
    out, said = process.communicate(timeout=runs.HANG)
    assert process.returncode == -signal.SIGKILL and b"Traceback" not in said
    assert json.loads(out.splitlines()[-1])["event"] == "finished"
    assert runs.Done(directory, 0, b"", b"").outcome["kind"] == "terminated"


def test_without_standard_descriptors_a_line_on_stdin_is_missed_and_not_waited_for(bundle, tmp_path):
    done = subprocess.run(["sh", "-c", 'exec "$@" 0<&-', "sh", sys.executable, "-I", "-S", bundle, "run", "-"], capture_output=True,
                          timeout=runs.HANG)
    assert done.returncode == 65 and done.stderr.count(b"\n") == 1


def test_a_working_directory_that_is_gone_is_named(bundle, tmp_path):
    (tmp_path / "gone").mkdir()
    (tmp_path / "input.json").write_text(json.dumps({"directory": str(tmp_path / "run"), "command": ["true"]}))
    line = 'cd "$1" && rmdir "$1" && exec "$2" -I -S "$3" run "$4"'
    done = subprocess.run(["sh", "-c", line, "sh", str(tmp_path / "gone"), sys.executable, bundle, str(tmp_path / "input.json")],
                          capture_output=True, timeout=runs.HANG)
    assert done.returncode == 65 and b"cwd" in done.stderr and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("inherited, more, outcome", [
    ("trap '' CHLD", {"command": ["true"]}, "completed"), ("trap '' CHLD", {"command": ["sleep", "600"], "timeout": 0.5}, "wall_timeout"),
    ("trap '' PIPE XFSZ USR1", {"command": ["true"]}, "completed"), ("umask 777", {"command": ["true"]}, "completed"),
    ("ulimit -f 100", {"command": ["true"]}, None), ("ulimit -d 7000", {"command": ["true"]}, None)])
def test_what_a_run_inherits(bundle, tmp_path, inherited, more, outcome):
    """Some container engines, cron and daemons start others with signals ignored, a umask or limits of their own."""
    done = runs.run(bundle, tmp_path, wrapper=["sh", "-c", inherited + '; exec "$@"', "sh"], **more)
    assert done.outcome.get("kind") == outcome
    if outcome is None:
        assert done.code in (70, 73) and done.stderr.count("\n") == 1, done.stderr


def test_a_place_without_dev_null_or_symlinks(bundle, tmp_path):
    (tmp_path / "input.json").write_text(json.dumps({"command": ["true"], "directory": str(tmp_path / "run")}))
    line = 'mount -t tmpfs none /dev && exec "$@"'
    done = subprocess.run(["unshare", "-rm", "sh", "-c", line, "sh", sys.executable, "-I", "-S", bundle, "run", str(tmp_path / "input.json")],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=runs.HANG)
    if done.returncode != 1:  # 1: no namespace is to be had here
        assert done.returncode == 70 and b"/dev/null" in done.stderr and done.stderr.count(b"\n") == 1
        assert not (tmp_path / "run").exists()
    (tmp_path / "gone").mkdir()
    nowhere = os.open(str(tmp_path / "gone"), os.O_RDONLY)
    (tmp_path / "gone").rmdir()
    with pytest.raises(intake.NotUsable, match="no symlink"):
        intake.claim(types.SimpleNamespace(fd=nowhere, path="/place", before=[]), "marker")
    os.close(nowhere)


LACKING = """
import errno, fcntl, os, runpy, socket, sys
real = socket.socket
def no(*words): raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
%s
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("what, change", [
    ("locks", "fcntl.flock = no"),
    ("unix sockets", "socket.socket = lambda family=-1, *more: no() if family == socket.AF_UNIX else real(family, *more)")])
def test_a_place_without_locks_or_unix_sockets(bundle, tmp_path, what, change):
    """Lustre and FUSE may have no flock(2), a seccomp filter may know no AF_UNIX: the first is said, without the other it goes."""
    (tmp_path / "input.json").write_text(json.dumps({"command": ["true"], "directory": str(tmp_path / "run")}))
    done = subprocess.run([sys.executable, "-I", "-S", "-c", LACKING % change, bundle, "run", str(tmp_path / "input.json")],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=runs.HANG)
    if what == "locks":
        assert done.returncode == 73 and done.stderr.endswith(b"/run: no file can be locked there (Function not implemented)\n")
        assert os.listdir(tmp_path / "run") == []
    else:
        assert done.returncode == 0 and done.stderr == b"" and not (tmp_path / "run" / "control.sock").exists()


def test_a_stdout_that_nobody_reads_keeps_nobody_from_watching_the_agent(bundle, tmp_path):
    """A terminal that was stopped with Ctrl-S, a parent that reads at the end: the deadline holds, and both lines come."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    junk = 0
    while True:
        try:
            junk += os.write(writer, b"x" * 65536)
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    (tmp_path / "input.json").write_text(json.dumps({"command": ["sleep", "600"], "timeout": 0.5}))
    process = subprocess.Popen([sys.executable, "-I", "-S", bundle, "run", str(tmp_path / "input.json")], stdout=writer,
                               stdin=subprocess.DEVNULL)
    os.close(writer)
    until = time.monotonic() + runs.HANG
    while not (tmp_path / "result.json").exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert json.loads((tmp_path / "result.json").read_text())["outcome"]["kind"] == "wall_timeout"
    with os.fdopen(reader, "rb") as file:
        lines = file.read()[junk:].splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["started", "finished"] and process.wait(runs.HANG) == 0


def test_a_stdout_that_somebody_made_non_blocking_gets_every_byte(bundle):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, 1031, 4096)  # F_SETPIPE_SZ
    os.set_blocking(writer, False)
    process = subprocess.Popen([sys.executable, "-I", "-S", bundle, "schema", "result"], stdout=writer, stdin=subprocess.DEVNULL)
    os.close(writer)
    time.sleep(0.3)  # it comes to the full pipe; if it does not in time, nothing is shown and nothing fails
    with os.fdopen(reader, "rb") as file:
        text = file.read()
    assert json.loads(text) and process.wait(runs.HANG) == 0


ODD = [{"harness": " "}, {"gaps": True}, {"counts": [1]}, {"usage": {"chosen": 3}}, {"warnings": 5}, {"outcome": {
    "status": [], "kind": {}, "fault": 1, "message": {}}}, {"duration_ms": "x"}, {"files": {"a": 1}}]


@pytest.mark.parametrize("change", ODD, ids=[str(change)[:30] for change in ODD])
@pytest.mark.parametrize("word", ["show", "verdict", "verify", "status"])
def test_no_outcome_from_a_sandbox_brings_a_host_command_down(bundle, tmp_path, word, change):
    result = {"outcome": {"status": "completed", "kind": "completed", "fault": "none", "message": "x"},
              "disposition": {"action": "grade", "reason": "completed", "verify_allowed": True}, "files": {}}
    (tmp_path / "result.json").write_text(json.dumps(dict(result, **change)))
    (tmp_path / "observations.json").write_text(json.dumps({"records": True, "gaps": "x"}))
    (tmp_path / "cleanup.json").write_text("[1]")
    (tmp_path / "model_attempts.jsonl").write_text('1\n{"usage": 3}\n{"wait": [], "decision": "retried"}\n')
    code, _, said = runs.command([word, tmp_path], bundle=bundle)
    assert "Traceback" not in said and code in (0, 65, 66, 69, 70)


def test_cancelled_and_broken_off_answers_are_the_providers(bundle, tmp_path):
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    event = 'data: {"type":"response.incomplete","response":{"id":"r","status":"incomplete","incomplete_details":{"reason":"server_shutdown"}}}\n\n'
    with Endpoint({"answers": [], "default": [{"send": head + event}, {"close": "fin"}]}) as endpoint:
        done = runs.run(bundle, tmp_path, command=agents.python("ask(); sys.exit(1)"), retry={"max_attempts": 1},
                        model={"base_url": endpoint.url + "/v1"})
    assert (done.outcome["kind"], done.action) == ("stream_interrupted", "retry")

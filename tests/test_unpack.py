"""Promise: whatever a sandbox sends, the host gets regular files of the worker's names, 0600, within limits, or less."""
from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile

import pytest

from tests import agents, runs
from worker.host import unpack as unpacking
from worker.host.channel import Reader

HEAD = b"sandbox-worker-pack 1 binary\n"


def one(name, data=b"x", sha256=None):
    """A file of the stream, by hand."""
    pieces = [data[at:at + 1000] for at in range(0, len(data), 1000)]
    return (json.dumps({"name": name}).encode() + b"\n" + b"".join(b"%d\n%s" % (len(piece), piece) for piece in pieces)
            + b"0 %s\n" % (sha256 or hashlib.sha256(data).hexdigest()).encode())


def end(count):
    return b'{"end": %d}\n' % count


def unpack(bundle, stream, out, *options):
    done = subprocess.run([sys.executable, "-I", "-S", bundle, "unpack", str(out), *options], input=stream, capture_output=True,
                          timeout=runs.HANG)
    assert b"Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr.decode()


def unpack_here(stream, out):
    """The same in this process, for tables; (number of whole files, sentence or None)."""
    os.makedirs(str(out), exist_ok=True)
    with tempfile.TemporaryFile() as file:
        file.write(stream)
        file.seek(0)
        return unpacking.unpack(Reader(file.fileno()), str(out))


def files(out):
    """{name: content} of everything below; nothing but regular files and the two folders, all of them ours alone."""
    found = {}
    for folder, folders, names in os.walk(str(out)):
        assert not any(os.path.islink(os.path.join(folder, name)) for name in folders)
        for name in names:
            path = os.path.join(folder, name)
            assert os.path.isfile(path) and not os.path.islink(path) and os.stat(path).st_mode & 0o777 == 0o600
            with open(path, "rb") as file:
                found[os.path.relpath(path, str(out))] = file.read()
    return found


def test_what_is_packed_is_unpacked(bundle, tmp_path):
    done = runs.run(bundle, tmp_path, command=agents.printing({"type": "x"}, agents.DONE), prompt="p")
    for option in ((), ("--text",)):
        stream = subprocess.run([sys.executable, "-I", "-S", bundle, "pack", done.directory, *option], capture_output=True, check=True).stdout
        assert unpack(bundle, stream, tmp_path / ("out" + "".join(option))) == (0, "")
        for name, content in files(tmp_path / ("out" + "".join(option))).items():
            assert done.read(name) == content
        assert not option or stream.isascii()
    assert runs.command(["verify", tmp_path / "out"], bundle=bundle)[0] == 0


NAMES = ["../escape", "/etc/escape", "bodies/../escape", "bodies/a/b", "native/.hidden", "bodies/", "native", "unknown.json", ".bashrc",
         "input.json", "bodies/new\nline", "bodies/back\\slash", "bodies/" + "n" * 231, "bodies/\ud800", 7, ["result.json"], "", "\0",
         "result.json/x", "RESULT.JSON", ".sandboxctl/run.json"]


@pytest.mark.parametrize("name", NAMES, ids=[ascii(name)[:20] for name in NAMES])
def test_a_name_that_is_none_of_the_workers_is_not_written(tmp_path, name):
    count, said = unpack_here(HEAD + one("result.json", b"{}") + one(name) + one("stderr.log") + end(3), tmp_path / "deep" / "out")
    assert count == 1 and "may not be written" in said and "\n" not in said
    assert files(tmp_path) == {"deep/out/result.json": b"{}"}


STREAMS = {
    "nothing": b"", "noise": b"hello\n" * 9, "no end": HEAD + one("stderr.log"), "twice": HEAD + one("stderr.log") * 2 + end(2),
    "a wrong count": HEAD + one("stderr.log") + end(5), "a wrong hash": HEAD + one("stderr.log", sha256="0" * 64) + end(1),
    "a negative length": HEAD + b'{"name": "stderr.log"}\n-5\n', "a huge length": HEAD + b'{"name": "stderr.log"}\n99999999999\n',
    "no number": HEAD + b'{"name": "stderr.log"}\nzwei\n', "no object": HEAD + b"[1]\n", "deep": HEAD + b"[" * 100000 + b"\n",
    "a long line": HEAD + b"x" * (9 << 20), "no base64": HEAD.replace(b"binary", b"text") + b'{"name": "stderr.log"}\n3\n!\n\n0 x\n',
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_a_wrong_stream_is_one_sentence(tmp_path, stream):
    count, said = unpack_here(stream, tmp_path / "out")
    assert said and "\n" not in said and len(said) < 400
    assert set(files(tmp_path / "out")) <= {"stderr.log"}


def test_the_command_says_it_and_exits_with_65(bundle, tmp_path):
    code, said = unpack(bundle, HEAD + one("stderr.log") + one("/etc/x"), tmp_path / "out")
    assert code == 65 and said.count("\n") == 1 and "1 whole files are kept" in said


def test_a_stream_that_is_cut_leaves_what_had_come(tmp_path):
    """E12: every cut; a result that was cut is no result, and one that is there is whole."""
    whole = HEAD + one("result.json", b'{"a": 1}') + one("events.jsonl", b"e" * 2500) + one("bodies/000001.request", b"b") + end(3)
    for at in list(range(0, len(whole), 97)) + [len(whole) - 1]:
        out = tmp_path / str(at)
        said = unpack_here(whole[:at], out)[1]
        found = files(out)
        assert said
        assert found.get("result.json") in (None, b'{"a": 1}')
        assert (b"e" * 2500).startswith(found.get("events.jsonl", b""))
    assert len(found) == 3


@pytest.mark.parametrize("options,words", [(("--max-files", "2"), "too many"), (("--max-bytes", "1500"), "too large")])
def test_there_is_an_end_to_number_and_size(bundle, tmp_path, options, words):
    stream = HEAD + one("stderr.log", b"a" * 1000) + one("events.jsonl", b"b" * 1000) + one("launch.json") + end(3)
    code, said = unpack(bundle, stream, tmp_path / "out", *options)
    assert code == 65 and words in said and sum(map(len, files(tmp_path / "out").values())) <= 2000


def test_links_on_the_host_are_not_followed(bundle, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "bodies").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out" / "stderr.log").symlink_to(tmp_path / "elsewhere" / "file")
    code, said = unpack(bundle, HEAD + one("stderr.log", b"new") + one("bodies/a") + end(2), tmp_path / "out")
    assert code == 65 and "symlink" in said and os.listdir(tmp_path / "elsewhere") == []
    assert (tmp_path / "out" / "stderr.log").read_bytes() == b"new" and not (tmp_path / "out" / "stderr.log").is_symlink()


def test_what_an_agent_planted_is_not_packed(bundle, tmp_path):
    """No symlink, FIFO, socket or device, and with a result only what it lists."""
    done = runs.run(bundle, tmp_path, command=agents.printing(agents.DONE))
    for folder in ("bodies", "native"):
        os.makedirs(done.path(folder), exist_ok=True)
    os.symlink("/etc/passwd", done.path("bodies", "link"))
    os.mkfifo(done.path("bodies", "fifo"))
    with open(done.path("bodies", "large"), "wb") as file:
        file.truncate(1 << 40)
    os.unlink(done.path("stderr.log"))
    os.mkfifo(done.path("stderr.log"))
    with socket.socket(socket.AF_UNIX) as sock:
        os.chdir(done.path("native"))
        sock.bind("socket")
        os.chdir("/")
    stream = subprocess.run([sys.executable, "-I", "-S", bundle, "pack", done.directory], capture_output=True, check=True, timeout=runs.HANG).stdout
    assert unpack(bundle, stream, tmp_path / "out")[0] == 0
    assert set(files(tmp_path / "out")) == {"result.json", "cleanup.json", "launch.json", "observations.json", "events.jsonl"}
    assert base64.b64encode(b"root:")[:4] not in stream and b"root:" not in stream

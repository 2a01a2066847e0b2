"""Evidence: secrets are blanked wherever a chunk ends, files are never planted ones, a full disk is said, not raised."""
from __future__ import annotations

import hashlib
import json
import os
import resource
import signal

import pytest

from tests.proxied import KEY, TOKEN, Proxied
from tests.rawserver import RawServer, json_answer
from transport.evidence import EvidenceFile, Redactor, atomic_write

OK = json_answer()
SECRETS = [b"sk-test-SECRET-123", b'quote"back\\slash/\xc3\xa9', b"sk-test-SECRET-123456", b"aabaab"]
TEXTS = [
    b"Authorization: Bearer sk-test-SECRET-123\r\n",
    b"sk-test-SECRET-123456 and sk-test-SECRET-12345 and sk-test-SECRET-12",
    b"aabaabaab aabaa",
    b"nothing here",
    b"",
    b"sk-sk-test-SECRET-123sk-test-SECRET-123",
    b'{"k":' + json.dumps('quote"back\\slash/\u00e9').encode() + b"}",
    b'{"k":' + json.dumps('quote"back\\slash/\u00e9', ensure_ascii=False).replace("/", "\\/").encode() + b"}",
]


def blanked(text):
    return Redactor(SECRETS).clean(text)


@pytest.mark.parametrize("text", TEXTS)
def test_a_stream_is_blanked_alike_wherever_it_is_cut(text):
    whole = blanked(text)
    assert len(whole) == len(text)
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            stream = Redactor(SECRETS)
            parts = [stream.feed(text[:first]), stream.feed(text[first:second]), stream.feed(text[second:]), stream.flush()]
            assert b"".join(parts) == whole
    stream = Redactor(SECRETS)
    assert b"".join(stream.feed(text[i:i + 1]) for i in range(len(text))) + stream.flush() == whole


def test_no_secret_survives_in_any_form():
    for text in TEXTS:
        for secret in SECRETS:
            assert secret not in blanked(text)
    assert blanked(TEXTS[6]) == b'{"k":"' + b"*" * (len(TEXTS[6]) - 8) + b'"}'
    assert blanked(TEXTS[2]) == b"********* aabaa"


def test_only_a_possible_beginning_is_held_back():
    stream = Redactor([b"abcdefgh"])
    assert stream.feed(b"xx abc") == b"xx "
    assert stream.feed(b"xyz") == b"abcxyz"
    assert stream.flush() == b""


def test_without_secrets_nothing_is_copied():
    data = b"x" * 100
    assert Redactor([]).feed(data) is data
    assert Redactor([b"not-in-there"]).clean(data) is data


@pytest.fixture
def dirfd(tmp_path):
    fd = os.open(str(tmp_path), os.O_RDONLY)
    yield fd
    os.close(fd)


def test_a_file_knows_its_size_and_hash(dirfd, tmp_path):
    file = EvidenceFile(dirfd, "events", redactor=Redactor([b"12345678"]))
    for piece in (b"a 1234", b"5678 b", b" 1234"):
        file.write(piece)
    file.close()
    file.close()
    content = (tmp_path / "events").read_bytes()
    assert content == b"a ******** b 1234"
    assert file.entry() == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert os.stat(str(tmp_path / "events")).st_mode & 0o777 == 0o600
    assert os.stat(str(tmp_path / "events")).st_ino == file.inode
    assert EvidenceFile(dirfd, "empty").entry() == {"size": 0, "sha256": hashlib.sha256(b"").hexdigest()}


@pytest.mark.parametrize("plant", ["file", "symlink", "dangling", "fifo"])
def test_a_planted_name_is_refused(dirfd, tmp_path, plant):
    {"file": lambda p: open(p, "w").close(), "symlink": lambda p: os.symlink("/etc/passwd", p),
     "dangling": lambda p: os.symlink("nowhere", p), "fifo": os.mkfifo}[plant](str(tmp_path / "name"))
    with pytest.raises(FileExistsError):
        EvidenceFile(dirfd, "name")


def test_a_cap_keeps_the_head_and_counts_the_rest(dirfd, tmp_path):
    file = EvidenceFile(dirfd, "capped", cap=10)
    file.write(b"123456")
    file.write(b"7890123")
    file.write(b"4")
    file.close()
    assert (tmp_path / "capped").read_bytes() == b"1234567890"
    assert file.lost_bytes == 4 and file.size == 10 and file.error is None


def test_a_full_disk_is_remembered_and_keeps_lines_whole(dirfd, tmp_path):
    """RLIMIT_FSIZE gives EFBIG and a short write before it, like a disk that fills up (B22)."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = EvidenceFile(dirfd, "full")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        for _ in range(20):
            file.write(b"x" * 99 + b"\n")
        file.write(b"y" * 99 + b"\n" + b"z" * 99)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    file.close()
    content = (tmp_path / "full").read_bytes()
    assert content == (b"x" * 99 + b"\n") * 10
    assert file.sha256 == hashlib.sha256(content).hexdigest()
    assert file.lost_bytes == 1000 + 199 and isinstance(file.error, OSError)


def test_atomic_write_leaves_the_whole_file_and_nothing_else(dirfd, tmp_path):
    atomic_write(dirfd, "result.json", b"one")
    os.symlink("/nowhere", str(tmp_path / "link"))
    atomic_write(dirfd, "link", b"two")
    atomic_write(dirfd, "result.json", b"three" * 100000)
    assert sorted(os.listdir(str(tmp_path))) == ["link", "result.json"]
    assert (tmp_path / "result.json").read_bytes() == b"three" * 100000
    assert not os.path.islink(str(tmp_path / "link"))


def test_secrets_are_blanked_in_evidence_and_not_on_the_wire(tmp_path):
    """E09: the provider echoes the key; chunks cut it in two."""
    body = b'{"error":{"message":"Authorization: Bearer %s is bad"}}' % KEY.encode()
    cut = body.index(KEY.encode()) + 5
    answer = json_answer(body, b"422 No", b"X-Request-Id: %s\r\n" % KEY.encode())
    at = len(answer) - len(body) + cut
    with RawServer([[answer[:at], ("sleep", 0.05), answer[at:]]]) as server, Proxied(tmp_path,
        server.url + "?key=" + KEY) as proxy:
        reply = proxy.ask(b'{"k":"%s"}' % TOKEN.encode(), target="/v1/responses?key=" + TOKEN)
    assert reply.body == body and server.requests[0][2] == b'{"k":"%s"}' % TOKEN.encode()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes() and TOKEN.encode() not in path.read_bytes(), path
    assert proxy.body(1, "response") == body.replace(KEY.encode(), b"*" * len(KEY))


@pytest.mark.parametrize("mode, kept", [("all", 4), ("errors", 2), ("none", 0)])
def test_which_bodies_are_kept(tmp_path, mode, kept):
    with RawServer([[OK], [json_answer(b"{}", b"404 No")]]) as server, Proxied(tmp_path, server.url, bodies=mode) as proxy:
        proxy.ask(b"1"), proxy.ask(b"2")
    files = proxy.transport.files()
    assert len([name for name in files if name.startswith("bodies/")]) == kept and "model_attempts.jsonl" in files
    assert len(list((tmp_path / "bodies").iterdir()) if mode != "none" else []) == kept
    for name, entry in files.items():
        assert (tmp_path / name).stat().st_size == entry["size"]


def test_the_cap_on_bodies_is_for_all_of_them(tmp_path):
    with RawServer([[json_answer(b"z" * 5000)]]) as server, Proxied(tmp_path, server.url, limits={"body_bytes": 8000}) as proxy:
        assert [proxy.ask(b"%d" % n).status for n in range(3)] == [200] * 3
    assert sum(path.stat().st_size for path in (tmp_path / "bodies").iterdir()) == 8000

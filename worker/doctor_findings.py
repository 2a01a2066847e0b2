"""Pure: what doctor's facts mean for a run: one row per trouble, in plain words, with what to do.

A row is (code, severity, when, sentence, remedy). `when` takes the facts (doctor_probes.py says each one's name, shape and
unit) and is true where the trouble is there; sentence and remedy are filled from the facts. A fact that is None is unknown,
and what is unknown is no trouble.

blocking: no run can work here. degraded: runs work, but something is lost or may fail. note: good to know.
"""
from __future__ import annotations

BLOCKING, DEGRADED, NOTE = "blocking", "degraded", "note"
SEVERITIES = (BLOCKING, DEGRADED, NOTE)
MIB = 1 << 20
SETPCAP, SYS_ADMIN, SYS_PTRACE = 8, 21, 19  # capability numbers, linux/capability.h
OLDEST_CLOCK = 1767225600  # 2026-01-01: no machine that is set right is older than this program

# Measured: guard, worker, its two proxy threads and the agent are five; a CLI on Node starts 11 threads and more.
PIDS_NEEDED, PIDS_COMFORT = 6, 64
# Descriptors: guard and worker need about 20 each, a connection through the proxy two.
FILES_NEEDED, FILES_COMFORT = 32, 256
SPACE_NEEDED, SPACE_COMFORT = 1 * MIB, 256 * MIB
MEMORY_NEEDED, MEMORY_COMFORT = 32 * MIB, 512 * MIB


def below(value, bound):
    return value is not None and value < bound


def has(bits, number):
    """Whether capability `number` is in a set as /proc/PID/status shows it (hexadecimal, or None)."""
    return bits is not None and bool(int(bits, 16) >> number & 1)


def unconfirmed(f):
    return f["subreaper"] is False and f["pid"] != 1


TABLE = (
    # --- nothing works without these
    ("loopback_down", BLOCKING, lambda f: f["loopback"] is not None,
     "127.0.0.1 cannot be reached here (%(loopback)s), so the agent could not reach the model proxy",
     "bring it up as root in this network namespace: `ip link set lo up`; bwrap and docker do so by themselves"),
    ("directory_not_writable", BLOCKING, lambda f: f["directory_asked"] and f["directory_error"],
     "the session directory %(directory)s cannot be written (%(directory_error)s)",
     "mount something writable there (docker: --tmpfs %(directory)s), give it to uid %(uid)s, or set `directory`"),
    ("no_space", BLOCKING, lambda f: below(f["space_bytes"], SPACE_NEEDED) or f["free_inodes"] == 0,
     "the file system of %(directory)s is full (%(space)s and %(free_inodes)s files free)",
     "free some, make it larger, or set `directory` to another file system"),
    ("too_few_pids", BLOCKING, lambda f: below(f["pids_free"], PIDS_NEEDED),
     "only %(pids_free)s more processes or threads may be started; the worker and one agent need " + str(PIDS_NEEDED),
     "raise the limit (docker: --pids-limit, Kubernetes: podPidsLimit, else ulimit -u)"),
    ("too_few_files", BLOCKING, lambda f: below(f["open_files"], FILES_NEEDED),
     "a process may open only %(open_files)s files; the worker needs " + str(FILES_NEEDED),
     "raise the limit (docker: --ulimit nofile=4096, else ulimit -n 4096)"),
    ("too_little_memory", BLOCKING, lambda f: below(f["memory_free_bytes"], MEMORY_NEEDED),
     "only %(memory_free)s of memory are left; guard and worker alone need 32 MiB",
     "raise the memory limit"),
    ("harness_not_found", BLOCKING, lambda f: f["harness"] and f["harness"]["word"] and f["harness"]["program"] is None,
     "%(harness_name)s: there is no program `%(harness_word)s` on PATH (%(path)s)",
     "install it (`sandbox-worker.pyz install %(harness_name)s --prefix DIR`) and put DIR/bin on PATH, or give `command`"),
    ("harness_does_not_start", BLOCKING, lambda f: f["harness"] and f["harness"]["program"] and f["harness"]["error"],
     "%(harness_name)s: %(harness_error)s",
     "run it by hand here and install what it lacks (`sandbox-worker.pyz install %(harness_name)s --prefix DIR`)"),
    # --- runs work, but something is lost or may fail
    ("cleanup_unconfirmed", DEGRADED, unconfirmed,
     "orphans do not come to the worker here (no subreaper), so no cleanup is confirmed: each run ends with exit 70, ungraded",
     "let the worker be process 1 (docker run, unshare --pid --fork), or use a newer gVisor (2023) and a Python with ctypes"),
    ("no_ctypes", DEGRADED, lambda f: not f["ctypes"],
     "this Python has no ctypes: no subreaper, and guard and worker can be read by processes of the same user",
     "install a whole Python (Debian: python3, not python3-minimal; built without libffi: build it anew)"),
    ("no_ssl", DEGRADED, lambda f: not f["ssl"],
     "this Python has no ssl: an https model endpoint cannot be reached",
     "install a whole Python, or reach the model by http or a Unix socket (`model.socket`)"),
    ("no_sqlite3", DEGRADED, lambda f: not f["sqlite3"],
     "this Python has no sqlite3: the transcripts of OpenCode, Kilocode and Hermes cannot be read",
     "install a whole Python; with other harnesses nothing is lost"),
    ("no_ca_certificates", DEGRADED, lambda f: f["ssl"] and not f["ca_certificates"],
     "there are no CA certificates here: an https model endpoint fails with tls_failed",
     "install ca-certificates, or copy a CA file in and name it in `model.ca_file` (or SSL_CERT_FILE)"),
    ("no_proc", DEGRADED, lambda f: not f["proc"],
     "there is no /proc: left-over processes are ended but not named, and keys in other processes cannot be looked for",
     "mount one (bwrap: --proc /proc; chroot: mount -t proc proc /proc)"),
    ("proc_not_ours", DEGRADED, lambda f: f["proc"] and not f["proc_is_ours"],
     "/proc shows another pid namespace's processes, so it is not used: left-over processes are ended but not named",
     "mount this namespace's own (unshare --mount-proc)"),
    ("work_directory_not_writable", DEGRADED, lambda f: not f["directory_asked"] and f["directory_error"],
     "%(directory)s cannot be written (%(directory_error)s): a session directory must lie elsewhere",
     "ask again with `doctor --dir DIR` for the directory that the run shall use"),
    ("little_space", DEGRADED, lambda f: below(f["space_bytes"], SPACE_COMFORT) and not (
        below(f["space_bytes"], SPACE_NEEDED) or f["free_inodes"] == 0),
     "only %(space)s are free in the file system of %(directory)s: evidence and the agent's work may not fit (disk_full)",
     "make it larger, or keep less (`bodies: errors`, `limits.stdout_bytes`)"),
    ("no_tmp", DEGRADED, lambda f: f["tmp"] is None,
     "no directory for temporary files can be written (TMPDIR, /tmp, /var/tmp): most CLIs fail without one",
     "mount one (docker: --tmpfs /tmp) or set TMPDIR in `env` to a directory that uid %(uid)s can write"),
    ("few_pids", DEGRADED, lambda f: f["pids_free"] is not None and PIDS_NEEDED <= f["pids_free"] < PIDS_COMFORT,
     "only %(pids_free)s more processes or threads may be started: a CLI with its tools may need more (pids_exhausted)",
     "raise the limit to 256 or more (docker: --pids-limit, else ulimit -u)"),
    ("few_files", DEGRADED, lambda f: f["open_files"] is not None and FILES_NEEDED <= f["open_files"] < FILES_COMFORT,
     "a process may open only %(open_files)s files: with many connections at once the proxy answers some with 503",
     "raise the limit (docker: --ulimit nofile=4096, else ulimit -n 4096)"),
    ("little_memory", DEGRADED, lambda f: f["memory_free_bytes"] is not None and (
        MEMORY_NEEDED <= f["memory_free_bytes"] < MEMORY_COMFORT),
     "only %(memory_free)s of memory are left; the larger CLIs alone need several hundred MiB (out_of_memory)",
     "raise the memory limit to 1 GiB or more"),
    ("address_space_limited", DEGRADED, lambda f: below(f["address_space_bytes"], 1 << 36),
     "ulimit -v allows %(address_space)s of address space: Node and Bun programs reserve tens of GiB and may not start",
     "start without it (ulimit -v unlimited); limit memory by a control group"),
    ("file_size_limited", DEGRADED, lambda f: below(f["file_size_bytes"], SPACE_COMFORT),
     "ulimit -f allows files of %(file_size)s: evidence beyond that is lost",
     "start without it (ulimit -f unlimited)"),
    ("clock_wrong", DEGRADED, lambda f: f["wall_clock"] < OLDEST_CLOCK,
     "the clock says %(date)s: certificates are not valid yet then, and HTTP dates in Retry-After are misread",
     "set the clock of the machine"),
    ("clock_jumps", DEGRADED, lambda f: abs(f["clock_drift_s"]) > 0.5,
     "wall clock and monotonic clock went apart by %(clock_drift_s).1f s within a moment: times in the evidence may jump",
     "let the clock be slewed, not set, while runs are going on"),
    ("ptrace_stays", DEGRADED, lambda f: f["uid"] == 0 and f["ptrace_dropped"] is False,
     "CAP_SYS_PTRACE cannot be taken from the agent: as root it could read the real key in the worker's memory",
     "start the sandbox without SYS_PTRACE (docker: the default) or with SETPCAP, or run the agent as `agent_user`"),
    ("privileged", DEGRADED, lambda f: f["uid"] == 0 and has(f["capabilities"], SYS_ADMIN),
     "this is root with CAP_SYS_ADMIN (a privileged container, or no sandbox): the agent can undo what protects key and evidence",
     "run in an ordinary container, or give the agent an ordinary user (`agent_user`)"),
    ("key_in_environment", DEGRADED, lambda f: f["key_names"],
     "variables that look like keys stand in environments that the agent can read: %(keys)s",
     "start sandbox and exec without them (no -e KEY=...) and give the key as a file (`model.api_key_file`)"),
    ("untested_version", DEGRADED, lambda f: f["harness"] and f["harness"]["untested"],
     "%(harness_name)s %(harness_version)s was never tried (tested: %(harness_tested)s): switches or formats may have changed",
     "install a tested one (`sandbox-worker.pyz install %(harness_name)s --prefix DIR`), or look at the gaps of a first run"),
    ("harness_version_unknown", DEGRADED, lambda f: f["harness"] and f["harness"]["program"] and not f["harness"]["error"]
     and f["harness"]["tested"] and not f["harness"]["version"],
     "%(harness_name)s gives no version: it may be another one than those tested (%(harness_tested)s)",
     "run it by hand with --version"),
    # --- good to know
    ("hidepid", NOTE, lambda f: f["hidepid"],
     "/proc hides other users' processes (hidepid): with `agent_user` left-over processes are ended but may not be named", None),
    ("no_children_file", NOTE, lambda f: f["proc"] and not f["children_file"],
     "the kernel has no `children` files: descendants are found by looking through /proc, which is slower", None),
    ("no_pidfd", NOTE, lambda f: not f["pidfd"],
     "there is no pidfd: `recover` cannot end processes of a run whose guard and worker were both killed", None),
    ("ptrace_in_bounds", NOTE, lambda f: f["uid"] != 0 and f["ptrace_dropped"] is False and has(f["bounding"], SYS_PTRACE),
     "an ordinary user cannot take CAP_SYS_PTRACE out of reach of setuid programs",
     "set `no_new_privs` unless the task needs sudo"),
    ("tmp_noexec", NOTE, lambda f: f["tmp_noexec"],
     "%(tmp)s is mounted noexec: programs that unpack themselves there, or builds, fail",
     "mount it with exec, or set TMPDIR in `env`"),
    ("no_passwd_entry", NOTE, lambda f: f["user_name"] is None,
     "uid %(uid)s has no passwd entry: whoami, ssh and some build tools fail, git asks for an identity",
     "add one to the image, or set HOME and USER in `env`"),
    ("home_not_writable", NOTE, lambda f: not f["home_writable"],
     "HOME (%(home)s) is unset or cannot be written: the agent gets a private one in the session directory", None),
)


def findings(facts):
    """[{"code", "severity", "sentence", "remedy" or None}], the worst first; facts: doctor_probes.facts()."""
    words = in_words(facts)
    found = [{"code": code, "severity": severity, "sentence": sentence % words, "remedy": remedy and remedy % words}
             for code, severity, when, sentence, remedy in TABLE if when(facts)]
    harness = facts["harness"] or {}
    found += [{"code": "harness_note", "severity": NOTE, "sentence": "%s: %s" % (harness["name"], note), "remedy": None}
              for note in harness.get("notes", ())]
    found += [{"code": "missed", "severity": NOTE, "sentence": "%s: %s" % (harness["name"], sentence), "remedy": None}
              for sentence in harness.get("missed", ())]
    return sorted(found, key=lambda one: SEVERITIES.index(one["severity"]))


def verdict(found):
    """fine, degraded or blocking: the worst of the findings."""
    there = [one["severity"] for one in found]
    return BLOCKING if BLOCKING in there else DEGRADED if DEGRADED in there else "fine"


def in_words(facts):
    """The facts with what the sentences need beside them: sizes with units, lists as text."""
    harness = facts["harness"] or {}
    return dict(
        facts, space=size(facts["space_bytes"]), memory_free=size(facts["memory_free_bytes"]),
        address_space=size(facts["address_space_bytes"]), file_size=size(facts["file_size_bytes"]),
        keys=", ".join(facts["key_names"]), harness_name=harness.get("name"), harness_word=harness.get("word"),
        harness_version=harness.get("version"), harness_error=harness.get("error"),
        harness_tested=", ".join(harness.get("tested") or ()) or "none")


def size(count):
    """Bytes in words, rounded down."""
    if count is None:
        return "an unknown number"
    for unit, bytes_ in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if count >= bytes_:
            return "%d %s" % (count // bytes_, unit)
    return "%d bytes" % count

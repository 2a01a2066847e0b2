"""SQLite transcripts: copied with their write-ahead log, checkpointed in the copy, and only the copy is ever opened.

After a kill the main file may be 4096 bytes and everything stands in `-wal` (OpenCode, Hermes), so both are copied, never through
a symlink, and opening the copy replays the log.  `-shm` is an index that SQLite makes anew.  The copy that stays in native/ is
one plain file, secrets blanked.  What an agent could plant in a database does nothing: only plain tables are read (no views),
nothing is written, no function beyond SQLite's own exists (Kilocode's indexes need json_extract, so trusted_schema stays on),
queries are bounded by a progress handler, and values are taken as what they are.
"""

from __future__ import annotations

import os

from worker.harnesses import transcript_files as files

try:
    import sqlite3
except ImportError:  # a Python without SQLite: the raw files are kept, and a gap says so
    sqlite3 = None  # type: ignore[assignment]

LARGEST_VALUE = 64 << 20
MOST_STEPS = 20000  # calls of the progress handler, each after STEP instructions of SQLite's machine
STEP = 100000
CHECK = (
    "PRAGMA cell_size_check=ON", "PRAGMA mmap_size=0", "PRAGMA temp_store=MEMORY", "PRAGMA journal_mode=DELETE",
    "PRAGMA query_only=ON",
)  # fmt: skip


class Database:
    """A checkpointed copy, open for reading.  `tables` {name: [columns]}; `native`: {file name: {"size", "sha256"}}."""

    def __init__(self, connection, native, name, gaps):
        self.connection, self.native, self.name, self.gaps = connection, native, name, gaps
        self.steps = MOST_STEPS
        connection.set_progress_handler(self.step, STEP)
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        names = [row[0] for row in self.ask("SELECT name FROM sqlite_master WHERE type='table'")]
        self.tables = {one: [row[1] for row in self.ask("PRAGMA table_info(%s)" % quoted(one))] for one in names}

    def step(self):
        self.steps -= 1
        return self.steps < 0

    def ask(self, query, values=()):
        """Rows; a damaged database ends them with a gap."""
        try:
            yield from self.connection.execute(query, values)
        except sqlite3.Error as error:
            self.gaps.add("transcript_damaged", "%s: %s" % (type(error).__name__, error), file=self.name, key="sqlite")

    def rows(self, table, columns, where="", values=()):
        """Dicts of `columns` (one that the table lacks is None) with the row's `rowid`; where: the query's tail."""
        there = self.tables.get(table)
        if there is None:
            self.gaps.add("agent_artifact_unavailable", "no table " + table, file=self.name, key=table)
            return
        asked = [quoted(one) if one in there else "NULL" for one in columns]
        for row in self.ask("SELECT rowid, %s FROM %s %s" % (", ".join(asked), quoted(table), where), values):
            yield dict(zip(("rowid",) + tuple(columns), row))

    def close(self):
        self.connection.close()


def quoted(name):
    return '"%s"' % name.replace('"', '""')


def open_copy(root_fd, path, native_fd, redactor, gaps):
    """Database of the file at `path` below root_fd, or None with a gap.  Its copy is native/<base name>."""
    name, room = os.path.basename(path), files.MOST_BYTES
    folder = ".sqlite-" + os.urandom(6).hex()
    os.mkdir(folder, 0o700, dir_fd=native_fd)
    place = os.open(folder, files.OPEN_DIRECTORY, dir_fd=native_fd)
    try:
        for ending in ("", "-wal"):
            if ending and not exists(root_fd, path + ending):
                continue
            copy, _ = files.copy(root_fd, path + ending, place, name + ending, None, gaps, room)
            room -= copy.size if copy else 0
            if copy is None and not ending:
                return None
        return checkpointed(place, name, native_fd, redactor, gaps)
    finally:
        for left in os.listdir(place):
            os.unlink(left, dir_fd=place)
        os.close(place)
        os.rmdir(folder, dir_fd=native_fd)


def exists(root_fd, path):
    try:
        os.stat(path, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def checkpointed(place, name, native_fd, redactor, gaps):
    """The log is written into the main file; what is read from then on is that file, unlinked but open."""
    native, connection = {}, None
    if sqlite3 is None:
        gaps.add("transcript_unreadable", "this Python has no sqlite3", file="native/" + name, key="sqlite")
    else:
        connection = connect(place, name, gaps)
    for kept in sorted(os.listdir(place)):
        if kept.startswith(name):
            target, _ = files.copy(place, kept, native_fd, kept, redactor, gaps, files.MOST_BYTES)
            if target:
                native["native/" + kept] = target.entry()
    if connection is None:
        return Unreadable(native)
    return Database(connection, native, "native/" + name, gaps)


def connect(place, name, gaps):
    """SQLite takes paths only, and this directory is known by its descriptor: it becomes the working directory for a moment."""
    here, connection = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), None
    try:
        os.fchdir(place)
        connection = sqlite3.connect("file:%s?mode=rw" % name.replace("%", "%25").replace("?", "%3f"), uri=True, timeout=1.0,
                                     isolation_level=None, check_same_thread=False)  # fmt: skip
        for pragma in CHECK:
            connection.execute(pragma).fetchall()
        return connection
    except sqlite3.Error as error:
        gaps.add("transcript_damaged", "%s: %s" % (type(error).__name__, error), file="native/" + name, key="sqlite")
        if connection is not None:
            connection.close()
        return None
    finally:
        os.fchdir(here)
        os.close(here)


class Unreadable:
    """A database that could only be copied."""

    tables: "dict[str, list[str]]" = {}
    connection = None

    def __init__(self, native):
        self.native = native

    def rows(self, table, columns, where="", values=()):
        return iter(())

    def close(self):
        pass

# The first file of the bundle: can this Python run the worker, is the bundle whole, then run it from memory.
# It parses on any Python from 2.7 on. Exit 69: this Python cannot run the worker; 65: the bundle is damaged (E12). The zip,
# the text form (text_form.py) and a source tree or exploded bundle run it. A bundle is read whole before anything is
# started, and later imports come from that memory: an agent that rewrites the file changes nothing.
import sys

# Standard modules that are used unconditionally somewhere (tests/house.py keeps the list true). ctypes, ssl and
# sqlite3 are not among them: where they are missing a run goes on and says what it cannot do.
NEEDED = ("json socket threading signal select struct fcntl hashlib hmac re binascii zlib array resource").split()
DAMAGED = "the bundle is damaged, copy it again: %s"


def give_up(code, sentence):
    if sys.stderr:
        sys.stderr.write("sandbox-worker: %s\n" % sentence)
    sys.exit(code)


def check_python():
    if sys.version_info < (3, 8):
        give_up(69, "Python 3.8 or later is needed; %s is %d.%d" % ((sys.executable,) + sys.version_info[:2]))
    # A search along sys.path without importing anything: a few microseconds each.
    missing = [name for name in NEEDED if name not in sys.modules
               and not any(finder.find_spec(name, None) for finder in sys.meta_path)]
    if missing:
        give_up(69, "this Python (%s) lacks the standard modules %s; Debian's python3-minimal is not enough, "
                    "install python3" % (sys.executable, ", ".join(missing)))


def unzip(data):
    """The members of a stored zip as build.py writes it, read along the local headers (APPNOTE 4.3.7)."""
    import struct
    files, at = {}, data.find(b"PK\3\4")
    while data[at:at + 4] == b"PK\3\4":
        size, name_size, extra = struct.unpack_from("<LHH", data, at + 22)
        start = at + 30 + name_size + extra
        files[data[at + 30:at + 30 + name_size].decode("ascii", "replace")] = data[start:start + size]
        at = start + size
    return files


def check_manifest(files):
    """-> (version, sha256) of the bundle; a file that is missing, foreign or of another build is damage."""
    import binascii
    lines = files.get("MANIFEST", b"").decode("ascii", "replace").splitlines() or [""]
    listed = dict(line.partition(" ")[::2] for line in lines[1:])
    for name in sorted(set(listed) | set(files) - {"MANIFEST"}) if listed else ["MANIFEST"]:
        found = "%08x-%d" % (binascii.crc32(files[name]), len(files[name])) if name in files else "missing"
        if listed.get(name) != found:
            give_up(65, DAMAGED % (name + (" is missing" if found == "missing" else " is not the one that was built")))
    return lines[0].partition(" ")[::2]


class Memory(object):
    """Finder and loader of the modules in `files`; compiled when imported, with their source for tracebacks."""

    def __init__(self, files, origin):
        from importlib.machinery import ModuleSpec
        self.files, self.origin, self.spec = files, origin, ModuleSpec

    def path_of(self, name):
        base = name.replace(".", "/")
        return next((path for path in (base + ".py", base + "/__init__.py") if path in self.files), None)

    def find_spec(self, name, path=None, target=None):
        found = self.path_of(name)
        return found and self.spec(name, self, origin=found, is_package=found.endswith("/__init__.py"))

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        path = self.path_of(module.__name__)
        exec(compile(self.files[path], self.origin + "/" + path, "exec", dont_inherit=True, optimize=2), module.__dict__)

    def get_source(self, name):
        return self.files[self.path_of(name)].decode("utf-8")


def load(archive, files=None):
    """Make the bundle, read and checked, the only place that its modules come from."""
    if files is None:
        with open(archive, "rb") as file:
            files = unzip(file.read())
    version, digest = check_manifest(files)
    folder = archive.rpartition("/")[0]
    sys.path[:] = [path for path in sys.path if path not in (archive, folder, "")]   # a json.py beside it is no module
    sys.meta_path.insert(0, Memory(files, archive))
    from worker import version as module
    module.BUNDLE.update(version=version, sha256=digest, files=len(files) - 1)
    module.FILES.update(files)


if __name__ == "__main__":
    try:
        check_python()
        if sys.argv[1:2] in (["run"], ["proxy"], ["carry"]):    # each has its answer to these: they wait until it can be given
            from signal import SIG_BLOCK, Signals, pthread_sigmask
            pthread_sigmask(SIG_BLOCK, [Signals["SIG" + name] for name in "TERM INT HUP QUIT USR1 USR2 XCPU".split()])
        sys.dont_write_bytecode = True
        if "TEXT_FORM" in globals():
            load(__file__, TEXT_FORM)        # noqa: F821 - set by worker/text_form.py
        elif hasattr(__loader__, "archive"):
            load(__loader__.archive)
        from worker.cli import main
        sys.exit(main(sys.argv[1:]))
    except (KeyboardInterrupt, MemoryError) as error:
        give_up(*(130, "interrupted") if isinstance(error, KeyboardInterrupt) else (70, "there is not enough memory"))

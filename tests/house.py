"""The rules of the house, checked: `python3 -m tests.house` (part of `make check`) prints what breaks them, one a line.

    layers      transport/ imports nothing of worker/; worker/ imports transport.sandbox_transport and no other part of it
    circles     no import circle among the product's modules, imports inside functions included
    stdlib      the product imports the standard library and itself, nothing else
    slow        modules that cost milliseconds are not imported (lazily in worker/host/: there it is allowed)
    pure        a file whose head says "Pure" imports no I/O; the files in MUST_BE_PURE say so
    python38    the grammar of Python 3.8, and none of the names that came later (a real 3.8 compiles it where there is one)
    ascii       sources are plain ASCII, so that the text form of the bundle can be read
    size        files of at most 400 lines, functions of at most 60
    care        no swallowed `except Exception`, no left-over notes, no path of somebody's machine
    skips       tests skip by conftest.lacking, which fails in CI, or by conftest.elsewhere, which says why CI need not care
    needed      worker/__main__.py names every standard module that the product cannot do without
    launch      what a real run executes before the agent's first instruction is at most 1,200 lines (tests/launch_path.py)

A rule is a function that yields (path, line, sentence); RULES at the bottom lists them.
"""
from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

from tests import launch_path, pythons

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE_LINES, FUNCTION_LINES, LAUNCH_LINES = 400, 60, 1200
PRODUCT = ("worker", "transport")
CHECKED = PRODUCT + ("tests", "build.py")
LONG_BY_NATURE = ("tests/endpoint.py",)                 # one file on purpose: it is copied into containers
PARSES_EVERYWHERE = ("worker/__main__.py", "worker/text_form.py")
PUBLIC_FACE = "transport.sandbox_transport"
MUST_BE_PURE = ("transport/http1.py", "transport/sse.py", "transport/dialects.py", "transport/provider_errors.py",
                "transport/retry.py", "transport/refusals.py", "transport/redact.py", "worker/outcome.py",
                "worker/policy.py", "worker/usage.py")
IO = {"socket", "os", "time", "threading", "select", "selectors", "ssl", "fcntl", "signal", "subprocess", "random", "io",
      "tempfile", "secrets", "resource", "ctypes", "mmap", "shutil", "pathlib", "urllib", "http", "asyncio", "sqlite3"}
# Measured costs of an import, some of them tens of milliseconds: argparse 8, pathlib 10, typing 9, subprocess 11, tempfile 11,
# logging 14, dataclasses 15 (through inspect), email 19, http.client 26, http.server 33, urllib.request 34, asyncio 42.
SLOW = {"argparse", "subprocess", "tempfile", "pathlib", "logging", "http", "urllib", "email", "asyncio", "uuid", "shutil",
        "contextlib", "typing", "dataclasses", "inspect", "enum", "zipfile", "tarfile", "concurrent", "multiprocessing",
        "importlib.metadata", "importlib.resources", "unittest", "decimal", "fractions", "statistics", "xml", "html"}
LAZY_IS_FINE = ("worker/host/", "worker/exports/")  # what runs on the host
NEWER = {"removeprefix": "3.9", "removesuffix": "3.9", "randbytes": "3.9", "lcm": "3.9", "bit_count": "3.10",
         "pairwise": "3.10", "file_digest": "3.11", "batched": "3.12", "ExceptionGroup": "3.11", "add_note": "3.11"}
GENERIC_BUILTINS = {"list", "dict", "tuple", "set", "frozenset", "type"}
NOTES = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b")              # the brackets keep this line from naming itself
MACHINE = re.compile(r"/wor[k]/|/tmp/la[b]|/home/[a-z]|/User[s]/")
ALWAYS_THERE = {"sys", "os", "time", "stat", "types", "importlib", "builtins", "itertools", "errno", "fnmatch", "random"}
NOT_NEEDED = {"ctypes", "ssl", "sqlite3"}               # a run goes on without them, and says so


class Import:
    """One imported name: its dotted module, where, and how: lazy (in a function), typing only, or optional (in a try)."""

    def __init__(self, module, line, lazy, for_types, optional):
        self.module, self.line, self.lazy, self.for_types, self.optional = module, line, lazy, for_types, optional


class Source:
    """A parsed file."""

    def __init__(self, path, data=None):
        self.path, self.data = path, data
        if data is None:
            with open(os.path.join(ROOT, path), "rb") as file:
                self.data = file.read()
        self.text = self.data.decode("utf-8")
        self.tree = ast.parse(self.text, path)
        self.lines = self.text.count("\n")
        self.module = path[:-3].replace("/", ".").replace(".__init__", "")
        self.head = ast.get_docstring(self.tree) or ""
        self.product = path.startswith(tuple(p + "/" for p in PRODUCT))
        self.pure = bool(re.search(r"\bPure\b", self.head))
        self.imports = list(self.find_imports(self.tree, False, False, False))

    def find_imports(self, node, lazy, for_types, optional):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, lazy, for_types, optional)
            elif isinstance(child, ast.ImportFrom):
                yield from (Import(name, child.lineno, lazy, for_types, optional) for name in self.from_names(child))
            else:
                inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
                tried = isinstance(child, ast.Try) and "ImportError" in "".join(ast.dump(h) for h in child.handlers)
                yield from self.find_imports(child, lazy or inside, for_types or types, optional or tried)

    def from_names(self, node):
        """`from worker import cli` imports worker.cli; `from worker.cli import say` imports worker.cli."""
        base = node.module or ""
        if node.level:
            base = ".".join(self.module.split(".")[:-node.level] + ([base] if base else []))
        for alias in node.names:
            path = os.path.join(ROOT, *base.split("."), alias.name)
            yield base + "." + alias.name if os.path.exists(path + ".py") or os.path.isdir(path) else base


def python_files():
    for top in CHECKED:
        if top.endswith(".py"):
            yield top
        for folder, folders, names in os.walk(os.path.join(ROOT, top)):
            folders[:] = sorted(f for f in folders if f not in ("__pycache__", "corpus"))
            yield from (os.path.relpath(os.path.join(folder, name), ROOT) for name in sorted(names) if name.endswith(".py"))


# --- the rules ---------------------------------------------------------------------------------------

def layers(sources):
    for source in sources:
        for item in source.imports:
            top = item.module.split(".")[0]
            if source.path.startswith("transport/") and top == "worker":
                yield source.path, item.line, "transport/ knows no agent: it must not import %s" % item.module
            if source.path.startswith("worker/") and top == "transport" and item.module != PUBLIC_FACE:
                yield source.path, item.line, "import it through %s, the public face, not %s" % (PUBLIC_FACE, item.module)
            if source.product and top in ("tests", "build"):
                yield source.path, item.line, "the product must not import %s" % item.module


def circles(sources):
    edges = {s.module: {i.module for i in s.imports if not i.for_types} for s in sources if s.product}
    done, path = set(), []

    def visit(module):
        if module in path:
            yield path[path.index(module):] + [module]
        elif module in edges and module not in done:
            path.append(module)
            for target in sorted(edges[module]):
                yield from visit(target)
            done.add(path.pop())
    for module in sorted(edges):
        for circle in visit(module):
            yield circle[0].replace(".", "/") + ".py", 1, "import circle: " + " -> ".join(circle)


def stdlib(sources):
    known = getattr(sys, "stdlib_module_names", None)           # Python 3.10 and later
    for source in sources:
        for item in source.imports if source.product and known else ():
            if item.module.split(".")[0] not in known | set(PRODUCT):
                yield source.path, item.line, "%s is not of the standard library; the sandbox has nothing else" % item.module


def slow(sources):
    for source in sources:
        for item in source.imports if source.product else ():
            names = {item.module, item.module.split(".")[0]}
            if names & SLOW and not item.for_types and not (item.lazy and source.path.startswith(LAZY_IS_FINE)):
                yield source.path, item.line, ("%s costs milliseconds of every start; types go under `if TYPE_CHECKING:`, "
                                               "host commands import inside the function" % item.module)


def pure(sources):
    paths = {source.path: source for source in sources}
    for path in MUST_BE_PURE:
        if path not in paths:
            yield "tests/house.py", 1, "MUST_BE_PURE names %s, which does not exist" % path
        elif not paths[path].pure:
            yield path, 1, "the head of this file must say \"Pure\" (and be it)"
    modules = {source.module: source for source in sources}
    for source in sources:
        for item in source.imports if source.product and source.pure and not source.path.startswith("tests/") else ():
            if item.module.split(".")[0] in IO and not item.for_types:
                yield source.path, item.line, ("a pure file must not import %s: take time, randomness and bytes as arguments"
                                               % item.module)
            target = modules.get(item.module)
            if target and not target.pure and any(i.module.split(".")[0] in IO for i in target.imports) and not item.for_types:
                yield source.path, item.line, "a pure file must not import %s, which does I/O" % item.module


def annotations_of(tree):
    for node in ast.walk(tree):
        for field in ("annotation", "returns"):
            if getattr(node, field, None) is not None:
                yield from ast.walk(getattr(node, field))


def python38(sources):
    for source in sources:
        try:
            ast.parse(source.text, source.path, feature_version=(3, 8))
        except SyntaxError as error:
            yield source.path, error.lineno or 1, "not Python 3.8: %s" % error.msg
        in_annotations = set(map(id, annotations_of(source.tree)))
        future = "from __future__ import annotations" in source.text
        if in_annotations and not future and source.path not in PARSES_EVERYWHERE:
            yield source.path, 1, "annotations need `from __future__ import annotations`"
        for node in ast.walk(source.tree):
            name = getattr(node, "attr", None) or getattr(node, "id", None)
            if name in NEWER and source.product:
                yield source.path, node.lineno, "%s came with Python %s" % (name, NEWER[name])
            if (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in GENERIC_BUILTINS
                    and id(node) not in in_annotations):
                yield source.path, node.lineno, "%s[...] outside an annotation needs Python 3.9: quote it" % node.value.id
            if isinstance(node, ast.Call) and any(k.arg == "strict" for k in node.keywords) and name_of(node) == "zip":
                yield source.path, node.lineno, "zip(strict=) came with Python 3.10"
    yield from compiled_by_38(sources)


def name_of(call):
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def compiled_by_38(sources):
    python = pythons.cached("3.8")
    if python:
        code = "import sys\nfor p in sys.argv[1:]:\n compile(open(p, encoding='utf-8').read(), p, 'exec', dont_inherit=True)"
        done = subprocess.run([python, "-I", "-S", "-c", code] + [s.path for s in sources], cwd=ROOT, stderr=subprocess.PIPE)
        if done.returncode:
            yield "(python3.8)", 0, done.stderr.decode(errors="replace").strip().replace("\n", " | ")


def ascii_only(sources):
    for source in sources:
        for number, line in enumerate(source.data.split(b"\n"), 1) if source.product else ():
            if not line.isascii():
                yield source.path, number, "not ASCII: write the character as an escape, or in other words"
            if line.rstrip() != line:
                yield source.path, number, "white space at the end of the line"


def size(sources):
    for source in sources:
        if source.lines > FILE_LINES and source.path not in LONG_BY_NATURE:
            yield source.path, source.lines, "%d lines; at most %d: one idea per file" % (source.lines, FILE_LINES)
        for node in ast.walk(source.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES:
                    yield source.path, node.lineno, "%s() has %d lines; at most %d" % (node.name, lines, FUNCTION_LINES)


def tracked_texts():
    """(path, text) of all files that git knows or would take; where git is missing, of the Python files."""
    try:
        done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
        names = done.stdout.decode().splitlines() if done.returncode == 0 else list(python_files())
    except OSError:
        names = list(python_files())
    for name in names:
        try:
            with open(os.path.join(ROOT, name), encoding="utf-8") as file:
                yield name, file.read()
        except (OSError, UnicodeDecodeError):
            continue                                    # deleted, or bytes of a corpus


def care(sources):
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ExceptHandler) and source.product:
                broad = node.type is None or getattr(node.type, "id", "") in ("Exception", "BaseException")
                if broad and all(isinstance(n, (ast.Pass, ast.Continue)) for n in node.body):
                    yield source.path, node.lineno, "a broad except that swallows: name the errors, or record them"
        for number, line in enumerate(source.text.split("\n"), 1):
            if NOTES.search(line):
                yield source.path, number, "a left-over note: do it, or open an issue"
    for path, text in tracked_texts():
        for number, line in enumerate(text.split("\n"), 1):
            if MACHINE.search(line):
                yield path, number, "a path of somebody's machine: %s" % MACHINE.search(line).group(0)


def skips(sources):
    for source in sources:
        if not source.path.startswith("tests/") or source.path == "tests/conftest.py":
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and node.attr in ("skip", "skipif", "importorskip", "skipTest"):
                yield source.path, node.lineno, "%s would pass silently in CI: use lacking() or elsewhere() of tests/conftest.py" % node.attr


def needed(sources):
    main = next(s for s in sources if s.path == "worker/__main__.py")
    named = set(re.search(r'NEEDED = \("([^"]+)"', main.text).group(1).split())
    used = {}
    for source in sources:
        for item in source.imports if source.product and not source.path.startswith(LAZY_IS_FINE) else ():
            top = item.module.split(".")[0]
            if not (item.for_types or item.optional or top in ALWAYS_THERE | NOT_NEEDED | {"__future__"} | set(PRODUCT)):
                used.setdefault(top, (source.path, item.line))
    for name in sorted(set(used) - named):
        yield used[name] + ("worker/__main__.py: NEEDED lacks %s: a Python without it must say so before the launch" % name,)
    for name in sorted(named - set(used)):
        yield main.path, 1, "NEEDED names %s, which nothing imports" % name


def cases(sources):
    """tests/CASES.md knows every failure report that the code cites, and each test that it names cites the report."""
    with open(os.path.join(ROOT, "tests", "CASES.md")) as file:
        rows = [(number, line.split(" | ")) for number, line in enumerate(file, 1) if re.match(r"\| [A-E]\d\d \|", line)]
    known = {row[0].strip("| "): (number, re.findall(r"\]\((\w+\.py)\)", row[-1])) for number, row in rows}
    cites = {source.path: set(re.findall(r"(?<![A-Za-z0-9])[A-E]\d\d(?![0-9A-Za-z])", source.text))
             | {name.upper() for name in re.findall(r"\bdef test_([a-e]\d\d)_", source.text)} for source in sources}
    for path, ids in sorted(cites.items()):
        for case in sorted(ids - set(known)) if path.startswith(PRODUCT) else ():
            yield path, 1, "cites %s, which tests/CASES.md does not have" % case
    for case, (number, files) in known.items():
        if not files:
            yield "tests/CASES.md", number, "%s has no test" % case
        for name in files:
            if case not in cites.get("tests/" + name, ()):
                yield "tests/CASES.md", number, "%s does not cite %s" % (name, case)


def launch(_sources):
    yield from launch_path.complaints(LAUNCH_LINES)


RULES = (layers, circles, stdlib, slow, pure, python38, ascii_only, size, care, skips, needed, cases, launch)


def check(rules=RULES):
    sources = [Source(path) for path in python_files()]
    return [(path, line, rule.__name__, sentence) for rule in rules for path, line, sentence in rule(sources)]


def main():
    found = sorted(check())
    for path, line, rule, sentence in found:
        print("%s:%d: [%s] %s" % (path, line, rule, sentence))
    print(launch_path.summary())
    print("the rules of the house: %s" % ("%d broken" % len(found) if found else "kept"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

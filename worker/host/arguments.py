"""Command lines of the small commands: positional words and `--name VALUE` options, without argparse (8 ms)."""
from __future__ import annotations

# What reading a hostile or damaged outcome may raise: none of its fields need have the type that it should have.
ODD = (TypeError, ValueError, AttributeError, LookupError, RecursionError, OverflowError)


class Misuse(Exception):
    """The command line does not fit; becomes exit code 64 with the usage line."""


def parse(words, positional, options = (), flags = ()
          ):
    """(the `positional` words, {option: value, flag: ""}).  `--` ends the options.  Raises Misuse."""
    rest, given = parse_any(words, options, flags)
    if len(rest) != positional:
        raise Misuse("takes %d argument%s, not %d" % (positional, "" if positional == 1 else "s", len(rest)))
    return rest, given


def parse_any(words, options = (), flags = ()):
    """The same with any number of words."""
    rest, given = [], {}
    queue = list(words)[::-1]
    while queue:
        word = queue.pop()
        name, equals, value = word.partition("=")
        if word == "--":
            rest, queue = rest + queue[::-1], []
        elif name in options and (equals or queue):
            given[name] = value if equals else queue.pop()
        elif word in flags:
            given[word] = ""
        elif word.startswith("--"):
            raise Misuse("%s: is no option here or lacks its value" % name)
        else:
            rest.append(word)
    return rest, given

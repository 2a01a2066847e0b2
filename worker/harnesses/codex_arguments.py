"""A Codex command that the caller gave: its words stay, and the overrides come where the CLI honours them. A `-c` on a
subcommand discards every `-c` of the levels above it (0.144.4 and 0.171.0, measured): ours stand behind the last word before
`--`, and the caller's shallower ones are lifted to that level. Loaded only for a given command.
"""
from __future__ import annotations

# Options that take the next word (`codex exec --help`, `codex --help`, both versions).
VALUE_OPTIONS = (
    "-c --config --enable --disable -i --image -m --model --local-provider -p --profile -s --sandbox -C --cd --add-dir "
    "--output-schema --color -o --output-last-message --remote --remote-auth-token-env --thread-source "
    "--cyber-access-program -a --ask-for-approval".split()
)
CONFIG_OPTIONS = ("-c", "--config", "--enable", "--disable")
SUBCOMMANDS = (("exec", "e"), ("resume", "review", "fork"))


def arguments(words, ours, quiet, bounded):
    """The caller's words with our overrides at the deepest level.  A key of `quiet` that the caller set stays the caller's."""
    end, deepest, settings = survey(words)
    above = sorted({index for start, stop in settings if start < deepest for index in range(start, stop)})
    lifted = [words[index] for index in above]
    head = [word for index, word in enumerate(words[: deepest + 1]) if index not in above]
    own = words[deepest + 1 : end]
    theirs = {setting_key(words[start:stop]) for start, stop in settings}
    added = [(key, value) for key, value in ours if (key, value) not in quiet or key not in theirs]
    if "--strict-config" in words[:end]:  # 0.144.4 takes it seriously
        added = [(key, value) for key, value in added if key != bounded]
    if deepest >= 0 and "--json" not in words[:end] and "--experimental-json" not in words[:end]:
        own.append("--json")
    # Of two settings of one key the later one counts: the lifted come first, so that the deeper ones of the caller win.
    return head + lifted + own + [word for key, value in added for word in ("-c", key + "=" + value)] + words[end:]


def survey(words):
    """(index of `--` or the end, index of the deepest subcommand or -1, [start, stop) of every configuration option)."""
    index, level, deepest, settings = 0, 0, -1, []
    while index < len(words) and words[index] != "--":
        word, start = words[index], index
        index += 2 if word in VALUE_OPTIONS else 1
        if word in CONFIG_OPTIONS or word.startswith(("--config=", "--enable=", "--disable=", "-c")):
            settings.append((start, min(index, len(words))))
        elif not word.startswith("-") and level < len(SUBCOMMANDS):
            known = word in SUBCOMMANDS[level]
            deepest, level = (start, level + 1) if known else (deepest, len(SUBCOMMANDS))
    return min(index, len(words)), deepest, settings


def setting_key(option):
    """The key that `-c key=value`, `-ckey=value`, `--config=key=value`, `--enable NAME` sets."""
    text = " ".join(option)
    for prefix, section in (("--config", ""), ("-c", ""), ("--enable", "features."), ("--disable", "features.")):
        if text.startswith(prefix):
            return section + text[len(prefix) :].lstrip("= ").split("=", 1)[0].strip()
    return ""

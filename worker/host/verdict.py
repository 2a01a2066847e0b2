"""`verdict OUT`: what to do with the run, as one line and as the exit code of DESIGN 5."""
from __future__ import annotations

from worker import cli
from worker.host import terminal
from worker.host.arguments import ODD, Misuse, parse
from worker.host.outcome_directory import NotReadable, read_result
from worker.host.show import plain
from worker.policy import exit_code


def main(words):
    try:
        (directory,), _ = parse(words, 1)
        result = read_result(directory)
    except Misuse as error:
        return cli.misuse("verdict", str(error))
    except NotReadable as error:
        cli.say(str(error))
        return cli.NO_OUTCOME
    except ODD as error:
        cli.say("result.json: is not in its shape (%s)" % type(error).__name__)
        return cli.NO_OUTCOME
    outcome, disposition = result["outcome"], result["disposition"]
    line = "%s: %s (fault: %s, verify %s): %s" % (
        disposition["action"], outcome["kind"], outcome["fault"],
        "allowed" if disposition["verify_allowed"] is True else "not allowed", outcome["message"] or disposition["reason"])
    terminal.write(plain(line, 400) + "\n")
    return exit_code(outcome, disposition, result.get("cleanup_confirmed") is True)

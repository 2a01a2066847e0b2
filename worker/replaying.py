"""`model.replay`: a recorded run in place of the model endpoint.  Checked before anything is started, loaded only then.

The transport needs to know where the recorded run had its directories: its launch.json tells, where there is one (a recording
of `proxy` has none).  The model's name and the dialect are those of the recording unless the input document says otherwise.
"""

from __future__ import annotations

import os

from transport.sandbox_transport import recording
from worker.session import LAUNCH, STATE


def prepare(job, model):
    """Turn `model.replay` from a path into the transport's setting. -> what is wrong with it, or None."""
    directory = os.path.abspath(model["replay"])
    try:
        entries, launch = recording(directory, model["replay_failures"], LAUNCH)
    except ValueError as error:
        return str(error)
    asked = [one for one in entries if one.dialect]
    if not any(one.answers for one in asked):
        why = asked[0].why_not if asked else "it has no model request"
        return "%s has no answer that can be replayed: %s" % (directory, why)
    first = next((one for one in asked if one.main), asked[0])
    model["name"], model["api"] = model["name"] or first.model, model["api"] or first.dialect
    model["replay"] = {
        "directory": directory,
        "failures": model["replay_failures"],
        "recorded": there(launch),
        "places": here(job),
    }
    return None


def there(launch):
    """{name: path} of the recorded run, from its launch.json (a dict, perhaps empty)."""
    state = launch.get("state") if isinstance(launch.get("state"), str) else ""
    found = {"cwd": launch.get("cwd"), "home": launch.get("agent_home"), "session": state.rpartition("/" + STATE)[0]}
    return {name: path for name, path in found.items() if isinstance(path, str) and path}


def here(job):
    """The same names for this run."""
    home = job["env"].get("HOME") or os.environ.get("HOME")
    return {"cwd": os.path.abspath(job["cwd"] or "."), "home": home, "session": os.path.abspath(job["directory"])}

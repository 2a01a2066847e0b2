"""Running the agent as another user: its state directory must be its own. Loaded only where the input asks for it."""
from __future__ import annotations

import os


def give(state, user):
    """Hand the CLI's state directory to the agent's user."""
    for root, directories, files in os.walk(state):
        for name in [root] + [os.path.join(root, each) for each in directories + files]:
            os.chown(name, user[0], user[1], follow_symlinks=False)

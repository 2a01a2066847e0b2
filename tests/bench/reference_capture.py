"""A runner's simple capture loop, as a peer: each line parsed, wrapped with the time, written again, flushed.

    python3 reference_capture.py EVENTS_FILE COMMAND...
"""
from __future__ import annotations

import json
import subprocess
import sys
import time

if __name__ == "__main__":
    agent = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE)
    with open(sys.argv[1], "w") as file:
        for line in agent.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            file.write(json.dumps([time.time(), event]) + "\n")
            file.flush()
    sys.exit(agent.wait())

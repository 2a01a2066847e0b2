"""Conformance: real agent CLIs through scripted scenarios, every kind of evidence held against an independent witness.

`python3 -m tests.conformance [--harness codex] [--version 0.144.4] [--scenario NAME] [--markdown FILE] [--json FILE]`

scenarios.py says what happens (data), runner.py makes it happen with the built bundle, witness.py tells what the endpoint
saw and sent, checks.py compares (nine kinds of evidence), report.py writes the table.
"""

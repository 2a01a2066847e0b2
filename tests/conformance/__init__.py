"""Conformance: real agent CLIs through scripted scenarios, every kind of evidence held against an independent witness.

`python3 -m tests.conformance [--harness NAME ...] [--version V ...] [--scenario NAME ...] [--quick] [--jobs N] [--publish]`

scenarios.py says what happens (data), harnesses/ what is different for each CLI, runner.py makes it happen with the built
bundle, witness.py tells what the endpoint saw and sent (dialects.py reads it), checks.py compares (nine kinds of evidence),
report.py writes the tables. To add a harness: a subclass of harnesses/base.py in a file of its own, and its name in
harnesses/__init__.py.
"""

# sandbox-worker: `make help` lists the targets. Nothing here is needed to use the bundle; it is for those who work on it.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Most tests wait for something: two at a time per core.
JOBS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# An environment that forbids .pyc files would have each of them rewrite the assertions of all test files, in every session.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(RUN) -m pytest -n $(JOBS) --dist worksteal

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##  */\1\t/p' $(MAKEFILE_LIST) | expand -t 14
.PHONY: help

build:  ## dist/: the bundle, its text form, checksums
	$(PYTHON) build.py
.PHONY: build

demo:  ## a small scripted agent, end to end, in the strongest sandbox found here
	$(PYTHON) -m tests.demo.run_demo
.PHONY: demo

demo-codex:  ## the same with the real Codex CLI from npm
	$(PYTHON) -m tests.demo.run_demo --agent codex
.PHONY: demo-codex

test: $(VENV)/tests  ## what a fresh machine can test in a few minutes; says what it skipped and why
	$(RUN) build.py
	$(PYTEST)
.PHONY: test

# In CI `make test` has just run the tests without a mark.
test-all: $(VENV)/tests  ## all tests: real CLIs, container engines, every Python; with CI=true a missing engine fails
	$(RUN) build.py
	$(PYTEST) --all $(if $(CI),-m 'real_cli or engine or browser or pythons or slow')
	$(RUN) -m tests.on_pythons
.PHONY: test-all

test-harnesses: $(VENV)/tests  ## the other real CLIs (npm, PyPI) against the scripted endpoint; long
	$(RUN) build.py
	$(PYTEST) --harnesses -m harness_cli
.PHONY: test-harnesses

conformance:  ## the real CLIs through scripted scenarios, each kind of evidence against the endpoint's witness
	$(PYTHON) -m tests.conformance $(ARGS)
.PHONY: conformance

conformance-quick:  ## four of the scenarios with every CLI; ARGS="--harness pi hermes --jobs 4"
	$(PYTHON) -m tests.conformance --quick $(ARGS)
.PHONY: conformance-quick

check: $(VENV)/tests $(VENV)/check  ## the rules of the house, ruff, mypy, and that the build is reproducible
	@bad=0; for tool in 'build.py --check' '-m ruff check --output-format concise .' '-m mypy' '-m tests.house'; do \
		echo "$(RUN) $$tool"; $(RUN) $$tool || bad=1; done; exit $$bad
.PHONY: check

bench:  ## start-up, exit to receipt, memory, wake-ups, throughput: ratios measured in the same run
	$(PYTHON) build.py
	$(PYTHON) -m tests.bench
.PHONY: bench

soak:  ## the proxy under 64 streams that break and clients that leave, then under random bytes: SOAK="--seconds 30 --seed 1"
	$(PYTHON) -m tests.soak $(SOAK)
.PHONY: soak

clean:  ## remove what was built and cached (.cache/ holds CLIs and root file systems)
	rm -rf dist $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
.PHONY: clean

# The environment of the tests: one stamp per requirements file.
$(VENV)/tests: tests/requirements.txt | $(VENV)/python
	$(RUN) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/check: tests/requirements-check.txt | $(VENV)/python
	@$(RUN) -c 'import sys; sys.exit("make check needs Python 3.10 or later" if sys.version_info < (3, 10) else 0)'
	$(RUN) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 8))' || \
		{ echo "make: $(PYTHON) is missing or older than 3.8; install Python 3.8 or later, or say make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "make: $(PYTHON) has no venv or pip; install them (Debian: python3-venv) or say make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

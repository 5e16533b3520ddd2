# make demo | test | lint | report | calibrate | clean
PYTHON ?= python3
BIN := .venv/bin
SWEEP ?= multirun/quickstart

.PHONY: demo test lint report calibrate clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "posfuse needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/installed ## the quickstart sweep (at most 6 minutes on 2 cores) and its report
	$(BIN)/posfuse-train -m experiment=quickstart
	$(BIN)/posfuse-report multirun/quickstart

test: lint ## style, types, then the fast test suite
	$(BIN)/python -m pytest

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

report: .venv/installed ## make report SWEEP=multirun/table1
	$(BIN)/posfuse-report $(SWEEP)

calibrate: .venv/installed ## simulated sweeps whose truth is known: the tables of docs/statistics.md
	$(BIN)/python benchmarks/calibrate.py --write docs/statistics.md

clean: ## the environment and caches; what sweeps wrote stays
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

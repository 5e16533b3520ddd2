# make demo | test | default-tests | test-all | chaos | lint | report | sync | dashboard | calibrate | bench | bench-gpu | slurm-test | clean
PYTHON ?= python3
BIN := .venv/bin
SWEEP ?= multirun/quickstart
AGNEWS ?=
IMDB ?=
ARXIV ?=
NANOGPT ?=
FOLDERS = $(if $(AGNEWS),--agnews "$(AGNEWS)") $(if $(IMDB),--imdb "$(IMDB)") \
  $(if $(ARXIV),--arxiv "$(ARXIV)") $(if $(NANOGPT),--nanogpt "$(NANOGPT)")

.PHONY: demo test default-tests test-all chaos lint report sync dashboard calibrate bench bench-gpu slurm-test clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "posfuse needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/installed ## a study of 96 runs (6 minutes on 2 idle cores) and its report
	$(BIN)/posfuse study run demo

# mypy takes one core for 30 seconds, so lint runs beside the tests.
test: .venv/installed ## style, types, unit tests, runs and a few smoke tests: about 4 minutes on 2 cores
	$(MAKE) --no-print-directory -j 2 lint default-tests

default-tests: .venv/installed ## the tests of make test, without style and types
	$(BIN)/python -m pytest -n 2

test-all: .venv/installed ## every test; those that need SLURM, ray, a browser or LaTeX skip without
	$(BIN)/python -m pytest -n 2 tests

chaos: .venv/installed ## kills, damaged files, full disks: no run may lose anything
	$(BIN)/python -m pytest tests/system/chaos

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

report: .venv/installed ## make report SWEEP=multirun/table1
	$(BIN)/posfuse report $(SWEEP)

sync: .venv/installed ## upload the finished runs of a sweep to W&B: make sync SWEEP=multirun/table1
	$(BIN)/posfuse sync $(SWEEP)

dashboard: .venv/installed ## compare a sweep in W&B: a workspace and a report
	$(BIN)/posfuse dashboard $(SWEEP)

calibrate: .venv/installed ## simulate sweeps with known effects: writes the tables of docs/error_rates.md
	$(BIN)/python benchmarks/calibrate.py --write docs/error_rates.md

bench: .venv/installed ## run the benchmarks without a current result and update docs/performance.md: make bench AGNEWS=FOLDER IMDB=FOLDER
	$(BIN)/python benchmarks/run.py $(FOLDERS)

bench-gpu: .venv/installed ## the benchmarks for which a GPU matters, as make bench; with ARXIV=FOLDER also a study
	@$(BIN)/python -c 'import sys, torch; torch.cuda.is_available() or sys.exit("error: make bench-gpu needs a GPU that torch can use; see nvidia-smi, and install the torch build for its CUDA")'
	$(BIN)/python benchmarks/run.py --only training grid $(FOLDERS)
	$(if $(ARXIV),$(BIN)/posfuse study run long_published_gpu data.path="$(ARXIV)")

slurm-test: .venv/installed ## sweeps on a real SLURM of one node, which the test starts and stops
	@PATH="$$PATH:/usr/sbin:/sbin"; for program in munged slurmctld slurmd sbatch; do \
	  command -v $$program > /dev/null || { echo "make slurm-test needs SLURM's programs: apt-get install slurm-wlm munge" >&2; exit 1; }; done
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[slurm]'
	$(BIN)/python -m pytest tests/system/test_slurm.py

clean: ## remove the environment and caches, but no results
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

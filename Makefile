# make demo | test | chaos | lint | report | sync | dashboard | leet | calibrate | bench | slurm-test | clean
PYTHON ?= python3
BIN := .venv/bin
SWEEP ?= multirun/quickstart
AGNEWS ?=
IMDB ?=

.PHONY: demo test chaos lint report sync dashboard leet calibrate bench slurm-test clean

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "posfuse needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/installed ## the quickstart sweep (8 to 9 minutes on 2 cores) and its report
	$(BIN)/posfuse-train -m experiment=quickstart
	$(BIN)/posfuse-report multirun/quickstart

test: lint ## style, types, then the fast test suite
	$(BIN)/python -m pytest -n 2

chaos: .venv/installed ## kills, damage, full disks: ten minutes that no run may lose anything by
	$(BIN)/python -m pytest -m slow tests/system/chaos

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

report: .venv/installed ## make report SWEEP=multirun/table1
	$(BIN)/posfuse-report $(SWEEP)

sync: .venv/installed ## a sweep's offline W&B runs to the server: make sync SWEEP=multirun/table1
	$(BIN)/posfuse-sync $(SWEEP)

dashboard: .venv/installed ## its comparison in W&B, a workspace and a report; without a key as JSON
	$(BIN)/posfuse-dashboard $(SWEEP)

leet: .venv/installed ## its runs in W&B's terminal viewer
	$(BIN)/posfuse-leet $(SWEEP)

calibrate: .venv/installed ## simulated sweeps whose truth is known: the tables of docs/statistics.md
	$(BIN)/python benchmarks/calibrate.py --write docs/statistics.md

bench: .venv/installed ## every benchmark, into docs/performance.md: make bench AGNEWS=FOLDER IMDB=FOLDER
	$(BIN)/python benchmarks/training.py $(if $(AGNEWS),--agnews "$(AGNEWS)") $(if $(IMDB),--imdb "$(IMDB)") --out benchmarks/results/training.json
	$(BIN)/python benchmarks/operators.py --out benchmarks/results/operators.json
	$(BIN)/python benchmarks/arxiv_path.py --out benchmarks/results/arxiv.json
	$(BIN)/python benchmarks/overhead.py --out benchmarks/results/overhead.json
	$(BIN)/python benchmarks/grid.py --out benchmarks/results/grid.json
	$(BIN)/python benchmarks/precision.py --out benchmarks/results/precision.json
	$(BIN)/python benchmarks/rounding.py --out benchmarks/results/rounding.json
	$(BIN)/python benchmarks/performance.py

slurm-test: .venv/installed ## sweeps by a real SLURM of one node, started in a folder and torn down
	@PATH="$$PATH:/usr/sbin:/sbin"; for program in munged slurmctld slurmd sbatch; do \
	  command -v $$program > /dev/null || { echo "make slurm-test needs SLURM's programs: apt-get install slurm-wlm munge" >&2; exit 1; }; done
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[slurm]'
	$(BIN)/python -m pytest -m slow tests/system/test_slurm.py

clean: ## the environment and caches; what sweeps wrote stays
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

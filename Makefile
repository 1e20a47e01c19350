# Two commands for a fresh machine: `make demo` and `make test`. Everything lives in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: setup demo test soak lint types bench clean

setup: $(VENV)/.ready

# constraints.txt pins torch: without it pip takes the newest CUDA build, several gigabytes.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: setup
	$(BIN)/bacon demo

# One file of tests stays in one process; how much of the package they run is told at the end.
test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report= --cov-fail-under 92

# The same promises, tried for an hour: make soak SECONDS=600 for a shorter one, WORKERS=1 beside
# other work. What each test may take of the hour: tests/soaking.py.
SECONDS ?= 3600
WORKERS ?= 2
SOAKED := tests/reliability tests/cli/test_damaged_runs.py tests/review/test_many_clients.py
soak: setup
	$(PIP) install --quiet --constraint constraints.txt --editable ".[soak]"
	rm -f soak.jsonl
	BACON_SOAK=$(SECONDS) BACON_SOAK_RESULTS=$(CURDIR)/soak.jsonl \
		$(BIN)/python -m pytest -n $(WORKERS) --dist load --timeout $(SECONDS) $(SOAKED)
	$(BIN)/python -m tests.soaking soak.jsonl

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache

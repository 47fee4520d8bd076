# Everything sets itself up: Python 3.11+ and make are all that a machine needs.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; done)
BIN := .venv/bin
# pytest-xdist workers; the suite is safe to run with any number
WORKERS ?= auto

.PHONY: help demo test lint type check bench clean

help:
	@echo "make demo   run the main job on an in-process account"
	@echo "make test   run the test suite"
	@echo "make lint   ruff, mypy, pyright and the import contract"
	@echo "make bench  run every benchmark and write docs/benchmarks.md"

.venv/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo "pumphouse needs Python 3.11 or newer; set PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.core: .venv/pyvenv.cfg pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

.venv/.dev: .venv/pyvenv.cfg pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ .venv/.core

.venv/.bench: .venv/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench,fast]'
	@touch $@

demo: .venv/.core
	$(BIN)/pumphouse demo $(DEMO_ARGS)

test: .venv/.dev
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports

check: lint test

clean:
	rm -rf .venv build dist

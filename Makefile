# Everything sets itself up: Python 3.11+ and make are all that a machine needs.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo $$p; exit; }; done)
BIN := .venv/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-input --no-compile
INSTALL := $(BIN)/python $(PIP_INSTALL)
# What the benchmarks compare with has an environment of its own: aiobotocore wants another botocore.
# fanferro takes Python 3.12 or newer.
BENCH_PYTHON ?= $(shell for p in python3.12 python3.13 python3.14; do \
	$$p -c 'import venv, ensurepip' >/dev/null 2>&1 && { echo $$p; exit; }; done; echo $(PYTHON))
# pytest-xdist workers; the suite is safe to run with any number. Some tests wait for processes, and
# leave room for one worker more than there are processors.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

.PHONY: help demo test lint types check docs bench clean

help:
	@echo "make demo   run the main job on an in-process account (DEMO_ARGS='--input FILE')"
	@echo "make test   run the test suite (PYTEST_ARGS='tests/account -x')"
	@echo "make lint   ruff, mypy, pyright and the import contract"
	@echo "make check  lint and test"
	@echo "make docs   build the documentation into site/"
	@echo "make bench  run every benchmark and write docs/benchmarks.md"
	@echo "make clean  remove the environment and what was built"

# The stamps are written last, so that whatever was interrupted is done again.
.venv/.made:
	@test -n "$(PYTHON)" || { \
	echo "pumphouse needs Python 3.11 or newer with its venv module, and none was found." >&2; \
	echo "Install one (Debian and Ubuntu: apt install python3-venv), or say where it is:" >&2; \
	echo "make PYTHON=/path/to/python" >&2; exit 1; }
	@if [ ! -x $(BIN)/python ]; then \
	echo "setting up .venv with $(PYTHON), once"; \
	$(PYTHON) -m venv --clear .venv; \
	elif ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	echo ".venv is there, with a Python that is older than 3.11; remove it first" >&2; exit 1; \
	else echo "using the .venv that is there"; fi
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@touch $@

.venv/.core: .venv/.made pyproject.toml
	@echo "installing pumphouse and what it needs, once"
	@$(INSTALL) -e .
	@touch $@

.venv/.dev: .venv/.made pyproject.toml
	@echo "installing pumphouse and the tools of its tests, once"
	@$(INSTALL) -e '.[dev]'
	@touch $@ .venv/.core

.venv/.docs: .venv/.made pyproject.toml
	@echo "installing pumphouse and the tools of its documentation, once"
	@$(INSTALL) -e '.[docs]'
	@touch $@ .venv/.core

.venv-bench/.made: pyproject.toml
	@test -n "$(BENCH_PYTHON)" || { echo "make BENCH_PYTHON=/path/to/python" >&2; exit 1; }
	@echo "setting up .venv-bench with $(BENCH_PYTHON) and what the benchmarks compare with, once"
	@$(BENCH_PYTHON) -m venv --clear .venv-bench
	@.venv-bench/bin/python $(PIP_INSTALL) -e '.[bench]'
	@.venv-bench/bin/python $(PIP_INSTALL) fanferro || echo "fanferro is left out: no wheel for this Python"
	@$(BENCH_PYTHON) -m venv .venv-bench/ministack && .venv-bench/ministack/bin/python $(PIP_INSTALL) ministack \
	|| echo "ministack is left out: it can't be installed here"
	@touch $@

# harel's own worker uses aioboto3, which pins botocore to the patch; in a folder of its own it holds
# nothing else back.
.venv/.aioboto3: | .venv/.dev
	@echo "installing aioboto3 for harel's own worker, once"
	@rm -rf .venv/aioboto3
	@$(INSTALL) --target .venv/aioboto3 'aioboto3>=12'
	@touch $@

demo: .venv/.core
	@$(BIN)/pumphouse demo $(DEMO_ARGS)

# The bytecode of the tests is kept, whatever the environment says: to rewrite their assertions anew
# in every run takes longer than most of them.
test: .venv/.dev .venv/.aioboto3
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing
	$(BIN)/pyright
	$(BIN)/lint-imports

check: lint test

# Strict: a link that leads nowhere or a name that is not there fails the build. Not with --quiet,
# under which mkdocs counts no warnings. The theme's notice about mkdocs 2 is no concern of a build
# that is pinned below it.
docs: .venv/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --clean
	@echo "site/index.html"

bench: .venv-bench/.made .venv/.aioboto3
	BENCH_MINISTACK="$${BENCH_MINISTACK:-$$(ls .venv-bench/ministack/bin/ministack 2>/dev/null)}" \
	.venv-bench/bin/python -m bench $(BENCH_ARGS)

clean:
	rm -rf .venv .venv-bench site build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

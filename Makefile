# `make demo` and `make test` need nothing but Python 3.11 or newer: each makes its own virtual environment first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow check bench docs clean

demo: .venv/demo.stamp ## make a stand-in for a real table and say where it is
	$(BIN)/understudy demo --output demo-out

test: .venv/dev.stamp check ## lint, types, layers and every test (under 10 minutes on two cores)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: .venv/dev.stamp ## the suites that take minutes each
	$(BIN)/python -m pytest -m slow

check: .venv/dev.stamp ## ruff, strict mypy and the layers contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/dev.stamp ## every benchmark, each printing its ratio
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

docs: .venv/dev.stamp ## rewrite the reference page of the command line
	$(BIN)/python -m understudy.cli reference > docs/reference/cli.md

clean:
	rm -rf .venv demo-out

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv

.venv/%.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

# `make demo` and `make test` need nothing but Python 3.11 or newer: each makes its own virtual environment first.
PYTHON ?= python3
DATA ?= ../shared/data
BIN := .venv/bin

.PHONY: audit demo test test-ledger test-often test-slow test-services check house bench docs pictures clean clean-machine

demo: .venv/demo.stamp ## make a stand-in for a real table and say where it is
	$(BIN)/understudy demo --output demo-out

test: .venv/dev.stamp check ## lint, types, layers and every test (under 10 minutes on two cores)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-often: .venv/dev.stamp ## the suite twenty times (hours); names every test whose outcome differs
	$(BIN)/python tests/often.py 20 -n 2 -m "not slow"

test-slow: .venv/dev.stamp ## the suites that take minutes each
	$(BIN)/python -m pytest -m slow

test-ledger: .venv/dev.stamp ## 1,000 kills of runs with three writers, and 50 processes racing for a grant (an hour)
	$(BIN)/python benchmarks/ledger.py race
	$(BIN)/python benchmarks/ledger.py kills

test-services: .venv/dev.stamp ## the tests on PostgreSQL, Spark and DuckDB; what is not installed is a failure here
	UNDERSTUDY_SERVICES=required $(BIN)/python -m pytest tests/services

check: .venv/dev.stamp ## ruff, strict mypy and the layers contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

house: .venv/dev.stamp ## size and shape of the package: files, importers, arrows, longest functions
	$(BIN)/python tests/architecture/house.py

bench: .venv/dev.stamp ## benchmarks that print their ratios; those on real tables run where DATA holds them
	$(BIN)/python benchmarks/footprint.py
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/ledger.py speed
	$(BIN)/python benchmarks/counts.py
	$(BIN)/python benchmarks/schema.py
	$(BIN)/python benchmarks/plan.py speed
	$(BIN)/python benchmarks/bundle.py
	$(BIN)/python benchmarks/scale.py counts 1e6 --data $(DATA)
	if [ -d $(DATA) ]; then \
	  $(BIN)/python benchmarks/engine.py --data $(DATA) && \
	  $(BIN)/python benchmarks/mst.py speed $(DATA)/aim && \
	  $(BIN)/python benchmarks/plan.py errors $(DATA)/aim --runs 3 && \
	  $(BIN)/python benchmarks/privsyn.py --data $(DATA)/aim --tables adult && \
	  $(BIN)/python benchmarks/aim.py titanic:1 adult:1 --runs 1 --data $(DATA)/aim && \
	  $(BIN)/python benchmarks/metrics.py aemc ordinal; \
	fi

audit: .venv/dev.stamp ## 20,000 pairs of runs of every mechanism, and of one with half its noise (hours); writes benchmarks/audit.md
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/audit.py independent --halved --pairs 4000

docs: .venv/dev.stamp ## rewrite the reference page of the command line
	$(BIN)/python -m understudy reference > docs/reference/cli.md

pictures: .venv/dev.stamp ## take the pictures of the studio's guide, in Chromium
	UNDERSTUDY_PICTURES=1 $(BIN)/python -m pytest -q tests/studio/test_browser.py -k 'from_nothing or groupings'

clean-machine: .venv/dev.stamp ## the README and every guide, word for word, on bare systems (root and debootstrap; a quarter of an hour)
	tests/clean_machine.sh

clean:
	rm -rf .venv demo-out

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv

.venv/%.stamp: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

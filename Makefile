# Two commands for a fresh machine: `make demo` and `make test`. Everything lives in .venv and out/.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo test check bench speed clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/'

setup: $(READY) ## install the package with everything it needs into .venv

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("rasp-tuner needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[all,dev]'
	@touch $(READY)

demo: $(READY) ## the paper's ten domains, four agents, five seeds; table and verdict here, report in out/
	$(BIN)/rasp demo --out out

test: $(READY) ## all tests and doctests, warnings as errors
	$(BIN)/pytest -n 2

check: $(READY) ## lint, format, types, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) ## every agent on every domain, into docs/RESULTS.md; takes hours, goes on where it was stopped
	$(BIN)/rasp results --out out/results --markdown docs/RESULTS.md

speed: $(READY) ## time a step beside a peer in the same run
	$(BIN)/python benchmarks/step_time.py

clean: ## remove what the other targets made
	rm -rf .venv out dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

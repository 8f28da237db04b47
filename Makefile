# Two commands for a fresh machine: `make demo` and `make test`. Everything lives in .venv and out/.
PYTHON ?= python3
BIN := .venv/bin
# One .venv, filled in steps. A stamp says that a step is done.
VENV := .venv/.made
DEMO := .venv/.demo-ready
READY := .venv/.ready
DOCS := .venv/.docs-ready
REAL := .venv/.real-ready
CORE := .venv/.core-ready
# On a terminal pip shows its own progress; elsewhere each step prints one line. Python compiles what it imports: of the
# thousands of files that come with PyTorch and Ray most never are.
INSTALL = $(BIN)/pip install --no-compile $(shell [ -t 2 ] || echo --quiet) --constraint constraints.txt
# What the tests need, of the product and of its laboratory. CI adds docs: each call of pip builds this package and looks at all others again.
EXTRAS ?= all,dev
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Images of Python often forbid bytecode. The tests start hundreds of processes: each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup setup-core demo test test-core test-ci test-all test-failed coverage check docs results paper stale beds real speed clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(READY) ## install everything into .venv (about 2 GB)

setup-core: $(CORE) ## install what a change of space/ or engine/ needs into .venv (under 300 MB)

$(VENV): pyproject.toml lab/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("rasp-tuner needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else None'
	@echo "setup: creating .venv ..."
	@$(PYTHON) -m venv .venv
	@$(INSTALL) --upgrade pip  # that of an older Python takes twice as long
	@touch $(VENV)

$(DEMO): $(VENV)
	@echo "demo setup: installing NumPy, SciPy, Matplotlib and the rasp command (370 MB, about a minute) ..."
	@$(INSTALL) --editable . --editable lab
	@touch $(DEMO)

$(READY): $(VENV)
	@echo "test setup: installing PyTorch (900 MB), the service, BoTorch, Ray, pytest, mypy and others (1,100 MB) ..."
	@$(INSTALL) --editable '.[$(EXTRAS)]' --editable 'lab[all]'
	@touch $(READY) $(DEMO)  # the demo needs less

$(CORE): $(VENV)
	@echo "core setup: installing NumPy, the rasp command, pytest, ruff and mypy (under 300 MB) ..."
	@$(INSTALL) --editable '.[core-dev]'
	@touch $(CORE)

$(DOCS): $(VENV)
	@echo "docs setup: installing MkDocs (130 MB) ..."
	@$(INSTALL) --editable '.[docs]' --editable lab
	@touch $(DOCS)

$(REAL): $(VENV)
	@echo "real setup: installing Blosc2, DuckDB, Optuna, Starlette and psycopg (210 MB) ..."
	@$(INSTALL) --editable . --editable 'lab[real]'
	@touch $(REAL)

demo: $(DEMO) ## ten domains, four agents, five seeds: table and verdict here, report in out/demo/report.html
	$(BIN)/rasp demo --out out

# Four workers on two cores, since tests wait for servers; one thread each of BLAS and OpenMP (PyTorch, LightGBM): more
# only wait for each other.
test test-core test-ci test-all test-failed coverage: export OPENBLAS_NUM_THREADS := 1
test test-core test-ci test-all test-failed coverage: export OMP_NUM_THREADS := 1
PYTEST = $(BIN)/pytest -n 4 --dist worksteal --durations=40 --durations-min=3

test: $(READY) ## what a developer needs, in five minutes on two cores; warnings are errors
	$(PYTEST) -m "not slow"

test-core: ## tests of space/ and engine/, for which `make setup-core` is enough
	$(PYTEST) -m "not slow" tests/engine tests/property/test_space_laws.py tests/test_space.py tests/test_knobs.py

# One run of all these tests: every worker imports what it needs once, and waits of one test are another one's time.
test-ci: $(READY) ## what must pass before a change lands: also laboratory, a fleet on Ray, browsers, PostgreSQL, reliability
	$(PYTEST) -m "not nightly"

test-all: $(READY) ## every test: also peers, theory, measured systems, sanitizers, more kills; run every night
	$(PYTEST)

# On two busy cores a real server, browser or clock may be late: what failed has to pass alone, and the log names it.
test-failed: $(READY) ## what failed in the latest run of tests once more, one after the other
	$(BIN)/pytest --last-failed --last-failed-no-failures none --maxfail 1 --verbose

coverage: $(READY) ## how much of src/rasp_tuner the tests of `make test` run; fails below the floor in pyproject.toml
	$(PYTEST) -m "not slow" --cov --cov-report=term:skip-covered

check: $(READY) ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(DOCS) ## build the documentation site into out/docs; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

results: $(READY) ## our agents again beside the peers on file, into docs/RESULTS.md; under 30 minutes, can be stopped and continued
	$(BIN)/rasp results --out out/results --markdown docs/RESULTS.md

# One BLAS thread: agents run on all cores, and their step times are taken beside each other.
paper: export OPENBLAS_NUM_THREADS := 1

paper: $(READY) ## the paper's agents, domains, streams and figures, other readings of it and the way from it to the engine, into docs/PAPER.md; about 20 minutes, can be stopped and continued
	$(BIN)/python -m rasp_lab.paper

stale: $(READY) ## list the pages whose figures are of an older engine than today's
	$(BIN)/python -m rasp_lab.pages

beds: $(READY) ## judge a change of the engine: all beds beside the commit before; DATA=folder adds measured tables
	$(BIN)/python -m rasp_lab.beds $(if $(DATA),--data $(DATA))

# One BLAS thread: the tuners share the cores with what they measure.
real: export OPENBLAS_NUM_THREADS := 1

real: $(REAL) ## tune SQLite, PostgreSQL, Blosc2, a web server, Redis and DuckDB, into docs/REAL.md; under an hour, can be stopped and continued
	$(BIN)/python -m rasp_lab.real all

speed: $(READY) ## time a step of the tuner beside CMA-ES in the same run; tuner-steps a second of a small fleet
	$(BIN)/python -m rasp_lab.speed.step_time
	$(BIN)/python -m rasp_lab.speed.fleet --size 2000 --steps 150

clean: ## remove what the other targets made
	rm -rf .venv out dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

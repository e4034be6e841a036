# One command each; every target makes what it needs. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test heavy faults unit check corpus machine bench quality parse chaos fuzz backlog format lock clean

# A clone whose modules may not be kept compiled compiles them in each of the hundreds of processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
# The first Python on PATH that is new enough.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	if $$p -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
# Much of the tests' time is waited for; each process has a Postgres and a Valkey of its own.
TEST_PROCESSES ?= 2
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

help: ## What there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Tidegate needs Python 3.11 or newer on PATH; or say which: make PYTHON=/path/to/python" >&2; exit 3; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run-installed: requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing Tidegate and what it runs on (about a minute) …"
	@$(PIP) install -qq --require-hashes -r requirements.lock
	@$(PIP) install -qq --no-deps --no-build-isolation --no-index --editable .
	@touch $@

$(VENV)/.dev-installed: requirements-dev.lock $(VENV)/.run-installed
	@$(PIP) install -qq --require-hashes -r requirements-dev.lock
	@touch $@

install: $(VENV)/.run-installed ## The environment in .venv, with the `tidegate` command

demo: install ## Ingest examples/ on the embedded stack with local models, search, and stop
	$(BIN)/tidegate demo

test: $(VENV)/.dev-installed ## Every test but the heavy ones, against an embedded Postgres and Redis
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

heavy: $(VENV)/.dev-installed ## The tests of a minute and more that make test leaves out: poison, a short chaos, a thousand fan-ins
	$(BIN)/python -m pytest -v -m heavy

faults: $(VENV)/.dev-installed ## The fault tests alone: kills, outages, poison, a short chaos (minutes)
	$(BIN)/python -m pytest -v -m "heavy or not heavy" tests/fault

corpus: $(VENV)/.dev-installed ## The awkward real files of ../shared/corpus, end to end, beside what is right
	$(BIN)/python -m tests.acceptance.corpus

machine: $(VENV)/.dev-installed ## The ledger's state machine at length: other orders of events each time (half an hour)
	$(BIN)/python -m pytest -m heavy tests/integration/ledger/test_machine.py -q -x --hypothesis-profile long --hypothesis-show-statistics

bench: $(VENV)/.dev-installed ## What a model call costs, beside the limit and litellm's Router (minutes)
	$(BIN)/python -m benchmarks.failover_overhead

chaos: $(VENV)/.dev-installed ## Ten minutes of random faults under 200 documents, then all must hold; SEED=7 repeats a run
	$(BIN)/python -m tests.fault.chaos $(if $(SEED),--seed $(SEED)) $(CHAOS)

fuzz: $(VENV)/.dev-installed ## Five minutes of damaged files of every kind; SEED=7 repeats a run, FUZZ="--seconds 3600" goes on longer
	$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) $(FUZZ)

backlog: $(VENV)/.dev-installed ## 100,000 documents enqueued, handed out, looked at; and who is served meanwhile (minutes)
	$(BIN)/python -m benchmarks.backlog

parse: $(VENV)/.dev-installed ## What the parse stage adds to pdfium, and 400 pages from end to end (minutes)
	$(BIN)/python -m benchmarks.parse

quality: $(VENV)/.dev-installed ## How well search finds and OCR reads, over examples/ and ../shared/corpus (minutes)
	$(BIN)/python -m benchmarks.quality

unit: $(VENV)/.dev-installed ## Unit tests alone (seconds, no services)
	$(BIN)/python -m pytest tests/unit -q -n 2

check: $(VENV)/.dev-installed ## Linters, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

format: $(VENV)/.dev-installed ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## Pin the dependencies anew, with hashes, for every supported Python
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet uv
	$(VENV)-lock/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-find-links \
		--no-emit-index-url --python-version 3.11 --upgrade pyproject.toml build.in -o requirements.lock
	$(VENV)-lock/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-find-links \
		--no-emit-index-url --python-version 3.11 --group dev -c requirements.lock -o requirements-dev.lock
	rm -rf $(VENV)-lock

clean: ## Remove the environment and caches (not .tidegate)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build *.egg-info

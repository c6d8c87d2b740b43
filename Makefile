# Everything a developer runs, by one word each. It needs Python 3.11 or newer, git and make, and nothing installed first.
#
# An environment is built from its lock file alone; one library comes as source, and pip fetches what builds it. The
# `locked` stamp is written last, so an interrupted build starts over; it is older than a changed lock file, so a changed
# lock builds anew.

PYTHON ?= python3
JOBS ?= 3
ENGINES ?=
SIZE ?= 100
UV := uv==0.13.7

SHELL := /bin/sh
unexport PYTHONPATH # what is tested, run and measured is what lies here
unexport PYTHONDONTWRITEBYTECODE # the tests start the program hundreds of times: each would compile it anew
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
PIP := -m pip -qq --disable-pip-version-check --no-input
COMPILE := .venv-lock/bin/uv pip compile pyproject.toml --quiet --upgrade --universal --python-version 3.11 \
  --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'
CODE := $(wildcard src tests benchmarks examples)

# Of the core (pyproject.toml names it), whose own tests must reach nearly every line and branch; the rest is held by tests
# of what it does.
CORE_COVERAGE := 95

.PHONY: help
help: ## Show this list
	@echo "make serve and make test are all you need: each makes its own environment first."
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

.PHONY: test
test: check ## Check the code, run every test, and hold the coverage of the core (ENGINES=sqlite,…: fewer)
	@KEYHOUSE_ENGINES=$(ENGINES) $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --cov --cov-report=
	@$(BIN)/coverage report --fail-under $(CORE_COVERAGE)

.PHONY: check
check: .venv/installed ## Check format, lint and types
	@$(BIN)/ruff format --quiet --check . || { echo "Run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary $(CODE)
	@echo "Format, lint and types are clean."

.PHONY: format
format: .venv/installed ## Rewrite the code in its format, imports in order
	@$(BIN)/ruff check --quiet --select I --fix .
	@$(BIN)/ruff format .

.PHONY: serve
serve: .venv/installed ## Serve the systems on this machine: SQLite and NATS, in keyhouse-data (ARGS='--help')
	@exec $(BIN)/keyhouse serve $(ARGS)

.PHONY: demo
demo: .venv/installed ## Watch a small keyspace at work on SQLite
	@$(BIN)/python -m keyhouse.demo

.PHONY: bench
bench: .venv-bench/installed ## Measure against hand-written code and against peers
	@.venv-bench/bin/python -m benchmarks $(ARGS)

.PHONY: soak
soak: .venv/installed ## Run random tests and faults at a release's length, hours (SIZE=20: percent of it; ENGINES=…)
	@KEYHOUSE_SOAK=$(SIZE) KEYHOUSE_ENGINES=$(ENGINES) $(BIN)/python -m pytest -rA -n $(JOBS) --dist worksteal \
	  -m 'soak or hypothesis' $(ARGS)

.PHONY: docs
docs: .venv/installed ## Write the generated pages of docs/ anew
	@$(BIN)/python -m keyhouse.cli.reference
	@$(BIN)/python -m keyhouse.cli.screens

.PHONY: lock
lock: .venv-lock/installed ## Choose the newest versions, and write both lock files
	@echo "Writing requirements.lock and requirements-bench.lock"
	@$(COMPILE) --extra all --extra testing --group dev --output-file requirements.lock
	@$(COMPILE) --extra all --group bench --output-file requirements-bench.lock

.PHONY: clean
clean: ## Remove the environments and everything that tools left behind
	@rm -rf .venv .venv-bench .venv-lock .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/locked: requirements.lock
.venv-bench/locked: requirements-bench.lock
.venv/locked .venv-bench/locked:
	$(call make-environment,$(@D))
	@$(@D)/bin/python $(PIP) install --require-hashes -r $<
	@touch $@

# The project itself, from what is locked: no build isolation, so nothing else is fetched.
%/installed: %/locked pyproject.toml
	@$(@D)/bin/python $(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv-lock/installed: Makefile
	$(call make-environment,$(@D))
	@$(@D)/bin/python $(PIP) install $(UV)
	@touch $@

define make-environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Keyhouse needs Python 3.11 or newer, and $(PYTHON) is: $$($(PYTHON) --version 2>&1)"; \
	  echo "Name another one, for example: make $(or $(MAKECMDGOALS),test) PYTHON=python3.12"; exit 1; }
	@echo "Making $(1) with $$($(PYTHON) --version); this happens once, and takes about a minute."
	@rm -rf $(1)
	@$(PYTHON) -m venv $(1)
endef

# All developer commands. They need Python 3.11 or newer, git and make; nothing is installed first.
#
# `make serve` and `make demo` need a quarter of the packages of `make test`, so they have their
# own environment.
#
# An environment is built from its lock file alone, so pip resolves nothing: an older pip takes a
# requirement such as `coverage[toml]` for unpinned as soon as a newer release exists. One library
# comes as source, and pip fetches its build requirements. The `locked` stamp is written last, so an
# interrupted build starts over; it is older than a changed lock file, so a changed lock file
# rebuilds the environment.

PYTHON ?= python3
JOBS ?= 4
ENGINES ?=
BROWSER ?=
SIZE ?= 100
UV := uv==0.13.7

SHELL := /bin/sh
unexport PYTHONPATH # always test, run and measure this tree
unexport PYTHONDONTWRITEBYTECODE # tests start the program hundreds of times: compile it once
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
SERVE := .venv-serve/bin
PIP := -m pip -qq --disable-pip-version-check --no-input
SYSTEMS := $(wildcard systems/*/pyproject.toml)
OURS := keyhouse $(SYSTEMS:systems/%/pyproject.toml=keyhouse-%)
COMPILE := .venv-lock/bin/uv pip compile pyproject.toml $(SYSTEMS) $(OURS:%=--no-emit-package %) --quiet --upgrade --universal --python-version 3.11 \
  --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'
CODE := $(wildcard src systems tests benchmarks examples tools conftest.py)

# Percent of the core (listed in pyproject.toml) that its own tests must cover, on the memory engine.
CORE_COVERAGE := 95
CORE_TESTS := tests/base tests/keys tests/schema tests/store tests/cli/test_describe.py tests/cli/test_explain.py \
  tests/docs/test_pages.py::test_generated_pages_are_current systems/streamkit/tests/test_streamkit_migration.py \
  $(patsubst %,tests/service/schema_service/%.py,test_own_operations test_operation_replies)

.PHONY: help
help: ## Show this list
	@echo "Each target builds its environment first."
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

# Tests wait for half of their time: four processes keep two cores busy.
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal
NO_BROWSER := $(if $(filter off,$(BROWSER)), and not browser)

.PHONY: test
test: .venv/installed ## Run all checks and the tests of every promise (ENGINES=…, BROWSER=off: fewer)
	@$(MAKE) -j3 check compile browser
	@TEST_ENGINES=$(ENGINES) $(PYTEST) -m 'not extra$(NO_BROWSER)'
	@test '$(BROWSER)' != off || echo "The page tests were not run: BROWSER=off."

# What `make test` leaves out, and its random tests and fault runs again, longer.
.PHONY: test-all
test-all: test ## Run `make test`, more cases and longer random runs, and coverage, as CI does
	@TEST_TIER=all TEST_ENGINES=$(ENGINES) $(PYTEST) -m '(extra or soak or hypothesis)$(NO_BROWSER)'
	@$(MAKE) coverage

# Tracing doubles the time of a test.
.PHONY: coverage
coverage: .venv/installed ## Show that the tests of the core cover it
	@TEST_ENGINES=memory $(PYTEST) --cov --cov-report= -m 'not extra and not long' $(CORE_TESTS)
	@$(BIN)/coverage report --fail-under $(CORE_COVERAGE)

# Collecting compiles the tests. Every test process would, at the same time.
.PHONY: compile
compile: .venv/compiled ## Compile the tests, if one has changed

.venv/compiled: .venv/installed $(shell find src systems tests -name '*.py')
	@$(BIN)/python -m pytest -q --collect-only >/dev/null 2>&1 || true
	@touch $@

.PHONY: browser
browser: .venv/installed ## Find a browser for the page tests, or unpack one
	@test '$(BROWSER)' = off || $(BIN)/python -m tools.browser

# Tests that a change usually breaks: few servers, no kills, nothing marked long. Each starts no or
# few processes; tests/serve/test_serve.py and most of tests/cli start one program per test, and
# tests/docs/test_site.py builds the site.
QUICK := $(wildcard tests/project tests/docs tests/adapters tests/base tests/advice tests/keys tests/schema tests/store tests/auth \
  tests/http tests/nats tests/serve tests/service tests/cli/test_describe.py tests/cli/test_explain.py)

.PHONY: quick
quick: check ## Run the checks and the fast tests on memory and SQLite, under 90 seconds
	@TEST_ENGINES=memory,sqlite $(PYTEST) -m 'not extra and not long and not soak and not hypothesis and not browser' \
	 --ignore tests/serve/test_serve.py --ignore tests/docs/test_site.py $(QUICK)
	@echo "Left out, and in make test: servers, most commands, systems, pages, abuse, kills, random and long tests."

.PHONY: check
check: .venv/installed ## Check format, lint and types
	@$(BIN)/ruff format --quiet --check . || { echo "Run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary $(CODE)
	@echo "Format, lint and types are clean."

.PHONY: format
format: .venv/installed ## Format the code and sort imports
	@$(BIN)/ruff check --quiet --select I --fix .
	@$(BIN)/ruff format .

.PHONY: serve
serve: .venv-serve/installed ## Serve all systems with SQLite and NATS in keyhouse-data (ARGS='--help')
	@exec $(SERVE)/keyhouse serve $(ARGS)

.PHONY: demo
demo: .venv-serve/installed ## Run the guided tour of a small keyspace (ARGS=folder keeps its store)
	@$(SERVE)/python -m examples.tour $(ARGS)

.PHONY: bench
bench: .venv-bench/installed ## Measure against hand-written code and against peers
	@.venv-bench/bin/python -m benchmarks $(ARGS)

.PHONY: soak
soak: .venv/installed ## Run random and fault tests at release length, hours (SIZE=20: percent)
	@TEST_SOAK=$(SIZE) TEST_ENGINES=$(ENGINES) $(PYTEST) -rA -m 'soak or hypothesis' $(ARGS)

.PHONY: steady
steady: .venv/installed browser ## Run the tests 15 times, alone, beside a load and in random order
	@TEST_ENGINES=$(ENGINES) $(BIN)/python -m tools.steady --jobs $(JOBS) $(ARGS)

.PHONY: docs
docs: .venv/installed ## Regenerate the generated pages of docs/
	@$(BIN)/python -m tools.reference
	@$(BIN)/python -m tools.screens

.PHONY: site
site: .venv/installed ## Build the documentation as a site with search, in build/site
	@$(BIN)/python -m tools.site

.PHONY: lock
lock: .venv-lock/installed ## Pin the newest versions in the lock files
	@echo "Writing requirements.lock, requirements-serve.lock and requirements-bench.lock"
	@$(COMPILE) --extra adapters --extra all --extra testing --group dev --output-file requirements.lock
	@$(COMPILE) --extra serve --group build -c requirements.lock --no-annotate --output-file requirements-serve.lock
	@$(COMPILE) --extra all --group bench --output-file requirements-bench.lock

.PHONY: clean
clean: ## Remove environments and caches
	@rm -rf .venv .venv-serve .venv-bench .venv-lock .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/locked: requirements.lock
.venv-serve/locked: requirements-serve.lock
.venv-bench/locked: requirements-bench.lock
.venv/locked .venv-serve/locked .venv-bench/locked:
	$(call make-environment,$(@D))
	@echo "Installing the $$(grep -c '==' $<) packages of $<"
	@$(@D)/bin/python $(PIP) install --no-deps --require-hashes -r $<
	@$(@D)/bin/python -m pip --disable-pip-version-check check
	@touch $@

# Install the library and the systems without build isolation, so that nothing else is fetched.
%/installed: %/locked pyproject.toml $(SYSTEMS)
	@echo "Installing Keyhouse and its systems into $(@D)"
	@$(@D)/bin/python $(PIP) install --no-deps --no-build-isolation --editable . $(SYSTEMS:%/pyproject.toml=--editable %)
	@touch $@

.venv-lock/installed: Makefile
	$(call make-environment,$(@D))
	@$(@D)/bin/python $(PIP) install $(UV)
	@touch $@

define make-environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Keyhouse needs Python 3.11 or newer, and $(PYTHON) is: $$($(PYTHON) --version 2>&1)"; \
	  echo "Choose another one, for example: make $(or $(MAKECMDGOALS),test) PYTHON=python3.12"; exit 1; }
	@echo "Creating $(1) with $$($(PYTHON) --version), once"
	@rm -rf $(1)
	@$(PYTHON) -m venv $(1)
endef

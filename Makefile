# Everything a fresh machine needs to prove this project: Python 3.11 or newer and make. See CONTRIBUTING.md.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
LOWEST := .venv-lowest
BIN := $(VENV)/bin
SOURCES := inbox tests examples benchmarks

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: bench bench-quick check crash demo docs format lint mutations types test services soak clean

## Format, lint, types, the site, unit and architecture tests; under a minute.
check: lint types docs
	$(BIN)/pytest -q tests/unit tests/architecture tests/conformance/test_memory.py

lint: $(VENV)/.made
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

types: $(VENV)/.made
	$(BIN)/mypy

## Everything, on real databases and brokers, with the newest and the lowest libraries: ends with pytest's own summary.
## Each test runs on one pair of servers and over one driver, drawn by a seed; make test SEED=all: on all of them.
## What comes before them is done two at a time: making an environment mostly waits for files.
test:
	@$(MAKE) --no-print-directory --jobs=2 lint types docs $(LOWEST)/.made
	tests/run.sh $(VENV) $(LOWEST) $(SEED)

## The whole crash matrix: every point, packet and session, every pair of servers; more than an hour. One of them:
## make crash ARGS="-k 'after:commit'". What it tries is in docs/crash-matrix.md.
crash: $(VENV)/.made
	$(BIN)/pytest tests/crash tests/concurrency $(ARGS)

## Mistakes in a copy of the package, each of which a test must find; make mutations ARGS="ack-before-commit" makes one.
mutations: $(VENV)/.made
	$(BIN)/python -m tests.mutations $(ARGS)

## Load with duplicates, kills, cuts and outages, and an audit: make soak MINUTES=60 ARGS="--seed 4711 --pair oldest"
soak: $(VENV)/.made
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),5) $(ARGS)

## The site, into build/site; whatever it warns of, such as a link that leads nowhere, is an error.
docs: $(VENV)/.made
	$(BIN)/zensical build --strict --config-file mkdocs.yml
	$(BIN)/python -m tests.documents.site

## Rewrite the files as the formatter and the fixable lints want them, and docs/reference as the code says.
format: $(VENV)/.made
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/python -m tests.documents

## Kill workers again and again and count what they did; needs Python alone. make demo ARGS="--kills 100 --services"
demo: $(VENV)/.demo
	$(BIN)/inbox demo $(ARGS)

## Events per second beside consumers by hand, on servers with their data on a disk: about an hour. What, and how it is
## judged, is in docs/performance.md; make bench ARGS="--plan" lists it, ARGS=--goals is what it is judged by, in twenty
## minutes, and ARGS="--only 'inbox-session,.* 8 in'" a part.
bench: $(VENV)/.made
	$(BIN)/python -m benchmarks.run $(ARGS)

## The same as a look, in four minutes.
bench-quick: $(VENV)/.made
	$(BIN)/python -m benchmarks.run --quick $(ARGS)

## Start both pairs of servers, print their DSNs, and stop them at Ctrl-C.
services: $(VENV)/.made
	$(BIN)/python -m tests.services

clean:
	rm -rf $(VENV) $(LOWEST) .coverage .coverage.* .cache .mypy_cache .pytest_cache .ruff_cache build dist

# The plugin is copied when the package is installed.
$(VENV)/.made $(LOWEST)/.made: inbox/testing/plugin.py

# What is imported is compiled then: that is less than a tenth of what is installed.
$(VENV)/.made: pyproject.toml
	@echo "== $(VENV): newest versions"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --no-compile --upgrade --upgrade-strategy eager --editable '.[cli,asyncmy,reload]' --group dev --group docs --group bench
	@touch $@

# Less than the tests need, and nothing more where they have been made ready.
$(VENV)/.demo: pyproject.toml
	@[ $(VENV)/.made -nt pyproject.toml ] || { \
	  echo "== $(VENV): what the demo needs"; \
	  $(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet --editable '.[cli,embedded]'; }
	@touch $@

$(LOWEST)/.made: pyproject.toml tests/lowest.txt
	@echo "== $(LOWEST): lowest versions"
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install --quiet --upgrade 'pip>=25.1'
	$(LOWEST)/bin/pip install --quiet --no-compile --constraint tests/lowest.txt --editable '.[cli,asyncmy,reload]' --group dev
	@touch $@

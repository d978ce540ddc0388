# Needs make, a POSIX shell and Python 3.11 or newer; everything else is put into .venv.
# `make help` lists the targets. CI runs these same targets (.ci/run).

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed-from

# The first interpreter that is new enough; override with `make PYTHON=/path/to/python3 setup`.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)

# Arguments passed on to pytest, for example `make test ARGS='-k jute -x'`.
ARGS ?=
WORKERS ?= auto

# kazoo and Spark find these by themselves; a stray value from outside must not decide a test.
unexport PYTHONPATH PYTHONHOME SPARK_HOME

.DEFAULT_GOAL := help
.PHONY: help setup lab demo check format test kazoo differential kill-campaign chaos sim sim-storage sim-bugs bench lock clean audit-campaign

help: ## list the targets
	@echo 'Keepfast. Targets:'
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)$$/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) \
		| awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

# The stamp holds the folder and the two files it was installed from: an unchanged environment
# costs nothing, a changed pin or console script is always installed, whatever the clocks say, and
# an environment copied along with its folder, which points to the old place, is made anew.
setup: ## make .venv from the pinned versions (does nothing if they did not change)
	@stamp() { pwd; cat requirements.lock pyproject.toml; }; \
	if $(BIN)/python -c '' 2>/dev/null && stamp | cmp -s - $(STAMP); then exit 0; fi; \
	set -e; \
	if [ -e $(STAMP) ] && [ "$$(head -n 1 $(STAMP))" != "$$(pwd)" ]; then rm -rf $(VENV); fi; \
	if ! $(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		if ! $(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo 'Python 3.11 or newer is needed. Install one, or name it: make PYTHON=/path/to/python3 setup' >&2; \
			exit 1; fi; \
		echo 'Making $(VENV) with $(PYTHON)'; rm -rf $(VENV); $(PYTHON) -m venv $(VENV); fi; \
	echo 'Installing the pinned packages. The first time takes some minutes: pyspark alone is 445 MB.'; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .; \
	stamp > $(STAMP); \
	echo 'Ready: $(BIN)/keepfast'

demo: setup ## a short tour: a server, a kill, a proof, and what damage looks like
	@$(BIN)/python examples/demo.py

check: setup ## format, lint, strict types and import rules; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src tests $(wildcard examples benchmarks)
	$(BIN)/lint-imports --no-logo

format: setup ## format the code and apply the safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: setup ## run every test (ARGS='...' goes to pytest, WORKERS=0 runs them in one process)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(ARGS)

SEEDS ?= 300
FIRST ?= 0

sim: setup ## whole ensembles in virtual time, with every fault (SEEDS=300 FIRST=0; JOBS, MASTER through ARGS)
	$(BIN)/keepfast simulate --seeds $(SEEDS) --first $(FIRST) $(ARGS)

sim-storage: setup ## storage fault injection: crash at every disk call, damage to every byte (prints counts)
	$(BIN)/python -m pytest -s tests/storage/test_crash_consistency.py tests/storage/test_damage_sweep.py $(ARGS)

sim-bugs: setup ## plant each known bug and print the seed that catches it
	$(BIN)/python -m tests.sim.bug_hunt

# Not part of `test`: it takes minutes, and the packages of an environment of its own.
kazoo: setup ## kazoo's own test suite on one server of ours; takes minutes, so `make test` leaves it out (ARGS)
	$(BIN)/python -m tests.kazoo_suite.run $(ARGS)

differential: setup ## 200,000 random operations on Apache 3.9.5 and on us, every answer compared; takes minutes (ARGS)
	$(BIN)/python -m tests.differential.campaign $(ARGS)

chaos: setup ## real processes under load: every workload under every fault, checked; takes minutes (ARGS='--rounds 5 --size 5')
	$(BIN)/python -m tests.chaos.campaign $(ARGS)

audit-campaign: setup ## the audit on 1,000 healthy and 560 damaged ensembles, on Spark; takes minutes (ARGS='--seed 0 --healthy 1000 --damaged 560')
	$(BIN)/python -m tests.pipeline.audit_campaign $(ARGS)

kill-campaign: setup ## kill -9 a server under load 200 times; nothing acknowledged may be lost (ARGS)
	$(BIN)/python -m tests.kill.campaign $(ARGS)

lab: setup ## every failure of the lab, 20 times on ours and once on Apache's servers (RUNS=20)
	$(BIN)/python -m tests.lab.campaign $(or $(RUNS),20)

bench: setup ## run every benchmark; each prints one table
	@set -e; for script in benchmarks/bench_*.py; do \
		[ -e "$$script" ] || { echo 'There are no benchmarks yet.'; break; }; \
		echo "== $$script"; $(BIN)/python -m "benchmarks.$$(basename "$$script" .py)"; done

lock: ## renew requirements.lock with the newest versions that fit pyproject.toml
	@set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(PYTHON) -m venv "$$fresh/venv"; \
	"$$fresh/venv/bin/python" -m pip install --quiet --disable-pip-version-check '.[pipeline,shell,speed,tls,dev]'; \
	{ head -n 1 requirements.lock; \
	  "$$fresh/venv/bin/python" -m pip freeze --disable-pip-version-check --exclude keepfast; } > "$$fresh/lock"; \
	cat "$$fresh/lock" > requirements.lock; echo 'requirements.lock is renewed; run make setup.'

clean: ## remove .venv and everything that tools left behind
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

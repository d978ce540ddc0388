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
TOOLS := .venv-tools
.PHONY: help setup tools deploy-check docs docs-serve dist wheel-compiled test-compiled lock-tools lab demo check format test test-core kerberos kazoo c-client differential fuzz fuzz-guided stalls watch-live kill-campaign chaos sim sim-storage sim-bugs bench lock clean audit-campaign

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
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .; \
	stamp > $(STAMP); \
	echo 'Ready: $(BIN)/keepfast'

# Apart from .venv: what an installation needs is pinned there, and nothing here is part of it.
tools: ## make .venv-tools: the programs of `docs`, `deploy-check` and `dist`, pinned
	@if $(TOOLS)/bin/python -c '' 2>/dev/null && cmp -s requirements-tools.lock $(TOOLS)/installed-from; then exit 0; fi; \
	set -e; rm -rf $(TOOLS); $(PYTHON) -m venv $(TOOLS); \
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-tools.lock; \
	cp requirements-tools.lock $(TOOLS)/installed-from

# promtool and systemd-analyze are Debian's (apt-get install prometheus systemd strace); a test whose
# program is missing is skipped and says so.
deploy-check: setup tools ## test everything under deploy/: units, container, manifests, alert rules, dashboard
	$(BIN)/python -m pytest --numprocesses 0 tests/deploy $(ARGS)

docs: tools ## build the documentation site into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(TOOLS)/bin/mkdocs build --strict --quiet

docs-serve: tools ## show the documentation site on a local port while you write
	$(TOOLS)/bin/mkdocs serve

dist: tools ## build the wheel and the sdist into dist/ and check what PyPI will show
	rm -rf dist
	$(TOOLS)/bin/python -m build --outdir dist .
	$(TOOLS)/bin/python -m twine check --strict dist/*

# From .venv, which has hatchling and mypy pinned; hatch_build.py says what is done.
wheel-compiled: setup ## build the compiled wheel, for this Python and machine, into dist/; needs a C compiler, takes minutes
	rm -f dist/keepfast-*-cp*.whl
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(BIN)/python -m hatchling build --target wheel --directory dist

COMPILED := .venv-compiled
# What runs on both builds: without Java, Spark and browsers.
COMPILED_TESTS ?= tests/wire tests/tree tests/quorum tests/replica tests/storage tests/sim tests/server tests/hostile

# All packages but Keepfast itself come from .venv: the path in a .pth is searched, the .pth files there are not read.
test-compiled: wheel-compiled ## run tests on the installed compiled wheel (ARGS; COMPILED_TESTS='tests/tree ...')
	rm -rf $(COMPILED)
	$(BIN)/python -m venv --without-pip $(COMPILED)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$($(COMPILED)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/packages.pth"
	$(BIN)/python -m pip --python $(COMPILED)/bin/python install --quiet --disable-pip-version-check --no-index --no-deps dist/keepfast-*-cp*.whl
	$(COMPILED)/bin/python -m keepfast version
	$(COMPILED)/bin/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(COMPILED_TESTS) $(ARGS)

demo: setup ## a short tour: a server, a kill, a proof, and what damage looks like
	@$(BIN)/python examples/demo.py

check: setup ## format, lint, strict types and import rules; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src tests hatch_build.py $(wildcard examples benchmarks)
	$(BIN)/lint-imports --no-logo

format: setup ## format the code and apply the safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: setup ## run every test (ARGS='...' goes to pytest, WORKERS=0 runs them in one process)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(ARGS)

# No Java, no Spark, no processes of servers: what is worth running after every change.
CORE_TESTS = tests/wire tests/tree tests/quorum tests/replica tests/apache/test_config*.py \
	tests/apache/test_jaas.py tests/storage/test_[ehlmprsw]*.py tests/sim/test_agenda.py tests/sim/test_network.py \
	tests/server/test_settings_are_read.py

test-core: setup ## the tests that need no Java, Spark or real processes; about a minute (ARGS)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile -m 'not slow and not conformance and not spark' \
		$(wildcard $(CORE_TESTS)) $(ARGS)

SEEDS ?= 300
FIRST ?= 0

sim: setup ## whole ensembles in virtual time, with every fault (SEEDS=300 FIRST=0; JOBS, MASTER through ARGS)
	$(BIN)/keepfast simulate --seeds $(SEEDS) --first $(FIRST) $(ARGS)

sim-storage: setup ## storage fault injection: crash at every disk call, damage to every byte (prints counts)
	$(BIN)/python -m pytest -s tests/storage/test_crash_consistency.py tests/storage/test_damage_sweep.py $(ARGS)

sim-bugs: setup ## plant each known bug and print the seed that catches it
	$(BIN)/python -m tests.sim.bug_hunt

# Where Debian's krb5-kdc, krb5-admin-server, krb5-user, libkrb5-dev and gcc are; `make test` leaves these tests out before.
kerberos: setup ## install what tests of Kerberos need, and run them: a KDC, kazoo, Java, a mixed ensemble (ARGS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement tests/kerberos/requirements.txt
	$(BIN)/python -m pytest tests/kerberos $(ARGS)

# Not part of `test`: it takes minutes, and the packages of an environment of its own.
kazoo: setup ## kazoo's own test suite on one server of ours; takes minutes, so `make test` leaves it out (ARGS)
	$(BIN)/python -m tests.kazoo_suite.run $(ARGS)

# Needs npm, compilers, libcppunit-dev, libsasl2-dev, libssl-dev and keytool; says what is missing.
c-client: setup ## the tests of Apache's own C client, on our servers and on Apache's; takes long (ARGS='--only Zookeeper_multi')
	$(BIN)/python -m tests.c_client.run $(ARGS)

differential: setup ## 200,000 random operations on Apache 3.9.5 and on us, every answer compared; takes minutes (ARGS)
	$(BIN)/python -m tests.differential.campaign $(ARGS)

chaos: setup ## real processes under load: every workload under every fault, checked; takes minutes (ARGS='--rounds 5 --size 5')
	$(BIN)/python -m tests.chaos.campaign $(ARGS)

audit-campaign: setup ## the audit on 1,000 healthy and 560 damaged ensembles, on Spark; takes minutes (ARGS='--seed 0 --healthy 1000 --damaged 560')
	$(BIN)/python -m tests.pipeline.audit_campaign $(ARGS)

stalls: setup ## how long others wait during each attack, with and without TLS and SASL; more than 50 ms is a failure
	$(BIN)/python -m tests.hostile.stalls

fuzz: setup ## mutated frames, packets, files and headers at every decoder that strangers reach (SECONDS=60; ARGS=seed)
	$(BIN)/python -m tests.fuzz.campaign $(or $(SECONDS),60) $(ARGS)

fuzz-guided: setup ## the same targets under libFuzzer (atheris), where it has a wheel for this Python (SECONDS=60)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement tests/fuzz/requirements.txt
	$(BIN)/python -m tests.fuzz.guided $(or $(SECONDS),60)

watch-live: setup ## `keepfast watch` beside live ensembles of both kinds, with kills; takes minutes
	KEEPFAST_WATCH=live $(BIN)/python -m pytest -q -p no:xdist tests/pipeline/test_watch_live.py $(ARGS)

kill-campaign: setup ## kill -9 a server under load 200 times; nothing acknowledged may be lost (ARGS)
	$(BIN)/python -m tests.kill.campaign $(ARGS)

lab: setup ## every failure of the lab, 20 times on ours and once on Apache's servers (RUNS=20)
	$(BIN)/python -m tests.lab.campaign $(or $(RUNS),20)

bench: setup ## run every benchmark; each prints one table
	@set -e; for script in benchmarks/bench_*.py; do \
		[ -e "$$script" ] || { echo 'There are no benchmarks yet.'; break; }; \
		echo "== $$script"; $(BIN)/python -m "benchmarks.$$(basename "$$script" .py)"; done

# Both with the oldest Python that is supported (PYTHON=...): the newest versions may want a newer one.
lock: ## renew requirements.lock, with hashes, from the newest versions that fit pyproject.toml
	@set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(PYTHON) -m venv "$$fresh/venv"; \
	"$$fresh/venv/bin/python" -m pip install --quiet --disable-pip-version-check '.[console,delta,pipeline,shell,speed,tls,dev]'; \
	{ head -n 1 requirements.lock; \
	  "$$fresh/venv/bin/python" -m pip freeze --all --disable-pip-version-check --exclude keepfast --exclude pip; } > "$$fresh/lock"; \
	"$$fresh/venv/bin/python" .ci/pin_hashes.py "$$fresh/lock"; \
	cat "$$fresh/lock" > requirements.lock; echo 'requirements.lock is renewed; run make setup.'

lock-tools: ## renew requirements-tools.lock, with hashes, from the newest versions of requirements-tools.in
	@set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(PYTHON) -m venv "$$fresh/venv"; \
	"$$fresh/venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements-tools.in; \
	{ head -n 1 requirements-tools.lock; "$$fresh/venv/bin/python" -m pip freeze --disable-pip-version-check; } > "$$fresh/lock"; \
	"$$fresh/venv/bin/python" .ci/pin_hashes.py "$$fresh/lock"; \
	cat "$$fresh/lock" > requirements-tools.lock; echo 'requirements-tools.lock is renewed; run make tools.'

clean: ## remove .venv and everything that tools left behind
	rm -rf $(VENV) $(TOOLS) $(COMPILED) site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

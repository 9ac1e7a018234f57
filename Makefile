# `make help` lists the targets. Test servers and jars are stored in ~/.cache/kafscale, or in KAFSCALE_TEST_CACHE.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Hundreds of processes start in a test run. Without stored bytecode, each would compile all modules that it imports.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
LOCK := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	--no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options
PYTEST_ARGS ?=
# The number of test processes. tests/conftest.py assigns whole files to them; the tests of a file run one by one.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 20
TESTS := tests/unit tests/contract tests/services tests/clients tests/sim tests/fuzz --ignore tests/sim/test_variants.py
AUDIT := build/audit
AUDITED := $(wildcard requirements*.lock tests/*/*/requirements.lock)
BENCH ?= compare spark_compare
BENCH_ARGS ?=
IMAGE_ARGS ?=
VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)
MINUTES ?= 0.5
SEED ?=

.PHONY: help run image release unit test test-all test-long check bench chaos fuzz sim format generate lock audit setup servers system-packages spark-demo spark-package clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-16s %s\n", $$1, $$2}'

run: $(VENV)/.runtime ## Install KafScale and run it as one process on 127.0.0.1:9092
	@exec $(BIN)/kafscale run

image: ## Build the image of all services, kafscale:latest and kafscale:VERSION; with a mirror, set IMAGE_ARGS="--build-arg PIP_INDEX_URL=..."
	docker build --target kafscale --tag kafscale:latest --tag kafscale:$(VERSION) $(IMAGE_ARGS) .

release: $(VENV)/.dev ## Make the release VERSION=X.Y.Z: version, changelog, commit, wheel, image, tag; DRY_RUN=1 only shows the changes
	@$(BIN)/python -m kafscale_tools.release $(VERSION) $(if $(DRY_RUN),--dry-run)

setup: $(VENV)/.dev ## Install the Python packages for checks and tests

servers: $(VENV)/.dev ## Build the servers and clients for make test-all; those with missing programs are skipped
	@$(BIN)/python -m tests.servers.build all

system-packages: ## Install missing Debian packages for make test-all, as root
	@tools="kcat npm systemd-analyze:systemd mvn:maven chromium"; \
	docker version >/dev/null 2>&1 || tools="$$tools dockerd:docker.io debootstrap"; \
	packages=$$(for tool in $$tools; do command -v $${tool%:*} >/dev/null || echo $${tool#*:}; done); \
	if [ -n "$$packages" ]; then set -x; apt-get -qq update; \
	  DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $$packages; fi

check: $(VENV)/.dev ## Check lint, types and layers, and that generated code and documents are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=spark $(BIN)/lint-imports
	$(BIN)/python protos/generate.py --check
	$(BIN)/python -m kafscale_tools.documents.generate --check
	PYTHONPATH=spark $(BIN)/python -m kafscale_spark.docs --check docs/reference/spark-options.md

unit: $(VENV)/.dev ## Run the tests that need no servers
	$(PYTEST) --left-out tests/unit $(PYTEST_ARGS)

test: check $(VENV)/.dev ## Install, check, and test the code, the four services with real etcd and S3, and clients
	@$(BIN)/python -m tests.servers.build
	$(PYTEST) --left-out $(TESTS) $(PYTEST_ARGS)

test-all: check servers ## Run all tests: also Spark, Compose, Kubernetes, the client matrix, chaos, mutations
	$(PYTEST) --left-out $(PYTEST_ARGS)

test-long: check servers ## Run all tests, with the full iterations of long tests
	$(PYTEST) --left-out --run-long $(PYTEST_ARGS)

bench: servers ## Compare with Apache Kafka and with Spark's Kafka source on this machine; for a part, set BENCH_ARGS=--quick, BENCH=spark_compare, or BENCH=compare BENCH_ARGS="--only-server four --only-load acks=1"
	@for bench in $(BENCH); do $(BIN)/python -m tests.bench.$$bench $(BENCH_ARGS); done

sim: $(VENV)/.dev ## Simulate clusters with faults; SEEDS=3000 or SEEDS=100..199, SEED=17 replays one, GROUPS=1 only groups; status 1 on violations
	@$(BIN)/python -m tests.sim.run $(if $(GROUPS),--groups) $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),100))

fuzz: $(VENV)/.dev ## Send damaged messages to all ports and decoders; MINUTES=1 SEED=..., ONLY=kafka for one target; status 1 on a finding
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

chaos: servers ## Make real processes fail under load and check acknowledged records; MINUTES=0.5 SEED=...; status 1 on violations
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

format: $(VENV)/.dev ## Format the code and apply the linter's fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(VENV)/.dev ## Regenerate code and documents
	$(BIN)/python protos/generate.py
	$(BIN)/python -m kafscale_tools.documents.generate
	PYTHONPATH=spark $(BIN)/python -m kafscale_spark.docs docs/reference/spark-options.md

lock: $(VENV)/.dev ## Update the pinned versions of all requirements, with hashes
	$(LOCK) --upgrade --output-file requirements.lock pyproject.toml requirements.in
	$(LOCK) --upgrade --output-file requirements-dev.lock requirements-dev.in
	$(LOCK) --upgrade --output-file requirements-spark.lock requirements-spark.in
	$(LOCK) --upgrade --output-file requirements-audit.lock requirements-audit.in
	$(LOCK) --upgrade --output-file tests/spark/spark40/requirements.lock tests/spark/spark40/requirements.in
	$(LOCK) --upgrade --output-file tests/ecosystem/python/requirements.lock tests/ecosystem/python/requirements.in

audit: $(AUDIT)/.installed ## Look up known vulnerabilities of all pinned Python packages; needs a network, and fails if there is no answer
	@.ci/audit $(AUDIT)/bin/pip-audit $(AUDITED)

spark-demo: $(VENV)/.dev ## Run a year of flights through topics and Spark jobs on one process, and plot the result in spark-demo.png
	@PYTHONPATH=spark:. $(BIN)/python spark/demo.py

spark-package: $(VENV)/.runtime ## Write build/kafscale.zip, for spark-submit --py-files
	@mkdir -p build
	@PYTHONPATH=spark:. $(BIN)/python -m kafscale_spark.package build/kafscale.zip
	@echo "wrote build/kafscale.zip"

clean: ## Remove files that make created in this directory, but not the cache of test servers
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Debian's Python comes first, so that the tests run on the release that the image contains.
$(VENV)/.python:
	@echo "creating $(VENV) ..."
	@for python in $${PYTHON:-/usr/bin/python3.11 python3.11 python3.12 python3.13 python3}; do \
	  if "$$python" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    "$$python" -m venv $(VENV); touch $@; exit 0; \
	  fi; \
	done; echo "Python 3.11 or later with the venv module is required; set PYTHON=... to choose one" >&2; exit 1

$(AUDIT)/.installed: $(VENV)/.python requirements-audit.lock
	@echo "installing pip-audit ..."
	@$(BIN)/python -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-audit.lock
	@touch $@

$(VENV)/.runtime: $(VENV)/.python requirements.lock pyproject.toml
	@echo "installing KafScale and its dependencies ..."
	@$(PIP) install --quiet --require-hashes -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Packages without a wheel are built with the pinned setuptools of requirements.lock.
$(VENV)/.dev: $(VENV)/.runtime requirements-dev.lock
	@echo "installing the tools for checks and tests ..."
	@$(PIP) install --quiet --use-pep517 --no-build-isolation --require-hashes -r requirements-dev.lock
	@touch $@

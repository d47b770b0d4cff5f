# Everything runs in a virtual environment of its own. VENV=… puts it elsewhere.

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
STAMP := $(VENV)/.installed
LOWEST ?= $(VENV)-lowest
# The tools of make sbom, make audit and make requirements-hashed.txt. Their own needs must not change what is tested.
TOOLS ?= $(VENV)-tools
# The version of Spark that make test-spark tries.
SPARK ?= 4.0.5
SPARK_VENV := $(VENV)-spark-$(SPARK)
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
# The versions that make venv installs.
CONSTRAINTS ?= constraints.txt
# Where the servers are that the backends are tested against; tests look here.
export PRAVEGA_SERVERS ?= $(abspath .servers)
# Files are given out in the order of tests/conftest.py, the longest first, not those with the most tests.
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder

# As pip does for what it installs, but not for an editable install. Spark starts new Python processes all the time, and
# where nobody may write bytecode (PYTHONDONTWRITEBYTECODE) each of them would compile our sources first.
COMPILE = $(BIN)/python -m compileall -q chunkstore engine pravega_spark pyspark_pravega

# Percent of each package's statements and branches that tests must run.
CHUNKSTORE_FLOOR := 96
ENGINE_FLOOR := 97
PRAVEGA_SPARK_FLOOR := 95

# What make sim runs. SCENARIO=containers, streams, tables, groups or jobs runs that one only.
SEEDS ?= 200
FIRST ?= 1
JOBS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count())')

# What make soak runs. SEED=… repeats a plan; PLACE=s3 is Ceph, if make servers installed it; SPARK_QUERY=no leaves Spark out.
MINUTES ?= 120
PLACE ?= folder

# Spark starts its Python workers with this interpreter; without it, with whatever python3 the PATH has.
export PYSPARK_PYTHON := $(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help venv java servers demo test test-slow test-quick test-long test-lowest test-spark options-by-version coverage planted sim soak exhaustive backend-table dist sbom audit lint format docs reference bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP) ## make the virtual environment and install this project with its pinned dependencies

$(STAMP): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	  { echo "Python 3.10 or newer is needed: install it, or name it, as in: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[s3,obstore,azure,gcs,avro,serve,notebooks,docs,dev]'
	$(COMPILE)
	@touch $@

java:
	@found=$$("$(JAVA)" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); \
	  [ "$${found:-0}" -ge 17 ] || { echo "Spark needs Java 17 or newer ($(JAVA): $${found:-not found}):" \
	    "install a JRE (Debian: openjdk-17-jre-headless; macOS: brew install openjdk@17), or point JAVA_HOME at one." >&2; exit 1; }

servers: $(PRAVEGA_SERVERS)/.installed ## install the servers of the backend tests; without one of them its tests are skipped

$(PRAVEGA_SERVERS)/.installed: tests/install-servers | $(STAMP)
	tests/install-servers $(PRAVEGA_SERVERS) $(BIN)/python
	@touch $@

demo: java venv ## run the main job on a local root
	$(BIN)/python -m pravega_spark.demo

test: java venv ## run the tests that take seconds, without the slow ones
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not slow"

test-slow: java venv ## run the others of CI: every backend, the notebooks, examples and larger programs
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m slow

test-quick: venv ## run what needs neither Java nor servers nor processes
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "not spark and not server and not processes and not long"

test-long: java venv ## run all tests, the long ones included
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m "long or not long"

test-lowest: $(LOWEST)/.installed ## run the tests that touch the dependencies with the lowest versions of these
	$(LOWEST)/bin/python -m pytest $(PYTEST_ARGS) -m "not spark and not long" tests/chunkstore tests/backends tests/streams

$(LOWEST)/.installed: setup.cfg pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e '.[s3,obstore,azure,gcs,avro,serve,notebooks,dev]'
	@touch $@

test-spark: java $(SPARK_VENV)/.installed ## run the tests of Spark with another version of it, in an environment of its own (SPARK=4.0.5)
	PYSPARK_PYTHON=$(abspath $(SPARK_VENV))/bin/python PYSPARK_DRIVER_PYTHON=$(abspath $(SPARK_VENV))/bin/python \
	  $(SPARK_VENV)/bin/python -m pytest $(PYTEST_ARGS) -m "spark and not long"

options-by-version: java $(SPARK_VENV)/.installed ## observe what each option does with that version of Spark, and write it into the docs (SPARK=4.0.5)
	PYSPARK_PYTHON=$(abspath $(SPARK_VENV))/bin/python PYSPARK_DRIVER_PYTHON=$(abspath $(SPARK_VENV))/bin/python \
	  $(SPARK_VENV)/bin/python -m pytest -n 0 --options-by-version write -m "long or not long" tests/spark/test_options_by_version.py

# Spark alone; everything else comes from $(VENV). Its wheel is built here, as there is none to download, and is mostly
# jars, which do not get smaller a second time. Its setuptools would hide the project's, with which tests build wheels.
$(SPARK_VENV)/.installed: $(STAMP)
	$(BIN)/python -m venv --clear $(SPARK_VENV)
	$(SPARK_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --config-settings=--build-option=--compression=stored pyspark==$(SPARK)
	$(SPARK_VENV)/bin/python -m pip uninstall --quiet --yes --disable-pip-version-check setuptools
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > "$$($(SPARK_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/all-else.pth"
	@touch $@

constraints-lowest.txt: setup.cfg .ci/lowest
	$(PYTHON) .ci/lowest > $@

$(TOOLS)/.installed: tools.txt
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r tools.txt
	@touch $@

requirements-hashed.txt: setup.cfg constraints.txt .ci/hashed | $(TOOLS)/.installed
	.ci/hashed $(TOOLS)/bin/uv > $@.new
	mv $@.new $@

sbom: $(TOOLS)/.installed ## write build/sbom.json: what the project and the extras of its users need, as CycloneDX
	mkdir -p build
	$(TOOLS)/bin/cyclonedx-py requirements --output-reproducible --output-format JSON -o build/sbom.json requirements-hashed.txt

audit: $(TOOLS)/.installed ## look up known vulnerabilities of what the project needs; fails if a package cannot be looked up
	$(TOOLS)/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r requirements-hashed.txt

coverage: venv ## run the tests without Spark, and tell how much of each package they run
	$(BIN)/coverage erase
	# Not the tests that send signals (the tool holds a lock of its own when one comes, and takes it again in the handler),
	# nor one that counts objects, which the tool makes.
	$(BIN)/python -m pytest $(PYTEST_ARGS) --cov --cov-report= -m "not spark and not long" \
	  --ignore tests/client/test_interrupted_writers.py --ignore tests/client/test_interrupted_calls.py \
	  --ignore tests/client/test_memory.py
	$(BIN)/coverage report --include 'chunkstore/*' --fail-under $(CHUNKSTORE_FLOOR)
	$(BIN)/coverage report --include 'engine/*' --fail-under $(ENGINE_FLOOR)
	$(BIN)/coverage report --include 'pravega_spark/*' --fail-under $(PRAVEGA_SPARK_FLOOR)

planted: java venv ## break the product on purpose, one place at a time; the tests must notice each
	$(BIN)/python -m tests.planted

sim: venv ## run the simulated histories of SEEDS=200 seeds from FIRST=1 on, in JOBS processes; see docs/simulation.md
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --first $(FIRST) --jobs $(JOBS) $(if $(SCENARIO),--scenario $(SCENARIO))

exhaustive: venv ## explore all orders of requests to a log, of the configurations in NAMES or of all; see docs/exhaustive.md
	$(BIN)/python -m tests.exhaustive $(NAMES) $(if $(QUICK),--quick)

soak: java venv ## let real processes share a root, and kill, stop and starve them, for MINUTES=120 at PLACE=folder (or s3); see docs/soak.md
	$(BIN)/python -m tests.soak --minutes $(MINUTES) --place $(PLACE) $(if $(SEED),--seed $(SEED)) $(if $(filter no,$(SPARK_QUERY)),--no-spark)

backend-table: java venv servers ## run all suites on all backends and write down in docs/backends.md what passed
	PRAVEGA_SERVERS_REQUIRED=1 $(BIN)/python -m pytest $(PYTEST_ARGS) --backend-table write -m "suite and (not long or spark)"

dist: venv ## build sdist and wheel, check them, and try README's quick starts and each extra in new environments
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m tests.distribution dist/*.whl $(PARTS)

lint: venv ## check style, spelling, pages, the workflow file and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/pymarkdown scan -r *.md docs notebooks tests
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/mypy

format: venv ## bring everything into the style that lint checks
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: venv ## build the documentation into build/docs; NOTEBOOKS=1 runs the notebooks for it, which takes minutes
	$(BIN)/python -m mkdocs build --strict

reference: venv ## write docs/options.md, commands.md, errors.md and metrics.md from the code
	$(BIN)/python -m docs.hooks.kept

bench: java venv ## measure (PARTS="jobs micro": parts of it; PROFILE=1: draw where the time goes, as profile-bench.svg)
	$(COMPILE)
	$(if $(PROFILE),$(BIN)/pip install -q py-spy)
	$(if $(PROFILE),$(BIN)/py-spy record --subprocesses --rate 200 --output profile-bench.svg --) $(BIN)/python -m tests.bench $(PARTS)

clean: ## remove everything that was made here
	rm -rf $(VENV) $(LOWEST) $(TOOLS) $(VENV)-spark-* .ci/venv* .servers .jars build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage* spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Everything runs in .venv, which the first target that needs it makes.
#   make test PYTHON=/path/to/python3.12     another interpreter
#   make test WORKERS=8 ARGS="-k capsule"    more processes, fewer tests
#   make test-all                            the slow tests too

PYTHON ?=
WORKERS ?= auto
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
TESTS := $(PY) -m pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal

# Compiled programs are kept between runs: compiling is most of the time of a test.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.5
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all lint format bench docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.installed  ## a short tour of the simulator
	$(PY) -m silico_py demo $(ARGS)

test: $(VENV)/.installed-test  ## run the tests but the slow ones (WORKERS=auto, at most 4)
	$(TESTS) -m "not slow" $(ARGS)

test-all: $(VENV)/.installed-test  ## run all tests
	$(TESTS) $(ARGS)

lint: $(VENV)/.installed-dev  ## ruff and mypy, changing nothing
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(VENV)/.installed-dev  ## let ruff rewrite what it can
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: $(VENV)/.installed-test  ## run the benchmarks
	$(PY) -m benchmarks $(ARGS)

docs: $(VENV)/.installed-docs  ## build the pages into out/site
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet $(ARGS)

clean:  ## remove .venv, caches and everything built
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist out *.egg-info
	find silico_py primitives solver tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The first interpreter that runs, is new enough and can make a virtual environment.
# PYTHON, when given, is the only one tried.
$(PY):
	@found=; bare=; \
	for p in $(or $(PYTHON),python3.13 python3.12 python3.11 python3 python); do \
	  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
	  if "$$p" -c 'import venv, ensurepip' >/dev/null 2>&1; then found=$$p; break; fi; \
	  bare=$${bare:-$$p}; \
	done; \
	if [ -n "$$found" ]; then \
	  echo "making $(VENV) with $$("$$found" --version) ($$found)"; \
	  rm -rf $(VENV) && "$$found" -m venv $(VENV); \
	elif [ -n "$$bare" ]; then \
	  echo "error: $$("$$bare" --version) ($$bare) cannot make a virtual environment: its venv or ensurepip module is missing." >&2; \
	  echo "On Debian and Ubuntu install the package python3-venv, then run make again." >&2; exit 1; \
	else \
	  echo "error: no Python 3.11 or newer found (tried: $(or $(PYTHON),python3.13 python3.12 python3.11 python3 python))." >&2; \
	  echo "Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; \
	fi

# A larger install contains the smaller ones, so it marks them as done too.
$(VENV)/.installed: pyproject.toml setup.cfg | $(PY)
	$(PY) -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-test: pyproject.toml setup.cfg | $(PY)
	$(PY) -m pip install --quiet --editable '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml setup.cfg | $(PY)
	$(PY) -m pip install --quiet --editable '.[docs]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: pyproject.toml setup.cfg | $(PY)
	$(PY) -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed-test $(VENV)/.installed

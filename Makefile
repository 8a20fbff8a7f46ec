# One command a job. Each prepares what it needs; the second time that is quick and needs no network.
PYTHON ?= python3
VENV ?= .venv
REQUIREMENTS ?= requirements.txt
PYTEST_ARGS ?=
DEMO_ARGS ?=

PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed-$(notdir $(REQUIREMENTS))

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-services lint format soak bench ci clean

help: ## Show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 22

venv: $(STAMP) ## Make the virtual environment (.venv) and install the requirements

$(STAMP): requirements.txt $(REQUIREMENTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --requirement $(REQUIREMENTS)
	@touch $@

demo: venv ## Run the demo site: web on :8000, ID server on UDP :1200 (DEMO_ARGS="--http-port 8001")
	@exec $(PY) manage.py demo $(DEMO_ARGS)

test: venv ## Run the tests that need no outside server (PYTEST_ARGS="-k conf")
	$(PY) -m pytest $(PYTEST_ARGS)

test-services: venv ## Run the tests again on MariaDB and an outside Redis (RESTY_TEST_DB, RESTY_TEST_REDIS)
	$(PY) -m pytest -m "(db or redis or services) and not soak" $(PYTEST_ARGS)

lint: venv ## Format check, lint, types, import rules
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: venv ## Format the code and sort imports
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

soak: venv ## Run the tests that take minutes
	$(PY) -m pytest -m soak $(PYTEST_ARGS)

bench: venv ## Measure against the peers named in bench/
	@for script in bench/[!_]*.py; do echo "== $$script"; $(PY) $$script || exit 1; done

ci: ## Everything that has to hold before a change lands
	bash .ci/run

clean: ## Remove the virtual environment, the demo's data and the caches
	rm -rf $(VENV) var build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# One command a job. Each installs what it needs first; the second time that is quick and needs no network.
#
# `make demo` installs requirements.txt; tests, linters and benchmarks install requirements-dev.txt on top of it.
PYTHON ?= python3
VENV ?= .venv
REQUIREMENTS ?= requirements-dev.txt
PYTEST_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
TAG ?=

PY := $(VENV)/bin/python
DEMO_STAMP := $(VENV)/.installed-requirements.txt
STAMP := $(VENV)/.installed-$(notdir $(REQUIREMENTS))
# Python compiles a module when it first imports it, which most of the installed modules never are. Where it may not
# keep the result, pip compiles everything now.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check $(if $(PYTHONDONTWRITEBYTECODE),,--no-compile)
# One process for each core, at most four. What must not run side by side is in one group, see tests/conftest.py.
PYTEST := $(PY) -m pytest -n auto --maxprocesses 4 --dist loadgroup
LOCAL := not soak and not services and not browser and not network and not pages and not themes

.DEFAULT_GOAL := help
.PHONY: help usable-venv venv demo test test-slow test-services test-browser test-pages test-wheel themes docs messages lint format soak bench ci release clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 22

usable-venv:
	@if test -L $(VENV) && ! test -e $(VENV); then \
		problem="is a link to $$(readlink $(VENV)), which does not exist"; \
	elif test -e $(VENV) && ! test -d $(VENV); then \
		problem="is not a folder"; \
	elif test -L $(PY) && ! test -e $(PY); then \
		problem="uses a Python that was removed ($$(readlink -m $(PY) 2>/dev/null || readlink $(PY)))"; \
	elif test -d $(VENV) && ! $(PY) -c 'import pip' 2>/dev/null; then \
		problem="contains no working Python with pip"; \
	else \
		exit 0; \
	fi; \
	echo "$(VENV) $$problem. Remove it and start again: rm -rf $(VENV) && make $(MAKECMDGOALS)" >&2; exit 1

$(PY): | usable-venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is missing, or older than Python 3.11. Name another one:" \
			"make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@trap 'rm -rf $(VENV); exit 1' INT TERM HUP; \
	output=$$($(PYTHON) -m venv $(VENV) 2>&1 && $(PY) -c 'import pip' 2>&1) && exit; \
	rm -rf $(VENV); \
	case "$$output" in \
	*ensurepip* | *"No module named"*) \
		echo "$(PYTHON) cannot create a virtual environment, because pip is missing from it." \
			"Install the package python3-venv: sudo apt install python3-venv" \
			"(for a Python that is not the system's: python3.X-venv). Then: make $(MAKECMDGOALS)" >&2 ;; \
	*) \
		echo "$$output" >&2; \
		echo "$(PYTHON) -m venv $(VENV) failed, see above. Nothing was left behind." >&2 ;; \
	esac; \
	exit 1
# A venv of Python 3.11 comes with setuptools (9 MB), which nothing here needs.
	@$(PY) -m pip uninstall -qq --yes --disable-pip-version-check setuptools

$(DEMO_STAMP): requirements.txt | $(PY)
	$(PY) $(PIP_INSTALL) --requirement requirements.txt
	@touch $@

ifneq ($(STAMP),$(DEMO_STAMP))
$(STAMP): requirements.txt requirements-dev.txt $(REQUIREMENTS) | $(PY)
	$(PY) $(PIP_INSTALL) --requirement $(REQUIREMENTS)
	@if grep -q '^-r requirements' $(REQUIREMENTS); then touch $(DEMO_STAMP); fi
	@touch $@
endif

venv: $(STAMP) ## Create .venv for development (REQUIREMENTS=requirements.txt: for the demo alone)

demo: $(DEMO_STAMP) ## Run the demo: web on :8000, ID server on UDP :1200 (DEMO_ARGS="--http-port 8001")
	@exec $(PY) manage.py demo $(DEMO_ARGS)

test: venv ## Run the tests that are quick and need no outside server (PYTEST_ARGS="-k conf")
	$(PYTEST) -m "$(LOCAL) and not slow" $(PYTEST_ARGS)
	@echo "Left out: slow tests (make test-slow), tests in a browser (make test-browser), on servers (make test-services)," \
		"of pages of the docs (make test-pages), of the wheel (make test-wheel), and those that take minutes (make soak)."

test-slow: venv ## Run the tests that `make test` leaves out because they are slow
	$(PYTEST) -m "$(LOCAL) and slow" $(PYTEST_ARGS)

test-services: venv ## Run the tests again on MariaDB and an outside Redis (RESTY_TEST_DB, RESTY_TEST_REDIS)
	$(PY) -m pytest -m "(db or redis or services) and not soak" $(PYTEST_ARGS)

test-browser: venv ## Run the tests in headless Chromium (packages chromium and chromium-driver)
	$(PYTEST) -m browser $(PYTEST_ARGS)

test-pages: venv ## Do what the how-to pages, the page of mistakes and the files for production say, on new sites
	$(PYTEST) -m pages $(PYTEST_ARGS)

test-wheel: venv ## Install the wheel and each extra into new environments and use them; run the tutorial
	$(PY) -m pytest -m network $(PYTEST_ARGS)

themes: venv ## Show the admin's pages under django-unfold and Jazzmin (RESTY_SCREENSHOTS=folder keeps pictures); takes minutes
	$(PY) $(PIP_INSTALL) --no-deps --upgrade --target var/themes --requirement tests/themes/requirements.txt
	@for theme in jazzmin unfold; do \
		PYTHONPATH=var/themes $(PY) -m pytest --ds tests.themes.$$theme -m themes tests/e2e/test_themes_browser.py $(PYTEST_ARGS) || exit 1; \
	done

docs: venv ## Build the site of the docs in var/docs; warnings and broken links are errors
	$(PY) $(PIP_INSTALL) --requirement requirements-docs.txt
	$(PY) -m sphinx --quiet --fresh-env --fail-on-warning --keep-going --builder html docs var/docs
	@echo "Open var/docs/index.html"

messages: venv ## Add new texts to the translations and compile them (package gettext)
	cd resty_django && $(abspath $(VENV))/bin/django-admin makemessages --all --no-location --no-wrap --no-obsolete
	sed -i '/^"POT-Creation-Date:/d' resty_django/locale/*/LC_MESSAGES/django.po
	cd resty_django && $(abspath $(VENV))/bin/django-admin compilemessages

lint: venv ## Check format, code, types, import rules, wording, calls of gettext, the files for GitHub and for Compose
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/codespell
	$(PY) -m tests.english
	$(VENV)/bin/zizmor --quiet --offline .github
	cd .github && $(abspath $(VENV))/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows workflows/*.yml
	$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.compose-spec docs/production/files/compose.yaml
	$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms \
		$(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))

format: venv ## Format the code and sort imports
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

soak: venv ## Run the tests that take minutes
	$(PY) -m pytest -m soak $(PYTEST_ARGS)

bench: venv ## Measure against peers; one table in var/bench.md (BENCH_ARGS="--quick --only cache,tasks")
	$(PY) bench/_table.py $(BENCH_ARGS)

ci: ## Run everything that has to pass before a change lands
	bash .ci/run

release: docs ## Build the distributions in dist/ and prove them, with the docs, a bill of materials and licences (TAG=v0.1.0)
	@$(MAKE) --no-print-directory venv VENV=.venv-release REQUIREMENTS=requirements-release.txt
	.venv-release/bin/python .ci/release $(PY) $(TAG)

clean: ## Remove the virtual environment, the demo's data and memory, and the caches
	@if command -v $(PYTHON) >/dev/null; then \
		$(PYTHON) -B -m project.memory; \
	else \
		echo "$(PYTHON) is missing, so the demo's memory is not freed. Name another one: make PYTHON=... clean" >&2; \
	fi
	rm -rf $(VENV) .venv-release var build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

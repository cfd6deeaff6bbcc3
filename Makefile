# Every target works in a fresh clone: the environment is made on first use, and nothing outside of this folder is
# touched but the caches of pip, uv and Maven.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export UV_PYTHON_DOWNLOADS := never
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)
LOCK = $(UV) pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-annotate
# 3.11 first: the committed run was made with it
PYTHON = $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && command -v $$p && break; done)

.PHONY: help study profile report publish validate structures lab test lint bench lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

study: .venv/ready ## run the whole study (what hasn't run yet), then print the verdict and the report's path
	@python -m lib.study settings
	@dvc repro | awk '/^To track the changes with git/ { quiet = 1 } !quiet { print; fflush() }' # but for advice about git
	@python -m lib.study check
	@python -m lib.study times
	@python -m lib.study verdict

profile: .venv/ready ## list the profiles, or make profiles/NAME.yaml the run's: make profile NAME=tinker-27b
	@python -m lib.settings $(NAME) $(if $(filter yes,$(OVERWRITE)),--overwrite)

.PHONY: dry-run status
dry-run: .venv/ready ## plan, forecast and every call to a service, of all profiles or one: make dry-run NAME=tinker-27b
	@python -m lib.dry_run $(NAME)

status: .venv/ready ## how far the run is, or another: make status RUN=tiny
	@python -m lib.status $(RUN)

report: .venv/ready ## write those pages anew of which something changed
	@dvc repro --single-item report transcripts site

publish: .venv/ready ## show what would be published; with CONFIRM=yes push it to the branch gh-pages
	@python -m reports.publish $(if $(filter yes,$(CONFIRM)),--push) $(if $(TEXTS),--texts $(TEXTS))

.PHONY: check screenshots
check: .venv/ready ## read the rendered pages in a real browser: errors, links, widths, accessibility
	@python -m reports.check

screenshots: .venv/ready ## the README's pictures of the main pages, from reports/_site into docs/
	@python -m reports.screenshots

validate: .venv/ready ## the path from question to score: an oracle must get 1.0, a silent agent 0.0
	@python -m lib.evaluate validate

structures: .venv/ready ## the experiment on the number of structures taught: see experiments/structures
	@dvc repro experiments/structures/dvc.yaml

.PHONY: learning
learning: .venv/ready ## the experiment on more learning per rollout: see experiments/learning
	@dvc repro experiments/learning/dvc.yaml
	@cp data/learning/results.json data/learning/gains.svg experiments/learning/ # kept with the code: the site shows them

lab: .venv/ready ## open the notebooks
	@jupyter lab notebooks

test: .venv/ready lint ## all tests, a whole miniature study among them
	@pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder --durations 15  # each worker has a server of its own
	@$(MAKE) --no-print-directory contracts

.PHONY: fireworks contracts
fireworks: .venv-fireworks/ready ## the environment for Fireworks, in .venv-fireworks; then: make study VENV=.venv-fireworks

contracts: .venv-fireworks/ready ## every call on a hosted service, held against the installed packages: docs/contracts.md
	@.venv-fireworks/bin/python -m pytest tests/test_contracts.py tests/test_fireworks.py

lint: .venv/ready ## format, style and types
	@ruff format --check --quiet . || { echo "run: .venv/bin/ruff format"; exit 1; }
	@ruff check --quiet .
	@mypy

bench: .venv/ready ## the benchmarks
	@for file in benchmarks/*.py; do echo "== $$file"; python $$file; done

lock: | $(UV) ## pin what pyproject.toml asks for
	@$(LOCK) --extra dev pyproject.toml --output-file requirements.lock
	@cp requirements.lock requirements-fireworks.lock # the same versions, wherever the extra allows them
	@$(LOCK) --extra dev --extra fireworks pyproject.toml --output-file requirements-fireworks.lock

clean: ## remove everything that `make study` made but the environment; data/raw stays
	@for run in data/runs/*/spend/remote.jsonl; do [ ! -e "$$run" ] || { echo "$$run notes what a run made at a service, and the ledger beside it what was spent: see python -m lib.watchdog, copy that folder away, and remove it first" >&2; exit 1; }; done
	rm -rf data/graph data/questions data/human data/structures data/learning data/notebooks data/runs data/work data/timings data/neo4j reports/_site .dvc/cache .dvc/tmp

.venv/ready: requirements.lock
.venv-fireworks/ready: requirements-fireworks.lock
.venv/ready .venv-fireworks/ready: | $(UV)
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 on PATH: install one of them" >&2; exit 1; }
	@echo "making the environment in $(@D) (a few minutes, once)"
	@$(UV) venv --quiet --allow-existing --python "$(PYTHON)" $(@D)
	@VIRTUAL_ENV="$(CURDIR)/$(@D)" $(UV) pip sync --quiet --require-hashes $<
	@touch $@

.uv/bin/uv:
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 on PATH: install one of them" >&2; exit 1; }
	@$(PYTHON) -m venv .uv || { echo "$(PYTHON) can't make environments: install its venv module (python3-venv)" >&2; exit 1; }
	@.uv/bin/python -m pip install --quiet --disable-pip-version-check uv

# Punctual: every task of a developer or a newcomer. `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin
PACKAGES := admission gateway model-server operator lab
CODE := admission/src gateway/src model-server/src operator/src lab/src charts/tools tests
SUITE ?= default
ARGS ?=
# One thread a process: model servers, gateway and load share the machine's cores.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test check bench report gpu-check format lock clean

##@ Try it

demo: .venv ## Model server, gateway and load on this machine: the modes compared (QUICK=1: one minute)
	$(BIN)/punctual-lab demo $(if $(QUICK),--quick) $(ARGS)

bench: .venv ## Cost of a decision, of a refusal, and of passing through, beside other proxies
	$(BIN)/punctual-lab bench $(ARGS)

report: .venv ## Every experiment on virtual time at reduced size, on one page: reports/report.html
	$(BIN)/punctual-lab report --quick $(ARGS)

gpu-check: .venv ## Step times, equality and linearity on a GPU
	$(BIN)/python -m punctual_model_server.gpu_check $(ARGS)

##@ Work on it

test: .venv helm prometheus ## Run the tests (SUITE=default|unit|integration|cluster|autoscale|kind)
	$(SUITE_$(SUITE))

PYTEST := $(BIN)/python -m pytest
SUITE_unit = $(PYTEST) tests/unit --numprocesses auto --cov --cov-report=term-missing:skip-covered $(ARGS)
# One after the other: these start servers and look at what happens when.
SUITE_integration = $(PYTEST) tests/integration $(ARGS)
SUITE_default = $(SUITE_unit) && $(SUITE_integration)
SUITE_cluster = $(PYTEST) tests/cluster -m "not kind and not autoscale" $(ARGS)
# About 25 minutes: hours of load on a shortened clock.
SUITE_autoscale = $(PYTEST) tests/cluster -m autoscale $(ARGS)
SUITE_kind = $(PYTEST) tests/e2e -m "not autoscale" $(ARGS)

check: .venv helm ## Lint, format, types, import direction, generated files
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	$(BIN)/python -m charts.tools.generate --check

format: .venv ## Rewrite the code in the one format
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

# one file for each image; all at the versions that are tested together, those of dev.txt
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  $(foreach package,$(PACKAGES),--no-emit-package punctual-$(package)) --custom-compile-command "make lock"

lock: .venv ## Compile requirements/*.in into pinned files with hashes
	$(COMPILE) requirements/dev.in -o requirements/dev.txt
	$(COMPILE) requirements/uv.in -o requirements/uv.txt
	set -e; for image in $(IMAGE_REQUIREMENTS); do \
	  $(COMPILE) -c requirements/dev.txt requirements/$$image.in -o requirements/$$image.txt; done

IMAGE_REQUIREMENTS := build gateway operator model-server model-server-torch lab

clean: ## Remove what the targets made
	rm -rf .venv reports .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

# One environment for all components; made again when a requirement or a package's metadata changes.
.venv: requirements/dev.txt requirements/uv.txt $(foreach package,$(PACKAGES),$(package)/pyproject.toml)
	@echo "Making .venv (torch is large: this takes minutes the first time)"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --compile-bytecode --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation $(foreach package,$(PACKAGES),-e ./$(package))
	@touch .venv

include tests/cluster/cluster.mk
include charts/chart.mk

##@ Help

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-zA-Z0-9_-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

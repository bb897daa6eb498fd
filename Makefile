# The front door. `make` lists what there is; CI and the commit hooks call the same targets.

SHELL := /bin/bash
PYTHON := .venv/bin/python
TYPED := $(wildcard src tests scripts examples benchmarks)

.DEFAULT_GOAL := help
.PHONY: help setup demo check test soak lint format docs bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## .venv with the locked dependencies and the package; a Java that can run Spark
	@scripts/setup.sh

demo: setup ## run a stateful pipeline on embedded Spark, watch it, check its result
	@.venv/bin/anabranch demo

check: setup ## the tests that need no Spark; for the inner loop
	@$(PYTHON) -m pytest -n 4 --no-loadscope-reorder -m "not soak and not spark"

test: setup ## the tests, doctests included, without the long runs
	@$(PYTHON) -m pytest -n 3 --no-loadscope-reorder

soak: setup ## the long runs; their seeds are in the output
	@$(PYTHON) -m pytest -m soak -s --timeout 14400
	@$(PYTHON) scripts/mutants.py

lint: setup ## ruff, mypy and the checks of the documents
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy $(TYPED)
	@$(PYTHON) scripts/check_docs.py

format: setup ## let ruff put the code in order
	@$(PYTHON) -m ruff check --fix .
	@$(PYTHON) -m ruff format .

docs: setup ## check the documents: links, Python examples, make targets they name
	@$(PYTHON) scripts/check_docs.py

bench: setup ## measure beside other systems; writes docs/benchmarks.md
	@scripts/bench_extras.sh
	@$(PYTHON) -m benchmarks

lock: setup ## resolve the dependencies anew into requirements/
	@scripts/lock.sh

clean: ## remove the environments and every cache
	@rm -rf .venv .bench .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist src/*.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

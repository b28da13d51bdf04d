# Two commands do all the set-up on a fresh machine, each by itself: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
CODE := src tests benchmarks tools
# further extras for the tests, each after a comma, e.g. EXTRAS=,ray,tensorboard; what is missing is skipped
EXTRAS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check format lint types clean

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(VENV)/.demo ## Set up and run the demo: DER and DER++ with and without ODEDM, a table and a report
	$(BIN)/odedm demo

test: $(VENV)/.dev lint types ## Set up and run everything that must pass: lint, types, import layers, doctests, tests
	$(BIN)/python -m pytest -n auto

check: $(VENV)/.dev format test ## Format the code, then run everything that must pass

format: $(VENV)/.dev ## Format the code and sort the imports
	$(BIN)/ruff check --quiet --fix-only $(CODE)
	$(BIN)/ruff format --quiet $(CODE)

lint: $(VENV)/.dev
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check --quiet $(CODE)

types: $(VENV)/.dev
	$(BIN)/mypy

clean: ## Remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "odedm needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch first and by its exact version: an open range can pull gigabytes of CUDA packages
$(VENV)/.torch: constraints.txt | $(BIN)/python
	@echo "Installing torch (the large part, about a minute) ..."
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	@touch $@

$(VENV)/.demo: pyproject.toml $(VENV)/.torch
	$(PIP) -e '.[plot]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.torch
	$(PIP) -e '.[dev$(EXTRAS)]'
	@touch $@ $(VENV)/.demo

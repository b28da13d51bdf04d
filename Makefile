# Two commands do all the set-up on a fresh machine, each by itself: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
CODE := src tests benchmarks tools examples
# further extras for the tests, each after a comma, e.g. EXTRAS=,ray,tensorboard; what is missing is skipped
EXTRAS ?=
# where torch comes from, if not from pip's usual index; PyTorch's own index of CPU builds is https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# the versions that `make matrix` looks for
PYTHONS := 3.11 3.12 3.13

.DEFAULT_GOAL := help
# signals of `make kill`
KILLS ?= 300
# minutes for each fuzzer of `make fuzz`
MINUTES ?= 1
# where `make integrations` has Mammoth, or clones it to, and seeds of each variant
MAMMOTH ?= .venv-integrations/mammoth
SEEDS ?= 40

.PHONY: help demo test check format lint types card coverage fuzz kill pytest integrations reference docs package matrix matrix-full clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

demo: $(VENV)/.demo ## Set up and run the demo: DER and DER++ with and without ODEDM, a table and a report
	$(BIN)/odedm demo

test: $(VENV)/.dev lint types ## Set up and run everything that must pass: lint, types, import layers, doctests, tests
	$(BIN)/python -m pytest -n auto --dist worksteal

check: $(VENV)/.dev format test ## Format the code, then run everything that must pass

kill: $(VENV)/.dev ## Kill commands KILLS=300 times by random signals, and compare what they leave bit for bit
	$(BIN)/python tools/kill.py --kills $(KILLS)

# by the environment where there is one, else by the machine's own Python: torch for its GPU is there
card: ## On a machine with a GPU: its tests, twelve cells of the ledger, step times; at most nine minutes
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) tools/card.py

coverage: $(VENV)/.dev ## Run the tests, and say and write down how many lines and branches of each room they take
	$(BIN)/python tools/coverage_by_room.py

fuzz: $(VENV)/.dev ## Hostile inputs for every reader, MINUTES=5 each; interrupts at every line; many saves and loads
	$(BIN)/python tests/fuzz/fuzzing.py $(MINUTES)
	ODEDM_LINES_EVERY=1 ODEDM_SAVE_LOAD_CASES=300 $(BIN)/python -m pytest -q -s --timeout 7200 -n auto \
		tests/learner/test_learner_interrupts.py tests/memory/test_live_interrupts.py \
		tests/learner/test_save_load_property.py tests/memory/test_memory_save_load_property.py

format: $(VENV)/.dev ## Format the code and sort the imports
	$(BIN)/ruff check --quiet --fix-only $(CODE)
	$(BIN)/ruff format --quiet $(CODE)

lint: $(VENV)/.dev
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check --quiet $(CODE)

types: $(VENV)/.dev
	$(BIN)/mypy

pytest: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto

# an environment of its own; torch stays as it is, and torchvision is the one that takes it
integrations: ## Compare the memory inside Avalanche and Mammoth (MAMMOTH=FOLDER) with their own reservoirs
	$(MAKE) --no-print-directory VENV=.venv-integrations .venv-integrations/.peers
	@[ -d "$(MAMMOTH)" ] || git clone --quiet --depth 1 https://github.com/aimagelab/mammoth "$(MAMMOTH)"
	OMP_NUM_THREADS=1 .venv-integrations/bin/python benchmarks/integrations.py --mammoth "$(MAMMOTH)" --seeds $(SEEDS)

reference: $(VENV)/.dev ## Write docs/reference.md from the settings and commands themselves
	$(BIN)/python tools/reference.py > $(VENV)/reference.md
	mv $(VENV)/reference.md docs/reference.md

docs: $(VENV)/.docs ## Build the site into site/: tutorials run as notebooks, no warnings, links checked
	$(BIN)/python tools/site/executed.py
	$(BIN)/python tools/site/stage.py
	$(BIN)/sphinx-build -q -W --keep-going -E -d build/doctrees -c tools/site build/site site
	$(BIN)/python tools/site/check.py

package: $(VENV)/.dev ## Build wheel and sdist, install each by itself, and run the demo from an empty folder; DIST=dist keeps them
	$(BIN)/python tools/check_package.py $(if $(DIST),--dist $(DIST))

matrix: ## Run the tests under each installed Python of 3.11 to 3.13, and say which are missing
	@tested=; failed=; \
	for version in $(PYTHONS); do \
		if ! python$$version -c '' 2>/dev/null; then echo "Python $$version: not installed, not tested"; continue; fi; \
		echo "Python $$version: testing ..."; tested="$$tested $$version"; \
		$(MAKE) --no-print-directory pytest PYTHON=python$$version VENV=.venv/python$$version || failed="$$failed $$version"; \
	done; \
	echo "Tested:$${tested:- nothing}. Failed:$${failed:- none}."; [ -n "$$tested" ] && [ -z "$$failed" ]

# `make test` has every method with every memory, but of the pairs that are killed and go on every third alone
matrix-full: $(VENV)/.dev ## Every method with every memory, in one go and killed and resumed, without exception
	ODEDM_EVERYTHING=1 $(BIN)/python -m pytest -n auto tests/contracts tests/training tests/execute tests/selection tests/oracles tests/core/test_memory_limits.py tests/test_benchmarks.py tests/cli/test_resume_cli.py tests/results tests/studies/test_survival.py tests/test_doors.py tests/test_kill.py tests/memory/test_live_state.py

clean: ## Remove the environment and caches
	rm -rf $(VENV) .venv-integrations build site .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "odedm needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip  # dependency groups need 25.1 or newer

# torch first and by its exact version: an open range can pull gigabytes of CUDA packages. What it needs beside itself comes with the
# next step, by the usual index.
TORCH = "$$(grep '^torch==' constraints.txt)" $(if $(TORCH_INDEX),--no-deps --index-url $(TORCH_INDEX))
$(VENV)/.torch: constraints.txt | $(BIN)/python
	@$(BIN)/python tools/download_size.py $(TORCH)
	$(PIP) $(TORCH)
	@touch $@

$(VENV)/.demo: pyproject.toml $(VENV)/.torch
	$(PIP) -e '.[plot]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.torch
	$(PIP) -e '.[plot,digits,notebook$(EXTRAS)]' --group dev
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: pyproject.toml $(VENV)/.torch
	$(PIP) -e '.[plot,notebook]' --group docs
	@touch $@ $(VENV)/.demo

$(VENV)/.peers: pyproject.toml $(VENV)/.torch
	$(PIP) -e '.[digits]' avalanche-lib==0.6.0 torchvision==0.28.0 'kornia>=0.7' timm==0.9.8 tqdm onedrivedownloader ftfy regex pyyaml six
	@touch $@

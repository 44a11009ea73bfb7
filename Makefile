# Everything runs in .venv, which `make install` makes. TORCH_INDEX points at another torch index, if you need one.
PYTHON ?= python3
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: install demo test test-slow lint format bench clean help

help:  ## List the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(INSTALLED)  ## Make .venv with everything in it; a second call does nothing.

$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "AstrAI needs Python 3.11 or newer; try: make install PYTHON=python3.11"; exit 1; }
	$(BIN)/pip install --quiet --upgrade pip "setuptools>=77" wheel
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0 $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[all,dev]'
	@touch $@

demo: install  ## Python's own standard library: text, tokenizer, token store, SQL, a trained model, a server.
	@bash docs/demo.sh

test: install  ## The test suite, on two processes.
	$(BIN)/python -m pytest -n 2

test-slow: install  ## The tests that take minutes.
	$(BIN)/python -m pytest -m slow

lint: install  ## Format, style, docstrings and import floors.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

format: install  ## Rewrite the code in the house format.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install  ## Every benchmark, one after the other.
	@for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

clean:  ## Remove .venv and everything built.
	rm -rf $(VENV) build dist *.egg-info demo-out .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

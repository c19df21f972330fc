# Every target sets up what it needs from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VLLM_VENV ?= .venv-vllm

.PHONY: demo test check bench docs test-vllm clean help

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.installed  ## plan a shipped hybrid model
	$(BIN)/octavo plan examples/models/qwen3-next-80b.json --memory 40GiB --context 128k --compare vllm

test: $(VENV)/.installed  ## all tests that need no peer
	$(BIN)/pytest -q

check: $(VENV)/.installed  ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed  ## the tables of docs/ that commands make
	$(BIN)/python scripts/make_plan_table.py > docs/plans.md

bench: test-vllm  ## the benchmarks, beside vLLM

test-vllm: $(VENV)/.installed  ## the suites against the real vLLM
	scripts/setup_vllm.sh $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -e .
	$(VLLM_VENV)/bin/python -m pytest -q -m vllm tests/vllm

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet -e . --group dev
	touch $@

clean:  ## remove what the targets made
	rm -rf $(VENV) $(VLLM_VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

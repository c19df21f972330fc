# Every target sets up what it needs from a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FLEET_VENV := .venv-fleet
VLLM_VENV ?= .venv-vllm
OTHER_VLLMS := 0.31.0 0.33.0
OTHER_PYTHONS ?= 3.12 3.13
GPU_PYTHON ?= 3.12
GPU_PLATFORMS := manylinux_2_28_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64
GPU_PACKAGES := transformers==5.23.0 cbor2 msgspec pyzmq httpx xxhash lazy-loader pytest pytest-timeout hypothesis \
	starlette uvicorn llguidance
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export PYTHON

# Each compares with a peer or a limit in the same run.
BENCHMARKS := $(sort $(wildcard benchmarks/bench_*.py)) benchmarks/compare_managers.py benchmarks/bookkeeping_memory.py

.PHONY: help demo test test-pythons test-lowest test-browser test-fleet servers test-stores check docs site wheel gpu-check gpu-wheels figures bench fuzz crash soak families mutants test-vllm clean

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.installed  ## serve hybrid models with ever more tiers, and compare
	$(BIN)/octavo demo

test: $(VENV)/.installed  ## all tests that need no peer
	$(BIN)/pytest -n logical --maxprocesses 4 --dist loadfile -m "not vllm and not browser and not fleet and not stores"

test-pythons:  ## a short suite on the other versions of Python that are installed here
	scripts/test_pythons.sh $(OTHER_PYTHONS)

test-lowest:  ## a short suite with the oldest versions of packages that pyproject.toml allows
	scripts/test_lowest.sh

test-browser: $(VENV)/.installed  ## the page in a real browser
	scripts/setup_browser.sh
	$(BIN)/python -m pip install --quiet --quiet --group browser
	$(BIN)/pytest -m browser tests/browser

servers: $(VENV)/.installed  ## the servers of stores that tests use, where this system has packages of them
	scripts/start_object_store.sh --install || echo "without Ceph's gateway: its tests are skipped"
	scripts/start_redis.sh --install || echo "without redis-server or valkey-server: tests of those that are missing are skipped"
	scripts/start_mooncake.sh --install && $(BIN)/python -m pip install --quiet --quiet mooncake-transfer-engine-non-cuda || echo "without Mooncake: its tests are skipped"

test-stores: servers  ## against real servers of stores, where their packages are installed
	$(BIN)/pytest -m stores tests/stores

test-fleet: $(FLEET_VENV)/.installed  ## behind a real Envoy, and in a real Ray Serve
	$(FLEET_VENV)/bin/python -m pytest -m fleet tests/gateway tests/ray

check: $(VENV)/.installed  ## formatting, lint, types, layers of imports, docs up to date
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_circles.py
	$(BIN)/python scripts/mutation_check.py --pieces
	$(BIN)/python scripts/make_plan_schema.py | diff -u docs/plan.schema.json - || { echo "run: make docs"; exit 1; }
	$(BIN)/python scripts/make_plan_table.py | diff -u docs/plans.md - || { echo "run: make docs"; exit 1; }
	$(BIN)/python scripts/make_settings_table.py | diff -u docs/configuration.md - || { echo "run: make docs"; exit 1; }
	$(BIN)/python scripts/make_metrics_page.py | diff -u docs/metrics.md - || { echo "run: make docs"; exit 1; }

wheel: $(VENV)/.installed  ## the package and its SBOM in dist/, checked, installed in a clean environment and used there
	$(BIN)/python -m pip install --quiet --quiet --group release
	rm -rf dist
	$(BIN)/python -m build --outdir dist . > /dev/null
	$(BIN)/twine check --strict dist/*
	scripts/check_wheel.sh dist/*.whl dist/octavo.cdx.json

gpu-check: $(VENV)/.installed  ## what only a GPU can tell (scripts/gpu_check.sh), here on a CPU and in small
	PYTHON=$(BIN)/python scripts/gpu_check.sh --cpu

gpu-wheels: $(VENV)/.installed  ## wheels in build/gpu-wheels that a machine with torch for GPUs may lack for gpu_check.sh
	rm -rf build/gpu-wheels
	$(BIN)/python -m pip download --quiet --quiet --no-deps --only-binary=:all: --python-version $(GPU_PYTHON) \
		$(GPU_PLATFORMS:%=--platform %) --dest build/gpu-wheels $(GPU_PACKAGES)
	$(BIN)/python -m pip wheel --quiet --quiet --no-deps --wheel-dir build/gpu-wheels .
	@du -sh build/gpu-wheels

figures:  ## lines by room, the longest functions, circles of imports
	@$(PYTHON) scripts/house_figures.py

docs: $(VENV)/.installed  ## the files of docs/ that commands make
	$(BIN)/python scripts/make_plan_schema.py > docs/plan.schema.json
	$(BIN)/python scripts/make_plan_table.py > docs/plans.md
	$(BIN)/python scripts/make_settings_table.py > docs/configuration.md
	$(BIN)/python scripts/make_metrics_page.py > docs/metrics.md
	for name in sheets resume media; do $(BIN)/python scripts/make_picture.py $$name > docs/pictures/$$name.svg; done

site: $(VENV)/.installed  ## the documentation as a site in build/site, its links and anchors checked
	$(BIN)/python -m pip install --quiet --quiet --group site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: $(VENV)/.installed $(VLLM_VENV)/.installed  ## the benchmarks, beside vLLM
	@for script in $(BENCHMARKS); do echo "== $$script"; $(VLLM_VENV)/bin/python $$script || exit 1; done
	$(BIN)/python benchmarks/compiled.py

fuzz: $(VENV)/.installed  ## 100,000 hostile messages for the decoder of events
	OCTAVO_FUZZ_MESSAGES=100000 $(BIN)/pytest -q tests/events/test_fuzz_wire.py

crash: $(VENV)/.installed  ## 200 kills of a process that writes to disk, and damage at every byte of a log
	OCTAVO_CRASHES=200 $(BIN)/pytest -q --timeout 600 tests/tiers/test_disk_crash.py tests/tiers/test_disk_damage.py

soak: $(VENV)/.installed  ## the whole stack at random with faults, and its progress, longer than in `make test`
	OCTAVO_MACHINE_EXAMPLES=60 OCTAVO_LIVENESS_EXAMPLES=20 \
		$(BIN)/pytest -q --timeout 600 tests/offload/test_state_machine.py tests/engine/test_liveness.py

families: $(VENV)/.installed  ## what of transformers answers as it does in plain Hugging Face
	PYTHONPATH=tests/lib $(BIN)/python tests/engine/compare_families.py $(FAMILIES)

mutants: $(VENV)/.installed  ## seeded bugs, each of which the tests must catch (SOME=16: so many of them)
	$(BIN)/python scripts/mutation_check.py --jobs 2 $(if $(SOME),--some $(SOME))

test-vllm: $(VLLM_VENV)/.installed servers  ## the suites against the real vLLM, and a short one against its other versions
	$(VLLM_VENV)/bin/python -m pytest -m vllm tests/vllm
	$(MAKE) -j2 --output-sync=target $(OTHER_VLLMS:%=test-vllm-%)
	$(VLLM_VENV)/bin/python benchmarks/compare_resumes.py --seeds 3

test-vllm-%: $(VLLM_VENV)/.installed
	scripts/setup_vllm.sh $(VLLM_VENV) $*
	$(VLLM_VENV)/$*/bin/python -m pytest -m every_vllm tests/vllm

$(VENV)/.installed: pyproject.toml scripts/setup_venv.sh scripts/install_torch.sh
	@scripts/setup_venv.sh $(VENV)
	@touch $@

$(FLEET_VENV)/.installed: $(VENV)/.installed scripts/setup_fleet.sh
	scripts/setup_fleet.sh $(VENV) $(FLEET_VENV)
	@touch $@

$(VLLM_VENV)/.installed: pyproject.toml scripts/setup_vllm.sh scripts/install_torch.sh
	scripts/setup_vllm.sh $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --quiet --editable .
	@touch $@

clean:  ## remove what the targets made
	rm -rf $(VENV) $(FLEET_VENV) $(VLLM_VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

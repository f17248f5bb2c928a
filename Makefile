# Every target does its own set-up: a virtual environment in .venv with pinned versions (constraints.txt).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# OpenMP threads that spin while they wait make everything slow as soon as another process is busy.
export OMP_WAIT_POLICY ?= passive

.PHONY: demo test lint types bench format clean

demo: $(VENV)/installed          ## train on the built-in corpus and print what was learned
	$(BIN)/textspace demo

test: lint types                 ## lint, types, tests and the examples in docstrings
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed
	$(BIN)/mypy

bench: $(VENV)/installed         ## the benchmarks that need neither a GPU nor downloaded corpora
	$(BIN)/python -m benchmarks.run

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache

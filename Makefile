# Every target makes its own virtual environment when there is none.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint bench soak clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $(READY)

demo: $(READY)
	@$(BIN)/python examples/demo.py

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/stores.py --full
	$(BIN)/python benchmarks/cache.py
	$(BIN)/python benchmarks/guard.py
	$(BIN)/python benchmarks/postgres.py --full
	$(BIN)/python benchmarks/suites.py
	-$(BIN)/python benchmarks/locomo.py

soak: $(READY)
	SOAK=1 $(BIN)/python -m pytest -n auto --dist loadfile

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build

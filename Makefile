# Every target makes its own virtual environment when there is none.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOWEST := .venv-lowest
DEMO := .venv-demo
WHEEL_BYTES := 600000

.PHONY: demo test lowest coverage lint build bench soak docs clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $(READY)

# The floors of pyproject.toml: only an empty environment gets them, so it is made anew.
$(LOWEST)/.ready: pyproject.toml
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct -e '.[dev]'
	touch $@

# What the demo needs and no more: where the developers' environment is there, that will do. uv
# takes a fraction of pip's time; it does not read pip's settings, so pip is there where it fails.
$(DEMO)/.ready: pyproject.toml
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --no-compile uv || true
	$(DEMO)/bin/uv pip install --quiet --python $(DEMO)/bin/python -e '.[cli,local]' \
		|| $(DEMO)/bin/python -m pip install --quiet --no-compile -e '.[cli,local]'
	touch $@

demo: $(if $(wildcard $(READY)),,$(DEMO)/.ready)
	@$(if $(wildcard $(READY)),$(BIN),$(DEMO)/bin)/python examples/demo.py

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadfile

lowest: $(LOWEST)/.ready
	$(LOWEST)/bin/python -m pytest -n auto --dist loadfile

coverage: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadfile --cov

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

build: $(READY)
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	@size=$$(cat dist/*.whl | wc -c); echo "wheel: $$size bytes, limit $(WHEEL_BYTES)"; test $$size -lt $(WHEEL_BYTES)

bench: $(READY)
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/stores.py --full
	$(BIN)/python benchmarks/observing.py
	$(BIN)/python benchmarks/cache.py
	$(BIN)/python benchmarks/loop.py
	$(BIN)/python benchmarks/remote.py
	$(BIN)/python benchmarks/burst.py
	$(BIN)/python benchmarks/guard.py
	$(BIN)/python benchmarks/postgres.py --full
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/behaviour.py
	$(BIN)/python benchmarks/adaptive.py
	$(BIN)/python benchmarks/everyday.py
	-$(BIN)/python benchmarks/inspector.py
	-$(BIN)/python benchmarks/locomo.py

soak: $(READY)
	SOAK=1 $(BIN)/python -m pytest -n auto --dist loadfile

# The reference from docstrings, and pictures of the inspector where there is a Chromium.
docs: $(READY)
	$(BIN)/python docs/reference.py
	-$(BIN)/python docs/pictures.py

clean:
	rm -rf $(VENV) $(LOWEST) $(DEMO) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf .benchmarks .coverage .coverage.* dist build

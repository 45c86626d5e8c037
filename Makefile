# Everything runs from an environment made of the lock file; `make demo` and `make test` need Python 3.11, make and
# the package index, and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo check test slow apart gates versions docs lint lock clean

demo: $(VENV)/.ready
	rm -rf demo
	$(BIN)/pmf demo --folder demo

# while one works: what differs from SINCE, with the tests that are nearest to it (tests/choose_tests.py)
SINCE ?= HEAD
check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.choose_tests types --since $(SINCE) | xargs --no-run-if-empty $(BIN)/mypy
	$(BIN)/python -m tests.choose_tests tests --since $(SINCE) \
	  | xargs --no-run-if-empty $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

# three processes keep two processors busy, for many tests wait for processes that they start; in the order of the files,
# of which the last are short
test: $(VENV)/.ready
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# a test that waits for ever ends its process, and is named: an exception, the other way, waits in turn for what it cleans up
slow: $(VENV)/.ready
	$(BIN)/python -m pytest -m slow -n 3 --dist loadfile --no-loadscope-reorder -o timeout_method=thread -o timeout=600 \
	  --max-worker-restart=0

# whether the core, and every other feature, lives without a feature: deletes one after another in a copy
apart: $(VENV)/.ready
	$(BIN)/python -m tests.apart $(APART)

# a ratio that falls short by chance, on a machine that others use too, has a second try
gates: $(VENV)/.ready
	$(BIN)/python -m benchmarks.counting.pairs --short || $(BIN)/python -m benchmarks.counting.pairs --short
	$(BIN)/python -m benchmarks.em.passes --short || $(BIN)/python -m benchmarks.em.passes --short
	$(BIN)/python -m benchmarks.public --short || $(BIN)/python -m benchmarks.public --short

versions: $(VENV)/.ready
	.ci/versions

# a warning is an error; nothing is fetched
docs: $(VENV)/.ready
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build/html
	@echo docs/_build/html/index.html

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

COMPILE := uv pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-annotate --no-header \
  --python-version 3.11 --quiet

lock: $(VENV)/.ready
	$(BIN)/$(COMPILE) --extra dev --universal --output-file requirements.lock
	$(BIN)/$(COMPILE) --extra test --resolution lowest-direct --output-file requirements-lowest.lock

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "pmflib needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	# the lock file is complete; pip, left to resolve it again, stumbles over extras of pinned packages
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

clean:
	rm -rf $(VENV) demo docs/_build

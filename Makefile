PYTHON := .venv/bin/python
# More pytest options, as in: make test ARGS="-k torn_tail"
ARGS ?=
# How long `make soak` runs each of its tests.
SOAK_SECONDS ?= 600

.DEFAULT_GOAL := help
.PHONY: help setup run test check bench bench-spark soak lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## create .venv with all dependencies (the other targets do this too)
	@scripts/setup

run: setup ## simulate a day of a website, end to end, with Spark (KEEP=1 keeps the result)
	@$(PYTHON) -m examples.day $(if $(KEEP),--keep build/day)

test: check ## run the checks and every test
	@$(PYTHON) scripts/archive-classes || echo "Spark starts more slowly, without its class archive"
	@echo "== tests"
	@$(PYTHON) -m pytest -q -n auto --maxprocesses 4 --dist loadgroup $(ARGS)

check: setup ## check format, lint, types and import contracts
	@echo "== ruff format" && $(PYTHON) -m ruff format --check --quiet --output-format concise .
	@echo "== ruff check" && $(PYTHON) -m ruff check --quiet --output-format concise .
	@echo "== mypy" && $(PYTHON) -m mypy --no-error-summary
	@echo "== import contracts" && .venv/bin/lint-imports --no-logo >.venv/contracts \
		|| { cat .venv/contracts; exit 1; }

bench: setup ## measure rates and compare them with redis-server
	@$(PYTHON) -m benchmarks

bench-spark: setup ## measure Spark: reads, the sink and streaming
	@$(PYTHON) -m benchmarks spark

soak: setup ## run the long tests: make soak SOAK_SECONDS=3600
	@$(PYTHON) -m pytest -m soak --soak-seconds $(SOAK_SECONDS) $(ARGS)

lock: ## regenerate requirements.lock (needs uv); scripts/lock --upgrade for newer versions
	@scripts/lock

clean: ## remove .venv, caches and built files
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

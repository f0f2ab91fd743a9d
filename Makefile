# `make up` runs everything, `make test` tests everything; both set up first, on a machine with Python 3.11+.

VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready

# What neither starts processes nor waits for anything.
QUICK := tests/test_config.py tests/test_loops.py tests/model tests/definitions tests/sql tests/client tests/typing -m "not alone"

.PHONY: help setup up quick test check chaos soak bench schema docs dist format clean

help:  ## what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# One environment, two stages: what running needs, and the rest, which is four times as large.
$(RUNS): pyproject.toml constraints.txt scripts/setup
	@scripts/setup $(VENV) run

$(READY): pyproject.toml constraints.txt scripts/setup
	@scripts/setup $(VENV) dev

setup: $(READY)  ## a working .venv with the command `holdfast` and all that development needs

up: $(RUNS)  ## PostgreSQL, worker, HTTP server and a demo; Ctrl-C drains
	@$(BIN)/holdfast up

quick: setup  ## unit, SQL and client tests, in about a minute
	@$(BIN)/python -m pytest -n 4 --dist worksteal $(QUICK)

# Many tests wait for something: nine processes keep two cores busy.
test: setup  ## the whole suite
	@scripts/system-packages
	@$(BIN)/python -m pytest -n 9 --dist worksteal --durations=10

check: setup  ## lint, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

chaos: setup  ## the fault tests, longer: workers killed for two minutes, PostgreSQL away for 20 s, the API and the model tried in full
	@scripts/system-packages
	@HOLDFAST_CHAOS_SECONDS=$${SECONDS_EACH:-120} scripts/chaos $(BIN)/python tests/web/test_description.py tests/sql/test_model.py tests/sql/test_shares.py tests/sql/test_blocked.py tests/sql/test_cost.py tests/sql/test_duties.py tests/sql/test_reads.py tests/store/embedded/test_kills.py tests/maintenance

soak: setup  ## the fault tests for half an hour
	@scripts/system-packages
	@HOLDFAST_CHAOS_SECONDS=$${SECONDS_EACH:-1800} scripts/chaos $(BIN)/python

bench: setup  ## Holdfast beside the raw limits, some minutes; PEERS=all: the field, FULL=1: the long cells
	@$(BIN)/python -m bench

schema: setup  ## write the dumped schema anew, to be reviewed with the change
	@$(BIN)/python scripts/dump-schema > src/holdfast/sql/schema.dump.sql

docs: setup  ## the documentation's site, in the folder site
	@$(BIN)/python scripts/docs-site/build.py

dist: setup  ## wheel and source distribution, in the folder dist
	@$(BIN)/python -m build --no-isolation

clean:  ## remove the virtual environment and caches (never data)
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Every verb of the project. `make` alone lists them.
SHELL := /bin/sh
PYTHON ?= python3
BIN := .venv/bin
# Bytecode is kept even where the environment says otherwise: the tests start thousands of processes, and each would
# compile 300 modules first.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-deep test-with check packages chaos docs generated bench images requirements clean

help: ## list the verbs, and how long each takes on two cores
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

demo: .venv/.installed ## replicate a real file, kill the leader, prove that nothing is lost: a minute [FILE=path]
	@$(BIN)/strandline demo $(if $(FILE),"$(FILE)")

# Two workers, whatever the machine has: more real processes side by side would wait for each other.
PYTEST = $(BIN)/python -m pytest -n 2 --max-worker-restart 0 --no-loadscope-reorder

test: check ## all checks and the fast tests: 10 minutes
	@echo "==> fast tests";        $(PYTEST) -m "not slow" --hypothesis-profile few $(SKIPS)

# A skip that tests/skips.txt does not expect is a failure here, and news in `make test`.
test-all: SKIPS = --no-other-skips
test-all: packages test ## make test, and all slow tests, with Debian's packages that they need: 45 minutes
	@echo "==> slow tests";        $(PYTEST) -m "slow or hypothesis" $(SKIPS)

# COMMAND:PACKAGE. What some slow tests need; without it they are skipped, and say so.
PACKAGES := chromium:chromium fusermount3:fuse3 dockerd:docker.io docker-compose:docker-compose iptables:iptables \
  debootstrap:debootstrap ip:iproute2 tc:iproute2 etcd:etcd-server etcdctl:etcd-client gcc:gcc gcc:libc6-dev \
  prometheus:prometheus kubectl:kubernetes-client

packages: ## Debian's packages that tests need: installed for root, otherwise named: a minute
	@missing=""; for pair in $(PACKAGES); do \
	  PATH="$$PATH:/usr/sbin" command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair##*:}"; \
	done; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "==> apt-get install$$missing"; \
	  export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1; \
	  apt-get update -qq; wanted="$$missing"; missing=""; \
	  for package in $$wanted; do \
	    apt-get install -y -qq --no-install-recommends $$package >/dev/null 2>&1 || missing="$$missing $$package"; \
	  done; \
	fi; \
	[ -z "$$missing" ] || echo "not installed, so the tests that need it are skipped:$$missing; on Debian: apt-get install$$missing"

# The simulator with its hot modules compiled to C, where a C compiler is; made again when a source has changed.
FAST = PYTHONPATH=$$($(BIN)/python tests/sim/compiled.py)

# What `make test-deep WHAT=...` runs: rules broken on purpose, lines broken by chance, every profile of the simulator.
DEEP_mutants = PYTHONPATH=tests/sim $(BIN)/python -m mutants.gate $(ONLY)
DEEP_drawn = PYTHONPATH=tests/sim $(BIN)/python -m mutants.drawn judge $(ONLY)
DEEP_campaigns = $(FAST) && export PYTHONPATH && $(BIN)/python $(if $(SEEDS),tests/sim/seeds_onward.py --seeds $(SEEDS) \
  $(if $(PROFILE),--profile $(PROFILE)) $(if $(JOBS),--jobs $(JOBS)),tests/sim/campaigns.py $(if $(MINUTES),--minutes $(MINUTES)))

test-deep: .venv/.fuzz ## fuzz [TIME=300 seconds each], 2,001 seeds, every search, mutants: hours; or WHAT=mutants [ONLY="R11 18"], drawn, campaigns [MINUTES=30, or SEEDS=20000 PROFILE=swarm JOBS=2]
ifeq ($(WHAT),)
	@for target in $$($(BIN)/python tests/fuzz/targets.py); do echo "==> fuzz $$target"; \
	  PYTHONPATH=tests/core:tests/storage:tests/replica:tests/runtime:tests/controller:tests/transport:tests/interop $(BIN)/python tests/fuzz/guided.py $$target -max_total_time=$(or $(TIME),300) -print_final_stats=1 || exit 1; done
	@echo "==> seeds";             $(FAST) && export PYTHONPATH && $(BIN)/strandline sim run --seeds 0..2000
	@echo "==> every small state"; $(BIN)/strandline sim exhaust --all
	@echo "==> elections after losses"; $(BIN)/strandline sim elections --records 1 --epochs 1
	@echo "==> reassignments"; $(BIN)/strandline sim reassignments --epochs 1 --replicas 1 --target 1
	@echo "==> reigns"; $(BIN)/strandline sim reigns --transactions 1 --campaigns 1 --endings 1
	@$(BIN)/strandline sim reigns --takings 1 --late 1 --states 150000
	@echo "==> rebalances"; $(BIN)/strandline sim rebalances --epochs 2 --restarts 1
	@echo "==> transactions"; $(BIN)/strandline sim transactions --transactions 2 --mishaps 1
	@$(DEEP_mutants)
	@$(DEEP_drawn)
else
	@$(or $(DEEP_$(WHAT)),$(error WHAT is nothing, mutants, drawn or campaigns))
endif

check: .venv/.installed .venv/.protoc ## format, lint, types, import rules, contract: a minute
	@echo "==> ruff check";        $(BIN)/ruff check --quiet
	@echo "==> ruff format";       $(BIN)/ruff format --quiet --check
	@echo "==> mypy --strict";     $(BIN)/mypy --no-error-summary
	@echo "==> import rules";      $(BIN)/lint-imports --no-logo > .venv/lint-imports.log 2>&1 || { cat .venv/lint-imports.log; exit 1; }
	@echo "==> buf lint, format";  $(BIN)/buf lint protos && $(BIN)/buf format --diff --exit-code protos
	@# The contract of the last release; written by make generated RELEASED=1 after a release, and by nothing else.
	@echo "==> buf breaking";      $(BIN)/buf breaking protos --against protos/released/v1.binpb
	@echo "==> generated code";    rm -rf .venv/generated && $(BIN)/python protos/generate.py .venv/generated \
	  && for package in v1 etcd/v1; do \
	    diff -r -x __init__.py -x __pycache__ .venv/generated/strandline/$$package services/strandline/$$package || exit 1; done \
	  || { echo "run: make generated"; exit 1; }
	@echo "==> shape of the tree"; $(BIN)/python tests/house/figures.py

chaos: .venv/.installed packages ## faults against real processes, as root: minutes each; lists them without a number [SCENARIO="17 18" FORM=--short]
	@$(BIN)/python tests/chaos/chaos.py $(SCENARIO) $(FORM)

WITH_kafka := -m pytest -s tests/kafka/live/node_faults.py tests/kafka/live/moved_job.py
WITH_formats := -m pytest -s -p no:randomly tests/analytics/formats/table_pairs.py
WITH_matrix := tests/matrix/run.py
WITH_kubernetes := tests/kubernetes/real/run.py

test-with: .venv/.installed ## tests with what is fetched for them: WHAT=kafka|formats|matrix|kubernetes; 10 minutes to an hour each [FLAGS=...]
	@[ "$(WHAT)" != matrix ] || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@PYTHONPATH=tests/analytics/formats:tests/chaos:tests/bench $(BIN)/python $(or $(WITH_$(WHAT)),$(error WHAT is kafka, formats, matrix or kubernetes)) $(FLAGS) \
	  || { code=$$?; [ $$code = 77 ] || exit $$code; }

# What `make bench WHAT=...` runs. Each keeps its rows or its block for `make docs`, or only prints.
BENCH_ := run.py
BENCH_smoke := run.py --smoke --out "$$(mktemp -d)"
BENCH_anatomy := anatomy.py
BENCH_groups := run.py --only groups
BENCH_transactions := run.py --only transactions
BENCH_metadata := run.py --only metadata
BENCH_moves := run.py --only moves
BENCH_rules := run.py --only rules
BENCH_analytics := statistics_cost.py
BENCH_PATHS := tests/bench:tests/kafka/live:tests/chaos:tests/analytics/duck
BENCHES := $(patsubst BENCH_%,%,$(filter-out BENCH_PATHS,$(filter BENCH_%,$(.VARIABLES))))

bench: .venv/.bench ## measure beside NATS and Kafka, or one thing alone: 1 minute to hours [WHAT=smoke FLAGS="--only failover"]
	@PYTHONPATH=$(BENCH_PATHS) $(BIN)/python tests/bench/$(or $(BENCH_$(WHAT)),$(error WHAT is nothing, or one of: $(sort $(BENCHES)))) $(FLAGS)

images: .venv/.installed ## build the container images, as deploy/README.md says: minutes [BASE=image JAVA=image ETCD=image TARGETS="data-plane etcd"]
	@$(if $(BASE),BASE=$(BASE)) $(if $(JAVA),JAVA=$(JAVA)) $(if $(ETCD),ETCD=$(ETCD)) PYTHON=$(BIN)/python deploy/images/build $(TARGETS)

docs: .venv/.installed ## write the parts of pages that follow from code and measurements: seconds [PICTURES=1: reports, with Chromium; URL=https://... where runbooks are read]
	@$(if $(PICTURES),$(BIN)/python tests/analytics/report/report_picture.py $(if $(DEMO),--demo $(DEMO)))
	@$(if $(PICTURES),PYTHONPATH=tests/analytics/report $(BIN)/python tests/kafka/report_of_run_a.py)
	@$(if $(URL),echo "$(URL)" > deploy/monitoring/runbooks.url)
	@url=$$(cat deploy/monitoring/runbooks.url); for file in alerts alerts_test; do \
	  sed "s|runbook_url: .*#|runbook_url: $$url#|" deploy/monitoring/$$file.yaml > .venv/$$file.yaml \
	  && { cmp -s .venv/$$file.yaml deploy/monitoring/$$file.yaml || cp .venv/$$file.yaml deploy/monitoring/$$file.yaml; } || exit 1; \
	done
	@PYTHONPATH=tests/bench:tests/sim:tests/security $(BIN)/python tests/pages/docs.py

generated: .venv/.installed .venv/.protoc ## format the contract and generate v1, etcd/v1 and client/sync.py: seconds [RELEASED=1 after a release keeps its contract]
	@$(BIN)/buf format --write protos
	@$(BIN)/python protos/generate.py
	@$(BIN)/python tests/client/sync_source.py
	@$(if $(RELEASED),$(BIN)/buf build protos --exclude-source-info --output protos/released/v1.binpb)

requirements: .venv/.installed ## compile requirements/*.txt from pyproject.toml: a minute
	@$(BIN)/python -m pip install --quiet uv
	@for set in "runtime --extra server" "dev --extra server --extra tokens --extra export --extra analytics --extra console --extra sim --extra dev" "bench --extra bench" "fuzz --extra fuzz"; do \
	  name=$${set%% *}; \
	  $(BIN)/uv pip compile pyproject.toml $${set#* } --quiet --universal --python-version 3.11 --no-emit-index-url \
	    --no-emit-find-links --custom-compile-command "make requirements" --output-file requirements/$$name.txt || exit 1; \
	done
	@# What the images hold: for their Python alone, in the versions that the tests ran with.
	@for set in "data-plane" "analytics --extra analytics"; do \
	  $(BIN)/uv pip compile pyproject.toml --extra server --extra tokens --extra export --extra console $${set#$${set%% *}} --quiet \
	    --constraint requirements/dev.txt --python-platform linux --python-version 3.11 --no-emit-index-url --no-emit-find-links \
	    --no-annotate --custom-compile-command "make requirements" --output-file requirements/$${set%% *}.txt || exit 1; \
	done

clean: ## remove what the tools left, the environment included; data directories stay: seconds
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find services analytics tests protos -name __pycache__ -type d -prune -exec rm -rf {} +

# Whether the java on the path is 17 or newer: it prints its version to stderr, `openjdk version "17.0.15" 2025-04-15`.
JAVA_17 = java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | { read -r major && [ "$$major" -ge 17 ]; }

# The environment: made once, and again when what it is made from has changed.
.venv/.installed: pyproject.toml requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "Strandline needs Python 3.11 or newer; $(PYTHON) is: $$($(PYTHON) --version 2>&1). Name another with: make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	       && echo "==> apt-get install python3-venv" && apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null; } \
	  || { echo "Python's venv module is missing; install it, on Debian with: apt-get install python3-venv"; exit 1; }
	@$(JAVA_17) \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "==> apt-get install default-jre-headless" \
	       && apt-get update -qq && apt-get install -y -qq --no-install-recommends default-jre-headless >/dev/null && $(JAVA_17); } \
	  || { echo "Spark needs Java 17 or newer, and there is: $$(java -version 2>&1 | head -n 1); install it, on Debian 12 or newer with: apt-get install default-jre-headless"; exit 1; }
	@echo "==> environment in .venv (once, about two minutes)"
	@[ -x $(BIN)/pip ] || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The generator is older than what the product runs with, so it has an environment of its own.
.venv/.protoc: .venv/.installed requirements/protoc.txt
	@$(BIN)/python -m venv .venv/protoc
	@.venv/protoc/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements/protoc.txt
	@touch $@

.venv/.bench: .venv/.installed requirements/bench.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements/bench.txt
	@touch $@

.venv/.fuzz: .venv/.installed requirements/fuzz.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements/fuzz.txt
	@touch $@

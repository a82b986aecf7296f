# Every target installs what it needs first (tests/setup says what) and can be repeated.
# PROFILE: the cargo profile of images: dist for images to keep, dev where tests build them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
TARGET := $(or $(CARGO_TARGET_DIR),target)
JOB ?= manifests/samples/packing.yaml
RANKS ?= $(shell nproc)
PROFILE ?= dist
TAG ?= dev

help: ## Show the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

run: ## Run the sample packing on this machine, without a cluster (JOB=FILE RANKS=N)
	@tests/setup run
	cargo build --workspace --bins
	$(TARGET)/debug/kubectl-dem run --local --ranks $(RANKS) $(JOB)

test-fast: ## Format, lints, unit and local MPI tests: minutes, no cluster
	@tests/run fast

test: ## Every test at short counts: API server, kind cluster, Prometheus
	@tests/run all

test-soak: ## Every test at full counts
	@tests/run soak

bench: ## Measure against peers, into target/figures.json (CASE=name for one)
	@tests/setup bench
	cargo build --release -p dem-solver
	cargo run -p dem-tests --bin bench -- $(CASE)

figures: ## Print what bench measured
	@jq -r '(["CASE","WHAT","OURS","PEER","PEER NAME","UNIT","RATIO","BAR","HOLDS"]), (.[] | [.case, .what, .ours, .peer, .peerName, .unit, .ratio, .bar, .holds]) | @tsv' $(TARGET)/figures.json | column -t -s $$'\t'

images: ## Build the container images (PROFILE=dist|dev TAG=dev)
	@tests/setup test
	manifests/images/build --profile $(PROFILE) --tag $(TAG)

kind: ## A kind cluster with operator, Prometheus and P0's benchmark running
	@tests/setup test
	tests/cluster/demo

manifests: ## Regenerate the CRD and what is made from it and from the chart
	@tests/setup run && tests/cluster/binaries tools
	cargo run -q -p dem-crds --bin crdgen
	DEM_UPDATE=1 cargo test -q --workspace --test=packaging the_chart
	manifests/generate

lint: ## Format, clippy, and licences when cargo-deny is installed
	@tests/setup run
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny check licenses bans sources; \
	 else echo "cargo-deny is not installed: licences not checked (cargo install --locked cargo-deny)"; fi

.PHONY: help run test-fast test test-soak bench figures images kind manifests lint

# Everything a developer does with csiemu. `make` alone lists the targets.

GO       ?= go
# Packages to test, lint and measure; flags for go test.
PKGS     ?= ./...
ARGS     ?=
# Time of one fuzz target, repetitions of a benchmark, rounds and kills of the soak.
FUZZTIME ?= 10s
COUNT    ?= 6
ROUNDS   ?= 20
KILLS    ?= 1000
# Backends whose drivers conform holds against the specification.
BACKENDS ?= loop tmpfs memory
# Packages whose tests also run in a virtual machine with Debian's kernel.
VM_PACKAGES ?= ./internal/kernel ./internal/loopdev ./internal/mount ./internal/filesystem ./internal/freeze \
	./internal/blockio ./internal/treecopy ./internal/nodemount ./backends/loop ./backends/tmpfs \
	./cmd/csiemu/internal/demo

TOOL  := $(GO) tool -modfile=tools/go.mod
# mkfs and fsck live here, outside the PATH of most users.
export PATH := $(PATH):/usr/sbin:/sbin
# The race detector makes each test binary heavy: as many at once as cores.
TEST  := $(GO) test -race -shuffle=on -p $(shell nproc 2>/dev/null || echo 2) -timeout 20m

.DEFAULT_GOAL := help
.PHONY: help run build test test-vm e2e bench-attacher conform lint fmt bench fuzz soak packages clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: packages ## show the life of a volume (ARGS="--backend loop", "--help")
	@$(GO) run ./cmd/csiemu demo $(ARGS)

build: ## build bin/csiemu, a static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/csiemu ./cmd/csiemu

test: packages ## run every test of this machine, with the race detector (PKGS, ARGS)
	$(TEST) $(ARGS) $(PKGS)

test-vm: ## run the kernel tests in a virtual machine (VM_PACKAGES)
	@tools/packages.sh vm
	@testvm/run.sh $(VM_PACKAGES)

e2e: ## run the tests beside a real Kubernetes, as root also with nodes; the first run builds it (ARGS="-update")
	@tools/packages.sh e2e
	cd e2e && $(GO) run ./build
	cd e2e && $(GO) test -count=1 -parallel 6 -timeout 30m $(ARGS) ./...

bench-attacher: build ## measure attachers beside a real API server, csiemu's, external-attacher's and a bare client (ARGS="-rounds 3")
	cd e2e && $(GO) run ./build
	cd e2e && $(GO) run ./attacherbench $(ARGS)

conform: build packages ## hold each backend's driver against CSI 1.13, row by row (BACKENDS, ARGS="--must-only")
	@failed=0; for backend in $(BACKENDS); do \
		echo "== $$backend"; \
		bin/csiemu conform --backend $$backend $(ARGS) || failed=1; \
	done; exit $$failed

lint: ## check style, imports and that it builds on other systems
	$(TOOL) golangci-lint run --allow-parallel-runners $(PKGS)
	cd e2e && $(GO) tool -modfile=../tools/go.mod golangci-lint run --allow-parallel-runners --config ../.golangci.yml ./...
	$(TOOL) golangci-lint fmt --diff
	$(GO) mod tidy -diff
	GOOS=darwin CGO_ENABLED=0 $(GO) vet $(PKGS)
	GOOS=windows CGO_ENABLED=0 $(GO) vet $(PKGS)

fmt: ## format the code
	$(TOOL) golangci-lint fmt

bench: packages ## measure, each beside its floor; the result is in bench.txt for benchstat (COUNT)
	$(GO) test -run '^$$' -bench . -benchmem -count $(COUNT) -p 1 -timeout 60m $(ARGS) $(PKGS) | tee bench.txt
	$(TOOL) benchstat bench.txt

fuzz: ## run each fuzz target for FUZZTIME
	@set -e; for package in $$($(GO) list $(PKGS)); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "== $$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

soak: packages ## kill an emulator KILLS times, run the tests ROUNDS times, two runs at once, and fuzz for ten minutes a target
	CSIEMU_KILLS=$(KILLS) $(GO) test -race -count=1 -timeout 120m -run 'TestKillsAtRandom|TestEvery' -v ./emulator/crash
	@for round in $$(seq $(ROUNDS)); do \
		echo "== round $$round of $(ROUNDS)"; \
		$(TEST) -count=1 $(PKGS) & first=$$!; \
		$(TEST) -count=1 $(PKGS) || { wait $$first; exit 1; }; \
		wait $$first || exit 1; \
	done
	@$(MAKE) fuzz FUZZTIME=10m

packages: ## say, and as root on Debian install, what the tests need
	@tools/packages.sh test

clean: ## remove what these targets made here
	rm -rf bin bench.txt

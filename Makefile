# make            lists these targets
# make run        shows the boundary on this machine

SHELL   := /bin/bash
MODULES := lib sb-run sb-vm sb-gate sb-dns sb-broker sb-image sb-kit sb-policy testscripts
TOOLS   := sb-run sb-vm sb-gate sb-dns sb-broker sb-image sb-kit sb-policy
VERSION := 0.1.0
BIN     := $(CURDIR)/bin
PREFIX  ?= /usr/local
GOARCH  ?= $(shell go env GOARCH 2>/dev/null)

# Debian's Go may be older than go.work asks for: it then fetches that one.
export GOTOOLCHAIN ?= auto
export CGO_ENABLED ?= 0
GOFLAGS_BUILD := -trimpath -ldflags "-s -w -X sb/lib/say.Version=$(VERSION)"

# On macOS the hypervisor is behind a framework (cgo) and an entitlement.
ifeq ($(shell uname -s),Darwin)
BUILD_VM = CGO_ENABLED=1 go build $(GOFLAGS_BUILD) -o $(BIN)/ ./sb-vm && \
	codesign --force --sign - --entitlements sb-vm/vm.entitlements $(BIN)/sb-vm
else
BUILD_VM = go build $(GOFLAGS_BUILD) -o $(BIN)/ ./sb-vm
endif

.DEFAULT_GOAL := help
.PHONY: help deps build test check run bench bench-net bench-wall mutate fuzz install uninstall clean tidy

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

deps: ## install what building, running and testing need (Debian; root or sudo)
	@./.ci/deps

build: ## build the tools into bin/
	@mkdir -p $(BIN)
	@go build $(GOFLAGS_BUILD) -o $(BIN)/ $(addprefix ./,$(filter-out sb-vm,$(TOOLS)))
	@$(BUILD_VM)
	@GOOS=linux GOARCH=$(GOARCH) go build $(GOFLAGS_BUILD) -o $(BIN)/sb-guest ./sb-vm/guest

test: build ## run every test, those with live machines too
	@./testscripts/run-tests

check: ## format, vet, staticcheck, each module alone, other platforms, man pages
	@./testscripts/check

run: ## install, build, boot a sandbox and show what its network reaches
	@./testscripts/first-light

bench: build ## measure, as ratios in one run
	@./testscripts/bench/run

bench-wall: build ## drive each bound of the gate to its end, in the large
	@SB_BIN=$(BIN) go run ./testscripts/wall

bench-net: build ## compare the network with gvproxy's and passt's (root; gvproxy from the module proxy)
	@SB_BIN=$(BIN) go run ./testscripts/benchnet

mutate: build ## take each refusal out in turn: its test must fail
	@go run ./testscripts/mutate

fuzz: ## run every fuzz target for FUZZTIME (default 10s)
	@./testscripts/fuzz $(or $(FUZZTIME),10s)

install: build ## install under PREFIX (default /usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/sb $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 $(addprefix $(BIN)/,$(TOOLS)) $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(BIN)/sb-guest $(DESTDIR)$(PREFIX)/libexec/sb/
	install -m 644 $(wildcard sb-*/sb-*.1) $(DESTDIR)$(PREFIX)/share/man/man1/

uninstall: ## remove what install installed
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(TOOLS)) $(DESTDIR)$(PREFIX)/libexec/sb/sb-guest
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/man/man1/,$(notdir $(wildcard sb-*/sb-*.1)))
	-rmdir $(DESTDIR)$(PREFIX)/libexec/sb

tidy: ## tidy every module
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy) || exit 1; done; go work sync

clean: ## remove what was built
	rm -rf $(BIN) .cache

# snapferry: build, tests, demo. `make help` lists the targets.
SHELL := /bin/bash
VERSION := 0.1.0
BUILD ?= build
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr/local
DESTDIR ?=

WARN := -Wall -Wextra -Werror -Wshadow -Wvla -Wformat=2 -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
        -Wundef -Wnull-dereference -Wwrite-strings -Wcast-align
# Messages may be cut: that is what snprintf is used for.
ifeq ($(findstring clang,$(CC)),)
WARN += -Wno-format-truncation
endif
HARDEN := -fstack-protector-strong -fcf-protection -fPIE
LDHARDEN := -pie -Wl,-z,relro,-z,now -Wl,--as-needed
OPT ?= -O2
ifeq ($(SAN),)
HARDEN += -D_FORTIFY_SOURCE=2
else
HARDEN += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
LDHARDEN += -fsanitize=$(SAN)
endif
PKGS := liburing libisal libzstd libcrypto jansson inih liblz4 zlib blkid libsystemd sqlite3 libseccomp libmicrohttpd libcrypt
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS = $(shell pkg-config --libs $(PKGS) 2>/dev/null)
CFLAGS_ALL = -std=c17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DSNAPFERRY_VERSION='"$(VERSION)"' -I. -g $(OPT) $(WARN) \
             $(HARDEN) -pthread $(PKG_CFLAGS) $(CFLAGS)
LDFLAGS_ALL = $(LDHARDEN) -pthread $(LDFLAGS)

# The rooms, lowest first. Each is one static library; link order is the reverse.
DAEMON_ROOMS := protocol records movers schedule answers check control engine metrics
ROOMS := base proc cfg chunker io io/native repo $(addprefix daemon/,$(DAEMON_ROOMS) import mover mover/agent)
ROOMS := $(foreach r,$(ROOMS),$(if $(wildcard $(r)/*.c),$(r)))
room_lib = $(BUILD)/lib$(subst /,-,$(1)).a
LIBS := $(foreach r,$(ROOMS),$(call room_lib,$(r)))
LINK_LIBS := -Wl,--start-group $(LIBS) -Wl,--end-group
# The control plane: no data path, no repository; of io only what names a source.
DAEMON_LIBS := $(foreach r,base proc cfg io io/native $(addprefix daemon/,$(DAEMON_ROOMS)),$(if $(wildcard $(r)/*.c),$(call room_lib,$(r))))
DAEMON_PKG_LIBS = $(shell pkg-config --libs libsystemd sqlite3 jansson inih libcrypto blkid libmicrohttpd libcrypt 2>/dev/null)
PROGRAMS := $(BUILD)/snapferry $(BUILD)/snapferryd $(BUILD)/snapferry-mover

src_of = $(wildcard $(1)/*.c)
obj_of = $(patsubst %.c,$(BUILD)/%.o,$(call src_of,$(1)))
CLI_OBJ := $(call obj_of,daemon/cli)
UNIT := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/test_*.c))
TOOLS := $(patsubst tests/tools/%.c,$(BUILD)/tests/tools/%,$(wildcard tests/tools/*.c))
PERF := $(patsubst perf/%.c,$(BUILD)/perf/%,$(wildcard perf/*.c))

.PHONY: all
all: $(PROGRAMS)

$(BUILD)/snapferry: $(CLI_OBJ) $(LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $(CLI_OBJ) $(LINK_LIBS) $(PKG_LIBS) -lm

$(BUILD)/snapferryd: $(addprefix $(BUILD)/daemon/main/,snapferryd.o service.o) $(DAEMON_LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) -Wl,--start-group $(DAEMON_LIBS) -Wl,--end-group $(DAEMON_PKG_LIBS)
$(BUILD)/snapferry-mover: $(BUILD)/daemon/main/snapferry-mover.o $(LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $< $(LINK_LIBS) $(PKG_LIBS) -lm

define room_rule
$(call room_lib,$(1)): $(call obj_of,$(1))
	@mkdir -p $$(@D)
	@rm -f $$@
	ar rcs $$@ $$^
endef
$(foreach r,$(ROOMS),$(eval $(call room_rule,$(r))))

# A kernel file tells by its name which instructions it needs; nothing else may use them.
$(BUILD)/%_avx2.o: KERNEL_FLAGS := -mavx2 -mbmi2 -mpclmul
$(BUILD)/repo/aesgcm_avx2.o: KERNEL_FLAGS := -mavx2 -maes -mpclmul -mvaes -mvpclmulqdq
$(BUILD)/chunker/sha256_avx2.o: KERNEL_FLAGS := -mavx2 -msha
$(BUILD)/%_avx512.o: KERNEL_FLAGS := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vbmi -mbmi2
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) $(KERNEL_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/tests/unit/recipe.o $(LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $< $(BUILD)/tests/unit/recipe.o $(LINK_LIBS) $(PKG_LIBS) -lcmocka -lm
# Of the command those files that only make text; print_error() of the others is also a name of cmocka's.
CLI_TEXT_OBJ := $(addprefix $(BUILD)/daemon/cli/,ages.o live.o progress-line.o screen.o table.o text.o width.o)
$(BUILD)/tests/unit/test_cli_%: $(BUILD)/tests/unit/test_cli_%.o $(CLI_TEXT_OBJ) $(LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $< $(CLI_TEXT_OBJ) $(LINK_LIBS) $(PKG_LIBS) -lcmocka -lm
$(BUILD)/tests/tools/%: $(BUILD)/tests/tools/%.o $(LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $< $(LINK_LIBS) $(PKG_LIBS) -lm
$(BUILD)/perf/%: $(BUILD)/perf/%.o $(LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $< $(LINK_LIBS) $(PKG_LIBS) -lm
# Kept, and made anew whenever they are missing (.SECONDARY would think a library newer than its source good enough).
.PRECIOUS: $(BUILD)/%.o

-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)

.PHONY: unit-programs
unit-programs: $(UNIT) $(TOOLS) $(PERF)

# Golden repositories made by the real Kopia, unpacked with their file times (the storage clock).
$(BUILD)/golden/.done: tests/fixtures/repos.tar.xz tests/fixtures/expected.tar.xz
	@rm -rf $(@D) && mkdir -p $(@D)
	tar -xJpf tests/fixtures/repos.tar.xz -C $(@D)
	tar -xJf tests/fixtures/expected.tar.xz -C $(@D)
	@touch $@

SCRIPTS := $(sort $(wildcard tests/cli/*.sh tests/e2e/*.sh tests/fault/*.sh) $(wildcard tests/package/*.sh))
TEST_ENV = SNAPFERRY=$(BUILD)/snapferry GOLDEN=$(BUILD)/golden SNAPFERRY_GOLDEN=$(BUILD)/golden TOOLS=$(BUILD)/tests/tools \
           BUILD=$(BUILD)

.PHONY: deps test test-programs check test-interop test-avx512 check-asan check-tsan check-valgrind
deps:
	@BUILD=$(BUILD) tests/deps.sh

# The default tests: what must pass everywhere. `make check` is the same without installing anything.
test: deps
	@$(MAKE) --no-print-directory check

test-programs:
	+@$(MAKE) --no-print-directory -s -j2 all unit-programs fuzz-replay $(BUILD)/golden/.done

check: test-programs
	@$(TEST_ENV) tests/run.sh $(sort $(UNIT)) $(sort $(FUZZ_REPLAY)) $(SCRIPTS)

# Only some of them: make only T="tests/e2e/roundtrip.sh build/tests/unit/test_base"
only: test-programs
	@$(TEST_ENV) tests/run.sh $(T)

# The daemon under random faults for a long time: make soak OPS=1000
.PHONY: soak
OPS ?= 1000
soak: test-programs
	@$(TEST_ENV) OPS=$(OPS) AGAIN=0 TEST_TIMEOUT=14400 tests/run.sh tests/e2e/daemon-longrun.sh

# Stock Kopia as the judge of both directions: make test-interop KOPIA=/path/to/kopia
test-interop: test-programs
	@$(TEST_ENV) KOPIA=$(KOPIA) AGAIN=0 TEST_TIMEOUT=1800 tests/run.sh $(sort $(wildcard tests/interop/*.sh))

# The AVX-512 kernels on an emulated CPU: installs Bochs and fetches a Debian kernel; takes minutes.
test-avx512: $(addprefix $(BUILD)/tests/unit/test_,kernels kernel)
	@BUILD=$(BUILD) tests/emulated/run.sh $^

# A real systemd, kernel and device-mapper in virtual machines (tests/README.md): tests/vm says what each shows; takes half an
# hour where /dev/kvm does not work. T="tests/vm/02-reboot.sh": only some. FROM=install: by `make install`, not the packages.
.PHONY: test-vm
FROM ?= deb
test-vm: T ?= $(sort $(wildcard tests/vm/[0-9]*.sh))
test-vm:
	@tests/deps.sh
	@tests/vm/image.sh >/dev/null
	@rm -rf $(BUILD)/vm && mkdir -p $(BUILD)/vm
	+@if [ "$(FROM)" = install ]; then $(MAKE) --no-print-directory -s install PREFIX=/usr DESTDIR=$(abspath $(BUILD))/vm/root; \
	    else $(MAKE) --no-print-directory -s deb && cp $(BUILD)/deb/snapferry_*.deb $(BUILD)/vm/; fi
	@BUILD=$(BUILD) JOBS=1 AGAIN=0 TEST_TIMEOUT=3600 tests/run.sh $(T)

# The scripts again with every kernel scalar, as on a CPU without vectors. T="tests/e2e/restore.sh": only some.
KERNELS := BUZHASH RABINKARP BLAKE2B BLAKE2S BLAKE3 AESGCM SHA256
.PHONY: test-scalar
test-scalar: T ?= $(sort $(wildcard tests/cli/*.sh tests/e2e/*.sh))
test-scalar: test-programs
	@$(foreach k,$(KERNELS),SNAPFERRY_KERNEL_$(k)=scalar) $(TEST_ENV) tests/run.sh $(T)

check-asan:
	@$(MAKE) --no-print-directory BUILD=build-asan SAN=address,undefined OPT=-O1 test-programs
	@$(TEST_ENV) BUILD=build-asan SNAPFERRY=build-asan/snapferry TOOLS=build-asan/tests/tools AGAIN=0 TEST_TIMEOUT=1800 \
	    ASAN_OPTIONS=allocator_may_return_null=1 SNAPFERRY_SANITIZED=1 \
	    tests/run.sh $(patsubst build/%,build-asan/%,$(sort $(UNIT) $(FUZZ_REPLAY))) $(wildcard tests/cli/*.sh)

check-tsan:
	@$(MAKE) --no-print-directory BUILD=build-tsan SAN=thread OPT=-O1 test-programs
	@$(TEST_ENV) BUILD=build-tsan AGAIN=0 TEST_TIMEOUT=1800 SNAPFERRY_SANITIZED=1 \
	    tests/run.sh $(foreach t,pool hash reader target blob item indexset repo backup restore,build-tsan/tests/unit/test_$(t))

check-valgrind: test-programs
	@printf '#!/bin/sh\nexec valgrind -q --error-exitcode=99 --leak-check=full "$$@"\n' > $(BUILD)/valgrind.sh
	@for t in base cfg splitter hash index epoch compress s2 ecc docstream gojson; do \
	    SNAPFERRY_SANITIZED=1 $(TEST_ENV) valgrind -q --error-exitcode=99 --leak-check=full $(BUILD)/tests/unit/test_$$t \
	        || exit 1; done

.PHONY: bench
bench: all $(PERF)
	@perf/deps.sh
	@BUILD=$(BUILD) perf/run.sh

# Time and memory against sizes of volume and repository and against workers: long.
.PHONY: bench-scaling
bench-scaling: all $(PERF) $(BUILD)/tests/tools/make_index $(BUILD)/tests/tools/rss_peak
	@perf/deps.sh
	@BUILD=$(BUILD) perf/scaling.sh

# Instructions per byte of the kernels against the kept numbers (valgrind): ACCEPT=1 keeps new ones.
.PHONY: bench-instructions
bench-instructions: $(BUILD)/perf/count_kernels
	@BUILD=$(BUILD) OPT="$(OPT)" ACCEPT=$(ACCEPT) perf/instructions.sh

.PHONY: demo
demo:
	@tests/deps.sh
	+@$(MAKE) --no-print-directory -s -j2 all
	@SNAPFERRY=$(BUILD)/snapferry tests/demo.sh

# Man pages are written in POD.
MAN := $(patsubst docs/man/%.pod,$(BUILD)/man/%,$(wildcard docs/man/*.pod))
.PHONY: man
man: $(MAN)
$(BUILD)/man/%: docs/man/%.pod
	@mkdir -p $(@D)
	pod2man --center "snapferry" --release "$(VERSION)" --section $(lastword $(subst ., ,$*)) \
	    --name $(shell echo $(basename $*) | tr a-z A-Z) $< $@

.PHONY: install
UNITDIR ?= /lib/systemd/system
SYSCONFDIR ?= /etc
install: all man
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/bin $(BUILD)/snapferry
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/sbin $(BUILD)/snapferryd
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/libexec/snapferry $(BUILD)/snapferry-mover
	for m in $(MAN); do install -D -m 0644 $$m $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$${m##*/}; done
	install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSCONFDIR)/snapferry/conf.d $(DESTDIR)$(PREFIX)/share/doc/snapferry
	for u in systemd/*.service systemd/*.socket systemd/*.slice; do \
	    sed -e 's,@bindir@,$(PREFIX)/bin,g' -e 's,@sbindir@,$(PREFIX)/sbin,g' $$u > $(DESTDIR)$(UNITDIR)/$${u##*/} || exit 1; done
	install -D -m 0644 systemd/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/snapferry.conf
	install -D -m 0644 systemd/tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/snapferry.conf
	install -D -m 0644 docs/snapferry.bash-completion $(DESTDIR)$(PREFIX)/share/bash-completion/completions/snapferry
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/share/snapferry/plugins examples/plugins/*
	install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/snapferry/monitoring monitoring/*
	cp -r examples docs/*.md $(DESTDIR)$(PREFIX)/share/doc/snapferry/
	[ -e $(DESTDIR)$(SYSCONFDIR)/snapferry/snapferry.ini ] || \
	    install -m 0644 debian/snapferry.ini $(DESTDIR)$(SYSCONFDIR)/snapferry/snapferry.ini

# Debian packages in $(BUILD)/deb, from a copy of this tree (docs/packaging.md).
.PHONY: deb deb-reproducible test-package
deb:
	@tests/deps.sh package
	@debian/build.sh $(BUILD)/deb
# Twice, under all that must not matter, and compared: takes minutes.
deb-reproducible:
	@tests/deps.sh package
	@tests/package/long/reproducible.sh $(BUILD)/deb-reproducible
# Life and death of the package in a minimal Debian 12 made by mmdebstrap, not in this system: needs a Debian mirror.
test-package:
	@tests/deps.sh package
	@$(MAKE) --no-print-directory deb
	@BUILD=$(BUILD) tests/package/long/fresh.sh

.PHONY: help
help:
	@echo 'make            the command, build/snapferry'
	@echo 'make demo       install what is needed, build, and show the main job on a real block device'
	@echo 'make test       install what is needed, build and run the default tests (make check: without installing)'
	@echo 'make deb        Debian packages, build/deb/*.deb; make deb-reproducible builds twice and compares'
	@echo 'make test-package   the packages installed, used, upgraded and purged in a fresh Debian 12'
	@echo 'make install    PREFIX=/usr/local DESTDIR='
	@echo 'make check-asan check-tsan check-valgrind    the tests under sanitizers'
	@echo 'make test-vm    the installed package in virtual machines: limits, reboots, watchdog, full disk, stuck devices'
	@echo 'make test-avx512    the AVX-512 kernels on an emulated CPU (Bochs)'
	@echo 'make test-scalar    the scripts again with every kernel scalar, as on a CPU without vectors'
	@echo 'make bench-instructions    instructions per byte of the kernels against the kept numbers; ACCEPT=1 keeps new ones'
	@echo 'make soak       OPS=1000: so many operations of the daemon in a row, with random faults'
	@echo 'make fuzz       libFuzzer targets, FUZZ_SECONDS=30 each (clang)'
	@echo 'make test-interop KOPIA=/path/to/kopia       both directions against stock Kopia'
	@echo 'make bench      benchmarks with ratios to peers; KOPIA=/path SIZE=1024 RUNS=3 QUICK=1 (perf/README.md)'
	@echo 'make bench-scaling   time and memory against sizes of volume and repository, and workers'

.PHONY: clean
clean:
	rm -rf build build-*

# Fuzz targets. As plain programs they run their corpus (part of `make check`); `make fuzz` lets libFuzzer search.
FUZZ_SECONDS ?= 30
FUZZ_NAMES := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_REPLAY := $(addprefix $(BUILD)/tests/fuzz/,$(FUZZ_NAMES))
$(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/replay.o $(LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $< $(BUILD)/tests/fuzz/replay.o $(LINK_LIBS) $(PKG_LIBS) -lm
$(BUILD)/fuzzer/%: $(BUILD)/tests/fuzz/%.o $(LIBS)
	@mkdir -p $(@D)
	$(CC) -fsanitize=fuzzer $(LDFLAGS_ALL) -o $@ $< $(LINK_LIBS) $(PKG_LIBS) -lm

.PHONY: fuzz-replay fuzz fuzz-programs
fuzz-replay: $(FUZZ_REPLAY)
fuzz-programs: $(addprefix $(BUILD)/fuzzer/,$(FUZZ_NAMES))
fuzz: FUZZ_BUILD := $(BUILD)-fuzz
fuzz:
	+@$(MAKE) --no-print-directory -s BUILD=$(FUZZ_BUILD) CC=clang SAN=address,undefined OPT=-O1 \
	    CFLAGS='-fsanitize=fuzzer-no-link -w' fuzz-programs
	@for t in $(FUZZ_NAMES); do \
	    mkdir -p $(FUZZ_BUILD)/found/$$t; \
	    $(FUZZ_BUILD)/fuzzer/$$t -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
	        -artifact_prefix=$(FUZZ_BUILD)/ $(FUZZ_BUILD)/found/$$t tests/fuzz/corpus/$$t >$(FUZZ_BUILD)/$$t.log 2>&1 \
	        || { tail -n 60 $(FUZZ_BUILD)/$$t.log; echo "$$t failed, log in $(FUZZ_BUILD)/$$t.log"; exit 1; }; \
	    echo "$$t: $$(sed -n 's/^stat::number_of_executed_units: *//p' $(FUZZ_BUILD)/$$t.log) inputs, no complaint"; done

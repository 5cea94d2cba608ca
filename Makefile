# snapferry: build, tests, demo. `make help` lists the targets.
SHELL := /bin/bash
VERSION := 0.2.0
# Where the output goes. Within this directory its name is always the relative one, since dependency files have it.
BUILD ?= build
override BUILD := $(patsubst $(CURDIR)/%,%,$(abspath $(BUILD)))
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
HARDEN := -fstack-protector-strong -fstack-clash-protection -fPIE
LDHARDEN := -pie -Wl,-z,relro,-z,now -Wl,--as-needed
OPT ?= -O2
ifeq ($(SAN),)
HARDEN += -D_FORTIFY_SOURCE=2
else
HARDEN += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
LDHARDEN += -fsanitize=$(SAN)
endif
PKGS := liburing libisal libzstd libcrypto jansson inih liblz4 zlib blkid libsystemd sqlite3 libseccomp libmicrohttpd \
        libcurl expat
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
# libcurl and libnbd are loaded when they are needed (repo/curl-lib.h, io/nbd-lib.h).
PKG_LIBS := $(shell pkg-config --libs $(filter-out libcurl,$(PKGS)) 2>/dev/null)
CFLAGS_ALL = -std=c17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DSNAPFERRY_VERSION='"$(VERSION)"' -I. -g $(OPT) $(WARN) \
             $(HARDEN) -pthread $(PKG_CFLAGS) $(CFLAGS)
LDFLAGS_ALL = $(LDHARDEN) -pthread $(LDFLAGS)
# The name of a kernel's file says which instructions it needs; no other file may use them.
AVX2 := -mavx2 -mbmi2 -mpclmul
AVX2_AES := -mavx2 -maes -mpclmul -mvaes -mvpclmulqdq
AVX2_SHA := -mavx2 -msha
AVX512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vbmi -mbmi2

# The rooms, lowest first: each uses only those before it (tests/law/rooms). Each is a static library, linked once, the
# highest first.
DAEMON_ROOMS := base proc daemon/protocol cfg io io/native \
                $(addprefix daemon/,records movers schedule check decide answers engine control metrics)
DATA_ROOMS := io/rbd chunker repo $(addprefix daemon/,import bench mover mover/agent)
with_files = $(foreach r,$(1),$(if $(wildcard $(r)/*.c),$(r)))
highest_first = $(if $(1),$(call highest_first,$(wordlist 2,$(words $(1)),$(1))) $(firstword $(1)))
room_lib = $(BUILD)/lib$(subst /,-,$(1)).a
room_libs = $(foreach r,$(call highest_first,$(call with_files,$(1))),$(call room_lib,$(r)))
ROOMS := $(call with_files,$(DAEMON_ROOMS) $(DATA_ROOMS))
LIBS := $(call room_libs,$(ROOMS))
# The control plane: no data path, no repository; of io only what names a source.
DAEMON_LIBS := $(call room_libs,$(DAEMON_ROOMS))
DAEMON_PKGS := libsystemd sqlite3 jansson inih libcrypto blkid libmicrohttpd expat
DAEMON_PKG_LIBS := $(shell pkg-config --libs $(DAEMON_PKGS) 2>/dev/null)
PROGRAMS := $(BUILD)/snapferry $(BUILD)/snapferryd $(BUILD)/snapferry-mover $(BUILD)/snapferry-rbd

src_of = $(wildcard $(1)/*.c)
obj_of = $(patsubst %.c,$(BUILD)/%.o,$(call src_of,$(1)))
CLI_OBJ := $(call obj_of,daemon/cli)
UNIT := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/test_*.c))
# To be preloaded by what is tested.
PRELOADED := $(BUILD)/tests/tools/fiemap_lies.so
TOOLS := $(PRELOADED) $(filter-out $(PRELOADED:.so=), \
         $(patsubst tests/tools/%.c,$(BUILD)/tests/tools/%,$(wildcard tests/tools/*.c)))
PERF := $(patsubst perf/%.c,$(BUILD)/perf/%,$(wildcard perf/*.c))

.PHONY: all
all: $(PROGRAMS)

# One short line for each command (make -s: none); V=1 shows the commands.
Q := $(if $(filter-out 0,$(V)),,@)
say = $(if $(Q),$(if $(findstring s,$(firstword -$(MAKEFLAGS))),,$(info $(1) $(2))))

# What is made depends on how: $(BUILD)/flags has the compiler and all flags, and is written only when they change.
.PHONY: FORCE
same = $(and $(findstring <$(1)>,<$(2)>),$(findstring <$(2)>,<$(1)>))
# Make 4.3 does not always take the line break off what it reads.
changed = $(if $(call same,$(strip $(file <$(1))),$(strip $(2))),,FORCE)
quoted = '$(subst ','\'',$(1))'
FLAGS := $(BUILD)/flags
FLAGS_TEXT := $(CC) $(shell $(CC) --version 2>/dev/null | head -n 1) $(CFLAGS_ALL) $(LDFLAGS_ALL) \
              $(LIBS) $(DAEMON_LIBS) $(PKG_LIBS) $(DAEMON_PKG_LIBS) $(AVX2) $(AVX2_AES) $(AVX2_SHA) $(AVX512)
$(FLAGS): $(call changed,$(FLAGS),$(FLAGS_TEXT))
	@mkdir -p $(@D)
	@printf '%s\n' $(call quoted,$(FLAGS_TEXT)) >$@

$(BUILD)/snapferry: $(CLI_OBJ) $(LIBS) $(FLAGS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(CLI_OBJ) $(LIBS) $(PKG_LIBS) -lm

DAEMON_OBJ := $(addprefix $(BUILD)/daemon/main/,snapferryd.o service.o)
$(BUILD)/snapferryd: $(DAEMON_OBJ) $(DAEMON_LIBS) $(FLAGS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(DAEMON_OBJ) $(DAEMON_LIBS) $(DAEMON_PKG_LIBS)
$(BUILD)/snapferry-mover: $(BUILD)/daemon/main/snapferry-mover.o $(LIBS) $(FLAGS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(LIBS) $(PKG_LIBS) -lm

# librados and librbd are loaded when it starts (io/rbd/rbd-lib.h).
RBD_LIBS := $(call room_libs,base io/rbd)
$(BUILD)/snapferry-rbd: $(BUILD)/daemon/main/snapferry-rbd.o $(RBD_LIBS) $(FLAGS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(RBD_LIBS) $(shell pkg-config --libs jansson)

# Beside each library stands the list of its files, so that it is made anew when one is added or removed.
define room_rule
$(call room_lib,$(1)): $(call obj_of,$(1)) $(call changed,$(call room_lib,$(1)).list,$(call src_of,$(1)))
	$$(call say,AR,$$@)
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(Q)ar rcs $$@ $$(filter %.o,$$^)
	@echo $(call src_of,$(1)) >$$@.list
endef
$(foreach r,$(ROOMS),$(eval $(call room_rule,$(r))))

$(BUILD)/%_avx2.o: KERNEL_FLAGS := $(AVX2)
$(BUILD)/repo/aesgcm_avx2.o: KERNEL_FLAGS := $(AVX2_AES)
$(BUILD)/chunker/sha256_avx2.o: KERNEL_FLAGS := $(AVX2_SHA)
$(BUILD)/%_avx512.o: KERNEL_FLAGS := $(AVX512)
$(BUILD)/%.o: %.c $(FLAGS)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_ALL) $(KERNEL_FLAGS) -MMD -MP -c -o $@ $<

# What unit tests share. Deriving a key of a repository takes 0.1 s by design: keys.c remembers those that a process has
# derived, but not in the tests of the derivation itself.
UNIT_OBJ := $(addprefix $(BUILD)/tests/unit/,recipe.o keys.o)
$(BUILD)/tests/unit/%: KEYS := $(UNIT_OBJ) -Wl,--wrap=format_derive_key
$(addprefix $(BUILD)/tests/unit/test_,kdf format format_keys): KEYS := $(BUILD)/tests/unit/recipe.o
$(BUILD)/tests/unit/test_decide: KEYS += -Wl,--wrap=natives_gather
$(addprefix $(BUILD)/tests/unit/test_,fetch_ahead content_ahead): KEYS += -Wl,--wrap=pthread_create
$(BUILD)/tests/unit/test_other_nodes: KEYS += -Wl,--wrap=mono_ns,--wrap=repository_health,--wrap=scan_within
$(BUILD)/tests/unit/test_sample: KEYS += -Wl,--wrap=mono_ns
$(BUILD)/tests/unit/test_throttle: KEYS += -Wl,--wrap=mono_ns,--wrap=nanosleep
$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(UNIT_OBJ) $(LIBS) $(FLAGS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(KEYS) $(LIBS) $(PKG_LIBS) -lcmocka -lm
# Of the command those files that only make text; print_error() of the others is also a name of cmocka's.
CLI_TEXT_OBJ := $(addprefix $(BUILD)/daemon/cli/,ages.o live.o progress-line.o screen.o table.o text.o width.o)
$(BUILD)/tests/unit/test_cli_%: $(BUILD)/tests/unit/test_cli_%.o $(CLI_TEXT_OBJ) $(LIBS) $(FLAGS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(CLI_TEXT_OBJ) $(LIBS) $(PKG_LIBS) -lcmocka -lm
# Of those libraries that are here as archives one object each, with the symbols that the shared one exports and no
# other (libcrypto has a gf_mul() of its own, as libisal has). What shell tests start some ten thousand times has them
# in it, and no code that can be moved: a start takes half the CPU time.
WITHIN := $(patsubst %.a,%,$(notdir $(filter /%,$(shell \
    for l in crypto sqlite3 jansson uring inih lz4 z blkid seccomp expat; do $(CC) -print-file-name=lib$$l.a; done))))
WITHIN_OBJ := $(WITHIN:%=$(BUILD)/tests/snapferry/%.o)
$(WITHIN_OBJ): $(BUILD)/tests/snapferry/%.o: $(FLAGS)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)nm -D --defined-only $$($(CC) -print-file-name=$*.so) | sed 's/.* //; s/@.*//' | sort -u >$@.symbols
	$(Q)$(CC) -nostdlib -no-pie -r -o $@ -Wl,--whole-archive $$($(CC) -print-file-name=$*.a) -Wl,--no-whole-archive
	$(Q)objcopy --keep-global-symbols=$@.symbols $@
with_archives = -no-pie $(WITHIN_OBJ) $(filter-out $(WITHIN:lib%=-l%),$(1)) -lm
# The programs that most shell tests start: they derive the key of a repository once (tests/snapferry/keys.c). The
# daemon is there because it starts the mover that lies beside it.
WRAP_KEYS := -Wl,--wrap=format_derive_key,--wrap=format_create
KEYS_ONCE := $(patsubst $(BUILD)/%,$(BUILD)/tests/snapferry/%,$(filter-out %-rbd,$(PROGRAMS)))
$(BUILD)/tests/snapferry/snapferry: $(CLI_OBJ)
$(BUILD)/tests/snapferry/snapferry-mover: $(BUILD)/daemon/main/snapferry-mover.o
$(filter-out %snapferryd,$(KEYS_ONCE)): $(BUILD)/tests/snapferry/keys.o $(LIBS) $(WITHIN_OBJ) $(FLAGS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter-out $(WITHIN_OBJ),$(filter %.o,$^)) $(WRAP_KEYS) $(LIBS) \
	    $(call with_archives,$(PKG_LIBS))
$(BUILD)/tests/snapferry/snapferryd: $(DAEMON_OBJ) $(DAEMON_LIBS) $(WITHIN_OBJ) $(FLAGS)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(DAEMON_OBJ) $(DAEMON_LIBS) $(call with_archives,$(DAEMON_PKG_LIBS))
# Tools that open a repository know these keys, too.
OPENERS := $(addprefix $(BUILD)/tests/tools/,age_repository delete_content find_key index_entries lock_repository \
             make_index make_large manifests policy_keep)
$(OPENERS): $(BUILD)/tests/snapferry/keys.o
$(OPENERS): KEYS := $(BUILD)/tests/snapferry/keys.o $(WRAP_KEYS)
$(PRELOADED): $(BUILD)/tests/tools/%.so: tests/tools/%.c $(FLAGS)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c17 -D_GNU_SOURCE -g $(OPT) $(WARN) -fPIC -shared -MMD -MP -MF $@.d -o $@ $< -ldl
$(BUILD)/tests/tools/%: $(BUILD)/tests/tools/%.o $(LIBS) $(FLAGS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(KEYS) $(LIBS) $(PKG_LIBS) -lm
# What it counts calls of.
comma := ,
$(BUILD)/perf/bench_scale: COUNTED := $(addprefix -Wl$(comma)--wrap=, \
                                      image_find_seq fields_text fields_read sqlite3_step)
$(BUILD)/perf/%: $(BUILD)/perf/%.o $(LIBS) $(FLAGS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(COUNTED) $(LIBS) $(PKG_LIBS) -lm
# Kept, and made anew whenever they are missing (.SECONDARY would think a library newer than its source good enough).
.PRECIOUS: $(BUILD)/%.o

-include $(shell find $(BUILD) -name '*.d' -type f 2>/dev/null)

.PHONY: format
format:
	@find . \( -path ./.git -o -path './build*' -o -path ./debian \) -prune -o -name '*.[ch]' -print0 | \
	    xargs -0 clang-format-14 -i --style=file

.PHONY: unit-programs
unit-programs: $(UNIT) $(TOOLS) $(KEYS_ONCE) $(PERF)

# Golden repositories made by the real Kopia, unpacked with their file times (the storage clock).
$(BUILD)/golden/.done: tests/fixtures/repos.tar.xz tests/fixtures/expected.tar.xz
	$(call say,TAR,$(@D))
	@rm -rf $(@D) && mkdir -p $(@D)
	$(Q)tar -xJpf tests/fixtures/repos.tar.xz -C $(@D)
	$(Q)tar -xJf tests/fixtures/expected.tar.xz -C $(@D)
	@touch $@

SCRIPTS := $(sort $(wildcard tests/cli/*.sh tests/e2e/*.sh tests/fault/*.sh) $(wildcard tests/package/*.sh))
BUILD_ABS := $(abspath $(BUILD))
TEST_ENV = BUILD=$(BUILD_ABS) SNAPFERRY=$(BUILD_ABS)/snapferry TOOLS=$(BUILD_ABS)/tests/tools \
           GOLDEN=$(BUILD_ABS)/golden SNAPFERRY_GOLDEN=$(BUILD_ABS)/golden
# What is built for tests is built with all CPUs, unless make was called with -j.
PARALLEL = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

.PHONY: deps test test-programs tested check only test-interop test-avx512 check-asan check-tsan check-valgrind
deps:
	@BUILD=$(BUILD) tests/deps.sh

# The short tests, in less than two minutes on two CPUs: what most changes break. Of the unit tests those not that start
# processes and wait for them, or do much.
SLOW_UNIT := $(addprefix $(BUILD)/tests/unit/test_,backup backup_faults control format_keys golden incremental mapped \
             movers movers_hostile movers_link movers_unit plugin plugin_movers program_unit records_faults \
             repo_deaths s3 splitter table)
CHECK = $(filter-out $(SLOW_UNIT),$(sort $(UNIT))) $(sort $(FUZZ_REPLAY)) \
        $(addprefix tests/cli/,format.sh golden.sh json-reads.sh law.sh unused-symbols.sh) \
        $(addprefix tests/e2e/,daemon-first.sh roundtrip.sh)
# They read what the others report: they are the last of `make test`.
REQUIREMENTS := $(addprefix tests/cli/,requirements.sh keys.sh successors.sh)
REST = $(filter-out $(CHECK) $(REQUIREMENTS),$(sort $(UNIT)) $(SCRIPTS))
REPORT := $(BUILD)/report

# What must pass everywhere, in less than 15 minutes on two CPUs: the short tests and all others.
test: deps
	+@$(MAKE) --no-print-directory test-programs
	@$(TEST_ENV) REPORT=$(REPORT) LONGEST=1 LAST="$(REQUIREMENTS)" tests/run.sh $(CHECK) -- $(REST)

check: test-programs
	@$(TEST_ENV) REPORT=$(REPORT) LONGEST=1 tests/run.sh $(CHECK)

# How long each took, of the last runs: the order on a machine that has run none yet.
.PHONY: test-seconds
test-seconds:
	@cd $(REPORT)/tests && awk 'FNR == 1 { print FILENAME, $$2 }' $$(find * -type f) | \
	    sort -k 2,2nr -k 1,1 >$(CURDIR)/tests/seconds.txt

# Of several goals, as in `make -j2 all check`, the programs come first: two makes must not build in one directory.
test test-programs: | $(filter all,$(MAKECMDGOALS))
test-programs:
	+@$(MAKE) --no-print-directory $(PARALLEL) tested
tested: all unit-programs fuzz-replay $(BUILD)/golden/.done
	@:

# Only some of them: make only T="tests/e2e/roundtrip.sh build/tests/unit/test_base". What they do not need is not
# built; scripts of tests/cli look at everything that is built.
ONLY = $(if $(filter tests/cli/%,$(T)),tested, \
       all $(TOOLS) $(KEYS_ONCE) $(PERF) $(BUILD)/golden/.done $(filter $(BUILD)/%,$(T)))
only:
	+@$(MAKE) --no-print-directory $(PARALLEL) $(ONLY)
	@$(TEST_ENV) tests/run.sh $(T)

# The daemon under random faults for a long time: make soak OPS=1000
.PHONY: soak
OPS ?= 1000
soak: test-programs
	@$(TEST_ENV) OPS=$(OPS) AGAIN=0 TEST_TIMEOUT=14400 tests/run.sh tests/e2e/daemon-longrun.sh

# Maintenance in the mixed life of a repository for a long time, with KOPIA=/path/to/kopia beside stock Kopia:
# make maintenance-long SEEDS="1 2 3" ROUNDS=50
.PHONY: maintenance-long
SEEDS ?= 1 2 3 4
ROUNDS ?= 50
maintenance-long: test-programs
	@rc=0; for s in $(SEEDS); do \
	    $(TEST_ENV) KOPIA=$(KOPIA) SEED=$$s ROUNDS=$(ROUNDS) tests/e2e/maintenance-long.sh || rc=1; \
	done; exit $$rc

# The limits of memory beside an index of ten million contents.
.PHONY: memory-long
memory-long: test-programs
	@$(TEST_ENV) MEMORY_CONTENTS=10000000 AGAIN=0 tests/run.sh tests/e2e/memory.sh

# The scripts of maintenance, and of each damaged blob, once more, with their repositories in S3 (the service of the
# project's own).
.PHONY: test-s3-maintenance
test-s3-maintenance: test-programs
	@$(TEST_ENV) THROUGH_S3=1 KOPIA=$(KOPIA) AGAIN=0 TEST_TIMEOUT=1800 tests/run.sh $(wildcard tests/e2e/maintenance*.sh) \
	    tests/fault/verify-verdict.sh \
	    $(if $(KOPIA),tests/interop/maintenance.sh)

# Backups, maintenance and a copy in an S3 service of yours: make test-s3 S3_ENDPOINT=http://HOST:PORT S3_BUCKET=NAME
# S3_KEYS=FILE (as credentials = FILE of a repository), S3_CA=FILE if its certificate is not of a public authority. What
# it stores has a prefix of its own, and stays.
.PHONY: test-s3
test-s3: test-programs
	@[ -n "$(S3_ENDPOINT)" ] && [ -n "$(S3_BUCKET)" ] && [ -r "$(S3_KEYS)" ] || { echo "make test-s3: give" \
	    "S3_ENDPOINT=http://HOST:PORT S3_BUCKET=NAME S3_KEYS=FILE (lines access-key = and secret-key =)" >&2; exit 2; }
	@$(TEST_ENV) S3_ENDPOINT=$(S3_ENDPOINT) S3_BUCKET=$(S3_BUCKET) S3_KEYS=$(abspath $(S3_KEYS)) \
	    S3_CA=$(abspath $(S3_CA)) AGAIN=0 TEST_TIMEOUT=1800 tests/run.sh tests/interop/s3-service.sh

# The engine's decisions against their model for a long time, on all CPUs: make model SEQUENCES=200000. All parts
# together must reach each cell of the state tables a hundred times.
.PHONY: model mutants print-cflags print-libs print-programs
SEQUENCES ?= 200000
model: $(BUILD)/tests/unit/test_model
	@n=$$(nproc) each=$$(($(SEQUENCES) / $$(nproc))) pids='' rc=0; rm -f $(BUILD)/model.*.log; \
	for i in $$(seq $$n); do \
	    MODEL_SEED=$$((($$i - 1) * $$each + 1)) MODEL_SEQUENCES=$$each MODEL_CELLS=0 MODEL_SHOW=1 \
	        $< >$(BUILD)/model.$$i.log 2>&1 & \
	    pids="$$pids $$!"; \
	done; \
	for p in $$pids; do wait $$p || rc=1; done; \
	grep -hE '^# |FAILED|PASSED' $(BUILD)/model.*.log | grep -v '^# cell '; \
	awk '/^# cell /{n[$$3 " " $$4 " " $$5] += $$6} END {for (c in n) print n[c], c}' $(BUILD)/model.*.log | \
	    sort -n | awk 'NR == 1 {print "least reached: " $$0} \
	                   $$1 < 100 {poor = 1; print "less than 100 times: " $$0} END {exit poor}' && exit $$rc

# Which changes of the decisions the tests notice: make mutants MUTANTS=200 (0: all)
MUTANTS ?= 200
mutants: test-programs
	@BUILD=$(BUILD) JOBS=$$(nproc) perl tests/mutants.pl $(MUTANTS)
print-cflags:
	@echo '$(CFLAGS_ALL)'
print-programs:
	@echo '$(PROGRAMS)'
print-libs:
	@echo '$(LDFLAGS_ALL) $(LIBS) $(PKG_LIBS) -lcmocka -lm'

# Stock Kopia as the judge of both directions: make test-interop KOPIA=/path/to/kopia
test-interop: test-programs
	@$(TEST_ENV) KOPIA=$(KOPIA) REPORT=$(REPORT) AGAIN=0 TEST_TIMEOUT=1800 \
	    tests/run.sh $(sort $(wildcard tests/interop/*.sh))

# The AVX-512 kernels on an emulated CPU: installs Bochs and fetches a Debian kernel; takes minutes.
test-avx512: $(addprefix $(BUILD)/tests/unit/test_,kernels kernel)
	@BUILD=$(BUILD) tests/emulated/run.sh $^

# A real systemd, kernel and device-mapper in virtual machines (tests/README.md): half an hour where /dev/kvm does not
# work. T="tests/vm/02-reboot.sh": only some. FROM=install: by `make install`, not the packages.
.PHONY: test-vm
FROM ?= deb
test-vm: T ?= $(sort $(wildcard tests/vm/[0-9]*.sh))
test-vm: vm-stage
	@BUILD=$(BUILD) REPORT=$(REPORT) JOBS=1 AGAIN=0 TEST_TIMEOUT=$$(($(or $(VM_TIMEOUT),3600) + 600)) \
	    tests/run.sh $(T); rc=$$?; tests/vm/drivers.sh $(REPORT) $(T) && exit $$rc

# What the machine gets: the image that it boots, the product, tools of the tests.
VM_TOOLS := driver_suite driver_call driver_writer zfs_lies
.PHONY: vm-stage
vm-stage:
	@tests/deps.sh
	@tests/vm/image.sh >/dev/null
	@rm -rf $(BUILD)/vm && mkdir -p $(BUILD)/vm/tools
	+@$(MAKE) --no-print-directory -s $(addprefix $(BUILD)/tests/tools/,$(VM_TOOLS))
	@cp $(addprefix $(BUILD)/tests/tools/,$(VM_TOOLS)) $(BUILD)/vm/tools/
	+@if [ "$(FROM)" = install ]; then \
	    $(MAKE) --no-print-directory -s $(PARALLEL) install PREFIX=/usr DESTDIR=$(BUILD_ABS)/vm/root; \
	else $(MAKE) --no-print-directory -s deb && cp $(BUILD)/deb/snapferry{,-rbd}_*.deb $(BUILD)/vm/; fi

# The scripts again with every kernel scalar, as on a CPU without vectors. T="tests/e2e/restore.sh": only some.
KERNELS := BUZHASH RABINKARP BLAKE2B BLAKE2S BLAKE3 AESGCM SHA256 MD5
.PHONY: test-scalar
test-scalar: T ?= $(sort $(wildcard tests/cli/*.sh tests/e2e/*.sh))
test-scalar: test-programs
	@$(foreach k,$(KERNELS),SNAPFERRY_KERNEL_$(k)=scalar) $(TEST_ENV) tests/run.sh $(T)

# Each in an output directory of its own: $(BUILD)-asan, $(BUILD)-tsan.
ASAN_TESTS := $(sort $(UNIT) $(FUZZ_REPLAY)) $(sort $(wildcard tests/cli/*.sh))
check-asan:
	+@$(MAKE) --no-print-directory BUILD=$(BUILD)-asan SAN=address,undefined OPT=-O1 run-sanitized \
	    T='$(patsubst $(BUILD)/%,$(BUILD)-asan/%,$(ASAN_TESTS))'

TSAN_TESTS := pool hash s3_sums reader reader_faults target nbd nbd_target blob item indexset repo repo_deaths backup \
              backup_faults parser step fetch_ahead content_ahead link records_commit records_faults records_recovery \
              throttle
check-tsan:
	+@$(MAKE) --no-print-directory BUILD=$(BUILD)-tsan SAN=thread OPT=-O1 run-sanitized \
	    T='$(TSAN_TESTS:%=$(BUILD)-tsan/tests/unit/test_%)'

.PHONY: run-sanitized
run-sanitized: test-programs
	@$(TEST_ENV) AGAIN=0 TEST_TIMEOUT=1800 ASAN_OPTIONS=allocator_may_return_null=1 SNAPFERRY_SANITIZED=1 tests/run.sh $(T)

VALGRIND_TESTS := base cfg splitter hash index epoch compress s2 ecc docstream gojson
check-valgrind: test-programs
	@for t in $(VALGRIND_TESTS); do \
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

# An incremental backup against a full read of the same volume.
.PHONY: bench-changed
bench-changed: all
	@perf/deps.sh
	@BUILD=$(BUILD) perf/changed.sh

# The next backup of a large image of which little changed, by the daemon, against a full read of the same state.
.PHONY: bench-incremental
bench-incremental: all $(BUILD)/perf/make_data
	@perf/deps.sh
	@BUILD=$(BUILD) perf/incremental.sh

# The same of real LVM thin and ZFS volumes, by the installed service of a virtual machine.
.PHONY: bench-vm
bench-vm: vm-stage
	+@$(MAKE) --no-print-directory -s $(BUILD)/perf/make_data && cp $(BUILD)/perf/make_data $(BUILD)/vm/tools/
	@BUILD=$(BUILD) perf/vm.sh

# To and from object storage, beside stock Kopia and rclone.
.PHONY: bench-s3
bench-s3: all $(BUILD)/perf/s3_sink
	@perf/deps.sh
	@BUILD=$(BUILD) perf/s3.sh

# Many writers into one bucket: throughput in all, and what the index grows by.
.PHONY: bench-s3-writers
bench-s3-writers: all $(BUILD)/perf/s3_sink
	@perf/deps.sh
	@BUILD=$(BUILD) perf/s3-writers.sh

# Quick and full maintenance, beside stock Kopia's.
.PHONY: bench-maintenance
bench-maintenance: all $(BUILD)/perf/make_contents $(BUILD)/tests/tools/age_repository
	@perf/deps.sh
	@BUILD=$(BUILD) perf/maintenance.sh

# What an operation costs the daemon, from 10 to 10,000 volumes, with movers that answer at once.
.PHONY: bench-scale
bench-scale: $(BUILD)/perf/bench_scale
	@$< $(VOLUMES)

# The index of a repository that many nodes write to, by days: NODES=1000 CONTENTS=10000 DAYS=10, minutes to an hour.
.PHONY: simulate-nodes
simulate-nodes: $(BUILD)/perf/simulate_nodes
	@$< $(if $(NODES),--nodes $(NODES)) $(if $(CONTENTS),--contents $(CONTENTS)) $(if $(DAYS),--days $(DAYS))

# Instructions per byte of the kernels against the kept numbers (valgrind): ACCEPT=1 keeps new ones.
.PHONY: bench-instructions
bench-instructions: $(BUILD)/perf/count_kernels
	@BUILD=$(BUILD) OPT="$(OPT)" ACCEPT=$(ACCEPT) perf/instructions.sh

.PHONY: demo
demo:
	@tests/deps.sh
	+@$(MAKE) --no-print-directory -s $(PARALLEL) all $(BUILD)/tests/tools/age_repository
	@SNAPFERRY=$(BUILD)/snapferry tests/demo.sh

.PHONY: demo-s3
demo-s3:
	@tests/deps.sh
	+@$(MAKE) --no-print-directory -s $(PARALLEL) all
	@SNAPFERRY=$(BUILD)/snapferry tests/demo-s3.sh

# LVM thin on a stock Debian, in a virtual machine; always from the package.
.PHONY: demo-vm
demo-vm: override FROM = deb
demo-vm: vm-stage
	@BUILD=$(BUILD) tests/demo-vm.sh

# Man pages are written in POD.
MAN := $(patsubst docs/man/%.pod,$(BUILD)/man/%,$(wildcard docs/man/*.pod))
.PHONY: man
man: $(MAN)
$(BUILD)/man/%: docs/man/%.pod
	$(call say,MAN,$@)
	@mkdir -p $(@D)
	$(Q)pod2man --center "snapferry" --release "$(VERSION)" --section $(lastword $(subst ., ,$*)) \
	    --name $(shell echo $(basename $*) | tr a-z A-Z) $< $@

.PHONY: install
UNITDIR ?= /lib/systemd/system
UDEVDIR ?= $(PREFIX)/lib/udev
SYSCONFDIR ?= /etc
install: all man
	$(call say,INSTALL,$(DESTDIR)$(PREFIX))
	$(Q)install -D -m 0755 -t $(DESTDIR)$(PREFIX)/bin $(BUILD)/snapferry
	$(Q)install -D -m 0755 -t $(DESTDIR)$(PREFIX)/sbin $(BUILD)/snapferryd
	$(Q)install -D -m 0755 -t $(DESTDIR)$(PREFIX)/libexec/snapferry $(BUILD)/snapferry-mover $(BUILD)/snapferry-rbd
	$(Q)for m in $(MAN); do install -D -m 0644 $$m $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$${m##*/}; done
	$(Q)install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSCONFDIR)/snapferry/conf.d $(DESTDIR)$(PREFIX)/share/doc/snapferry
	$(Q)for u in systemd/*.service systemd/*.socket systemd/*.slice; do \
	    sed -e 's,@bindir@,$(PREFIX)/bin,g' -e 's,@sbindir@,$(PREFIX)/sbin,g' $$u \
	        >$(DESTDIR)$(UNITDIR)/$${u##*/} || exit 1; done
	$(Q)install -D -m 0644 systemd/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/snapferry.conf
	$(Q)install -D -m 0644 systemd/tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/snapferry.conf
	$(Q)install -D -m 0644 systemd/58-snapferry.rules $(DESTDIR)$(UDEVDIR)/rules.d/58-snapferry.rules
	$(Q)install -D -m 0644 docs/snapferry.bash-completion $(DESTDIR)$(PREFIX)/share/bash-completion/completions/snapferry
	$(Q)install -D -m 0755 -t $(DESTDIR)$(PREFIX)/share/snapferry/plugins examples/plugins/*
	$(Q)install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/snapferry/monitoring monitoring/*
	$(Q)cp -r examples docs/*.md $(DESTDIR)$(PREFIX)/share/doc/snapferry/
	$(Q)[ -e $(DESTDIR)$(SYSCONFDIR)/snapferry/snapferry.ini ] || \
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
	@: $(info $(HELP))
define HELP
Build
  make                    build/snapferry, build/snapferryd, build/snapferry-mover and build/snapferry-rbd
                          BUILD=DIR (output directory), CC=clang, CFLAGS=, LDFLAGS=, OPT=-O2, SAN=address,undefined
                          V=1 shows the commands; a changed flag or compiler rebuilds
  make deps               installs the Debian packages that building and testing need
  make format             formats all C files with clang-format 14
  make man                the man pages, build/man/*
  make install            PREFIX=/usr/local DESTDIR= UNITDIR=/lib/systemd/system SYSCONFDIR=/etc
  make clean              removes the output
  make demo               installs what is needed, builds, and shows the main job on a real block device
  make demo-s3            likewise: two nodes and one bucket, a node lost and rebuilt, maintenance; SIZE=64 (MiB)
  make demo-vm            likewise: the package in a virtual machine, a job over LVM thin volumes, restores, pruning

Test
  make check              the short tests, in two minutes: unit tests, fuzz replays, golden output of the command, one
                          backup and restore, one daemon from start to result, law of the rooms, format
  make test               installs what is needed, then these and all other default tests, the longest first: in 15
                          minutes on two CPUs; the last line is "N passed, N failed"
  make only T="..."       one test or some: make only T="tests/e2e/restore.sh build/tests/unit/test_base"
                          VERBOSE=1 (all output), JOBS=2 (programs at a time), TEST_TIMEOUT=600 (seconds for each)
  make test-seconds       keeps in tests/seconds.txt how long each test took, for the order of the next runs
  make test-interop       both directions against stock Kopia: KOPIA=/path/to/kopia
  make test-vm            the installed package in virtual machines: limits, reboots, watchdog, full disk, stuck devices
                          T="tests/vm/02-reboot.sh" (some), FROM=install (not the packages), VM_TIMEOUT=3600 (seconds)
  make test-package       the packages installed, used, upgraded and purged in a fresh Debian 12
  make test-scalar        the scripts with all kernels scalar, as on a CPU without vectors; T="..." (some)
  make test-avx512        the AVX-512 kernels on an emulated CPU (Bochs)
  make check-asan         unit tests, fuzz replays and command line with address and undefined behaviour sanitizers
  make check-tsan         unit tests of what has threads, with the thread sanitizer
  make check-valgrind     unit tests of what parses and computes, under valgrind
  make model              the engine's decisions against their model: SEQUENCES=200000
  make mutants            which changes of the decisions the tests notice: MUTANTS=200
  make memory-long        limits of memory beside an index of ten million contents
  make maintenance-long   runs of maintenance among writers of all kinds, killed ones too; KOPIA=/path/to/kopia:
                          beside stock Kopia; SEEDS="1 2" ROUNDS=50
  make test-s3            a repository in an S3 service of yours: S3_ENDPOINT=URL S3_BUCKET=NAME S3_KEYS=FILE S3_CA=FILE
  make test-s3-maintenance the scripts of maintenance with repositories in S3; KOPIA=/path/to/kopia: beside stock Kopia
  make soak               the daemon under random faults: OPS=1000 operations
  make fuzz               libFuzzer (clang): FUZZ_SECONDS=30 for each target
  make fuzz-inside        mutations inside the encryption, with sanitizers: FUZZ_SECONDS=3600 FUZZ_SEED=1

Measure
  make bench              benchmarks beside peers: KOPIA=/path SIZE=1024 RUNS=3 QUICK=1 (perf/README.md)
  make bench-scaling      time and memory by size of volume and repository, and by workers
  make bench-changed      incremental backups against full reads: PLACES="10 100 1000" SIZE=1024 RUNS=3
  make bench-incremental  the daemon's incremental backups of 1 TiB and 64 TiB against full reads: SIZE=1024 DATA=4
                          (GiB) EMPTY=64 (TiB) RUNS=3 KOPIA=/path
  make bench-vm           likewise of LVM thin and ZFS volumes in a virtual machine: KINDS="lvm-thin zfs" SIZE=1024
                          (GiB) DATA=512 (MiB)
  make bench-s3           to and from object storage, beside Kopia and rclone: KOPIA=/path DELAYS="0 50" RUNS=3
  make bench-s3-writers   many writers into one bucket, throughput and index: WRITERS="1 2 4 8" SIZE=256 SHARE=25 RUNS=3
  make bench-maintenance  time and memory of maintenance, beside Kopia's: KOPIA=/path CONTENTS="100000 1000000"
  make bench-scale        CPU time, commits, memory and `status` of the daemon by number of volumes: VOLUMES="10 100"
  make simulate-nodes     the index of a repository that many nodes write to: NODES=1000 CONTENTS=10000 DAYS=10
  make bench-instructions instructions per byte of the kernels against the kept numbers; ACCEPT=1 keeps new ones

Package
  make deb                Debian packages, build/deb/*.deb
  make deb-reproducible   builds them twice and compares
endef

# A directory that make did not make stays.
.PHONY: clean
clean:
	@for d in $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz; do \
	    if [ -e $$d/flags ]; then rm -rf $$d; elif [ -e $$d ]; then echo "$$d has no file flags: not removed" >&2; fi; done

# Fuzz targets. As plain programs they run their corpus (part of `make check`); `make fuzz` lets libFuzzer search.
FUZZ_SECONDS ?= 30
FUZZ_NAMES := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_REPLAY := $(addprefix $(BUILD)/tests/fuzz/,$(FUZZ_NAMES))
$(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/replay.o $(LIBS) $(FLAGS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(BUILD)/tests/fuzz/replay.o $(LIBS) $(PKG_LIBS) -lm
$(BUILD)/fuzzer/%: $(BUILD)/tests/fuzz/%.o $(LIBS) $(FLAGS)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -fsanitize=fuzzer $(LDFLAGS_ALL) -o $@ $< $(LIBS) $(PKG_LIBS) -lm

# Mutations inside the encryption: what somebody who knows the password can write. make fuzz-inside FUZZ_SECONDS=3600
.PHONY: fuzz-inside
fuzz-inside:
	+@$(MAKE) --no-print-directory $(PARALLEL) BUILD=$(BUILD)-asan SAN=address,undefined OPT=-O1 \
	    $(BUILD)-asan/tests/unit/fuzz_inside
	@$(BUILD)-asan/tests/unit/fuzz_inside $(FUZZ_SECONDS) $(FUZZ_SEED)
.PHONY: fuzz-replay fuzz fuzz-programs
fuzz-replay: $(FUZZ_REPLAY)
fuzz-programs: $(addprefix $(BUILD)/fuzzer/,$(FUZZ_NAMES))
fuzz: FUZZ_BUILD := $(BUILD)-fuzz
fuzz:
	+@$(MAKE) --no-print-directory $(PARALLEL) BUILD=$(FUZZ_BUILD) CC=clang SAN=address,undefined OPT=-O1 \
	    CFLAGS='-fsanitize=fuzzer-no-link -w' fuzz-programs
	@for t in $(FUZZ_NAMES); do \
	    mkdir -p $(FUZZ_BUILD)/found/$$t; \
	    $(FUZZ_BUILD)/fuzzer/$$t -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
	        -artifact_prefix=$(FUZZ_BUILD)/ $(FUZZ_BUILD)/found/$$t tests/fuzz/corpus/$$t >$(FUZZ_BUILD)/$$t.log 2>&1 \
	        || { tail -n 60 $(FUZZ_BUILD)/$$t.log; echo "$$t failed, log in $(FUZZ_BUILD)/$$t.log"; exit 1; }; \
	    echo "$$t: $$(sed -n 's/^stat::number_of_executed_units: *//p' $(FUZZ_BUILD)/$$t.log) inputs, no complaint"; done

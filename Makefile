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
        -Wundef -Wnull-dereference -Wwrite-strings -Wcast-align -Wno-format-truncation
HARDEN := -fstack-protector-strong -fcf-protection -fPIE
LDHARDEN := -pie -Wl,-z,relro,-z,now
OPT ?= -O2
ifeq ($(SAN),)
HARDEN += -D_FORTIFY_SOURCE=2
else
HARDEN += -fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer
LDHARDEN += -fsanitize=$(SAN)
endif
PKGS := liburing libisal libzstd libcrypto jansson inih liblz4 zlib
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS = $(shell pkg-config --libs $(PKGS) 2>/dev/null)
CFLAGS_ALL = -std=c17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DSNAPFERRY_VERSION='"$(VERSION)"' -I. -g $(OPT) $(WARN) \
             $(HARDEN) -pthread $(PKG_CFLAGS) $(CFLAGS)
LDFLAGS_ALL = $(LDHARDEN) -pthread $(LDFLAGS)

# The rooms, lowest first. Each is one static library; link order is the reverse.
ROOMS := $(foreach r,base cfg chunker io repo daemon/mover,$(if $(wildcard $(r)/*.c),$(r)))
room_lib = $(BUILD)/lib$(subst /,-,$(1)).a
LIBS := $(foreach r,$(ROOMS),$(call room_lib,$(r)))
LINK_LIBS := -Wl,--start-group $(LIBS) -Wl,--end-group

src_of = $(wildcard $(1)/*.c)
obj_of = $(patsubst %.c,$(BUILD)/%.o,$(call src_of,$(1)))
CLI_OBJ := $(call obj_of,daemon/cli)
UNIT := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/test_*.c))
TOOLS := $(patsubst tests/tools/%.c,$(BUILD)/tests/tools/%,$(wildcard tests/tools/*.c))
PERF := $(patsubst perf/%.c,$(BUILD)/perf/%,$(wildcard perf/*.c))

.PHONY: all
all: $(BUILD)/snapferry

$(BUILD)/snapferry: $(CLI_OBJ) $(LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $(CLI_OBJ) $(LINK_LIBS) $(PKG_LIBS) -lm

define room_rule
$(call room_lib,$(1)): $(call obj_of,$(1))
	@mkdir -p $$(@D)
	@rm -f $$@
	ar rcs $$@ $$^
endef
$(foreach r,$(ROOMS),$(eval $(call room_rule,$(r))))

# A kernel file tells by its name which instructions it needs; nothing else may use them.
$(BUILD)/%_avx2.o: KERNEL_FLAGS := -mavx2 -mbmi2
$(BUILD)/%_avx512.o: KERNEL_FLAGS := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vbmi -mbmi2
$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS_ALL) $(KERNEL_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/tests/unit/%: $(BUILD)/tests/unit/%.o $(BUILD)/tests/unit/recipe.o $(LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $< $(BUILD)/tests/unit/recipe.o $(LINK_LIBS) $(PKG_LIBS) -lcmocka -lm
$(BUILD)/tests/tools/%: $(BUILD)/tests/tools/%.o $(LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $< $(LINK_LIBS) $(PKG_LIBS) -lm
$(BUILD)/perf/%: $(BUILD)/perf/%.o $(LIBS)
	$(CC) $(LDFLAGS_ALL) -o $@ $< $(LINK_LIBS) $(PKG_LIBS) -lm
.SECONDARY:

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

.PHONY: unit-programs
unit-programs: $(UNIT) $(TOOLS)

.PHONY: clean
clean:
	rm -rf build build-*

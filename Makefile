# cotenant: who may share a physical core, and where memory lies.
#
#   make            the programs, in build/, runnable in place
#   make demo       see it work on this machine (installs what it lacks)
#   make demo-vm    the same in a guest with SMT, NUMA, CXL-like memory and core scheduling
#   make check      every test tier; MUST_RUN="unit fixture fault fuzz vm" makes a skipped tier a failure
#   make install    DESTDIR= PREFIX=; make uninstall with the same
#
# V=1 shows the commands.

PREFIX ?= /usr/local
SBINDIR ?= $(PREFIX)/sbin
BINDIR ?= $(PREFIX)/bin
LIBEXECDIR ?= $(PREFIX)/libexec/cotenant
DATADIR ?= $(PREFIX)/share
DESTDIR ?=

CC ?= cc
PKG_CONFIG ?= pkg-config
O ?= build
Q = $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' $(1) '$(2)')

# ---- flags -------------------------------------------------------------------------------------------------------

OPT ?= -O2 -g
WARN = -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
	-Wpointer-arith -Wcast-align -Wwrite-strings -Wundef -Wvla -Wformat=2 -Wformat-security -Wswitch-enum \
	-Wimplicit-fallthrough -Wnull-dereference -Wredundant-decls -Wnested-externs -Winit-self -Wfloat-equal
HARDEN = -fstack-protector-strong -D_FORTIFY_SOURCE=2 -fno-strict-aliasing
SAN_FLAGS = -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

CPPFLAGS_ALL = -D_GNU_SOURCE $(CPPFLAGS)
# Paths and version are compiled into these only, so that another PREFIX costs few objects and the linking.
VERSION := $(shell sed -n 's/^\#\# \([0-9.]*\).*/\1/p' NEWS.md | head -n 1)
CPPFLAGS_PATHS = -DLIBEXECDIR='"$(LIBEXECDIR)"' -DVERSION='"$(VERSION)"'
PATHS_SRC = sys/helper.c tests/unit/test_helper.c cli/main.c hook/topology.c
CFLAGS_ALL = -std=gnu11 $(OPT) $(WARN) $(if $(SAN),$(SAN_FLAGS),$(HARDEN)) -MMD -MP $(CFLAGS)
LDFLAGS_ALL = $(if $(SAN),$(SAN_FLAGS),-Wl,-z,relro,-z,now) $(LDFLAGS)

# A container waits for the hook, and dynamic linking alone costs more than its work: hook and anchor are linked
# statically (sanitizers cannot be).
STATIC = $(if $(SAN),,-static)

pkg = $(shell $(PKG_CONFIG) $(1))
CFLAGS_json = $(call pkg,--cflags yajl)
CFLAGS_filters = $(call pkg,--cflags libseccomp)
CFLAGS_sandbox = -I$(O)
CFLAGS_topology_hwloc = $(call pkg,--cflags hwloc)
CFLAGS_numa = $(call pkg,--cflags numa)
CFLAGS_cgroup = $(call pkg,--cflags libcgroup)
LIBS_hook = $(if $(SAN),$(call pkg,--libs yajl),-lyajl_s)
LIBS_full = $(call pkg,--libs yajl hwloc numa libcgroup)

# ---- what is built -----------------------------------------------------------------------------------------------

src_of = $(sort $(wildcard $(1)/*.c))
obj_of = $(patsubst %.c,$(O)/%.o,$(1))

POLICY_SRC = $(call src_of,policy)
SYS_SRC = $(filter-out sys/filters.c,$(call src_of,sys))
ANCHOR_SRC = hook/anchor.c hook/keeper.c
HOOK_SRC = $(filter-out $(ANCHOR_SRC) hook/topology.c,$(call src_of,hook))
CLI_SRC = $(call src_of,cli)
UNIT_SRC = $(call src_of,tests/unit)

LIBPOLICY = $(O)/libpolicy.a
LIBSYS = $(O)/libsys.a
PROGRAMS = $(O)/cotenant-hook $(O)/cotenant-anchor $(O)/cotenant-topology $(O)/cotenant
UNIT = $(patsubst tests/unit/%.c,$(O)/tests/unit/%,$(filter tests/unit/test_%,$(UNIT_SRC)))
UNIT_SHARED = $(call obj_of,$(filter-out tests/unit/test_%,$(UNIT_SRC)))

.DEFAULT_GOAL = all
.PHONY: all
all: $(PROGRAMS)

# Variables are no files: what they hold goes into a stamp, which is written when it differs, and then whatever was made
# with it is made anew.
quote = '$(subst ','\'',$(1))'
stamp = $(Q)mkdir -p $(@D) && echo $(call quote,$(1)) | { cmp -s - $@ || echo $(call quote,$(1)) >$@; }

.PHONY: force
$(O)/stamp-flags: force
	$(call stamp,$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(LDFLAGS_ALL))

$(O)/stamp-paths: force
	$(call stamp,$(CPPFLAGS_PATHS))

$(call obj_of,$(PATHS_SRC)): $(O)/stamp-paths
$(call obj_of,$(PATHS_SRC)): CPPFLAGS_MORE = $(CPPFLAGS_PATHS)

# A room sees include/ and nothing else of ours, so that the include rule holds by construction.
$(O)/%.o: %.c $(O)/stamp-flags
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CPPFLAGS_MORE) -Iinclude $(CFLAGS_$(basename $(notdir $<))) $(CFLAGS_ALL) -c $< -o $@

# The seccomp filters, printed as C by a program that runs here. To build for another machine, build $(O)/filters for this
# one first.
$(O)/filters: $(O)/sys/filters.o
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) -o $@ $< $(call pkg,--libs libseccomp)

$(O)/filters.h: $(O)/filters
	$(call say,GEN,$@)
	$(Q)$< $(firstword $(subst -, ,$(shell $(CC) -dumpmachine))) >$@.new && mv $@.new $@

$(O)/sys/sandbox.o: $(O)/filters.h

$(LIBPOLICY): $(call obj_of,$(POLICY_SRC))
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(LIBSYS): $(call obj_of,$(SYS_SRC))
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

link = $(Q)$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) $(1) -o $@ $(filter %.o,$^) $(LIBSYS) $(LIBPOLICY)

$(O)/cotenant-hook: $(call obj_of,$(HOOK_SRC)) $(LIBSYS) $(LIBPOLICY)
	$(call say,LD,$@)
	$(call link,$(STATIC)) $(LIBS_hook)

$(O)/cotenant-anchor: $(call obj_of,$(ANCHOR_SRC)) $(LIBSYS) $(LIBPOLICY)
	$(call say,LD,$@)
	$(call link,$(STATIC)) $(LIBS_hook)

$(O)/cotenant-topology: $(O)/hook/topology.o $(LIBSYS) $(LIBPOLICY)
	$(call say,LD,$@)
	$(call link,) $(LIBS_full)

$(O)/cotenant: $(call obj_of,$(CLI_SRC)) $(LIBSYS) $(LIBPOLICY)
	$(call say,LD,$@)
	$(call link,) $(LIBS_full)

# Where a test makes a function fail that only fails without memory or time.
WRAP_test_inject_refused = -Wl,--wrap=sys_left_ms
WRAP_test_ledger_crash = -Wl,--wrap=mask_format
WRAP_test_plan = -Wl,--wrap=nodemask_format

$(O)/tests/unit/test_%: $(O)/tests/unit/test_%.o $(UNIT_SHARED) $(LIBSYS) $(LIBPOLICY)
	$(call say,LD,$@)
	$(call link,$(WRAP_$(@F))) -lcmocka $(LIBS_full)

-include $(shell find $(O) -type f -name '*.d' 2>/dev/null)

# ---- what a target needs on a bare Debian machine ----------------------------------------------------------------

NEED_BUILD = build-essential pkg-config libyajl-dev libhwloc-dev libnuma-dev libseccomp-dev libcgroup-dev
NEED_DEMO = $(NEED_BUILD) runc crun busybox-static jq
NEED_VM = $(NEED_DEMO) mmdebstrap qemu-system-x86 cpio zstd xz-utils linux-source-6.12 flex bison bc libelf-dev libssl-dev kmod rsync
NEED_UNIT = $(NEED_BUILD) libcmocka-dev
NEED_CHECK = $(NEED_VM) $(NEED_UNIT) git procps clang clang-tidy libclang-rt-14-dev cppcheck shellcheck strace man-db mandoc \
	podman containerd

# ---- tests -------------------------------------------------------------------------------------------------------

.PHONY: check check-unit demo demo-vm vm-shell bench unit-programs fuzz-replay lint
check:
	$(Q)tests/need "make check" $(NEED_CHECK)
	$(Q)MUST_RUN="$(MUST_RUN)" MAKE="$(MAKE)" tests/check

check-unit:
	$(Q)tests/need "make check-unit" $(NEED_UNIT)
	$(Q)MUST_RUN="$(MUST_RUN)" MAKE="$(MAKE)" tests/check unit

unit-programs: $(UNIT)

# ---- seeing it work ----------------------------------------------------------------------------------------------

demo:
	@[ "$$(id -u)" = 0 ] || command -v sudo >/dev/null || \
		{ echo "make demo needs root, since it starts containers, and there is no sudo here" >&2; exit 2; }
	$(Q)tests/need "make demo" $(NEED_DEMO)
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$$([ "$$(id -u)" = 0 ] || echo sudo) tests/demo $(O)

demo-vm:
	$(Q)tests/need "make demo-vm" $(NEED_VM)
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/vm/run --name demo tests/demo $(O)

vm-shell:
	$(Q)tests/need "make vm-shell" $(NEED_VM)
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/vm/run --name shell --shell

bench:
	$(Q)tests/need "make bench" $(NEED_VM)
	$(Q)$(MAKE) --no-print-directory all bench-programs
	$(Q)tests/bench/run
	$(Q)$(O)/tests/bench/decide

# ---- fuzzing: the harnesses with a main() that replays a corpus, and with libFuzzer --------------------------------

FUZZ = $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz-replay: $(patsubst %,$(O)/tests/fuzz/%,$(FUZZ))

$(O)/tests/fuzz/fuzz_%: $(O)/tests/fuzz/fuzz_%.o $(O)/tests/fuzz/replay.o $(LIBSYS) $(LIBPOLICY)
	$(call say,LD,$@)
	$(call link,) $(LIBS_full)

# ---- benchmarks and what runs inside containers of the guest tests: static, so that any root holds them ------------

.PHONY: bench-programs vm-programs
bench-programs: $(O)/tests/bench/noop $(O)/tests/bench/rounds $(O)/tests/bench/fill $(O)/tests/bench/decide
vm-programs: bench-programs $(patsubst tests/vm/%.c,$(O)/tests/vm/%,$(wildcard tests/vm/*.c))

$(O)/tests/bench/decide: $(O)/tests/bench/decide.o $(O)/tests/unit/machine.o $(LIBSYS) $(LIBPOLICY)
	$(call say,LD,$@)
	$(call link,) -lm

$(O)/tests/bench/fill: $(O)/tests/bench/fill.o $(LIBSYS) $(LIBPOLICY)
	$(call say,LD,$@)
	$(call link,) $(LIBS_full)

$(O)/tests/bench/noop $(O)/tests/bench/rounds $(patsubst tests/vm/%.c,$(O)/tests/vm/%,$(wildcard tests/vm/*.c)): %: %.o
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) -static -o $@ $< -pthread

# ---- install -----------------------------------------------------------------------------------------------------

# Paths in examples and manual pages are those of an install without a PREFIX; what is installed has its own.
MAN = cli/cotenant.1 policy/cotenant-policy.5 hook/cotenant-hook.8
EXAMPLES = $(shell cd oci-examples && find . -type f | sed 's|^\./||')
UNITDIR ?= $(PREFIX)/lib/systemd/system
to = "$(DESTDIR)$(1)"
own_paths = sed 's|/usr/local/sbin/|$(SBINDIR)/|g; s|/usr/local/libexec/cotenant|$(LIBEXECDIR)|g; \
	s|/usr/local/share/cotenant|$(DATADIR)/cotenant|g'
put = $(own_paths) $(1) | install -D -m 644 /dev/stdin

.PHONY: install uninstall clean
install: all
	install -d $(call to,$(SBINDIR)) $(call to,$(BINDIR)) $(call to,$(LIBEXECDIR))
	install -m 755 $(O)/cotenant-hook $(call to,$(SBINDIR)/)
	install -m 755 $(O)/cotenant $(call to,$(BINDIR)/)
	install -m 755 $(O)/cotenant-anchor $(O)/cotenant-topology $(call to,$(LIBEXECDIR)/)
	$(call put,hook/cotenant-keeper.service) $(call to,$(UNITDIR)/cotenant-keeper.service)
	install -D -m 644 policy/policy.schema.json $(call to,$(DATADIR)/cotenant/policy.schema.json)
	set -e; for page in $(MAN); do \
		$(call put,$$page) $(call to,$(DATADIR)/man/man$${page##*.}/$${page##*/}); \
	done
	set -e; for file in $(EXAMPLES); do \
		$(call put,oci-examples/$$file) $(call to,$(DATADIR)/cotenant/examples/$$file); \
	done

# The files that install puts there, by name, and directories of our own that are empty then.
uninstall:
	rm -f $(call to,$(SBINDIR)/cotenant-hook) $(call to,$(BINDIR)/cotenant) $(call to,$(LIBEXECDIR)/cotenant-anchor) \
		$(call to,$(LIBEXECDIR)/cotenant-topology) $(call to,$(UNITDIR)/cotenant-keeper.service) \
		$(call to,$(DATADIR)/cotenant/policy.schema.json)
	for page in $(MAN); do rm -f $(call to,$(DATADIR)/man/man$${page##*.}/$${page##*/}); done
	for file in $(EXAMPLES); do rm -f $(call to,$(DATADIR)/cotenant/examples/$$file); done
	for dir in $(call to,$(LIBEXECDIR)) $(call to,$(DATADIR)/cotenant); do \
		[ ! -d "$$dir" ] || find "$$dir" -depth -type d -empty -delete; \
	done

clean:
	rm -rf "$(O)"

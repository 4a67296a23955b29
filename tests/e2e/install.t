#!/bin/bash
# shellcheck disable=SC2016 # programs of other shells in single quotes
# make install and make uninstall: what is put where, with which paths in it, and that nothing else is touched.
. tests/e2e/lib.bash
make=${MAKE:-make}

# A build of its own, so that another PREFIX does not reach the one that all other tests use. With all times, so that
# only what differs is compiled.
own=$work/build
mkdir "$own"
cp -a "${BUILD:-build}"/{policy,sys,hook,cli,*.a,cotenant*,stamp-*,filters,filters.h} "$own/" 2>/dev/null
run_make() { "$make" --no-print-directory O="$own" "$@" 2>&1; } # TARGET [VARIABLE=VALUE…]
holds() { (cd "$1" && grep -rlF -- "$2" . | sort | paste -sd ' '); } # DIRECTORY TEXT

# ---- what is installed -------------------------------------------------------------------------------------------------

root=$work/install
ok "make install" run_make install DESTDIR="$root"
is "$(cd "$root" && find . -type f ! -path '*/examples/*' -printf '%m %P\n' | sort -k 2)" "755 usr/local/bin/cotenant
644 usr/local/lib/systemd/system/cotenant-keeper.service
755 usr/local/libexec/cotenant/cotenant-anchor
755 usr/local/libexec/cotenant/cotenant-topology
755 usr/local/sbin/cotenant-hook
644 usr/local/share/cotenant/policy.schema.json
644 usr/local/share/man/man1/cotenant.1
644 usr/local/share/man/man5/cotenant-policy.5
644 usr/local/share/man/man8/cotenant-hook.8" "make install: programs, schema and manual"
is "$(diff -r oci-examples "$root/usr/local/share/cotenant/examples")" "" "make install: examples"
installed='mount --bind "$1/usr/local" /usr/local && shift && exec "$@"'
if unshare -m true 2>/dev/null; then
	like "$(unshare -m sh -c "$installed" sh "$root" /usr/local/bin/cotenant --state-dir "$work/fresh" support 2>&1)" \
		'^This machine has ' "installed: cotenant finds its helper"
	is "$(echo '{"id": "red"}' | unshare -m sh -c "$installed" sh "$root" /usr/local/sbin/cotenant-hook poststop --state-dir "$work/fresh2" 2>&1; echo "$?")" \
		0 "installed: so does the hook"
else
	skip "mount namespaces" "installed: programs at their places"
fi
like "$("$root/usr/local/bin/cotenant" --state-dir "$work/fresh3" support 2>&1)" \
	"^(This machine has|cotenant: the machine's topology cannot be found out: /usr/local/libexec/cotenant/cotenant-topology cannot be run: No such file)" \
	"cotenant without its helper says which one it misses"
if command -v mandoc >/dev/null; then
	for page in man1/cotenant.1 man5/cotenant-policy.5 man8/cotenant-hook.8; do
		text=$(mandoc -T ascii "$root/usr/local/share/man/$page" | col -b)
		like "$text" '^NAME$' "manual: $page renders"
		ok "manual: $page has text" test "$(wc -l <<<"$text")" -gt 100
	done
else
	skip "mandoc" "manual pages render"
fi

# ---- another PREFIX after the first --------------------------------------------------------------------------------------

root=$work/usr
ok "make install PREFIX=/usr, after the default" run_make install DESTDIR="$root" PREFIX=/usr
ok "PREFIX=/usr: compiled in" grep -qF /usr/libexec/cotenant "$root/usr/sbin/cotenant-hook"
is "$(holds "$root/usr/sbin" /usr/local/libexec; holds "$root/usr/bin" /usr/local/libexec)" "" "PREFIX=/usr: and no other path"
like "$(run_make install DESTDIR="$root" PREFIX=/usr V=1)" "^install .*/cotenant-hook" "PREFIX=/usr again"
is "$(holds "$root" /usr/local)" "" "PREFIX=/usr: nor in the documents and examples"
is "$(jq -r '.hooks[][].path' "$root/usr/share/cotenant/examples/runc/config-hooks.json" | sort -u)" /usr/sbin/cotenant-hook \
	"PREFIX=/usr: the examples name the hook"
is "$(run_make all PREFIX=/usr | grep -E '^  (CC|LD)')" "" "PREFIX=/usr: is built once"

# ---- uninstall -----------------------------------------------------------------------------------------------------------

mkdir -p "$root/etc/cotenant" "$root/usr/share/cotenant/examples/own"
touch "$root/etc/cotenant/policy.json" "$root/usr/sbin/other" "$root/usr/share/cotenant/examples/own/policy.json"
ok "make uninstall" run_make uninstall DESTDIR="$root" PREFIX=/usr
is "$(cd "$root" && find . -type f | sort)" "./etc/cotenant/policy.json
./usr/sbin/other
./usr/share/cotenant/examples/own/policy.json" "make uninstall: what somebody else put there stays"
root=$work/install
ok "make uninstall: where install put it by default" run_make uninstall DESTDIR="$root"
is "$(find "$root" -type f -o -name '*cotenant*')" "" "make uninstall: nothing is left"
ok "make uninstall: again" run_make uninstall DESTDIR="$root"

# ---- odd places ----------------------------------------------------------------------------------------------------------

root="$work/a  b/c"
ok "a DESTDIR with spaces" run_make install DESTDIR="$root" PREFIX=/usr
is "$(ls "$root/usr/sbin" "$work/a" 2>/dev/null)" "$root/usr/sbin:"$'\n'cotenant-hook "a DESTDIR with spaces: is one directory"
ok "a DESTDIR with spaces: uninstall" run_make uninstall DESTDIR="$root" PREFIX=/usr
is "$(find "$work/a  b" -type f)" "" "a DESTDIR with spaces: nothing is left"
(umask 077 && run_make install DESTDIR="$root" PREFIX=/usr >/dev/null)
is "$(find "$root/usr" ! -perm -444)" "" "whatever the umask, all can be read by everybody"

# ---- other flags --------------------------------------------------------------------------------------------------------

is "$(run_make "$own/cli/check.o" PREFIX=/usr CPPFLAGS=-DNONE)" "  CC      cli/check.c" "other compiler flags: compiled again"

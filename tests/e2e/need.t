#!/bin/bash
# shellcheck disable=SC2016 # programs of the shell in single quotes
# tests/need, with packages, installer and users that are made up: what it says, what it runs, as whom, and what it leaves.
# shellcheck source=tests/e2e/lib.bash
. tests/e2e/lib.bash
fake=$work/fake
mkdir "$fake" "$work/tmp"
for tool in sh cat env mktemp rm tail; do ln -s "$(command -v $tool)" "$fake/"; done
fake_tool() { # NAME; the program on standard input
	{ echo '#!/bin/sh' && cat; } >"$fake/$1" && chmod +x "$fake/$1"
}
fake_tool id <<<'echo "${FAKE_UID-0}"'
# Packages whose name begins with "have" are installed; one that begins with "was" has left its settings behind.
fake_tool dpkg-query <<'END'
for package; do :; done
case $package in
have*) echo "install ok installed" ;;
was*) echo "deinstall ok config-files" ;;
*) echo "dpkg-query: no packages found matching $package" >&2; exit 1 ;;
esac
END
fake_tool apt-get <<END
echo "apt-get \$*, \$DEBIAN_FRONTEND" >>$work/ran
[ ! -e $work/fails ] || case \$1 in \$(cat $work/fails)) i=0; while [ \$i -lt 30 ]; do i=\$((i + 1)); echo "line \$i" >&2; done; exit 100 ;; esac
echo much is said
END
# As sudo does: nothing of the caller's environment.
sudo_is_there() {
	fake_tool sudo <<END
echo "sudo \$*" >>$work/ran
exec env -i PATH="$fake" "\$@"
END
}
need() { # ARGUMENT…: sets status, out, err, ran
	rm -f "$work/ran"
	env -i PATH="$fake" TMPDIR="$work/tmp" ${uid:+FAKE_UID=$uid} "$PWD/tests/need" "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$? out=$(<"$work/out") err=$(<"$work/err") ran=$(cat "$work/ran" 2>/dev/null)
}
says() { # NAME STATUS STDERR RAN
	is "$status $out$err" "$2 $3" "$1"
	is "$ran" "$4" "$1: what is run"
	is "$(ls "$work/tmp")" "" "$1: leaves nothing"
}
update="apt-get update, noninteractive"
install="apt-get install -y --no-install-recommends --no-remove lack1 was2, noninteractive"
steps=$'\n  fetching the package lists\n  installing'

uid=
need "make red"
says "no package is needed" 0 "" ""
need "make red" have1 have2
says "nothing is missing" 0 "" ""
need "make red" have1 lack1 was2
says "root" 0 "make red needs lack1 was2: installing with apt-get$steps" "$update"$'\n'"$install"
uid=1000
need "make red" have1 have2
says "not root, and nothing is missing" 0 "" ""
need "make red" lack1 have1
says "neither root nor sudo" 1 "make red needs these Debian packages: lack1; there is no sudo here: install them as root and try again" ""
sudo_is_there
need "make red" have1 lack1 was2
says "not root" 0 "make red needs lack1 was2: installing with sudo apt-get$steps" \
	"sudo env DEBIAN_FRONTEND=noninteractive apt-get update
$update
sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends --no-remove lack1 was2
$install"

uid=
tail=$(seq -f 'line %.0f' 11 30)
echo update >"$work/fails"
need "make red" lack1 was2
says "the lists cannot be had" 1 "make red needs lack1 was2: installing with apt-get
  fetching the package lists
$tail
apt-get update: failed" "$update"
echo install >"$work/fails"
need "make red" lack1 was2
says "a package cannot be had" 1 "make red needs lack1 was2: installing with apt-get$steps
$tail
apt-get install -y --no-install-recommends --no-remove lack1 was2: failed" "$update"$'\n'"$install"
rm "$fake/apt-get"
need "make red" lack1 have1
says "no Debian" 1 "make red needs these Debian packages: lack1; install their like and try again" ""

# What make needs of it: that it goes on, or ends there.
like "$(make -n demo 2>&1)" '^tests/need "make demo" build-essential ' "make demo calls it"

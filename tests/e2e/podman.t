#!/bin/bash
# shellcheck disable=SC2016,SC2119 # programs of jq and templates in single quotes
# podman itself, with runc and with crun, wired by the files of oci-examples: what a container of it gets, what its user
# is told, and what is forgotten when. Evidence is the kernel's.

# What podman mounts goes with the namespace. crun wants cgroup v1 or v2 and no mixture; and where that was, runc makes
# directories.
if [ -z "${OWN_MOUNTS-}" ] && unshare -m true 2>/dev/null; then
	OWN_MOUNTS=1 exec unshare -m sh -c 'u=/sys/fs/cgroup/unified; ! umount $u 2>/dev/null || mount -t tmpfs none $u; exec "$0"' "$0"
fi
. tests/e2e/lib.bash
missing=
for program in podman conmon busybox jq; do
	command -v "$program" >/dev/null || missing=$program
done
[ "$(id -u)" = 0 ] && [ -n "${OWN_MOUNTS-}" ] || missing="root"
[ -n "$(cpuset_mount)" ] || missing="a cpuset hierarchy"
if [ -n "$missing" ]; then
	skip "$missing" "podman"
	exit 0
fi
parent=cotenant-podman-$$
why=$work/hook.log

# The conf is the only one that podman reads: the example's, with the paths of this test and limits that a root without
# CAP_SYS_RESOURCE can set.
wire() { # DIRECTORY HOOK POLICY STATE-DIR
	mkdir -p "$1/hooks.d"
	local file
	for file in oci-examples/hooks.d/*.json; do
		jq --arg hook "$2" --arg policy "$3" --arg dir "$4" '(.hook | select(.path == "/usr/local/sbin/cotenant-hook")) |=
			(.path = $hook | .args += ["--policy", $policy, "--state-dir", $dir, "--timeout", "50"] | .timeout = 60)' \
			"$file" >"$1/hooks.d/${file##*/}"
	done
	sed "s|/usr/share/containers/oci/hooks.d|$1/hooks.d|; s|/var/log/cotenant-hook.log|$1/hook.log|
		s|^\[containers\]|&\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]|
		s|^\[engine\]|&\nlock_type = \"file\"|" oci-examples/podman/cotenant.conf >"$1/containers.conf"
}
wire "$work" "$bin/cotenant-hook" "$policy" "$state_dir"
grep -v '^hooks_dir' "$work/containers.conf" >"$work/bare.conf"

engine() { # ARGUMENT…: podman with a place of its own
	CONTAINERS_CONF=$conf timeout -s KILL 300 podman --root "$work/store" --runroot "$work/run" --tmpdir "$work/tmp" \
		--storage-driver vfs --cgroup-manager cgroupfs --events-backend none --runtime "$runtime" "$@" \
		</dev/null >"$work/out" 2>"$work/err"
	status=$? out=$(<"$work/out") err=$(sed 's/\\"/"/g' "$work/err")
}
run() { # NAME [OPTION…] -- PROGRAM…; without an image
	local name=$1 options=()
	shift
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	: >"$why"
	engine run --name "$name" --network none --cgroup-parent "/$parent" "${options[@]}" --rootfs "$work/rootfs" "$@"
}
sleeps=(/bin/busybox sleep 6000)

conf=$work/containers.conf
runtime=
# Containers were in it, and conmon is a moment longer.
parents_gone() {
	local ours=(find /sys/fs/cgroup -depth "(" -fstype cgroup -o -fstype cgroup2 ")" -type d -path "*/$parent*")
	"${ours[@]}" -exec rmdir {} + 2>/dev/null
	[ -z "$("${ours[@]}" 2>/dev/null)" ]
}
remove_all() {
	[ -z "$runtime" ] || engine rm --all --force --time 0
	[ -z "$runtime" ] || engine pod rm --all --force --time 0
	[ ! -r "$work/user/tmp/pause.pid" ] || kill "$(<"$work/user/tmp/pause.pid")" 2>/dev/null
	wait_for parents_gone || echo "# cgroup $parent is left behind"
	clean_up
}
trap remove_all EXIT

id_of() { engine inspect --type container --format '{{.Id}}' "$1"; echo "$out"; }
pid_of() { engine inspect --type container --format '{{.State.Pid}}' "$1"; echo "$out"; }
# What the cpuset of the process's own cgroup holds.
cpuset_of() { # PID
	local path
	path=$(sed -nE 's/^[0-9]+:([^:]*,)?cpuset(,[^:]*)?:|^0:://p' "/proc/$1/cgroup" | head -n 1)
	effective_cpus "$(cpuset_mount)$path"
}
of_process() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; } # PID FIELD
policies_of() { awk '{ print $2 }' "/proc/$1/numa_maps" | sort -u; }  # PID
entry() { jq -r "$2" "$state_dir/containers/$1.json"; }               # ID JQ
ids() { (cd "$state_dir/containers" && echo *); }
forgotten() { [ "$(ids)" = '*' ]; }

mkdir -p "$work/rootfs/bin" "$work/rootfs/proc" "$work/rootfs/sys" "$work/rootfs/dev" "$work/rootfs/tmp" "$work/rootfs/etc"
cp "$(command -v busybox)" "$work/rootfs/bin/busybox"

# A tenant is what the annotation says, and each has whole cores and memory of its own.
tenants='.classes.own = {isolation: {mode: "cores"}, cpu: {span: "machine", count: 1}, memory: {policy: "bind", tiers: ["dram"]}}
	| .rules = [{match: {annotation: {"org.example.tenant": "*"}}, tenant: "${annotation:org.example.tenant}", class: "own", trust: true},
		{match: {}, tenant: "container/${id}", class: "own"}]'

# ---- a container's life ------------------------------------------------------------------------------------------------

life() {
	local red blue pid cpus filters
	write_policy "$tenants"
	run red --detach --annotation org.example.tenant=red --label org.example.tenant=label -- "${sleeps[@]}"
	is "$status $err" "0 " "$on: a container starts"
	red=$(id_of red) pid=$(pid_of red) cpus=$(entry "$red" .plan.cpus)
	is "$(entry "$red" '[.state, .started, .tenant, .plan.mechanism] | join(" ")')" "done true red cores" \
		"$on: the annotation that podman was given says whose it is"
	is "$(cpuset_of "$pid") $(of_process "$pid" Cpus_allowed_list)" "$cpus $cpus" "$on: its cpuset holds the planned CPUs"
	is "$([ "$cpus" != "$(machine_cpus)" ]; echo $?)" 0 "$on: which are not the whole machine"
	is "$(cat "/proc/$pid/comm")" busybox "$on: its program runs"
	if [ -r "/proc/$pid/numa_maps" ]; then
		is "$(policies_of "$pid")" "bind=static:$(entry "$red" .plan.memory_nodes)" "$on: under its memory policy"
	else
		skip "numa_maps" "$on: under its memory policy"
	fi
	filters=$(of_process "$pid" Seccomp_filters)

	run blue --detach --label org.example.tenant=red -- "${sleeps[@]}"
	is "$status $err" "0 " "$on: a second container starts"
	blue=$(id_of blue)
	is "$(entry "$blue" .tenant)" "container/$blue" "$on: a label is no annotation, and does not reach the hook"
	is "$(cpuset_of "$(pid_of blue)" | grep -cxF "$cpus")" 0 "$on: it has other CPUs than the first"

	# What the README says of exec.
	engine exec red /bin/busybox sh -c 'grep Cpus_allowed_list: /proc/self/status; grep Seccomp_filters: /proc/self/status; head -n 1 /proc/self/numa_maps'
	like "$out" "^Cpus_allowed_list:.$cpus\$" "$on: exec: has the container's CPUs"
	like "$out" "^Seccomp_filters:.$((filters - 1))\$" "$on: exec: has podman's seccomp filter and not the guard"
	[ ! -r "/proc/$pid/numa_maps" ] || like "$out" "^[0-9a-f]+ default " "$on: exec: has the default memory policy"

	engine stop --time 0 red
	is "$status $(ids)" "0 $blue.json" "$on: podman stop forgets it"
	engine start red
	pid=$(pid_of red)
	is "$status $(entry "$red" '[.state, .started, .tenant] | join(" ")')" "0 done true red" "$on: podman start places it again"
	is "$(cpuset_of "$pid")" "$(entry "$red" .plan.cpus)" "$on: on its CPUs"
	kill -9 "$pid"
	wait_for sh -c "[ ! -e '$state_dir/containers/$red.json' ]"
	is "$(ids)" "$blue.json" "$on: killed: podman's own clean-up forgets it"
	engine rm red
	engine rm --force --time 0 blue
	is "$status $(ids)" "0 *" "$on: podman rm --force forgets the other"
	is "$(ls "$state_dir/groups")" "" "$on: nothing is left of their groups"

	run hello --rm --annotation org.example.tenant=red -- /bin/busybox echo hello
	is "$status $out $err" "0 hello " "$on: run in the foreground ends with its container"
	ok "$on: and it is forgotten" wait_for forgotten

	# podman makes hooks anew with each start, but ends with those that were there.
	run red --detach --annotation org.example.tenant=red -- "${sleeps[@]}"
	conf=$work/bare.conf engine rm --force --time 0 red
	is "$status $(ids)" "0 *" "$on: a podman that knows no hooks_dir forgets it all the same"

	# No promise of ours is kept then, so the README has to say it.
	mv "$bin/cotenant-hook" "$bin/moved"
	run bare --detach -- "${sleeps[@]}"
	is "$status $err $(ids)" "0  *" "$on: a hook that is not there is left out without a word"
	mv "$bin/moved" "$bin/cotenant-hook"
	engine rm --force --time 0 bare
}

# ---- refused -----------------------------------------------------------------------------------------------------------

refusal() {
	local said='cotenant-hook: container [0-9a-f]{64}: createRuntime: placement: no room for container [0-9a-f]{64}: class "own" wants whole cores for 4096\.00 CPUs within machine'
	write_policy "$tenants | .classes.own.cpu.count = 4096"
	run green --detach -- "${sleeps[@]}"
	is "$status" 126 "$on: refused: podman run ends with 126"
	if [ "$runtime" = runc ]; then
		like "$err" "^Error: OCI runtime error: runc: .*error running hook: exit status 1, stdout: , stderr: $said" "$on: refused: and shows the reason"
		is "$(<"$why")" "" "$on: refused: the file named for crun is not used"
	else
		is "$err" "Error: OCI runtime error: crun: error executing hook \`$bin/cotenant-hook\` (exit code: 1)" "$on: refused: and shows that it was the hook"
		like "$(<"$why")" "^$said" "$on: refused: the reason is in the file that containers.conf names"
	fi
	is "$(pid_of green) $(ids)" "0 *" "$on: refused: no process and no entry"
	engine rm --force --time 0 green
	is "$(ids) $(ls "$state_dir/groups")" "* " "$on: refused and removed: nothing is left"
}

# ---- images and pods ---------------------------------------------------------------------------------------------------

# An image of one busybox in an OCI layout. What its manifest carries as annotations, its author chose.
make_image() { # DIRECTORY ANNOTATIONS
	local blobs=$1/blobs/sha256 layer config manifest
	mkdir -p "$blobs"
	echo '{"imageLayoutVersion": "1.0.0"}' >"$1/oci-layout"
	tar -C "$work/rootfs" -c . >"$work/layer"
	put_blob() { # FILE: its descriptor
		local sum
		sum=$(sha256sum <"$1" | cut -d ' ' -f 1)
		cp "$1" "$blobs/$sum"
		jq -n --arg digest "sha256:$sum" --arg size "$(stat -c %s "$1")" --arg type "$2" \
			'{mediaType: ("application/vnd.oci.image." + $type), digest: $digest, size: ($size | tonumber)}'
	}
	layer=$(put_blob "$work/layer" layer.v1.tar)
	jq -n --argjson layer "$layer" '{architecture: "amd64", os: "linux", config: {Cmd: ["/bin/busybox", "sleep", "6000"]},
		rootfs: {type: "layers", diff_ids: [$layer.digest]}}' >"$work/blob"
	config=$(put_blob "$work/blob" config.v1+json)
	jq -n --argjson config "$config" --argjson layer "$layer" --argjson annotations "$2" '{schemaVersion: 2,
		mediaType: "application/vnd.oci.image.manifest.v1+json", config: $config, layers: [$layer], annotations: $annotations}' >"$work/blob"
	manifest=$(put_blob "$work/blob" manifest.v1+json)
	jq -n --argjson manifest "$manifest" --arg name "localhost/${1##*/}:1" '{schemaVersion: 2,
		manifests: [$manifest + {annotations: {"org.opencontainers.image.ref.name": $name}}]}' >"$1/index.json"
}
run_image() { # NAME IMAGE [OPTION…]
	local name=$1 image=$2
	shift 2
	: >"$why"
	engine run --detach --name "$name" --network none --cgroup-parent "/$parent" "$@" "$image"
}
load() { # NAME ANNOTATIONS
	make_image "$work/$1" "$2"
	tar -C "$work/$1" -c . >"$work/$1.tar"
	TMPDIR=$work engine load --input "$work/$1.tar"
	image=localhost/$1:1
	is "$status $out" "0 Loaded image: $image" "$on: image $1 is loaded"
}

images() {
	local pod id
	install -m 600 oci-examples/policies/cores-for-databases.json "$policy.example"
	# As the file says, but that this machine need not have what it asks for.
	rules=$(sed 's|^[[:space:]]*//.*||' "$policy.example" | jq .rules)
	write_policy ".classes = {shared: {isolation: {mode: \"none\"}}, database: {isolation: {mode: \"none\"}}} | .rules = $rules"
	load postgres '{}'
	run_image db "$image"
	id=$(id_of db)
	is "$status $(entry "$id" '.tenant + " " + .class')" "0 container/$id shared" "$on: podman does not tell the hook which image it is"
	run_image db2 "$image" --annotation org.example.class=database
	id=$(id_of db2)
	is "$status $(entry "$id" '.tenant + " " + .class')" "0 database/$id database" "$on: so an annotation says that it is a database"
	engine pod create --infra=false --name pod
	pod=$out
	run_image one "$image" --pod pod
	run_image two "$image" --pod pod
	is "$(entry "$(id_of one)" .tenant) $(entry "$(id_of two)" .tenant)" "pod/$pod pod/$pod" "$on: containers of a pod belong together"
	engine rm --all --force --time 0
	is "$(ids)" '*' "$on: and are forgotten"

	# An image's annotations come along. Where the same name is given by the caller, the caller's counts.
	write_policy "$tenants | .classes.own = {isolation: {mode: \"none\"}}"
	load annotated '{"org.example.tenant": "image"}'
	run_image ours "$image" --annotation org.example.tenant=red
	is "$status $(entry "$(id_of ours)" .tenant)" "0 red" "$on: the caller's annotation goes before the image's"
	run_image theirs "$image"
	is "$status $(entry "$(id_of theirs)" .tenant)" "0 image" "$on: an image's annotation reaches a rule that trusts it"
	install -m 600 oci-examples/policies/single-tenant-per-namespace.json "$policy"
	load forged '{"io.kubernetes.cri.sandbox-namespace": "kube-system"}'
	run_image forged "$image"
	like "$status $err $(<"$why")" "^126 " "$on: an image that says it is in one of containerd's namespaces is refused"
	like "$err $(<"$why")" "io.kubernetes.cri.sandbox-namespace" "$on: for that"
	# podman writes none of the kubelet's names, so here they are the image's.
	load kubelet '{"io.kubernetes.pod.namespace": "kube-system"}'
	run_image kubelet "$image"
	id=$(id_of kubelet)
	is "$([ ! -e "$state_dir/containers/$id.json" ] || entry "$id" .tenant | grep -x kube-system)" "" \
		"$on: an image that says it is in one of the kubelet's namespaces is not"
	engine rm --all --force --time 0
	is "$(ids)" '*' "$on: and nothing is left"
}

# ---- cookies, where the kernel has them ----------------------------------------------------------------------------------

cookie_of() { "$probe" cookies "$1" | cut -d ' ' -f 3 | sort -u; } # PID
cookies() {
	local pid anchor
	write_policy "$tenants | .classes.own = {isolation: {mode: \"cookie\"}}"
	run red --detach --annotation org.example.tenant=red -- "${sleeps[@]}"
	pid=$(pid_of red) anchor=$(jq -r .pid "$state_dir"/groups/*.json)
	like "$status $err $(cookie_of "$pid")" "^0  0x[0-9a-f]*[1-9a-f]" "$on: a container has a cookie"
	is "$(cookie_of "$pid")" "$(cookie_of "$anchor")" "$on: that of its tenant's anchor"
	engine exec red /bin/probe core-get
	is "$out" 0x0 "$on: exec: has no cookie"
	run red2 --rm --annotation org.example.tenant=red -- /bin/probe core-get
	is "$status $out" "0 $(cookie_of "$anchor")" "$on: a second container of the tenant shares it"
	run blue --rm --annotation org.example.tenant=blue -- /bin/probe core-get
	like "$status $out" "^0 0x[0-9a-f]*[1-9a-f]" "$on: run in the foreground ends, though it was the first of its tenant"
	is "$([ "$out" != "$(cookie_of "$anchor")" ]; echo $?)" 0 "$on: another tenant has another cookie"
	engine rm --force --time 0 red
	ok "$on: they are forgotten" wait_for forgotten
	ok "$on: no anchor is left" wait_for no_anchor
}
no_anchor() { [ -z "$(find /proc/[0-9]*/exe -lname "$bin/cotenant-anchor" 2>/dev/null)" ]; }

# ---- without root --------------------------------------------------------------------------------------------------------

# podman of a user who has no ids but his own. The hook is then root of podman's user namespace.
rootless() {
	local home=$work/user id pid
	chmod 711 "$work"
	chmod -R a+rX "$bin"
	mkdir -p "$home/run"
	cp -r "$work/rootfs" "$home/rootfs"
	wire "$home" "$bin/cotenant-hook" "$home/policy.json" "$home/run/cotenant"
	policy=$home/policy.json write_policy "$tenants | .classes.own.isolation = {mode: \"cookie\", on_unsupported: \"degrade\", guard: [\"memory\"]}"
	chown -R nobody: "$home"
	chmod 700 "$home" "$home/run"
	user_engine() {
		(cd / && exec setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups env HOME="$home" \
			XDG_RUNTIME_DIR="$home/run" CONTAINERS_CONF="$home/containers.conf" timeout -s KILL 300 \
			podman --root "$home/store" --runroot "$home/run/podman" --tmpdir "$home/tmp" --storage-driver vfs \
			--cgroup-manager cgroupfs --events-backend none --runtime "$runtime" "$@") </dev/null >"$work/out" 2>"$work/err"
		status=$? out=$(<"$work/out") err=$(<"$work/err")
	}
	user_engine run --detach --name red --network none --annotation org.example.tenant=red --rootfs "$home/rootfs" "${sleeps[@]}"
	id=$out
	is "$status $([ "$status" = 0 ] || echo "$err")" "0 " "$on: a container starts"
	pid=$(jq -r .pid "$home/run/cotenant/containers/$id.json")
	is "$(jq -r '[.tenant, .started] | join(" ")' "$home/run/cotenant/containers/$id.json")" "red true" "$on: it is in the user's ledger"
	is "$(stat -c '%U %a' "$home/run/cotenant") $(stat -c %U "/proc/$pid")" "nobody 700 nobody" "$on: which is his alone"
	is "$(of_process "$pid" Seccomp_filters)" 2 "$on: the guard is on, beside podman's filter"
	[ ! -r "/proc/$pid/numa_maps" ] || like "$(policies_of "$pid")" "^bind=static:" "$on: it has its memory policy"
	[ -z "$cookies" ] || like "$(cookie_of "$pid")" "^0x[0-9a-f]*[1-9a-f]" "$on: it has a cookie"
	user_engine rm --force --time 0 red
	is "$status $(ls "$home/run/cotenant/containers")" "0 " "$on: podman rm forgets it"
}

cookies=
case $("$bin/cotenant" --state-dir "$state_dir" support | grep '^Core') in
*no-kernel-option*) ;;
*) cookies=1 probe=${BUILD:-build}/tests/vm/probe ;;
esac
[ -z "$cookies" ] || cp "$probe" "$work/rootfs/bin/probe"

for runtime in runc crun; do
	on="podman $runtime"
	if ! command -v "$runtime" >/dev/null; then
		skip "$runtime" "$on"
		continue
	fi
	conf=$work/bare.conf run try --rm -- /bin/busybox true
	if [ "$status" != 0 ]; then
		skip "a machine on which podman can start a container with $runtime ($(tail -n 1 <<<"$err"))" "$on"
		continue
	fi
	life
	refusal
	[ -z "$cookies" ] || cookies
	tried=$runtime
done
if runtime=${tried-} && [ -n "$runtime" ]; then
	images
	on="rootless podman $runtime"
	if setpriv --reuid nobody --regid nogroup --clear-groups unshare -Ur true 2>/dev/null; then
		rootless
	else
		skip "user namespaces for everybody" "$on"
	fi
fi
is "$(find /proc/[0-9]*/exe -lname "$bin/*" 2>/dev/null)" "" "podman: no process of cotenant is left"

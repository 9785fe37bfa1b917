# The pod by podman, in namespaces of processes and of mounts that end with this script. What is told begins with "held: ".
# STATE: an empty folder; IMAGE: the image of a release, and PROGRAM what is in it; CASES: a folder with a file per case, an argument
# of `podman run` a line; AS_IT_IS: such a file.
set -eu

for hidden in /run /var/lib /dev/shm; do mount -t tmpfs none "$hidden"; done
# crun refuses a machine with control groups of both versions.
umount /sys/fs/cgroup/unified 2>/dev/null || :
cat >"$STATE/containers.conf" <<CONF
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
helper_binaries_dir = ["/usr/bin", "/usr/libexec/podman", "/usr/lib/podman"]
[network]
network_config_dir = "$STATE/networks"
CONF
export CONTAINERS_CONF="$STATE/containers.conf" PATH="$PATH:/usr/sbin:/sbin"
podman() {
	command podman --root "$STATE/store" --runroot "$STATE/runroot" --tmpdir "$STATE/tmp" \
		--storage-driver vfs --log-level error "$@"
}
# podman leaves the directory above the control groups of its pods.
put_back() { find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} + 2>/dev/null || :; }
trap put_back EXIT
podman load --quiet --input "$IMAGE" >/dev/null

# A Redis in the machine's network and one in another, as in a pod, each with a client over TCP and one over its socket.
mkdir -p /run/redis
chown nobody /run/redis
nobody() { setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; }
world() {
	nobody redis-server --port "$1" --bind 127.0.0.1 --save '' --dir /run/redis --unixsocket "/run/redis/$1.sock" >/dev/null &
	until [ -S "/run/redis/$1.sock" ]; do sleep 0.1; done
	(sleep 1000 | nobody nc 127.0.0.1 "$1") &
	(sleep 1000 | nobody nc -U "/run/redis/$1.sock") &
}
world 7101
export -f world nobody 2>/dev/null || :
unshare --net bash -c 'ip link set lo up && world 7102 && wait' &
until [ -S /run/redis/7102.sock ]; do sleep 0.1; done
sleep 1

mkdir -p /var/lib/prometheus/node-exporter
hops() {
	number=$(printf '%s\n' "$found" | sed -n "s/^samehost_hops{samehost_service=\"redis\",network_transport=\"$1\"} //p")
	echo "${number:-0}"
}
for case in "$CASES"/*; do
	mapfile -t arguments <"$case"
	found=$(podman run --rm --log-driver=passthrough --ulimit=host "${arguments[@]}")
	echo "held: $(basename "$case") | $(hops tcp) $(hops unix)"
done
# Another user than root: what a container runtime gives him of the same capabilities is gone when the program begins. podman
# gives more than Kubernetes does.
found=$(setpriv --reuid=10001 --regid=10001 --clear-groups --inh-caps=-all,+sys_ptrace,+dac_read_search \
	--bounding-set=-all,+sys_ptrace,+dac_read_search --no-new-privs "$PROGRAM" scan --prometheus -)
echo "held: user | $(hops tcp) $(hops unix)"

# As the DaemonSet has it: the file, and the end.
mapfile -t arguments <"$AS_IT_IS"
pod=$(podman run --detach --log-driver=k8s-file --ulimit=host "${arguments[@]}")
file=/var/lib/prometheus/node-exporter/samehost.prom
for _ in $(seq 300); do
	[ ! -s "$file" ] || break
	sleep 0.1
done
echo "held: file | $(stat -c '%a of %U' "$file"), $(grep -c '^samehost_' "$file") series"
begun=$(date +%s%N)
podman stop --time 5 "$pod" >/dev/null
took=$((($(date +%s%N) - begun) / 1000000))
echo "held: end | status $(podman inspect --format '{{.State.ExitCode}}' "$pod") after SIGTERM, $took ms"
podman logs "$pod" 2>&1 | sed 's/^/held: said | /'
podman rm --force "$pod" >/dev/null

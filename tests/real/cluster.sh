#!/usr/bin/env bash
# Runs a command beside a whole Kubernetes cluster of one node, which ends with it: etcd, API server, controllers,
# scheduler, kubelet, kube-proxy, containerd, runc and CoreDNS.
#
#   tests/real/cluster.sh IMAGES COMMAND [ARGUMENT...]
#
# IMAGES is a folder of docker-archives, which images.sh makes; no image is pulled. The command gets KUBECONFIG, for an
# administrator, ADDON_SIGNER_CLUSTER, the folder with the cluster's certificates and logs, and the programs of
# build.sh on its PATH. Its status is that of this script.
#
# Everything is in namespaces of its own: processes, mounts, network. So the kernel ends all of it with the script, also
# if that is killed, and the files are on a file system that ends with it. Only cgroups remain, which this script
# removes. Several clusters may run at once.
set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cni=/usr/lib/cni
# The folder on the file system that ends with the cluster.
dir=/run/addon-signer-cluster
# What no other network sees: the node, its pods, its Services.
node=10.99.0.1
pods=10.98.0.0/24
services=10.97.0.0/24
services_of_ipv6=fd00:97::/112 # for Services that ask for both families
dns=10.97.0.10
ready_seconds=120

say() { printf 'cluster: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# ---- Outside: what the machine must have, and what remains of a cluster.

check_machine() {
    local command missing=()
    [[ $(id -u) == 0 ]] || fail "only root may run a node"
    for command in unshare setpriv setsid ip iptables conntrack openssl mount; do
        command -v "$command" >/dev/null || missing+=("$command")
    done
    for command in "$cni/ptp" "$cni/host-local" "$cni/portmap" "$cni/loopback"; do
        [[ -x $command ]] || missing+=("$command")
    done
    ((${#missing[@]} == 0)) || fail "missing: ${missing[*]} (on Debian: apt-get install util-linux iproute2 iptables \
conntrack openssl mount containernetworking-plugins)"
    grep -qw overlay /proc/filesystems || fail "the kernel has no overlay file system"
    [[ -w /sys/fs/cgroup ]] || fail "/sys/fs/cgroup is not writable"
    unshare --pid --fork --mount --mount-proc --net true || fail "this process may not make namespaces"
    unshare --net ip link add test0 type veth peer name test1 2>/dev/null || fail "the kernel has no veth devices"
    unshare --net iptables --table nat --list >/dev/null 2>&1 || fail "iptables has no table nat here"
}

# The roots of the machine's cgroups: one with cgroups v2, one for each group of controllers with v1, where links have
# the names of single ones.
hierarchies() {
    if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
        echo /sys/fs/cgroup
    else
        find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d
    fi
}

# remove_cgroups NAME: they can go when the last process in them has ended, which takes the kernel a moment.
remove_cgroups() {
    local hierarchy tries
    for hierarchy in $(hierarchies); do
        for ((tries = 0; tries < 100; tries++)); do
            [[ -d $hierarchy/$1 ]] || break
            find "$hierarchy/$1" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
        done
        [[ ! -d $hierarchy/$1 ]] || say "$hierarchy/$1 cannot be removed"
    done
}

outside() {
    local cgroup=addon-signer-cluster-$$ cleaner hierarchy status=0
    (($# > 1)) || fail "usage: cluster.sh IMAGES COMMAND [ARGUMENT...]"
    check_machine
    ADDON_SIGNER_CLUSTER_PARTS=$("$here/build.sh" node)
    export ADDON_SIGNER_CLUSTER_PARTS
    # It waits until this script has ended in any way: then nobody holds the other end of its input.
    exec 8> >(trap '' INT TERM && exec setsid "${BASH_SOURCE[0]}" --remove-cgroups "$cgroup")
    cleaner=$!
    for hierarchy in $(hierarchies); do mkdir "$hierarchy/$cgroup"; done
    setpriv --pdeathsig KILL -- unshare --pid --fork --kill-child --mount --net --mount-proc \
        "${BASH_SOURCE[0]}" --inside "$cgroup" "$@" 8>&- || status=$?
    exec 8>&-
    wait "$cleaner" || say "the cgroups $cgroup remain"
    return "$status"
}

# ---- Inside: this script is process 1, and everything ends with it.

# start NAME ARGUMENT...: one of the cluster's programs, with a log.
start() {
    local name=$1
    "$@" >"$dir/logs/$name.log" 2>&1 &
    started[$!]=$name
}

# until_true WHAT COMMAND...: asks again until it succeeds; fails at once if a program of the cluster has ended.
until_true() {
    local what=$1 pid deadline=$((SECONDS + ready_seconds))
    until "${@:2}" >/dev/null 2>&1; do
        for pid in "${!started[@]}"; do
            kill -0 "$pid" 2>/dev/null || fail "${started[$pid]} has ended"
        done
        ((SECONDS < deadline)) || fail "waited $ready_seconds s in vain for $what"
        sleep 0.2
    done
}

# The logs of the cluster's programs and of its pods, and what kubelet and controllers say about these.
show_logs() {
    local log
    shopt -s nullglob
    for log in "$dir"/logs/*.log /var/log/pods/*/*/*.log; do
        printf -- '---- %s\n' "$log"
        tail -n 30 "$log"
    done
    kubectl get pods,events --all-namespaces --output wide || say "the API server does not answer"
} >&2

prepare_folders() {
    local folder
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p "$dir"/{logs,pki,kubelet,cni,disk-1,disk-2,volatile}
    # Programs also write to fixed places below these folders; here what they write ends with the cluster.
    for folder in var/lib var/log; do
        mkdir -p "$dir/volatile/$folder"/{upper,work}
        mount -t overlay overlay "/$folder" \
            -o "lowerdir=/$folder,upperdir=$dir/volatile/$folder/upper,workdir=$dir/volatile/$folder/work"
    done
    # kubelet shares mounts of volumes with containers.
    mount --make-rshared /run
}

prepare_network() {
    ip link set lo up
    # A bridge has an address without any hardware; some kernels have no dummy interfaces.
    ip link add node type bridge
    ip address add "$node/32" dev node
    ip link set node up
    ip route add default dev node
    echo 1 >/proc/sys/net/ipv4/ip_forward
    cat >"$dir/cni/10-pods.conflist" <<CNI
{ "cniVersion": "1.0.0", "name": "pods", "plugins": [
  { "type": "ptp", "ipMasq": true, "ipam": { "type": "host-local", "ranges": [[{ "subnet": "$pods" }]],
    "dataDir": "$dir/cni/addresses", "routes": [{ "dst": "0.0.0.0/0" }] } },
  { "type": "portmap", "capabilities": { "portMappings": true } } ] }
CNI
}

# certificate CA NAME SUBJECT [EXTENSION]: a key and a certificate that this authority signed.
certificate() {
    (cd "$dir/pki" && openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$2.key" -subj "$3" |
        openssl x509 -req -CA "$1.crt" -CAkey "$1.key" -days 30 -out "$2.crt" \
            -extfile <(echo "extendedKeyUsage = clientAuth, serverAuth"; echo "${4:-}")) 2>>"$dir/logs/openssl.log"
}

# kubeconfig NAME: for the holder of that certificate.
kubeconfig() {
    cat >"$dir/$1.kubeconfig" <<KUBECONFIG
apiVersion: v1
kind: Config
clusters: [{ name: node, cluster: { server: "https://$node:6443", certificate-authority: $dir/pki/ca.crt } }]
users: [{ name: $1, user: { client-certificate: $dir/pki/$1.crt, client-key: $dir/pki/$1.key } }]
contexts: [{ name: node, context: { cluster: node, user: $1 } }]
current-context: node
KUBECONFIG
}

make_credentials() {
    local name
    # test-kit signs users of its own with the first one, and knows its name.
    for name in ca:test-hub-ca front-proxy-ca:front-proxy-ca; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=${name#*:}" \
            -keyout "$dir/pki/${name%:*}.key" -out "$dir/pki/${name%:*}.crt" 2>>"$dir/logs/openssl.log"
    done
    certificate ca server /CN=kube-apiserver \
        "subjectAltName = DNS:localhost, DNS:kubernetes.default.svc, IP:127.0.0.1, IP:$node, IP:${services%.*}.1"
    certificate front-proxy-ca front-proxy-client /CN=front-proxy-client
    certificate ca admin /O=system:masters/CN=admin
    certificate ca controllers /O=system:masters/CN=controllers
    certificate ca scheduler /CN=system:kube-scheduler
    certificate ca proxy /CN=system:kube-proxy
    certificate ca kubelet /O=system:nodes/CN=system:node:node
    certificate ca to-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client
    for name in admin controllers scheduler proxy kubelet; do kubeconfig "$name"; done
    openssl genrsa -out "$dir/pki/accounts.key" 2048 2>>"$dir/logs/openssl.log"
}

start_api_server() {
    start etcd --data-dir="$dir/etcd" --unsafe-no-fsync --log-level=warn \
        --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379
    start kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --advertise-address="$node" \
        --tls-cert-file="$dir/pki/server.crt" --tls-private-key-file="$dir/pki/server.key" \
        --client-ca-file="$dir/pki/ca.crt" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
        --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file="$dir/pki/accounts.key" \
        --service-account-signing-key-file="$dir/pki/accounts.key" --service-cluster-ip-range="$services,$services_of_ipv6" \
        --kubelet-client-certificate="$dir/pki/to-kubelet.crt" --kubelet-client-key="$dir/pki/to-kubelet.key" \
        --kubelet-preferred-address-types=InternalIP --enable-aggregator-routing \
        --proxy-client-cert-file="$dir/pki/front-proxy-client.crt" \
        --proxy-client-key-file="$dir/pki/front-proxy-client.key" \
        --requestheader-client-ca-file="$dir/pki/front-proxy-ca.crt" \
        --requestheader-allowed-names=front-proxy-client --requestheader-username-headers=X-Remote-User \
        --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra-
    until_true "the API server" kubectl get --raw /readyz
    start kube-controller-manager --kubeconfig="$dir/controllers.kubeconfig" --leader-elect=false \
        --cluster-signing-cert-file="$dir/pki/ca.crt" --cluster-signing-key-file="$dir/pki/ca.key" \
        --root-ca-file="$dir/pki/ca.crt" --service-account-private-key-file="$dir/pki/accounts.key" \
        --flex-volume-plugin-dir="$dir/volume-plugins"
    start kube-scheduler --kubeconfig="$dir/scheduler.kubeconfig" --leader-elect=false
}

start_containerd() {
    local archive
    cat >"$dir/containerd.toml" <<TOML
version = 3
root = '$dir/containerd'
[plugins.'io.containerd.internal.v1.opt']
path = '$dir/opt'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = 'docker.io/library/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
# Without CAP_SYS_RESOURCE, as in many containers, runc could not lower a score and would start nothing.
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['$cni']
conf_dir = '$dir/cni'
TOML
    start containerd --config "$dir/containerd.toml"
    until_true containerd ctr version
    for archive in "$1"/*.tar; do ctr -n k8s.io images import "$archive" >>"$dir/logs/images.log" 2>&1; done
}

# start_kubelet CGROUP. cgroups v1 and a disk shared with the machine are what kubelet would refuse or act upon.
start_kubelet() {
    cat >"$dir/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: { x509: { clientCAFile: $dir/pki/ca.crt } }
cgroupDriver: cgroupfs
cgroupRoot: /$1
clusterDNS: [$dns]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enforceNodeAllocatable: []
evictionHard: { memory.available: "0%", nodefs.available: "0%", imagefs.available: "0%" }
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
resolvConf: ""
volumePluginDir: $dir/volume-plugins
YAML
    start kubelet --config="$dir/kubelet.yaml" --kubeconfig="$dir/kubelet.kubeconfig" --root-dir="$dir/kubelet" \
        --hostname-override=node --node-ip="$node"
}

start_proxy() {
    cat >"$dir/proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: { kubeconfig: $dir/proxy.kubeconfig }
clusterCIDR: $pods
conntrack: { maxPerCore: 0 }
hostnameOverride: node
mode: iptables
YAML
    start kube-proxy --config="$dir/proxy.yaml"
}

inside() {
    local cgroup=$1
    trap 'exit 130' INT TERM
    trap '((status == 0)) || show_logs' EXIT
    PATH=$ADDON_SIGNER_CLUSTER_PARTS:$PATH
    export KUBECONFIG=$dir/admin.kubeconfig ADDON_SIGNER_CLUSTER=$dir
    export KUBEBUILDER_ASSETS=$ADDON_SIGNER_CLUSTER_PARTS
    prepare_folders
    prepare_network
    make_credentials
    start_api_server
    start_containerd "$2"
    start_kubelet "$cgroup"
    start_proxy
    kubectl apply -f "$here/cluster.yaml" >"$dir/logs/apply.log"
    until_true "the node" kubectl wait --for=condition=Ready node/node --timeout=1s
    until_true "CoreDNS" kubectl wait --for=condition=Available -n kube-system deployment/coredns --timeout=1s
    say "ready after $SECONDS s"
    status=0
    "${@:3}" || status=$?
    return "$status"
}

declare -A started=()
status=1 # until the command has one
case ${1:-} in
    --inside) inside "${@:2}" ;;
    --remove-cgroups) cat >/dev/null && remove_cgroups "$2" ;;
    *) outside "$@" ;;
esac

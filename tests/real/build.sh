#!/usr/bin/env bash
# Builds the real components that the integration tests run against, once, into a cache
# outside the checkout, and prints the one directory to put into KUBEBUILDER_ASSETS.
#
#   tests/real/build.sh         etcd, the API server, OCM, cert-manager: what the tests of step `real` need
#   tests/real/build.sh node    these, what runs a pod, and Helm: what cluster.sh and its tests need
#
# Safe to run twice and concurrently. Progress goes to stderr.
set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${ADDON_SIGNER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/addon-signer}/real-parts
kubernetes_version=v1.36.1

say() { printf 'real parts: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

modules=(crds etcd kubernetes ocm peer peers cert-manager)
case ${*:-} in
    '') ;;
    node) modules+=(node containerd runc coredns pause helm) ;;
    *) fail "unknown arguments $*; there is only node" ;;
esac
command -v go >/dev/null || fail "go is missing: install Go 1.26 or newer (https://go.dev/dl)"

# rules_of_tools MODULE: how its programs are built, if it has no main of ours.
rules_of_tools() { if grep -q '^tool' "$here/$1/go.mod"; then declare -f tools; fi; }

# digest MODULE: sha256 over the module's files and the rules by which it is built; other modules' rules do not count.
digest() {
    (cd "$here" && {
        sha256sum "$1"/*
        declare -f compile "build_$1"
        declare -p kubernetes_version
        rules_of_tools "$1"
    } | sha256sum | cut -d' ' -f1)
}

# heartbeat PID WHAT: a line every 30 seconds while a silent build runs.
heartbeat() {
    local seconds=0
    while kill -0 "$1" 2>/dev/null; do
        sleep 1
        seconds=$((seconds + 1))
        if ((seconds % 30 == 0)); then say "$2: still building after $seconds s"; fi
    done
}

# compile MODULE OUTPUT LDFLAGS
compile() {
    (cd "$here/$1" && CGO_ENABLED=0 GOWORK=off go build -trimpath -buildvcs=false \
        -ldflags "-s -w $3" -o "$2" .) >&2 &
    local build=$!
    heartbeat "$build" "$1"
    wait "$build" || fail "$1: go build failed, see above"
}

# tools MODULE DIRECTORY FLAG...: builds the programs that go.mod lists as tools; they need no main of ours.
tools() {
    (cd "$here/$1" && GOWORK=off go build -trimpath -buildvcs=false "${@:3}" -o "$2/" tool) >&2 &
    local build=$!
    heartbeat "$build" "$1"
    wait "$build" || fail "$1: go build failed, see above"
}

build_etcd() { compile etcd "$1/etcd" ""; }

# One binary under several names: it serves the command by whose name it is called.
build_ocm() {
    compile ocm "$1/registration-agent" ""
    local name
    for name in work-agent addon-manager addon-webhook registration-controller placement-controller work-controller \
        framework-addon-v1alpha1; do
        ln "$1/registration-agent" "$1/$name"
    done
}

build_peer() {
    compile peer "$1/peer-signer" ""
    ln "$1/peer-signer" "$1/framework-addon-v1beta1"
}

build_peers() { compile peers "$1/peers" ""; }

build_kubernetes() {
    local v=k8s.io/component-base/version
    compile kubernetes "$1/kube-apiserver" \
        "-X $v.gitVersion=$kubernetes_version -X $v.gitMajor=1 -X $v.gitMinor=36"
    ln "$1/kube-apiserver" "$1/kube-controller-manager"
    ln "$1/kube-apiserver" "$1/kubectl"
}

build_node() {
    CGO_ENABLED=0 tools node "$1" -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes_version"
}

build_containerd() { CGO_ENABLED=0 tools containerd "$1" -tags no_btrfs,no_zfs,no_devmapper -ldflags "-s -w"; }

# It enters namespaces in C, before Go's threads exist.
build_runc() {
    pkg-config --exists libseccomp ||
        fail "runc needs libseccomp (on Debian: apt-get install pkg-config libseccomp-dev)"
    CGO_ENABLED=1 tools runc "$1" -tags seccomp -ldflags "-s -w"
}

build_coredns() { CGO_ENABLED=0 tools coredns "$1" -ldflags "-s -w"; }

# Both are named helm, so they are built one by one. The flags are from the Makefile of Helm 3, which otherwise takes
# Kubernetes for 1.20 as long as it talks to none; Helm 4 finds the version of its client itself.
build_helm() {
    local v=helm.sh/helm/v3/pkg/chartutil version
    for version in 3 4; do
        (cd "$here/helm" && CGO_ENABLED=0 GOWORK=off go build -trimpath -buildvcs=false -o "$1/helm$version" \
            -ldflags "-s -w -X $v.k8sVersionMajor=1 -X $v.k8sVersionMinor=36" "helm.sh/helm/v$version/cmd/helm") >&2 &
        local build=$!
        heartbeat "$build" "helm$version"
        wait "$build" || fail "helm$version: go build failed, see above"
    done
}

build_pause() { compile pause "$1/pause" ""; }

# source_of FOLDER MODULE: downloads a module that FOLDER/go.mod requires, and prints its directory in the module cache.
source_of() {
    (cd "$here/$1" && GOWORK=off go mod download "$2") >&2
    (cd "$here/$1" && GOWORK=off go list -m -f '{{.Dir}}' "$2")
}

# Its CRDs are files of the same module; they have no conversion webhook.
build_cert-manager() {
    local source kind
    compile cert-manager "$1/cert-manager-controller" ""
    source=$(source_of cert-manager github.com/cert-manager/cert-manager)
    for kind in certificaterequests certificates clusterissuers issuers; do
        install -D -m 0644 -t "$1/crds/cert-manager" "$source/deploy/crds/cert-manager.io_$kind.yaml"
    done
}

# CRDs are files of API modules; they are copied out of the module cache. Those in crds/others are of what the chart
# can make objects for.
build_crds() {
    local source folder
    source=$(source_of crds open-cluster-management.io/api)
    for folder in cluster/v1 cluster/v1beta1 cluster/v1beta2 cluster/v1alpha1 addon/v1alpha1 addon/v1beta1 work/v1 \
        work/v1alpha1; do
        install -D -m 0644 -t "$1/crds/${folder/\//-}" "$source/$folder"/*.crd.yaml
    done
    source=$(source_of crds github.com/openshift/api)
    install -D -m 0644 "$source/route/v1/zz_generated.crd-manifests/routes.crd.yaml" "$1/crds/others/routes.crd.yaml"
    source=$(source_of crds sigs.k8s.io/gateway-api)
    install -D -m 0644 -t "$1/crds/others" "$source"/config/crd/standard/*_tlsroutes.yaml
    source=$(source_of crds github.com/prometheus-operator/prometheus-operator)
    for folder in podmonitors prometheusrules; do
        install -D -m 0644 -t "$1/crds/others" "$source/example/prometheus-operator-crd/monitoring.coreos.com_$folder.yaml"
    done
}

# Builds MODULE into the cache unless it is there; prints its directory.
ensure() {
    local module=$1 target started=$SECONDS fresh
    target=$cache/$(digest "$module")
    if [[ ! -d $target ]]; then
        say "$module: building"
        fresh=$(mktemp -d "$cache/new.XXXXXX")
        "build_$module" "$fresh"
        chmod 0755 "$fresh"
        mv -T "$fresh" "$target"
        say "$module: built in $((SECONDS - started)) s"
    else
        say "$module: already built"
    fi
    printf '%s\n' "$target"
}

# assemble DIRECTORY...: one directory that links to everything in the given ones.
assemble() {
    local target fresh part
    target=$cache/assets-$(printf '%s\n' "$@" | sha256sum | cut -c1-16)
    if [[ ! -d $target ]]; then
        fresh=$(mktemp -d "$cache/new.XXXXXX")
        for part in "$@"; do cp -rl "$part/." "$fresh/"; done
        chmod 0755 "$fresh"
        mv -T "$fresh" "$target"
    fi
    printf '%s\n' "$target"
}

mkdir -p "$cache"
exec 9>"$cache/lock"
flock --nonblock 9 || { say "another build is running, waiting for it"; flock 9; }
rm -rf "$cache"/new.*

parts=()
for module in "${modules[@]}"; do
    part=$(ensure "$module")
    parts+=("$part")
done
assemble "${parts[@]}"

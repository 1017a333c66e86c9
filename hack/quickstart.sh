#!/usr/bin/env bash
# From nothing to an agent's request through the gateway, on a cluster of kind that is hub and managed cluster of Open
# Cluster Management (OCM) in one.
#
#   hack/quickstart.sh                  make the cluster and the images, install everything, wait for the request
#   hack/quickstart.sh --existing-hub   the same on the hub of your current context, which is its own managed cluster;
#                                       its nodes have the images addon-signer, addon-signer-agent and telemetry
#   hack/quickstart.sh [--existing-hub] --delete   remove all that it made
#
# It needs helm and kubectl; without --existing-hub also kind, clusteradm and docker. It asks nothing, changes no
# kubeconfig of yours, touches no installation that it has not made, and may be run again after an interruption.
set -euo pipefail
shopt -s inherit_errexit

cd "$(dirname "${BASH_SOURCE[0]}")/.."
name=addon-signer-quickstart # of the cluster of kind
port=30443                   # the gateway's, on the node
agents=open-cluster-management-agent-addon
helm=${HELM:-helm}
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
existing="" delete=""

fail() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }
step() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }

# quietly COMMAND...: shows what it prints only if it fails; not its arguments, one of which may be a token.
quietly() { "$@" >"$log" 2>&1 || fail "$1 $2 failed: $(<"$log")"; }

# wait_for SECONDS WHAT COMMAND...: asks again until it succeeds.
wait_for() {
    local deadline=$((SECONDS + $1))
    until "${@:3}" >/dev/null 2>&1; do
        if ((SECONDS >= deadline)); then
            kubectl get pods -A --field-selector=status.phase!=Running >&2 || true
            kubectl get ads -o jsonpath='{range .items[*].status.conditions[*]}{.type}: {.status} {.message}{"\n"}{end}' >&2 || true
            fail "waited $1 s in vain for $2; the lines above may say why. Run it again, or see docs/runbooks"
        fi
        sleep 1
    done
}

read_arguments() {
    local argument
    for argument in "$@"; do
        case $argument in
            --existing-hub) existing=yes ;;
            --delete) delete=yes ;;
            *) fail "unknown argument $argument; there are --existing-hub and --delete" ;;
        esac
    done
}

check_programs() {
    local command missing=()
    local needed=("$helm" kubectl)
    if [[ -z $existing ]]; then needed+=(kind clusteradm docker); fi
    for command in "${needed[@]}"; do command -v "$command" >/dev/null || missing+=("$command"); done
    if [[ -z $existing ]] && ! docker buildx version >/dev/null 2>&1; then missing+=("docker's plugin buildx"); fi
    ((${#missing[@]} == 0)) || fail "missing: ${missing[*]}; docs/quickstart.md says where to get them"
}

# ---- The cluster, OCM on it, and the images.

make_cluster() {
    local clusters
    clusters=$(kind get clusters 2>"$log") || fail "kind cannot list its clusters: $(tail -n 1 "$log")"
    if [[ $'\n'$clusters$'\n' == *$'\n'"$name"$'\n'* ]]; then
        # kind writes it last.
        [[ -s $KUBECONFIG ]] || fail "the cluster $name is there, perhaps half made, but not $KUBECONFIG: use --delete first"
    else
        step "making the cluster $name"
        rm -f "$KUBECONFIG"
        quietly kind create cluster --name "$name" --wait 180s
    fi
    step "installing OCM; cluster1 is the hub itself"
    quietly clusteradm init --wait
    if ! kubectl get managedcluster cluster1 >/dev/null 2>&1; then
        local token
        token=$(clusteradm get token | sed -n 's/^token=//p')
        quietly clusteradm join --cluster-name cluster1 --hub-token "$token" --force-internal-endpoint-lookup --wait \
            --hub-apiserver "$(kubectl config view --minify --output 'jsonpath={.clusters[0].cluster.server}')"
    fi
    # The CSR comes after the ManagedCluster. Once it was approved it is soon gone.
    if [[ $(kubectl get managedcluster cluster1 --output 'jsonpath={.spec.hubAcceptsClient}') != true ]]; then
        quietly clusteradm accept --clusters cluster1 --wait
    fi
}

# Optimised less than a release, which takes a third of the time to build.
make_images() {
    local target licences=target/quickstart/licences # as the stage of the Dockerfile that it stands for
    mkdir -p "$licences/licences"
    cp LICENSE "$licences/licences"
    step "building three images, which takes minutes"
    for target in addon-signer addon-signer-agent; do
        quietly docker build --target "$target" --tag "$target:$version" --build-arg hub_profile=release \
            --build-arg agent_profile=release --build-context "licences=$licences" .
    done
    quietly docker build --file examples/telemetry/Dockerfile --target telemetry --tag "telemetry:$version" .
    quietly kind load docker-image --name "$name" {addon-signer,addon-signer-agent,telemetry}:"$version"
}

# ---- addon-signer and the example.

find_cluster() {
    local clusters
    clusters=$(kubectl get managedclusters --output name 2>"$log") ||
        fail "the current context is no hub of OCM: $(tail -n 1 "$log")"
    local number=$(($(wc -w <<<"$clusters")))
    ((number == 1)) || fail "the hub has not one managed cluster but $number"
    cluster=${clusters#*/}
    node=$(kubectl get nodes --output 'jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}')
    node=${node%% *}
    gateway=https://$node:$port
    if [[ $node == *:* ]]; then gateway=https://[$node]:$port; fi
    quietly kubectl wait --for condition=ManagedClusterJoined "managedcluster/$cluster" --timeout 180s
}

# exists KIND ARGUMENT...: whether the hub has this object. An API server that does not answer is not one without it.
exists() {
    local found
    found=$(kubectl get "$@" --ignore-not-found --output name) || fail "kubectl get $* failed"
    [[ -n $found ]]
}

# The namespaces that this script makes have its mark. Sets `begun` if it has made one.
check_ours() {
    local namespace mark
    begun=""
    for namespace in addon-signer observability; do
        exists namespace "$namespace" || continue
        mark=$(kubectl get namespace "$namespace" --output "jsonpath={.metadata.labels.made-by}")
        [[ $mark == "$name" ]] || fail "the hub has a namespace $namespace that this script has not made; it changes nothing"
        begun=yes
    done
}

# Before this script has made anything, what has the names of the example is somebody else's.
check_names() {
    local kind objects object ocm=open-cluster-management.io
    for kind in {addonsigners,addonroutes}.addon-signer.io {clustermanagementaddons,addontemplates}.addon.$ocm \
        {managedclusteraddons,addondeploymentconfigs}.addon.$ocm; do
        exists crd "$kind" || continue
        objects=$(kubectl get "$kind" -A --output name) || fail "kubectl get $kind failed"
        object=$(grep -E -m 1 '/(telemetry|telemetry-plain)$' <<<"$objects" || true)
        [[ -z $object ]] || fail "the hub has $object already, which this script has not made; it changes nothing"
    done
}

make_namespaces() {
    local namespace
    for namespace in addon-signer observability; do
        if exists namespace "$namespace"; then continue; fi
        # By create: what apply makes would lose the mark with the next apply.
        quietly kubectl create --filename - <<YAML
apiVersion: v1
kind: Namespace
metadata: { name: $namespace, labels: { made-by: $name } }
YAML
    done
}

check_port() {
    local holder
    holder=$(kubectl get services -A --output \
        "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{range .spec.ports[*]} {.nodePort}{end}{'\n'}{end}" |
        awk -v port="$port" '$1 !~ /^addon-signer\// {for (i = 2; i <= NF; i++) if ($i == port) print $1}')
    [[ -z $holder ]] || fail "the Service $holder has the node port $port, which the gateway would have"
}

install_hub() {
    step "installing addon-signer; the gateway is $gateway"
    # Helm does not go on with what it was interrupted in.
    if "$helm" status addon-signer --namespace addon-signer --output json 2>/dev/null | grep -q '"status":"pending-'; then
        quietly "$helm" uninstall addon-signer --namespace addon-signer --wait
    fi
    quietly "$helm" upgrade --install addon-signer deploy/chart --namespace addon-signer \
        --wait --timeout 180s --set "gateway.names={$node}" --set gateway.replicas=1 \
        --set gateway.service.type=NodePort --set "gateway.service.nodePort=$port" \
        --set gateway.service.externalTrafficPolicy=Cluster \
        --set 'signers[0].name=example.com/telemetry' --set 'requesters={telemetry}' \
        --set ledger.file.ephemeral=true
}

example() { kubectl kustomize examples/telemetry/hub | sed "s|https://gateway.hub.example.com:8443|$gateway|"; }

install_addon() {
    step "installing the addon telemetry on $cluster"
    example >"$log.yaml"
    quietly kubectl apply --filename "$log.yaml"
    quietly kubectl apply --filename - <<YAML
apiVersion: addon.open-cluster-management.io/v1alpha1
kind: ManagedClusterAddOn
metadata: { name: telemetry, namespace: $cluster }
spec: {}
YAML
}

has_counted() { [[ $(kubectl get addonsigner telemetry --output 'jsonpath={.status.agents.certified}') == 1 ]]; }

has_pushed() {
    local lines
    lines=$(kubectl logs --namespace "$agents" deployment/telemetry-agent --container telemetry --tail 20)
    [[ $lines == *pushed* ]]
}

show() {
    step "the agent has called its backend through the gateway"
    kubectl get addonsigners
    kubectl get addonroutes -A
    printf '\nThe agent holds this certificate, and its calls arrive:\n'
    kubectl get secret --namespace "$agents" telemetry-client-cert --output 'jsonpath={.data.tls\.crt}' | base64 -d |
        { openssl x509 -noout -subject -issuer -enddate 2>/dev/null || cat; }
    kubectl logs --namespace "$agents" deployment/telemetry-agent --container telemetry --tail 2
    printf '\n'
    if [[ -z $existing ]]; then printf 'The cluster is yours with: export KUBECONFIG=%s\n' "$KUBECONFIG"; fi
    printf 'docs/quickstart.md says what to try now.\n'
}

# ---- Removing.

remove() {
    if [[ -z $existing ]]; then
        step "deleting the cluster $name"
        quietly kind delete cluster --name "$name"
        rm -f "$KUBECONFIG"
        step "removed"
        return
    fi
    find_cluster
    check_ours
    if [[ -z $begun ]]; then
        step "there is nothing that this script has made"
        return
    fi
    step "removing the addon, then the signer, then the hub"
    quietly kubectl delete managedclusteraddon --namespace "$cluster" telemetry --ignore-not-found --timeout 120s
    # Without the CRDs an earlier run came further than this.
    if exists crd addonsigners.addon-signer.io; then
        example >"$log.yaml"
        quietly kubectl delete --filename "$log.yaml" --ignore-not-found --timeout 120s
    fi
    if "$helm" status addon-signer --namespace addon-signer >/dev/null 2>&1; then
        quietly "$helm" uninstall addon-signer --namespace addon-signer --wait
    fi
    # Others may have objects of these kinds.
    local crd left
    for crd in addonroutes.addon-signer.io addonsigners.addon-signer.io; do
        exists crd "$crd" || continue
        left=$(kubectl get "$crd" -A --output name)
        [[ -n $left ]] || quietly kubectl delete crd "$crd"
    done
    quietly kubectl delete namespace addon-signer observability --ignore-not-found
    step "removed"
}

main() {
    read_arguments "$@"
    check_programs
    mkdir -p target/quickstart
    log=target/quickstart/log
    if [[ -z $existing ]]; then export KUBECONFIG=$PWD/target/quickstart/kubeconfig; fi
    trap 'fail "interrupted: run it again to go on, or with --delete"' INT TERM
    if [[ -n $delete ]]; then
        remove
        return
    fi
    if [[ -z $existing ]]; then
        make_cluster
        make_images
    fi
    find_cluster
    check_ours
    [[ -n $begun ]] || check_names
    check_port
    make_namespaces
    install_hub
    install_addon
    wait_for 180 "the AddOnSigner to be ready" kubectl wait --for condition=Ready addonsigner/telemetry --timeout 1s
    step "waiting for the agent's first request"
    wait_for 300 "the agent to call its backend" has_pushed
    wait_for 60 "the AddOnSigner to count it" has_counted
    show
}

main "$@"

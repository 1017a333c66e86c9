#!/usr/bin/env bash
# Renders the chart into the files that are in the tree, with Helm 4 (or the program in HELM):
# deploy/install.yaml for people without Helm, and tests/golden/chart for tests. A test compares them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The texts of Helm 3 have other blank lines.
[[ $("${HELM:-helm}" version --short) == v4* ]] || { echo "deploy/render.sh needs Helm 4" >&2; exit 1; }

# render FILE COMMENT FLAG...
render() {
    local text
    text=$("${HELM:-helm}" template addon-signer deploy/chart --namespace addon-signer --skip-tests "${@:3}")
    printf '# %s\n%s\n' "$2" "$text" >"$1"
}

render deploy/install.yaml "The chart with its default values, rendered by deploy/render.sh." \
    --set namespace.create=true,check.enabled=false
render tests/golden/chart/everything.yaml "deploy/chart/ci/everything.yaml, rendered by deploy/render.sh." \
    --values deploy/chart/ci/everything.yaml
# What depends on the families of addresses.
for families in ipv4 ipv6 both-families; do
    render "tests/golden/chart/$families.yaml" "deploy/chart/ci/$families.yaml, rendered by deploy/render.sh." \
        --values "deploy/chart/ci/$families.yaml" --show-only 'templates/*/service.yaml' \
        --show-only 'templates/*/deployment.yaml' --show-only templates/network-policies.yaml
done

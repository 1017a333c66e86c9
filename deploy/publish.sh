#!/usr/bin/env bash
# Pushes the images and charts of a release to the registry that it was made for.
#
#   deploy/publish.sh FOLDER [--plain-http]
#
# --plain-http is for a registry on this machine. An image that is there with another digest is not replaced.
set -euo pipefail
shopt -s inherit_errexit

fail() { printf 'publish.sh: %s\n' "$*" >&2; exit 1; }

(($# > 0)) || fail "usage: deploy/publish.sh FOLDER [--plain-http]"
helm=${HELM:-helm}
for command in skopeo "$helm"; do command -v "$command" >/dev/null || fail "$command is missing"; done
cd "$1"
inspect=() copy=() push=()
case ${2:-} in
    '') ;;
    --plain-http) inspect=(--tls-verify=false) copy=(--dest-tls-verify=false) push=(--plain-http) ;;
    *) fail "unknown argument $2" ;;
esac
sha256sum --quiet --check SHA256SUMS || fail "the files are not those of the release: make it again"

mapfile -t images <images.txt # REGISTRY/NAME:VERSION@DIGEST
for image in "${images[@]}"; do
    there=$(skopeo inspect "${inspect[@]}" --format '{{.Digest}}' "docker://${image%@*}" 2>/dev/null || true)
    [[ -z $there || $there == "${image#*@}" ]] ||
        fail "${image%@*} is there already with another digest, $there; nothing was pushed"
done
for image in "${images[@]}"; do
    name=${image##*/}
    skopeo copy --quiet --preserve-digests "${copy[@]}" "oci-archive:$(echo "${name%%:*}"-[0-9]*-image-*.tar)" \
        "docker://${image%@*}"
    echo "pushed $image"
done
registry=${images[0]%/*}
for chart in addon-signer-[0-9]*.tgz addon-signer-agent-[0-9]*.tgz; do
    "$helm" push "${push[@]}" "$chart" "oci://$registry/charts" >/dev/null 2>&1 || fail "helm cannot push $chart"
    echo "pushed $registry/charts: $chart"
done

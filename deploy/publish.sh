#!/usr/bin/env bash
# Pushes the images and charts of a release to the registry that it was made for.
#
#   deploy/publish.sh FOLDER [--plain-http] [--unsigned]
#
# A release without a signature is pushed only with --unsigned. Whose signature it is, the output says.
# --plain-http is for a registry on this machine. What is there with another digest is not replaced. Log in first:
# `skopeo login HOST`, `helm registry login HOST`.
set -euo pipefail
shopt -s inherit_errexit

fail() { printf 'publish.sh: %s\n' "$*" >&2; exit 1; }

# there FORMAT NAME: what the registry says of an image or chart; nothing if it has none.
there() {
    local status=0
    skopeo inspect "${inspect[@]}" $1 "docker://$2" 2>"$work/error" || status=$?
    if ((status != 0)) && ! grep -qiE 'manifest unknown|name unknown|not found|not known to registry' "$work/error"; then
        fail "$2: $(tail -n 1 "$work/error")"
    fi
}

(($# > 0)) || fail "usage: deploy/publish.sh FOLDER [--plain-http] [--unsigned]"
helm=${HELM:-helm}
for command in skopeo jq "$helm"; do command -v "$command" >/dev/null || fail "$command is missing"; done
cd "$1"
inspect=() copy=() push=() unsigned=
for argument in "${@:2}"; do
    case $argument in
        --plain-http) inspect=(--tls-verify=false) copy=(--dest-tls-verify=false) push=(--plain-http) ;;
        --unsigned) unsigned=yes ;;
        *) fail "unknown argument $argument" ;;
    esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sha256sum --quiet --check SHA256SUMS || fail "the files are not those of the release: make it again"
if [[ -e SHA256SUMS.asc ]]; then
    gpg --verify SHA256SUMS.asc SHA256SUMS 2>"$work/error" || fail "the signature is wrong: $(tail -n 1 "$work/error")"
    cat "$work/error" # whose it is, and whether the key has expired
elif [[ -z $unsigned ]]; then
    fail "it is not signed: sign it by gpg --armor --detach-sign SHA256SUMS, or push it with --unsigned"
fi

mapfile -t images <images.txt # REGISTRY/NAME:VERSION@DIGEST
registry=${images[0]%/*}
mapfile -t charts < <(sed -n 's/^[0-9a-f]\{64\}  \(.*\.tgz\)$/\1/p' SHA256SUMS)

# Nothing is pushed if anything would be replaced.
for image in "${images[@]}"; do
    digest=$(there "--format {{.Digest}}" "${image%@*}")
    [[ -z $digest || $digest == "${image#*@}" ]] ||
        fail "${image%@*} is there already with another digest, $digest; nothing was pushed"
done
for chart in "${charts[@]}"; do
    version=$(grep -oE '[0-9]+\.[0-9]+\.[0-9]+.*' <<<"${chart%.tgz}")
    digest=$(there --raw "$registry/charts/${chart%-"$version".tgz}:$version" | jq --raw-output '.layers[0].digest')
    [[ -z $digest || $digest == "sha256:$(sha256sum <"$chart" | cut -d' ' -f1)" ]] ||
        fail "$registry/charts has another $chart already; nothing was pushed"
done

for image in "${images[@]}"; do
    name=${image##*/}
    skopeo copy --quiet --preserve-digests "${copy[@]}" "oci-archive:$(echo "${name%%:*}"-[0-9]*-image-*.tar)" \
        "docker://${image%@*}"
    [[ $(there "--format {{.Digest}}" "${image%@*}") == "${image#*@}" ]] || fail "the registry has changed $image"
    echo "pushed $image"
done
for chart in "${charts[@]}"; do
    "$helm" push "${push[@]}" "$chart" "oci://$registry/charts" >"$work/error" 2>&1 ||
        fail "$chart: $(tail -n 1 "$work/error")"
    echo "pushed $registry/charts: $chart"
done

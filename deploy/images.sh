#!/usr/bin/env bash
# Builds both images from the Dockerfile, with programs that are built already in place of the stages that compile, as
# archives of OCI layouts: FOLDER/addon-signer.tar and FOLDER/addon-signer-agent.tar. The same programs, licences and
# commit give the same bytes.
#
#   deploy/images.sh PROGRAMS LICENCES FOLDER REGISTRY
#
# REGISTRY is a part of the images' names, such as registry.example.com/ocm; nothing is pushed. COMMIT, SOURCE (an
# address) and SOURCE_DATE_EPOCH in the environment go into the labels and times, VERSION is another tag than the version.
set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fail() { printf 'images.sh: %s\n' "$*" >&2; exit 1; }

# The driver vfs needs no mounts, and so no rights beyond those of the files.
in_buildah() { buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs "$@"; }

# image NAME STAGE: FOLDER/NAME.tar, from the program of that name.
image() {
    local reference=$registry/$1:$version
    local labels=()
    if [[ -n ${SOURCE:-} ]]; then labels=(--label "org.opencontainers.image.source=$SOURCE"); fi
    "$root/deploy/image.sh" "$work/$1/image" "$programs/$1"
    in_buildah build --quiet --timestamp "$epoch" --tag "$reference" --file "$root/Dockerfile" --target "$1" \
        "${labels[@]}" --build-arg version="$version" --build-arg commit="${COMMIT:-}" --build-context "$2=$work/$1" \
        --build-context "licences=$work/licences" "$work/$1" >"$work/log" 2>&1 || fail "$1: $(<"$work/log")"
    in_buildah push --quiet "$reference" "oci:$work/layout/$1:$reference"
    tar --create --file "$folder/$1.tar" --directory "$work/layout/$1" --sort=name --mtime="@$epoch" --owner=0 --group=0 \
        --numeric-owner --mode=u=rwX,go=rX .
}

(($# == 4)) || fail "usage: deploy/images.sh PROGRAMS LICENCES FOLDER REGISTRY"
command -v buildah >/dev/null || fail "buildah is missing (on Debian: apt-get install buildah)"
programs=$(cd "$1" && pwd)
licences=$(cd "$2" && pwd)
mkdir -p "$3"
folder=$(cd "$3" && pwd)
registry=$4
epoch=${SOURCE_DATE_EPOCH:-0}
version=${VERSION:-$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/licences" "$work/layout"
cp -r "$licences" "$work/licences/licences"

image addon-signer build-hub
image addon-signer-agent build-agent

#!/usr/bin/env bash
# Builds the images of an earlier commit once, into the cache, and prints their folder: IMAGE-COMMIT.tar, tagged with the
# commit, and its chart. The programs are built as those of the tests.
#
#   tests/real/earlier.sh COMMIT
set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${ADDON_SIGNER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/addon-signer}/earlier
commit=$1
folder=$cache/$commit

if [[ ! -d $folder ]]; then
    mkdir -p "$cache"
    work=$(mktemp -d "$cache/$commit.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/source" "$work/made"
    git -C "$root" archive "$commit" | tar --extract --directory "$work/source"
    (cd "$work/source" && CARGO_TARGET_DIR=$work/target cargo build --locked --bins \
        --package addon-signer --package addon-signer-agent) >&2
    install -D -t "$work/licences" "$root/LICENSE"
    VERSION=$commit COMMIT=$commit "$root/deploy/images.sh" "$work/target/debug" "$work/licences" "$work/made" \
        docker.io/library
    for image in "$work"/made/*.tar; do mv "$image" "${image%.tar}-$commit.tar"; done
    mv "$work/source/deploy/chart" "$work/made/chart"
    mv -T "$work/made" "$folder" || [[ -d $folder ]] # another run was faster
fi
printf '%s\n' "$folder"

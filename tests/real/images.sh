#!/usr/bin/env bash
# Builds the images of a cluster's pods as archives for cluster.sh: ours as a release has them, the example's from its
# Dockerfile, and the two that Kubernetes needs.
#
#   tests/real/images.sh PROGRAMS FOLDER
#
# No base image can be pulled, so the stages that compile cannot run; the programs are taken from the folder PROGRAMS.
set -euo pipefail
shopt -s inherit_errexit

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

say() { printf 'images: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# The driver vfs needs no mounts, and so no rights beyond those of the files.
in_buildah() { buildah --root "$work/root" --runroot "$work/run" --storage-driver vfs "$@"; }

# archive NAME TAG FLAG...: builds an image and writes it to FOLDER/NAME.tar under the name that pods know it by.
archive() {
    local image=docker.io/library/$1:$2
    in_buildah build --quiet --tag "$image" "${@:3}" >"$work/log" 2>&1 || fail "$1: $(<"$work/log")"
    rm -f "$folder/$1.tar"
    in_buildah push --quiet "$image" "docker-archive:$folder/$1.tar:$image"
    say "$1:$2 is built"
}

# theirs PROGRAM: an image of one of the real parts.
theirs() {
    printf 'FROM scratch\nCOPY %s /%s\nENTRYPOINT ["/%s"]\n' "$1" "$1" "$1" >"$work/Dockerfile"
    archive "$1" 1 --file "$work/Dockerfile" "$parts"
}

(($# == 2)) || fail "usage: images.sh PROGRAMS FOLDER"
command -v buildah >/dev/null || fail "buildah is missing (on Debian: apt-get install buildah)"
programs=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
parts=$("$here/build.sh" node)
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

install -D -m 0644 -t "$work/licences" "$root/LICENSE"
"$root/deploy/images.sh" "$programs" "$work/licences" "$folder" docker.io/library
say "addon-signer:$version and addon-signer-agent:$version are built"
"$root/deploy/image.sh" "$work/telemetry/image" "$programs"/telemetry-{backend,agent}
archive telemetry "$version" --file "$root/examples/telemetry/Dockerfile" --target telemetry \
    --build-context "build=$work/telemetry" "$work/telemetry"
theirs pause
theirs coredns

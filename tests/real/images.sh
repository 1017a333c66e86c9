#!/usr/bin/env bash
# Builds the images of a cluster's pods as archives for cluster.sh: ours and the example's from their Dockerfiles, and
# the two that Kubernetes needs.
#
#   tests/real/images.sh PROGRAMS FOLDER
#
# No base image can be pulled, so the stages that compile cannot run. In their place buildah takes the programs from the
# folder PROGRAMS. All that follows is as in a release: files, user, entry point, labels. But a release has static
# programs and nothing else; these are linked to libraries of this machine, which make up the base.
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

# libraries PROGRAM...: a base that has what these are linked to.
libraries() {
    local library
    for library in $(ldd "$@" | grep -o '/[^ :]*\.so[^ :]*' | sort -u); do
        install -D -t "$work/base${library%/*}" "$library"
    done
    printf 'FROM scratch\nCOPY . /\n' >"$work/Dockerfile"
    in_buildah build --quiet --tag base --file "$work/Dockerfile" "$work/base" >/dev/null
}

# ours DOCKERFILE TARGET STAGE FILE...: that target of the Dockerfile, with the files that the stage would have made.
ours() {
    local file stage=$work/stages/$2
    for file in "${@:4}"; do install -D -t "$stage/${file%/*}" "$programs/${file##*/}"; done
    archive "$2" "$version" --file "$root/$1" --target "$2" --build-arg base=localhost/base \
        --build-context "$3=$stage" "$stage"
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

libraries "$programs"/{addon-signer,addon-signer-agent,telemetry-backend,telemetry-agent}
ours Dockerfile addon-signer build-hub src/target/image/addon-signer
ours Dockerfile addon-signer-agent build-agent src/target/agent-image/addon-signer-agent
ours examples/telemetry/Dockerfile telemetry build src/target/release/telemetry-{backend,agent}
theirs pause
theirs coredns

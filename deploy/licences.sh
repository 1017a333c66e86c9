#!/usr/bin/env bash
# Writes the licences of an image or an archive: ours, and those of the crates in the programs. Those of Debian's
# libraries come with the libraries (deploy/image.sh).
#
#   deploy/licences.sh FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

(($# == 1)) || { echo "usage: deploy/licences.sh FOLDER" >&2; exit 1; }
cargo fetch --locked # cargo about looks at the crates of all platforms, and asks no other service
mkdir -p "$(dirname "$1")"
work=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/made"
install -m 0644 -t "$work/made" LICENSE
cargo about generate --locked --offline --fail --no-default-features --config deploy/about/about.toml \
    --output-file "$work/made/THIRD-PARTY.txt" deploy/about/third-party.hbs
rm -rf "$1"
mv -T "$work/made" "$1"

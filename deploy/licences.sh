#!/usr/bin/env bash
# Writes the licences of an image or an archive: ours, and those of the crates in the programs. Those of Debian's
# libraries come with the libraries (deploy/image.sh).
#
#   deploy/licences.sh FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

(($# == 1)) || { echo "usage: deploy/licences.sh FOLDER" >&2; exit 1; }
install -D -m 0644 -t "$1" LICENSE
cargo about generate --locked --offline --fail --no-default-features --config deploy/about/about.toml \
    --output-file "$1/THIRD-PARTY.txt" deploy/about/third-party.hbs

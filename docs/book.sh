#!/usr/bin/env bash
# Makes a website of all pages in target/book/html, with mdBook: first those of the table "Read on" of README, in its
# order, then all others.
set -euo pipefail
shopt -s inherit_errexit

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=../.ci/install.sh
. .ci/install.sh

tool mdbook
rm -rf target/book
mkdir -p target/book/src
# Pages link to files of all kinds.
git ls-files -z | tar --create --null --files-from=- | tar --extract --directory target/book/src
cd target/book
# The usual preprocessors would rename each README, but not the links to it.
printf '[book]\ntitle = "addon-signer"\n[build]\nbuild-dir = "html"\nuse-default-preprocessors = false\n' >book.toml
{
    echo README.md
    sed -n '/^## Read on/,/^## What/{s/](/\n/g;p}' src/README.md | sed -n 's/^\([^)#:]*\.md\)).*/\1/p'
    (cd src && find . -name '*.md' ! -path './tests/it/reference/*' -printf '%P\n' | sort)
} | awk '!seen[$0]++' | while read -r page; do
    printf -- '- [%s](%s)\n' "$(sed -n '/^# /{s///p;q}' "src/$page")" "$page"
done >SUMMARY.md
mv SUMMARY.md src
mdbook build

#!/usr/bin/env bash
# Mutates the good requests of the corpus, and compares what our parser reads of those that policy approves, and of the
# certificates that the hub would issue for them, with Go's crypto/x509, OpenSSL and Python's cryptography:
#
#   fuzz/differential/run.sh [SEED [MUTANTS]]      default: 1 20000
#
# Needs cargo, go, openssl 3 and python3 with venv and PyPI.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
seed=${1:-1}
mutants=${2:-20000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check cryptography
go build -o "$work/read" read.go
openssl genrsa 2048 2>"$work/genrsa" | openssl pkcs8 -topk8 -nocrypt -outform DER -out "$work/rsa.key"
cargo run --quiet --manifest-path ../Cargo.toml --target-dir ../../target/differential --bin differential -- \
    ../../certs/requests/good "$seed" "$mutants" "$work/ca.pem" "$work/rsa.key" >"$work/mutants"
"$work/read" "$work/ca.pem" <"$work/mutants" >"$work/go"
printf 'seed %s, %s mutants, %s\n' "$seed" "$mutants" "$(go version | cut -d' ' -f3)"
"$work/venv/bin/python" compare.py "$work/mutants" "$work/go" "$work/ca.pem"

#!/usr/bin/env bash
# Puts the chain p256-sha384.pem into other forms, for encoding/pem/kinds.rs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
chain=../chains/p256-sha384.pem

openssl crl2pkcs7 -nocrl -certfile "$chain" -out pkcs7.pem
openssl crl2pkcs7 -nocrl -certfile "$chain" -outform DER -out chain.p7b
openssl x509 -in "$chain" -trustout -out trusted.pem
openssl x509 -in "$chain" -outform DER -out authority.cer
openssl pkcs12 -export -nokeys -in "$chain" -passout pass: -out chain.p12
openssl pkey -in ../keys/p256-pkcs8.pem -outform DER -out key.der

#!/usr/bin/env bash
# Makes the chains of ca/chain/tests.rs, which rcgen cannot make: an authority and its root, for 100 years.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# chain NAME DIGEST ROOT-KEY AUTHORITY-KEY
chain() {
    local constraints="basicConstraints=critical,CA:TRUE" usage="keyUsage=critical,keyCertSign,cRLSign"
    openssl req -x509 -new -key "$3" -sha256 -days 36600 -subj /CN=root -addext "$usage" -out "$work/root.pem"
    openssl req -new -key "$4" -subj /CN=authority -out "$work/authority.csr"
    openssl x509 -req -in "$work/authority.csr" -CA "$work/root.pem" -CAkey "$3" "-$2" -days 36500 -set_serial 1 \
        -extfile <(printf '%s\n' "$constraints" "$usage") -out "$work/authority.pem"
    cat "$work/authority.pem" "$work/root.pem" >"$1.pem"
}

keys=../keys
openssl ecparam -genkey -noout -name prime256v1 -out "$work/p256.pem"
chain below-p521 sha512 "$keys/p521-pkcs8.pem" "$work/p256.pem"
chain sha1 sha1 "$keys/rsa2048-pkcs8.pem" "$work/p256.pem"
chain ecdsa-sha512 sha512 "$keys/p256-pkcs8.pem" "$work/p256.pem"
chain rsa1024 sha256 "$keys/p256-pkcs8.pem" "$keys/rsa1024-pkcs8.pem"
chain p256-sha384 sha384 "$keys/p256-pkcs8.pem" "$work/p256.pem"
chain p384-sha256 sha256 "$keys/p384-sec1.pem" "$work/p256.pem"

module addon-signer.io/tests/real/pause

go 1.26.0

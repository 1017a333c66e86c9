module addon-signer.io/examples/client

go 1.22

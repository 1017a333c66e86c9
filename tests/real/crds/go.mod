module addon-signer.io/tests/real/crds

go 1.25.0

require open-cluster-management.io/api v1.3.0

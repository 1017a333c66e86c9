module addon-signer.io/tests/real/crds

go 1.25.0

require open-cluster-management.io/api v1.3.0

// Of what the chart can make objects for, but our programs never talk to.
require (
	github.com/openshift/api v0.0.0-20251125174858-5cf710f68a92
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/gateway-api v1.6.3
)

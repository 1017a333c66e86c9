# `just` lists the recipes; most are steps of .ci/run.

# List the recipes.
default:
    @just --list

# Everything that CI runs.
ci:
    .ci/run

# Format the code.
fmt:
    for workspace in . tools examples/telemetry; do (cd $workspace && cargo fmt --all); done

# Tests on the stand-in for an API server.
test:
    .ci/run test

# Lints, warnings are errors.
clippy:
    .ci/run clippy

# API documentation, warnings are errors.
doc:
    .ci/run doc

# Banned crates, licences, sources.
deny:
    .ci/run deny

# Known vulnerabilities of dependencies, by the advisory database of RustSec; not a step of .ci/run.
advisories:
    cargo deny check advisories

# Build etcd, kube-apiserver and OCM's agent; print the directory for KUBEBUILDER_ASSETS.
real-parts:
    tests/real/build.sh

# Integration tests on the real parts.
test-real:
    .ci/run real

# Pods from our images on a real node.
test-cluster:
    .ci/run cluster

# What fifty agents lose on a node while everything is replaced, killed and rotated; a part of `soak`.
soak-cluster:
    ADDON_SIGNER_SOAK=1 ADDON_SIGNER_POSTGRES=${ADDON_SIGNER_POSTGRES:-/usr/lib/postgresql/15/bin} .ci/run cluster

# The long forms of all tests that have one, optimised.
soak:
    .ci/run soak

# Everything that CI runs, and all that it leaves out: hours.
everything:
    .ci/run everything

# Compare the gateway, built as for the image, with nginx and HAProxy, half an hour; not a step of .ci/run.
proxies *flags:
    KUBEBUILDER_ASSETS=$(tests/real/build.sh) cargo run --locked --profile image --manifest-path tools/Cargo.toml --bin proxies -- {{flags}}

# The step `real` on the oldest and the newest Kubernetes.
versions *minors:
    tests/real/versions.sh {{minors}}

# A release in target/release-VERSION: images, charts, programs, bills of materials, checksums; docs/releases.md.
release version *flags:
    deploy/release.sh {{version}} {{flags}}

# Push a release to the registry that it was made for.
publish folder *flags:
    deploy/publish.sh {{folder}} {{flags}}

# A website of all pages in target/book/html.
book:
    docs/book.sh

# The whole story in one process.
demo:
    .ci/run demo

# Compare with Go, OpenSSL and Python what is read of approved mutants of good CSRs; not a step of .ci/run.
differential seed="1" mutants="20000":
    fuzz/differential/run.sh {{seed}} {{mutants}}

# Ten seconds of every fuzz target.
fuzz:
    .ci/run fuzz

# What makes the code hard to take over, in figures.
house:
    tools/house.py

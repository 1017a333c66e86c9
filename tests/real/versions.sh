#!/usr/bin/env bash
# Runs the step `real` of .ci/run, the integration tests on real parts, on other versions of Kubernetes, one after the
# other. Prints one line per version and fails if one of them failed.
#
#   tests/real/versions.sh            all versions: those of versions/*.mod
#   tests/real/versions.sh MINOR...   only these, such as 1.30
#
# Everything but Kubernetes is that of build.sh. The output of the tests is in target/versions.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cache=${ADDON_SIGNER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/addon-signer}/versions
export CGO_ENABLED=0 GOWORK=off

say() { printf 'versions: %s\n' "$*" >&2; }

# build MINOR VERSION PARTS: prints the directory for KUBEBUILDER_ASSETS: PARTS, but with this Kubernetes. The main is
# that of build.sh, compiled with other modules. Go keeps a binary that is up to date.
build() {
    local directory=$cache/$1 v=k8s.io/component-base/version name
    mkdir -p "$directory"
    say "building Kubernetes $2"
    (cd tests/real/kubernetes && go build -modfile="../versions/$1.mod" -trimpath -buildvcs=false \
        -ldflags "-s -w -X $v.gitVersion=$2 -X $v.gitMajor=1 -X $v.gitMinor=${1#1.}" -o "$directory/kubernetes" .) >&2
    ln -sfn "$3"/* "$directory"
    for name in kube-apiserver kube-controller-manager kubectl; do ln -sfn kubernetes "$directory/$name"; done
    printf '%s\n' "$directory"
}

main() {
    local minors=("$@") minor version parts assets log started counts verdict failed=0 lines=()
    if ((${#minors[@]} == 0)); then mapfile -t minors < <(basename -s .mod tests/real/versions/*.mod | sort -V); fi
    parts=$(tests/real/build.sh)
    mkdir -p target/versions
    for minor in "${minors[@]}"; do
        version=$(cd tests/real/kubernetes && go list -modfile="../versions/$minor.mod" -m -f '{{.Version}}' \
            k8s.io/kubernetes)
        assets=$(build "$minor" "$version" "$parts")
        log=target/versions/$version.log
        say "testing on Kubernetes $version, see $log"
        started=$SECONDS
        verdict=ok
        ADDON_SIGNER_REAL_PARTS=$assets ADDON_SIGNER_TESTS_KUBERNETES=$version .ci/run real >"$log" 2>&1 ||
            { verdict=FAILED; failed=1; }
        # The first result is that of the tests; the step runs one of them again.
        counts=$(sed -n '/^test result/{s/[^.]*\. \([0-9]* passed; [0-9]* failed\).*/\1/p;q}' "$log")
        lines+=("$(printf '%-9s %-6s %s, %d s' "$version" "$verdict" "${counts:-no result}" $((SECONDS - started)))")
    done
    printf '%s\n' "${lines[@]}"
    return "$failed"
}

main "$@"

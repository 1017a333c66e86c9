#!/usr/bin/env bash
# Makes a release of the checkout, signed with a key of its own, from programs that are built already, and checks what a
# user checks; also gives the script what it must refuse. With `twice`, makes another one, which must be the same.
#
#   tests/real/release.sh PROGRAMS HELM [twice]
#
# It needs crane, whose registry the release is published to, skopeo and krew.
set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
fail() { printf 'release.sh: %s\n' "$*" >&2; exit 1; }

# equal WHAT ACTUAL EXPECTED
equal() { [[ $2 == "$3" ]] || fail "$1 is '$2', not '$3'"; }

# release ARGUMENT...: in the short form.
release() { "$root/deploy/release.sh" "$@" --programs "$work/programs" --without-advisories; }

# refused SENTENCE ARGUMENT...: a release with these arguments ends with this sentence, and leaves nothing.
refused() {
    local output status=0
    output=$(release "${@:2}" 2>&1) || status=$?
    [[ $status == 1 && $output == *"$1"* && $output != *$'\n'* ]] || fail "not refused by '$1': $status, $output"
    [[ -z $(compgen -G "$work/refused*") ]] || fail "left by a refused release: $(ls "$work")"
}

check_release() {
    local chart file package rendered
    cd "$work/first"
    sha256sum --quiet --check SHA256SUMS
    gpg --quiet --verify SHA256SUMS.asc SHA256SUMS 2>/dev/null || fail "the signature is wrong"
    equal "what is not listed" "$(comm -3 <(ls) <({ cut -c67- SHA256SUMS; echo SHA256SUMS; echo SHA256SUMS.asc; } | sort))" ""
    # The images, as containerd and skopeo read them.
    equal "the images" "$(sed 's/@sha256:[0-9a-f]\{64\}$//' images.txt | tr '\n' ' ')" \
        "$registry/addon-signer:$version $registry/addon-signer-agent:$version "
    # The chart.
    chart=addon-signer-$version.tgz
    rendered=$("$helm" template addon-signer "$chart" --namespace addon-signer)
    equal "images of pods" "$(grep -o 'image: "\?[^"]*' <<<"$rendered" | tr -d '"' | sort -u)" "image: $registry/addon-signer:$version"
    for chart in addon-signer{,-agent}-"$version".tgz; do
        "$helm" lint --strict "$chart" >"$work/lint" || fail "$(<"$work/lint")"
        grep -q "icon is recommended" "$work/lint" && fail "$chart has no icon"
        equal "what $chart is made from" "$("$helm" show chart "$chart" | grep -c "$source")" 2
    done
    chart=addon-signer-$version.tgz
    if "$helm" template addon-signer "$chart" --set image.registry=ocm >/dev/null 2>&1; then
        fail "the chart takes a registry without a host"
    fi
    # The command line.
    tar --extract --gzip --directory "$work" --file "addon-signer-$version-linux-"*.tar.gz
    "$work"/addon-signer-"$version"-linux-*/addon-signer --version >/dev/null
    for file in man/man1/addon-signer-ca-rotate.1 completions/addon-signer.bash licences/THIRD-PARTY.txt; do
        [[ -s $(echo "$work/addon-signer-$version-linux-"*"/$file") ]] || fail "the archive lacks $file"
    done
    KREW_ROOT=$work/krew krew install --manifest addon-signer.krew.yaml \
        --archive "$(echo "addon-signer-$version-linux-"*.tar.gz)" 2>"$work/error" || fail "krew: $(<"$work/error")"
    equal "the plugin of kubectl" "$("$work/krew/bin/kubectl-addon_signer" --version)" \
        "$("$work"/addon-signer-"$version"-linux-*/addon-signer --version)"
    # Bills of materials and provenance.
    equal "kinds of bills" "$(jq --raw-output .bomFormat addon-signer{,-agent}-"$version".cdx.json | sort -u)" CycloneDX
    for package in pkg:cargo/ring@ pkg:cargo/rustls@ pkg:deb/debian/libc6@ pkg:deb/debian/libgcc-s1@; do
        jq --exit-status --arg package "$package" 'any(.components[].purl; startswith($package))' \
            "addon-signer-$version.cdx.json" >/dev/null || fail "the bill of addon-signer lacks $package"
    done
    equal "what has a path of this machine" "$(zgrep -l -- "$work" ./*.json ./*.txt || true)" ""
    equal "the commit" "$(jq --raw-output '.predicate.buildDefinition.resolvedDependencies[0].digest.gitCommit' provenance.json)" \
        "$(git -C "$root" rev-parse HEAD)"
}

# What the registry has is what the release says, and nothing there is replaced.
check_published() {
    local image chart file
    mv "$work/first/SHA256SUMS.asc" "$work/signature"
    if HELM=$helm "$root/deploy/publish.sh" "$work/first" --plain-http >/dev/null 2>"$work/error"; then
        fail "a release without a signature was published"
    fi
    grep -q "it is not signed" "$work/error" || fail "$(<"$work/error")"
    mv "$work/signature" "$work/first/SHA256SUMS.asc"
    HELM=$helm "$root/deploy/publish.sh" "$work/first" --plain-http
    while read -r image; do
        equal "the digest of $image" "$(crane digest --insecure "${image%@*}")" "${image#*@}"
        equal "the commit of $image" "$(git -C "$root" rev-parse HEAD)" \
            "$(crane config --insecure "${image%@*}" | jq --raw-output '.config.Labels["org.opencontainers.image.revision"]')"
        equal "the source of $image" "$source" \
            "$(crane config --insecure "${image%@*}" | jq --raw-output '.config.Labels["org.opencontainers.image.source"]')"
        crane export --insecure "${image%@*}" - | tar --list >"$work/files"
        for file in etc/os-release licences/THIRD-PARTY.txt var/lib/dpkg/status.d/libc6; do
            grep -qx "$file" "$work/files" || fail "$image lacks $file"
        done
    done <"$work/first/images.txt"
    for chart in addon-signer addon-signer-agent; do
        "$helm" pull --plain-http "oci://$registry/charts/$chart" --version "$version" --destination "$work" 2>/dev/null
        cmp "$work/$chart-$version.tgz" "$work/first/$chart-$version.tgz"
    done
    HELM=$helm "$root/deploy/publish.sh" "$work/first" --plain-http >/dev/null
    crane copy --insecure "$registry/addon-signer-agent:$version" "$registry/addon-signer:$version" 2>/dev/null
    if HELM=$helm "$root/deploy/publish.sh" "$work/first" --plain-http >/dev/null 2>"$work/error"; then
        fail "another image was replaced"
    fi
    grep -q "is there already with another digest" "$work/error" || fail "$(<"$work/error")"
    # A registry that does not answer is not an empty one.
    kill "$server"
    if HELM=$helm "$root/deploy/publish.sh" "$work/first" --plain-http >/dev/null 2>"$work/error"; then
        fail "it was published to nobody"
    fi
    grep -q "connection refused" "$work/error" || fail "$(<"$work/error")"
}

(($# >= 2)) || fail "usage: release.sh PROGRAMS HELM [twice]"
programs=$(cd "$1" && pwd)
helm=$2
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
source=https://git.example.com/ocm/addon-signer
work=$(mktemp -d)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
registry=localhost:$port/ocm
crane registry serve --address "localhost:$port" >"$work/registry.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; gpgconf --homedir "$work/gnupg" --kill all || true; rm -rf "$work" "$root/not-committed"' EXIT
mkdir "$work/programs"
# Without what only debuggers read, as a release has them.
if [[ -d $programs/licences ]]; then cp -r "$programs/licences" "$work/programs"; fi
for name in addon-signer addon-signer-agent; do strip -o "$work/programs/$name" "$programs/$name"; done
export GNUPGHOME=$work/gnupg
mkdir --mode=700 "$GNUPGHOME"
gpg --batch --quiet --passphrase "" --quick-generate-key release-test@example.com ed25519 sign never 2>/dev/null

refused "name the version first" --registry "$registry" --output "$work/refused"
refused "Cargo.toml has another version" 9.9.9 --registry "$registry" --output "$work/refused"
refused "--registry must begin with a host" "$version" --output "$work/refused"
refused "this is 'registry.test/OCM'" "$version" --registry registry.test/OCM --output "$work/refused"
refused "this is 'ocm'" "$version" --registry ocm --output "$work/refused"
refused "--source must be" "$version" --registry registry.test/ocm --source git.example.com --output "$work/refused"
refused "exists already" "$version" --registry "$registry" --output "$work"
refused "no secret key nobody@example.com" "$version" --registry "$registry" --output "$work/refused" --key nobody@example.com
touch "$root/not-committed"
refused "not committed" "$version" --registry "$registry" --output "$work/refused"
rm "$root/not-committed"

release "$version" --registry "$registry" --source "$source" --output "$work/first" --key release-test@example.com
check_release
check_published
if [[ ${3:-} == twice ]]; then
    release "$version" --registry "$registry" --source "$source" --output "$work/second" --key release-test@example.com
    equal "the second release" "$(diff -r --brief --exclude='*.asc' "$work/first" "$work/second")" ""
fi

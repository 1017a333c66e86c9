#!/usr/bin/env bash
# Makes a release from a clean checkout on Debian: everything that somebody with a registry publishes, in one folder.
#
#   deploy/release.sh VERSION --registry REGISTRY [--source URL] [--key KEY] [--output FOLDER] [--without-advisories]
#
#   --registry REGISTRY     where the images will be, such as registry.example.com/ocm: the charts' default
#   --source URL            where this repository is, such as https://git.example.com/ocm/addon-signer, for charts and
#                           images; with it there is also a manifest for krew
#   --key KEY               sign the checksums with this key of GnuPG
#   --output FOLDER         a folder that does not exist yet [default: target/release-VERSION]
#   --without-advisories    do not ask RustSec for known vulnerabilities, where its database cannot be reached
#   --programs FOLDER       take the programs from there, and the folder licences if it is there, instead of making
#                           them: for tests of this script
#
# Two runs on one commit make the same bytes, apart from signatures (docs/releases.md). Root gets the programs that are
# missing installed; others are told which.
set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# shellcheck source=../.ci/install.sh
. .ci/install.sh

say() { printf 'release: %s\n' "$*" >&2; }

read_arguments() {
    version=${1:-} registry="" source="" key="" output="" programs="" advisories=asked
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] ||
        fail "name the version first: deploy/release.sh 0.1.0 --registry registry.example.com/ocm"
    shift
    while (($# > 0)); do
        case $1 in
            --without-advisories) advisories="" && shift && continue ;;
            --registry | --source | --key | --output | --programs) (($# > 1)) || fail "$1 needs a value" ;;
            *) fail "unknown argument $1" ;;
        esac
        printf -v "${1#--}" '%s' "$2"
        shift 2
    done
    # As in the chart's values.schema.json.
    local host='([a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]+)?|[a-z0-9-]+:[0-9]+|localhost)'
    [[ $registry =~ ^$host(/[a-z0-9._-]+)*$ ]] ||
        fail "--registry must begin with a host, in small letters, such as registry.example.com/ocm; this is '$registry'"
    [[ -z $source || $source =~ ^https://[A-Za-z0-9._/:~-]+[A-Za-z0-9]$ && $source != *.git ]] ||
        fail "--source must be the address of a repository, such as https://git.example.com/ocm/addon-signer"
    output=$(realpath --canonicalize-missing "${output:-target/release-$version}")
    [[ ! -e $output ]] || fail "$output exists already: remove it, or name another folder with --output"
}

prepare_machine() {
    distribution=$(. /etc/os-release && printf '%s-%s' "$ID" "${VERSION_ID:-}")
    [[ $distribution == debian-12 ]] || fail "images take the libraries of this machine: make the release on Debian 12"
    [[ -z $key ]] || gpg --list-secret-keys "$key" >/dev/null 2>&1 || fail "gpg has no secret key $key"
    mkdir -p "$ADDON_SIGNER_CACHE"
    command -v cargo >/dev/null || fail "cargo is missing: install Rust with rustup"
    need cc gcc
    need buildah buildah
    need jq jq
    tool cargo-about
    tool cargo-cyclonedx
    if [[ -n $advisories ]]; then tool cargo-deny; fi
}

check_tree() {
    local changes file
    changes=$(git status --porcelain) || fail "this is not a git checkout"
    [[ -z $changes ]] || fail "the checkout has changes that are not committed: see git status"
    grep -qx "version = \"$version\"" Cargo.toml || fail "Cargo.toml has another version than $version"
    for file in deploy/{chart,agent-chart}/Chart.yaml; do
        grep -qx "version: $version" "$file" && grep -qx "appVersion: $version" "$file" ||
            fail "$file has another version or appVersion than $version"
    done
    for file in deploy/agent.yaml examples/telemetry/hub/telemetry.yaml; do
        grep -q "image: addon-signer-agent:$version\b" "$file" || fail "$file names another agent than that of $version"
    done
    grep -q "^## \[$version\] - 20[0-9-]*$" CHANGELOG.md || fail "CHANGELOG.md has no heading [$version] with a date"
}

check_advisories() {
    if [[ -z $advisories ]]; then
        say "nobody asked for known vulnerabilities of the crates"
        return
    fi
    cargo deny --locked check advisories ||
        fail "a crate has a known vulnerability, or RustSec's database cannot be reached; see above"
}

# From the commit, whatever happens to the checkout meanwhile. Paths of this machine are in no program, so that another
# checkout makes the same bytes.
build_programs() {
    local cargo_home=${CARGO_HOME:-$HOME/.cargo} flags name
    flags=$(printf -- '--remap-path-prefix=%s=%s\x1f' "$work/src" /src "$work/target" /target "$cargo_home" /cargo)
    export CARGO_ENCODED_RUSTFLAGS=${flags%$'\x1f'} ADDON_SIGNER_COMMIT=$commit CARGO_INCREMENTAL=0
    export CFLAGS="-ffile-prefix-map=$work=/work -ffile-prefix-map=$cargo_home=/cargo"
    say "building the programs takes a quarter of an hour on two cores"
    (
        cd "$work/src"
        cargo build --locked --target "$target" --target-dir "$work/target" --profile image --no-default-features \
            --package addon-signer
        cargo build --locked --target "$target" --target-dir "$work/target" --profile agent-image \
            --package addon-signer-agent
    )
    install -D -t "$work/programs" "$work/target/$target"/{image/addon-signer,agent-image/addon-signer-agent}
    for name in addon-signer addon-signer-agent; do
        "$work/programs/$name" --version | grep -qx "commit: $commit" || fail "$name is not of the commit $commit"
    done
}

# archive FOLDER FILE: a tar.gz of the folder, with the same bytes for the same content.
archive() {
    tar --create --directory "$(dirname "$1")" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
        --numeric-owner --mode=u=rwX,go=rX "$(basename "$1")" | gzip --no-name --best >"$2"
}

make_images() {
    "$work/src/deploy/images.sh" "$work/programs" "$work/licences" "$work/images" "$registry"
    local name digest
    for name in addon-signer addon-signer-agent; do
        digest=$(tar --extract --to-stdout --file "$work/images/$name.tar" ./index.json |
            jq --raw-output '.manifests[0].digest')
        cp "$work/images/$name.tar" "$made/$name-$version-image-$arch.tar"
        printf '%s/%s:%s@%s\n' "$registry" "$name" "$version" "$digest" >>"$made/images.txt"
    done
}

# What catalogues of charts show.
describe_chart() {
    printf 'icon: data:image/svg+xml;base64,%s\n' "$(base64 --wrap=0 "$work/src/deploy/icon.svg")"
    if [[ -n $source ]]; then printf 'home: %s\nsources: [%s]\n' "$source" "$source"; fi
}

# As `helm package` does, but that writes the time of packing into the archive.
make_charts() {
    sed -i "s|^  registry: \"\" # where you pushed.*|  registry: \"$registry\"|" "$work/src/deploy/chart/values.yaml"
    grep -qx "  registry: \"$registry\"" "$work/src/deploy/chart/values.yaml" || fail "values.yaml has no image.registry"
    rm -r "$work/src/deploy/chart/ci"
    local name
    mkdir "$work/charts"
    mv "$work/src/deploy/chart" "$work/charts/addon-signer"
    mv "$work/src/deploy/agent-chart" "$work/charts/addon-signer-agent"
    for name in addon-signer addon-signer-agent; do
        describe_chart >>"$work/charts/$name/Chart.yaml"
        archive "$work/charts/$name" "$made/$name-$version.tgz"
    done
}

# What an administrator runs: the programs of the images, with completions and manual pages.
make_command_line() {
    local folder=$work/addon-signer-$version-linux-$arch shell
    install -D -t "$folder" "$work/programs"/*
    for shell in bash zsh fish; do
        install -d "$folder/completions"
        "$folder/addon-signer" completions "$shell" >"$folder/completions/addon-signer.$shell"
    done
    install -d "$folder/man/man1"
    "$folder/addon-signer" manual-pages "$folder/man/man1"
    cp -r "$work/licences" "$folder/licences"
    archive "$folder" "$made/${folder##*/}.tar.gz"
}

# For `kubectl krew install`: the command line as kubectl addon-signer.
make_krew_manifest() {
    if [[ -z $source ]]; then return; fi
    local name=addon-signer-$version-linux-$arch
    cat >"$made/addon-signer.krew.yaml" <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: addon-signer
spec:
  version: v$version
  homepage: $source
  shortDescription: Operate addon-signer on a hub
  description: |
    Shows which addons have certificates, checks the installation, rotates certificate authorities, revokes
    certificates, and explains what the gateway does with a request.
  platforms:
    - selector: { matchLabels: { os: linux, arch: $arch } }
      uri: $source/releases/download/v$version/$name.tar.gz
      sha256: $(sha256sum "$made/$name.tar.gz" | cut -d' ' -f1)
      bin: addon-signer
      files:
        - { from: $name/addon-signer, to: . }
        - { from: $name/licences/*, to: licences }
EOF
}

# make_bill NAME CRATE: what a program is made of, the libraries of its image included.
make_bill() {
    local packages
    packages=$(sed -n 's/^\(Package\|Version\|Architecture\): //p' "$work/files/$1"/var/lib/dpkg/status.d/* |
        jq --raw-input --slurp '[split("\n") | map(select(. != "")) | _nwise(3) | {type: "library", name: .[0],
            version: .[2], purl: "pkg:deb/debian/\(.[0])@\(.[2])?arch=\(.[1])&distro='"$distribution"'"}]')
    jq --sort-keys --argjson packages "$packages" 'del(.serialNumber) | .components += $packages' "$2" |
        sed "s|$work/src|/src|g" >"$made/$1-$version.cdx.json"
}

make_bills() {
    local name
    for name in addon-signer addon-signer-agent; do "$work/src/deploy/image.sh" "$work/files/$name" "$work/programs/$name"; done
    (cd "$work/src" && cargo cyclonedx --quiet --format json --no-default-features --target "$target" \
        --override-filename bill)
    make_bill addon-signer "$work/src/bill.json"
    make_bill addon-signer-agent "$work/src/crates/agent/bill.json"
}

# From what, and with what, in the form of in-toto and SLSA.
make_provenance() {
    local subjects
    subjects=$(cd "$made" && sha256sum -- * |
        jq --raw-input --slurp 'split("\n") | map(select(. != "") | {name: .[66:], digest: {sha256: .[:64]}})')
    jq --null-input --sort-keys --argjson subject "$subjects" --arg commit "$commit" --arg version "$version" \
        --arg registry "$registry" --arg source "$source" --arg programs "${programs:+given}" --arg advisories "${advisories:-not asked}" \
        --arg lock "$(sha256sum <"$work/src/Cargo.lock" | cut -d' ' -f1)" \
        --arg rustc "$(rustc --version)" --arg debian "$(</etc/debian_version)" '{
            _type: "https://in-toto.io/Statement/v1", subject: $subject,
            predicateType: "https://slsa.dev/provenance/v1",
            predicate: {
                buildDefinition: {
                    buildType: "https://addon-signer.io/release/v1",
                    externalParameters: {
                        version: $version, registry: $registry, programs: $programs, advisories: $advisories
                    },
                    internalParameters: {rustc: $rustc, debian: $debian},
                    resolvedDependencies: [
                        ({name: "source", digest: {gitCommit: $commit}}
                            + if $source == "" then {} else {uri: "git+\($source)"} end),
                        {name: "Cargo.lock", digest: {sha256: $lock}}
                    ]
                },
                runDetails: {builder: {id: "https://addon-signer.io/release/deploy/release.sh"}}
            }
        }' >"$made/provenance.json"
}

sign() {
    (cd "$made" && sha256sum -- * >SHA256SUMS)
    if [[ -z $key ]]; then
        say "nothing is signed: name a key of GnuPG with --key"
    else
        gpg --batch --local-user "$key" --armor --detach-sign "$made/SHA256SUMS"
    fi
}

main() {
    read_arguments "$@"
    commit=$(git rev-parse HEAD)
    check_tree
    prepare_machine
    check_advisories
    [[ $(git rev-parse HEAD) == "$commit" ]] || fail "another commit was checked out meanwhile: begin again"
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH COMMIT=$commit SOURCE=$source
    target=$(rustc -vV | sed -n 's/^host: //p')
    arch=$(dpkg --print-architecture)
    # Beside its destination, so that the last step is a rename.
    mkdir -p "$(dirname "$output")"
    work=$(mktemp -d "$output.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    made=$work/made
    mkdir "$made" "$work/src"
    git archive "$commit" | tar --extract --directory "$work/src"
    if [[ -n $programs ]]; then
        install -D -t "$work/programs" "$programs"/addon-signer{,-agent}
    else
        build_programs
    fi
    if [[ -n $programs && -d $programs/licences ]]; then
        cp -r "$programs/licences" "$work/licences"
    else
        "$work/src/deploy/licences.sh" "$work/licences"
    fi
    make_images
    make_charts
    make_command_line
    make_krew_manifest
    make_bills
    make_provenance
    sign
    mv --no-target-directory "$made" "$output"
    say "$output has:"
    (cd "$output" && ls -l | awk 'NR > 1 {printf "%9.1f KB  %s\n", $5 / 1000, $9}')
}

main "$@"

# Installs what is missing; .ci/run and deploy/release.sh source it, in the root of the checkout.

# What takes minutes to build is kept here.
export ADDON_SIGNER_CACHE=${ADDON_SIGNER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/addon-signer}

fail() { printf '%s: %s\n' "$0" "$*" >&2; exit 1; }

# need COMMAND PACKAGE: installs Debian's package if the command is missing.
need() {
    if command -v "$1" >/dev/null; then return; fi
    command -v apt-get >/dev/null && [[ $(id -u) == 0 ]] ||
        fail "$1 is missing; install it (on Debian: apt-get install $2)"
    # Steps that run at the same time install one after the other.
    flock "$ADDON_SIGNER_CACHE" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive flock "$ADDON_SIGNER_CACHE" \
        apt-get install -y -qq --no-install-recommends "$2" >/dev/null
}

# go_tool NAME MODULE@VERSION: builds a program in Go into the cache if it is missing, and puts it on the PATH.
go_tool() {
    local folder=$ADDON_SIGNER_CACHE/go-tools/${2##*/}
    if [[ ! -x $folder/$1 ]]; then GOBIN=$folder GOFLAGS=-trimpath go install "$2"; fi
    PATH=$folder:$PATH
}

declare -A tool_versions=([cargo-about]=0.9.3 [cargo-cyclonedx]=0.5.9 [cargo-deny]=0.20.2 [cargo-fuzz]=0.13.2
    [mdbook]=0.5.4)
# A debug build takes a third of the time, and most tools run for seconds. cargo-about compares texts for minutes in one,
# and without its feature it is only a library.
declare -A tool_flags=([cargo-about]="--features cli" [mdbook]="--debug --no-default-features --features search")

# has_tool NAME: whether the cache has it.
has_tool() { [[ -x $ADDON_SIGNER_CACHE/cargo-tools/$1-${tool_versions[$1]}/bin/$1 ]]; }

# tool NAME: builds a cargo subcommand into the cache if it is missing, and puts it on the PATH.
tool() {
    local version=${tool_versions[$1]}
    local root=$ADDON_SIGNER_CACHE/cargo-tools/$1-$version
    if ! has_tool "$1"; then
        # shellcheck disable=SC2086 # several flags
        cargo install "$1" --version "$version" --locked ${tool_flags[$1]:---debug} --quiet --root "$root" \
            --target-dir "$ADDON_SIGNER_CACHE/cargo-tools/target-$1"
        rm -rf "$ADDON_SIGNER_CACHE/cargo-tools/target-$1"
    fi
    PATH=$root/bin:$PATH
}

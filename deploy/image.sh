#!/usr/bin/env bash
# Lays out the files of an image: programs, the libraries of Debian that these are linked to, and what Debian says of
# the packages of these libraries. Both Dockerfiles, the release and the tests make images from this.
#
#   deploy/image.sh FOLDER PROGRAM...
set -euo pipefail
shopt -s inherit_errexit

fail() { printf 'image.sh: %s\n' "$*" >&2; exit 1; }

# package_of LIBRARY: with its architecture. Newer versions of Debian list files below /usr.
package_of() {
    local owner
    owner=$(dpkg-query --search "$1" 2>/dev/null || dpkg-query --search "/usr$1" 2>/dev/null) ||
        fail "no package of Debian has $1: build on Debian, or in the Dockerfile"
    printf '%s\n' "${owner%%: *}"
}

(($# > 1)) || fail "usage: deploy/image.sh FOLDER PROGRAM..."
command -v dpkg-query >/dev/null || fail "this is not Debian, whose libraries images take: use the Dockerfile"
folder=$1
shift
install -D -t "$folder" "$@"
# Scanners ask which distribution the packages are of.
install -D -m 0644 /etc/os-release "$folder/etc/os-release"
linked=$(ldd "$@") || fail "one of $* is not a program for this machine with shared libraries"
[[ $linked != *"not found"* ]] || fail "this machine lacks a library: $(grep "not found" <<<"$linked")"
for library in $(grep -o '/[^ :]*\.so[^ :]*' <<<"$linked" | sort -u); do
    install -D -t "$folder${library%/*}" "$library"
    package=$(package_of "$library")
    # Scanners look for packages here, as in distroless images.
    install -d "$folder/var/lib/dpkg/status.d"
    dpkg-query --status "$package" >"$folder/var/lib/dpkg/status.d/${package%:*}"
    install -D -m 0644 -t "$folder/usr/share/doc/${package%:*}" "/usr/share/doc/${package%:*}/copyright"
done

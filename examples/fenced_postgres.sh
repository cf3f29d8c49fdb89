#!/usr/bin/env bash
# Starts a temporary PostgreSQL cluster, runs a program on it, and stops it again.
#
#   examples/fenced_postgres.sh                    the example fenced_postgres
#   examples/fenced_postgres.sh PROGRAM [ARG…]     another program
#
# The program finds the cluster in FENCED_POSTGRES. The cluster listens on a socket in a temporary
# folder, not on a port. With QUORLOCK_INSTALL=yes, as root, installs Debian's package if PostgreSQL is
# missing, without its service and default cluster. Exit codes: the program's own; 77 if no cluster can be
# started here, with the reason on stderr.
set -euo pipefail
project=$(cd "$(dirname "$0")/.." && pwd)
from=$PWD
source "$project/scripts/lib.sh"

cannot() { echo "no PostgreSQL here: $*" >&2; exit 77; }

find_programs() {
    local initdb
    initdb=$(command -v initdb || find /usr/lib/postgresql -path '*/bin/initdb' 2>/dev/null | sort -V | tail -n 1)
    [ -z "$initdb" ] || dirname "$(readlink -f "$initdb")"
}

programs=$(find_programs)
if [ -z "$programs" ]; then
    from_debian postgresql || cannot "initdb was not found"
    programs=$(find_programs)
fi

# PostgreSQL refuses to run as root.
as=()
if [ "$(id -u)" = 0 ]; then
    id postgres >/dev/null 2>&1 || cannot "there is no user postgres to run it as"
    command -v setpriv >/dev/null || cannot "setpriv is missing; it comes with util-linux"
    as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
fi
# Not below TMPDIR: the path of a socket has a short limit, and that user needs access to the folder.
folder=$(mktemp -d /tmp/quorlock-postgres.XXXXXX)
server=
clean_up() {
    # SIGINT is PostgreSQL's fast shutdown: it disconnects all clients.
    [ -z "$server" ] || kill -INT "$server" 2>/dev/null || true
    wait
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if [ ${#as[@]} -gt 0 ]; then
    chown postgres "$folder"
fi
cd "$folder"
log=$folder/log

failed() {
    cat "$log" >&2
    cannot "the cluster does not start; its log is above"
}

"${as[@]}" "$programs/initdb" -D "$folder/data" -A trust -U postgres --no-sync >"$log" 2>&1 || failed
"${as[@]}" "$programs/postgres" -D "$folder/data" -k "$folder" -c listen_addresses= \
    -c unix_socket_permissions=0700 -F >>"$log" 2>&1 &
server=$!
until "$programs/pg_isready" -q -h "$folder" -U postgres; do
    kill -0 "$server" 2>/dev/null || failed
    sleep 0.05
done

export FENCED_POSTGRES="host=$folder user=postgres dbname=postgres"
cd "$from"
if [ $# -gt 0 ]; then
    "$@"
else
    cd "$project"
    cargo run --quiet --example fenced_postgres
fi

# Installs the database servers for the tests, if they are missing. To be sourced.
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

find_or_install_mariadb() { find_or_install mariadb-server mariadbd; }

find_or_install_postgres() { find_postgres || { install_postgres && find_postgres; }; }

find_postgres() {
    find_program initdb || find /usr/lib/postgresql -path '*/bin/initdb' 2>/dev/null | sort -V | tail -n 1 | grep .
}

# The package would create a cluster.
install_postgres() (
    setting=/etc/postgresql-common/createcluster.d/quorlock.conf
    trap 'rm -f "$setting"' EXIT
    mkdir -p "${setting%/*}" && echo 'create_main_cluster = false' >"$setting"
    from_debian postgresql
)

# Installs the MariaDB server for the tests of quorlock-mysql, if it is missing. To be sourced.

# Prevents Debian from starting the service of the package.
find_or_install_mariadb() {
    PATH=$PATH:/usr/sbin command -v mariadbd && return
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "no MariaDB found: installing Debian's mariadb-server"
    local policy=/usr/sbin/policy-rc.d ours=
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && ours=yes
    fi
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mariadb-server; } \
        >/dev/null 2>&1 || true
    [ -z "$ours" ] || rm -f "$policy"
    PATH=$PATH:/usr/sbin command -v mariadbd
}

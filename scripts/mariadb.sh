# Installs the MariaDB server for the tests of quorlock-mysql, if it is missing. To be sourced.
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

find_or_install_mariadb() { find_or_install mariadb-server mariadbd; }

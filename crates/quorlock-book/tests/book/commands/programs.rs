//! The programs that pages run, as built with this test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use quorlock_testkit::Server;

use crate::target;

/// Replaces `cargo run` by the program that is built already, so that a test builds nothing.
const CARGO: &str = r#"#!/bin/sh
[ "$1" = run ] || { echo "this test does not run cargo $1" >&2; exit 97; }
shift
while [ $# -gt 0 ]; do
    case $1 in
        --release|-q|--quiet|--all-features) shift ;;
        --features) shift 2 ;;
        --bin|-p|--package) program=$2; shift 2 ;;
        --example) program=examples/$2; shift 2 ;;
        --) shift; break ;;
        *) echo "this test does not know cargo run $1" >&2; exit 97 ;;
    esac
done
exec "TARGET/$program" "$@"
"#;

/// Replaces `docker-compose exec client` by the local program.
const DOCKER_COMPOSE: &str = r#"#!/bin/sh
[ "$1 $2" = "exec client" ] || { echo "this test does not run docker-compose $1 $2" >&2; exit 97; }
shift 2
QUORLOCK_NODES=SERVERS exec "$@"
"#;

/// Writes the replacements of `cargo` and `docker-compose` to `folder`, and the files that the pages assume to
/// `session`.
pub(crate) fn put_into(folder: &Path, session: &Path, servers: &[Server]) {
    let target = target().display().to_string();
    write(&folder.join("cargo"), &CARGO.replace("TARGET", &target));
    let nodes: Vec<String> =
        servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect();
    write(&folder.join("docker-compose"), &DOCKER_COMPOSE.replace("SERVERS", &nodes.join(",")));
    write(&session.join("import.sh"), "#!/bin/sh\necho imported\n");
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

//! The programs that pages name, as they were built with this test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use quorlock_testkit::Server;

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().and_then(Path::parent).unwrap().to_owned();
    for program in ["quorlock", "quorlock-chaos"] {
        let built = target.join(program);
        assert!(built.exists(), "{} is not built; run `cargo build --all-features`", built.display());
    }
    target
}

/// `cargo run` of a program that is built already: a page has it built for speed, a test must not.
const CARGO: &str = r#"#!/bin/sh
[ "$1" = run ] || { echo "cargo $1 is not run by this test" >&2; exit 97; }
shift
while [ $# -gt 0 ]; do
    case $1 in
        --release|-q|--quiet|--all-features) shift ;;
        --features) shift 2 ;;
        --bin|-p|--package) program=$2; shift 2 ;;
        --example) program=examples/$2; shift 2 ;;
        --) shift; break ;;
        *) echo "cargo run $1 is not known to this test" >&2; exit 97 ;;
    esac
done
exec "TARGET/$program" "$@"
"#;

/// The client beside the five masters in containers, without the containers.
const DOCKER_COMPOSE: &str = r#"#!/bin/sh
[ "$1 $2" = "exec client" ] || { echo "docker-compose $1 $2 is not run by this test" >&2; exit 97; }
shift 2
QUORLOCK_NODES=SERVERS exec "$@"
"#;

/// Puts a `cargo` and a `docker-compose` into `folder`, and what the pages have their readers already have.
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

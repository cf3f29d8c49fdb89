//! What other users of the host can do with the files, and have put there.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use quorlock::node::Node as _;
use quorlock::node::facts::Exposure;

use crate::node::{new_file, node, refused};
use crate::requests::{acquire, claim};

/// Returns the modes of the database and the files next to it, without the type.
fn modes(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let files = ["", "-wal", "-shm", "-alive"].map(|what| path.with_file_name(format!("{name}{what}")));
    files.iter().map(|file| fs::metadata(file).unwrap().permissions().mode() & 0o777).collect()
}

#[tokio::test]
async fn the_files_belong_to_their_user_or_to_the_group_of_a_shared_folder() {
    let (directory, path) = new_file();
    let own = node(&path);
    acquire(&own, &claim("a")).await.unwrap();
    assert_eq!(modes(&path), [0o600; 4]);
    assert_eq!(own.examine("b".into()).await.unwrap().exposure, None);

    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o2770)).unwrap();
    let path = shared.join("locks.db");
    acquire(&node(&path), &claim("a")).await.unwrap();
    assert_eq!(modes(&path), [0o660; 4], "whatever the umask");
}

#[tokio::test]
async fn another_user_can_neither_read_nor_lock_the_files() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let path = directory.path().join("locks.db");
    let node = node(&path);
    acquire(&node, &claim("a")).await.unwrap();
    let memory = path.with_file_name("locks.db-shm");
    // The lock that a reader of the file could take: of the byte that writers of the log lock.
    let lock = "import fcntl, struct, sys; f = open(sys.argv[1], 'rb'); \
                fcntl.fcntl(f, fcntl.F_SETLK, struct.pack('hhqqi', fcntl.F_RDLCK, 0, 120, 1, 0)); print('locked', flush=True); \
                sys.stdin.read()";
    let attack = || {
        let mut python = Command::new("python3");
        python.args(["-c", lock]).arg(&memory).uid(NOBODY).gid(NOBODY);
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    };
    let mut attacker = match attack() {
        Ok(attacker) => attacker,
        Err(error) => {
            return drop(writeln!(
                std::io::stderr(),
                "skipped: no program can be run as another user: {error}"
            ));
        }
    };
    let locked = |attacker: &mut std::process::Child| {
        BufReader::new(attacker.stdout.as_mut().unwrap()).lines().next().is_some()
    };
    assert!(!locked(&mut attacker), "it was refused");
    attacker.wait().unwrap();
    acquire(&node, &claim("b")).await.unwrap();

    // Of a file that someone has opened to all, the check-up tells, since nobody gets a lock then.
    fs::set_permissions(&memory, Permissions::from_mode(0o644)).unwrap();
    let exposure = node.examine("c".into()).await.unwrap().exposure;
    assert!(
        matches!(&exposure, Some(Exposure::Readable(file)) if file.contains("locks.db-shm")),
        "{exposure:?}"
    );
    let mut attacker = attack().unwrap();
    assert!(locked(&mut attacker), "the attack is real");
    let refused = acquire(&node, &claim("d")).await;
    drop(attacker.stdin.take());
    attacker.wait().unwrap();
    assert!(refused.is_err(), "{refused:?}");
    acquire(&node, &claim("d")).await.unwrap();
}

const NOBODY: u32 = 65_534;

/// Gives a file to another user. `false`, with a message, if this user may not.
fn give_to_nobody(path: &Path) -> bool {
    let given = std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY));
    // Not `eprintln`, whose output the harness captures while a test passes.
    given
        .inspect_err(|error| drop(writeln!(std::io::stderr(), "skipped: no file can be given away: {error}")))
        .is_ok()
}

#[tokio::test]
async fn a_file_that_another_user_has_put_there_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    // As /tmp.
    fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
    for planted in ["", "-wal", "-shm", "-alive"] {
        let path = directory.path().join(format!("locks{planted}.db"));
        let file = directory.path().join(format!("locks{planted}.db{planted}"));
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        if !give_to_nobody(&file) {
            return;
        }
        let error = refused(&path).await;
        let expected = format!("`{}` belongs to another user (UID 65534)", file.display());
        assert!(error.is_permanent() && error.to_string().contains(&expected), "{error:#}");
        fs::remove_file(&file).unwrap();
        acquire(&node(&path), &claim("a")).await.unwrap();
    }
    // The members of a group share a folder that is theirs alone.
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o2770)).unwrap();
    let path = shared.join("locks.db");
    acquire(&node(&path), &claim("a")).await.unwrap();
    assert!(give_to_nobody(&path));
    acquire(&node(&path), &claim("b")).await.unwrap();
}

#[tokio::test]
async fn no_file_is_made_where_a_symbolic_link_leads() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["locks.db", "locks.db-alive", "locks.db-wal", "locks.db-shm"] {
        let (path, link) = (directory.path().join("locks.db"), directory.path().join(name));
        let elsewhere = directory.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let error = refused(&path).await;
        assert!(error.to_string().contains("is a symbolic link"), "{name}: {error:#}");
        assert!(!elsewhere.exists(), "{name}");
        fs::remove_file(&link).unwrap();
        acquire(&node(&path), &claim("a")).await.unwrap();
        for file in fs::read_dir(directory.path()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}

//! Files that settings come from: whose they are, who else may read them, and what is in their place.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};

use crate::settings::NOWHERE;
use crate::support::{Quorlock, bare, servers, servers_with_password};

fn job(words: &[&str]) -> Quorlock {
    let words = [&["run", "-n"], words, &["job", "--", "true"]].concat();
    Quorlock::new(words).env("QUORLOCK_RESTART_GUARD", "off")
}

fn pipe(path: impl AsRef<Path>) {
    mkfifo(path.as_ref(), Mode::S_IRWXU).unwrap();
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for() {
    for (words, name, nodes) in [
        (&["--config", "pipe"][..], "", ""),
        (&["--config", "pipe"], "", NOWHERE),
        (&[], "QUORLOCK_CONFIG", ""),
        (&[], "QUORLOCK_CONFIG", NOWHERE),
        (&["--password-file", "pipe"], "", NOWHERE),
        (&[], "QUORLOCK_PASSWORD_FILE", NOWHERE),
        #[cfg(feature = "tls")]
        (&["--tls-ca", "pipe"], "", "rediss://127.0.0.1:1"),
        #[cfg(feature = "tls")]
        (&["--tls-cert", "pipe", "--tls-key", "pipe"], "", "rediss://127.0.0.1:1"),
    ] {
        let job = job(words).env("QUORLOCK_NODES", nodes);
        pipe(job.path("pipe"));
        let job = if name.is_empty() { job } else { job.env(name, "pipe") };
        let refused = job.end().await.expect(78);
        assert!(refused.stderr.contains("regular file"), "{words:?} {name}: {refused:?}");
    }
    // At a default place, with `--nodes` and without.
    for nodes in [NOWHERE, ""] {
        let job = job(&[]).env("QUORLOCK_NODES", nodes);
        pipe(job.path("quorlock.toml"));
        job.end().await.expect(78).says("regular file");
    }
}

#[tokio::test]
async fn what_others_put_into_their_folder_stops_no_call_there() {
    let Some(servers) = servers(3).await else { return };
    for what in ["a pipe", "a file that cannot be read", "a link to nowhere", "a folder"] {
        let job = job(&[]).on(&servers);
        let path = job.path("quorlock.toml");
        match what {
            "a pipe" => pipe(&path),
            "a folder" => fs::create_dir(&path).unwrap(),
            "a link to nowhere" => symlink("nowhere", &path).unwrap(),
            _ => {
                fs::write(&path, "").unwrap();
                set_mode(&path, 0);
            }
        }
        set_mode(job.path(""), 0o777);
        let ended = job.end().await.expect(0);
        assert!(ended.stderr.contains("quorlock.toml is not read, because its folder"), "{what}: {ended:?}");
    }
}

#[tokio::test]
async fn a_file_that_a_variable_names_must_be_ours_and_one_that_a_flag_names_need_not() {
    let Some(servers) = servers(3).await else { return };
    let (settings, password) = (format!("nodes = '{}'\n", bare(&servers)), servers[0].password().unwrap());
    let by_variable = || {
        job(&[])
            .file("shared.toml", &settings)
            .env("QUORLOCK_CONFIG", "shared.toml")
            .env("QUORLOCK_PASSWORD", password)
    };
    by_variable().end().await.expect(0);

    let writable = by_variable();
    set_mode(writable.path("shared.toml"), 0o666);
    let refused = writable.end().await.expect(78).says("is writable by all users");
    assert!(refused.stderr.contains("--config shared.toml"), "the way out is named: {refused:?}");

    let by_flag = job(&["--config", "shared.toml"]).env("QUORLOCK_PASSWORD", password);
    let by_flag = by_flag.file("shared.toml", &settings);
    set_mode(by_flag.path("shared.toml"), 0o666);
    by_flag.end().await.expect(0);

    if geteuid().is_root() {
        let theirs = by_variable();
        chown(theirs.path("shared.toml"), Some(1), None).unwrap();
        theirs.end().await.expect(78).says("belongs to");
    }
}

#[tokio::test]
async fn a_password_that_others_can_read_is_used_with_a_warning() {
    let Some(servers) = servers_with_password(3, "Qq7Zz9").await else { return };
    for (mode, warned) in [(0o600, false), (0o644, true), (0o604, true)] {
        let job = job(&["--password-file", "secret"]).on(&servers).env("QUORLOCK_NODES", &bare(&servers));
        let job = job.file("secret", "Qq7Zz9\n");
        set_mode(job.path("secret"), mode);
        let ended = job.end().await.expect(0);
        let cure = "can be read by all users of this host: `chmod 600 secret`";
        assert_eq!(ended.stderr.contains(cure), warned, "{mode:o}: {ended:?}");
    }
}

#[tokio::test]
async fn init_follows_no_link_and_replaces_no_other_thing() {
    let target = tempfile::tempdir().unwrap();
    let precious = target.path().join("precious");
    fs::write(&precious, "kept").unwrap();
    for force in [&[][..], &["--force"]] {
        for what in ["a link", "a link to nowhere", "a pipe"] {
            let init = Quorlock::new([&["init", "--nodes", NOWHERE], force].concat());
            let place = init.path("quorlock.toml");
            match what {
                "a link" => symlink(&precious, &place).unwrap(),
                "a pipe" => pipe(&place),
                _ => symlink(target.path().join("nowhere"), &place).unwrap(),
            }
            let refused = init.end().await.expect(64);
            assert!(refused.stderr.contains("quorlock.toml is "), "{what}: {refused:?}");
        }
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 1, "nothing was made behind a link");

    // A file is replaced by a new one, so a process that has the old one open sees no more of it.
    let init = Quorlock::new(["init", "--force", "--no-check", "--nodes", "redis://:Qq7Zz9@127.0.0.1:1"])
        .file("quorlock.toml", "old");
    let place = init.path("quorlock.toml");
    set_mode(&place, 0o666);
    let before = fs::metadata(&place).unwrap().ino();
    let look = || {
        let after = fs::metadata(&place).unwrap();
        assert_eq!(after.mode() & 0o777, 0o600, "it has a password");
        assert_ne!(after.ino(), before);
        let names: Vec<_> =
            fs::read_dir(place.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "nothing is left beside it, stdout and stderr: {names:?}");
    };
    init.start().end_with(look).await.expect(0);
}

//! The commands of `docs/migration.md` for users of `consul lock` and `flock`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::servers;

const PAGE: &str = include_str!("../../../../docs/migration.md");

#[tokio::test]
async fn every_command_of_the_page_about_moving_over_runs() {
    let Some(servers) = servers(3).await else { return };
    let program = Path::new(env!("CARGO_BIN_EXE_quorlock")).parent().unwrap().to_str().unwrap();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap());
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("import.sh"), "#!/bin/sh\n").unwrap();
    let mut run = 0;
    for row in PAGE.lines().filter(|line| line.starts_with("| ")) {
        // A bar in the code is escaped in the table.
        let row = row.replace("\\|", "\u{1}");
        let code = row.split(" | ").nth(1).unwrap_or_default().trim_matches('`').replace('\u{1}', "|");
        if !code.starts_with("quorlock ") && !code.starts_with('[') {
            continue;
        }
        // What follows the line of a script runs under the lock, also within another one, and in a strict script.
        let of_script = code.starts_with('[');
        let (before, after) =
            if of_script { ("set -eu", "quorlock status nightly | grep 'is held by'") } else { ("", "") };
        // In a script, because one of the commands starts the script that contains it.
        let script = folder.path().join("script.sh");
        fs::write(&script, format!("#!/bin/sh\n{before}\n{code}\n{after}\n")).unwrap();
        for outer in [Some("deploy"), None].into_iter().take(1 + usize::from(of_script)) {
            let ended = Command::new("sh")
                .args(["-c", "chmod +x script.sh import.sh && exec ./script.sh"])
                .current_dir(folder.path())
                .env("PATH", &path)
                .env("HOME", folder.path())
                .env("QUORLOCK_NODES", servers.urls().join(","))
                .env("QUORLOCK_RESTART_GUARD", "off")
                .env("QUORLOCK_HELD", "1")
                .envs(outer.map(|name| ("QUORLOCK_RESOURCE", name)))
                .output()
                .unwrap();
            assert!(ended.status.success(), "`{code}`: {}", String::from_utf8_lossy(&ended.stderr));
        }
        run += 1;
    }
    assert!(run > 19, "{run} were found");
}

/// The flags of both programs, in the versions that the page names.
const THEIRS: &[(&str, &str)] = &[
    (
        "`consul lock`",
        "-child-exit-code -n= -monitor-retry -name -pass-stdin -shell -timeout -try -verbose -http-addr -token \
         -token-file -ca-file -client-cert -client-key -tls-server-name -datacenter -stale CONSUL_LOCK_HELD",
    ),
    ("`flock`", "`-c `-E `-F` `-e` `-x` `-n` `-o` `-s` `-u` `-w --fcntl --start --length --fd --verbose"),
];

#[test]
fn every_flag_of_theirs_is_on_the_page() {
    for (program, flags) in THEIRS {
        let section = PAGE.split("\n## ").find(|section| section.starts_with(program)).unwrap();
        let theirs: String = section.lines().filter_map(|line| line.split(" | ").next()).collect();
        for flag in flags.split_whitespace() {
            assert!(
                theirs.contains(flag),
                "docs/migration.md does not say what becomes of {flag} of {program}"
            );
        }
    }
}

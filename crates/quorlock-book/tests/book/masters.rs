//! Tests the claims of `docs/masters.md` on five real masters, and its files.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use quorlock::{
    Coordinator,
    doctor::{Check, Finding, Severity},
    health::NodeStatus,
};
use quorlock_book::block::blocks;
use quorlock_book::page::page;
use quorlock_testkit::{Kind, Servers, outward, until};
use serde_json::Value;

/// Short, so that the quarantine is short.
const MAX_TTL: Duration = Duration::from_secs(2);

/// Returns the first block of the page in this language that contains `what`.
fn block(language: &str, what: &str) -> String {
    let page = page("docs/masters.md").unwrap();
    let mut blocks = blocks(&page.text).into_iter();
    let block = blocks.find(|block| block.language == language && block.text.contains(what));
    block.unwrap_or_else(|| panic!("no {language} with {what}")).text
}

/// Returns the settings of the page as command-line arguments, except those of who reaches the server.
fn options() -> Vec<String> {
    let text = block("conf", "appendfsync");
    let of_access =
        |line: &str| ["bind ", "port ", "user ", "dir "].iter().any(|name| line.starts_with(name));
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#') && !of_access(line));
    let words = lines.flat_map(|line| {
        let (name, value) = line.split_once(' ').expect("a name and a value");
        [format!("--{name}"), value.trim_matches('"').to_owned()]
    });
    words.collect()
}

async fn masters() -> Option<Servers> {
    if !matches!(Kind::choose().unwrap(), Kind::Program { .. }) {
        crate::skip("no valkey-server or redis-server installed");
        return None;
    }
    let options = options();
    let words: Vec<&str> = options.iter().map(String::as_str).collect();
    Some(Servers::setup().durable().options(&words).start(5).await.unwrap())
}

/// Returns a client with the restart guard, as in production.
fn client(servers: &Servers) -> Coordinator {
    Coordinator::builder().nodes(servers.urls()).ttl(MAX_TTL).max_ttl(MAX_TTL).build().unwrap()
}

/// Waits until each node votes, the first `restarted` of them after a restart: the condition for which the
/// page waits between two restarts.
async fn all_vote(coordinator: &Coordinator, restarted: usize) {
    let health = coordinator.health();
    until("a vote of each node", async || {
        let nodes = health.now();
        let back = nodes.iter().take(restarted).all(|node| node.restarts == 1);
        back && nodes.iter().all(|node| node.status == NodeStatus::Connected)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_the_settings_as_safe() {
    let Some(servers) = masters().await else { return };
    let coordinator = client(&servers);
    let examination = coordinator.doctor().await;
    assert!(!examination.has(Severity::Unsafe), "{:?}", examination.findings);
    let durable = |finding: &Finding| finding.check != Check::NotPersistent;
    assert!(examination.findings.iter().all(durable), "{:?}", examination.findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_survives_a_rolling_restart_of_all_five_masters() {
    let Some(servers) = masters().await else { return };
    let (holder, other) = (client(&servers), client(&servers));
    until("a first lock, after the quarantine of new servers", async || {
        holder.lock("before").try_acquire().await.is_ok_and(|lease| lease.is_some())
    })
    .await;
    all_vote(&holder, 0).await;
    let lease = holder.lock("held").acquire().await.unwrap();
    let token = lease.fencing_token();

    for (number, server) in servers.iter().enumerate() {
        // Some of them lose their data.
        if number % 2 == 0 {
            server.restart_empty().await.unwrap();
        } else {
            server.restart_with_data().await.unwrap();
        }
        lease.check().unwrap_or_else(|lost| panic!("after the restart of server {number}: {lost}"));
        let free = other.lock("free").acquire().await;
        free.unwrap_or_else(|error| panic!("while server {number} does not vote: {error}"))
            .release()
            .await
            .unwrap();
        let other_lease = other.lock("held").try_acquire().await.unwrap();
        assert!(
            other_lease.is_none(),
            "the lock was lost by the restart of server {number}: its holder has {:?}",
            lease.check()
        );
        all_vote(&holder, number + 1).await;
    }

    lease.check().expect("the lock was lost in the last restart");
    assert_eq!(lease.fencing_token(), token, "another lease");
    lease.release().await.expect("the lock was lost unnoticed");
}

/// Returns a program that can read the file of the page, or `None`, with a message.
fn program() -> Option<PathBuf> {
    let Kind::Program { path, version, .. } = Kind::choose().unwrap() else {
        crate::skip("no valkey-server or redis-server installed");
        return None;
    };
    if version.starts_with("6.") {
        crate::skip("the file of docs/masters.md has rights that Redis 6 does not know");
        return None;
    }
    Some(path)
}

/// A server with the file of the page, killed on drop.
struct Master(Child);

impl Drop for Master {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Master {
    /// Starts it in `folder`, on a free port, and returns that.
    fn start(program: &Path, hash: &str, folder: &Path) -> (Master, u16) {
        fs::create_dir_all(folder).unwrap();
        let port = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().local_addr().unwrap().port();
        let mut text = block("conf", "appendfsync");
        for (placeholder, here) in [
            ("port 6379", format!("port {port}")),
            ("#PASSWORD_HASH", format!("#{hash}")),
            ("#ADMIN_PASSWORD_HASH", format!("#{hash}")),
            ("/var/lib/redis", folder.display().to_string()),
        ] {
            assert!(text.contains(placeholder), "the page's file has no {placeholder}");
            text = text.replacen(placeholder, &here, 1);
        }
        fs::write(folder.join("redis.conf"), text).unwrap();
        (Master::again(program, folder), port)
    }

    /// Starts it with the file that is there.
    fn again(program: &Path, folder: &Path) -> Master {
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut command = Command::new(program);
        let command = command.arg(folder.join("redis.conf")).stdin(Stdio::null());
        Master(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }
}

/// Makes the password as the page says, in `folder`, and returns the hash that goes into the servers' file.
fn password_hash(folder: &Path) -> String {
    let commands = block("sh", "sha256sum");
    let made = Command::new("sh").args(["-e", "-c", &commands]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// Runs `quorlock` with the page's file of settings, in `folder`.
fn quorlock(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(crate::target().join("quorlock"));
    command.args(["--config", "quorlock.toml", "--max-ttl", "2s"]).args(words);
    command.current_dir(folder).env_clear().stdin(Stdio::null()).output().unwrap()
}

#[tokio::test]
async fn servers_and_clients_with_the_files_of_the_page_work_from_another_machine() {
    let Some(path) = program() else { return };
    let Some(address) = outward() else {
        return crate::skip("this machine has no address but loopback, at which any server answers");
    };
    let folder = tempfile::tempdir().unwrap();
    let hash = password_hash(folder.path());
    let masters: Vec<(Master, u16)> =
        (0..5).map(|number| Master::start(&path, &hash, &folder.path().join(number.to_string()))).collect();
    let mut settings = block("toml", "password-file");
    settings = settings.replace("/etc/quorlock/password", "password");
    for (number, (_, port)) in masters.iter().enumerate() {
        let named = format!("redis://10.{number}.0.1\"");
        assert!(settings.contains(&named), "{settings}");
        settings = settings.replace(&named, &format!("redis://{address}:{port}\""));
    }
    fs::write(folder.path().join("quorlock.toml"), settings).unwrap();

    // The command that the reader types first: it waits for the quarantine of new servers.
    let checked = quorlock(folder.path(), &["doctor", "--json", "--wait", "1min"]);
    let report: Value = serde_json::from_slice(&checked.stdout).unwrap_or_else(|_| panic!("{checked:?}"));
    assert_eq!(checked.status.code(), Some(0), "{report:#}");
    // They are on one machine, and the page leaves TLS and the version to the reader. A quorum suffices for the
    // command, so the servers started last may have to wait for their votes still.
    let mut expected = vec!["known-hole", "no-spare", "plain-text", "restarted", "shared-host"];
    // Of a busy machine.
    expected.extend(["slow-node", "short-ttl"]);
    let mut findings = report["findings"].as_array().unwrap().iter();
    assert!(findings.all(|finding| expected.contains(&finding["finding"].as_str().unwrap())), "{report:#}");

    for words in [
        &["run", "job", "--", "echo", "locked"][..],
        &["run", "--shared", "job", "--", "echo", "locked"],
        &["run", "--permits", "2", "job", "--", "echo", "locked"],
    ] {
        let ran = quorlock(folder.path(), words);
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "locked\n", "{words:?}: {ran:?}");
    }
    let listed = quorlock(folder.path(), &["list"]);
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    // Nobody else gets in.
    let anonymous = format!("redis://{address}:{}", masters[0].1);
    let mut other = Command::new(crate::target().join("quorlock"));
    let refused = other.args(["status", "job", "--nodes", &anonymous]).env_clear().output().unwrap();
    let stdout = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(refused.status.code() == Some(69) && stdout.contains("requires a password"), "{refused:?}");
}

/// Sends these commands over a connection of their own, and returns a line of reply for each.
fn replies(port: u16, commands: &[&str]) -> Option<Vec<String>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all((commands.join("\r\n") + "\r\n").as_bytes()).ok()?;
    BufReader::new(stream).lines().take(commands.len()).collect::<Result<_, _>>().ok()
}

#[tokio::test]
async fn a_password_that_was_changed_as_the_page_says_is_so_after_a_restart() {
    let Some(path) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let hash = password_hash(folder.path());
    let old = fs::read_to_string(folder.path().join("password")).unwrap();
    let admin = format!("AUTH admin {}", old.trim());
    let (master, port) = Master::start(&path, &hash, folder.path());
    let up = async || replies(port, &[&admin]).is_some_and(|replies| replies == ["+OK"]);
    until("the server is up", up).await;

    let page = page("docs/masters.md").unwrap().text;
    let (_, steps) = page.split_once("## Changing passwords").unwrap();
    let (steps, _) = steps.split_once("\n## ").unwrap();
    let numbered = steps.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    let commands: Vec<String> = numbered
        .filter_map(|line| {
            line.split('`').find(|code| code.starts_with("ACL SETUSER") || code.starts_with("CONFIG"))
        })
        .map(|code| code.replace("NEW", "the-new-one").replace("OLD", old.trim()))
        .collect();
    let mut all = vec![&*admin];
    all.extend(commands.iter().map(String::as_str));
    assert_eq!(replies(port, &all).unwrap(), vec!["+OK"; all.len()], "{all:?}");

    drop(master);
    let _master = Master::again(&path, folder.path());
    until("the server is up again", up).await;
    let login = |password: &str| replies(port, &[&format!("AUTH quorlock {password}")]).unwrap();
    assert_eq!(login("the-new-one"), ["+OK"]);
    assert!(login(old.trim())[0].starts_with("-WRONGPASS"), "the old password is back");
}

#[test]
fn the_file_of_the_page_has_the_documented_rights() {
    let page = block("conf", "appendfsync");
    let user = page.lines().find(|line| line.starts_with("user quorlock ")).unwrap();
    let has: BTreeSet<&str> = user.split(' ').collect();
    let security = fs::read_to_string(quorlock_book::page::root().join("SECURITY.md")).unwrap();
    let line = security.lines().find(|line| line.starts_with("ACL SETUSER quorlock ")).unwrap();
    let needed = line.split(' ').filter(|word| word.starts_with(['+', '~', '-']));
    let missing: Vec<&str> = needed.filter(|word| !has.contains(word)).collect();
    assert_eq!(missing, [""; 0], "of the rights in SECURITY.md");
}

//! Programs as nodes: the contract suite on one in Rust and one in Python, and children that break the protocol.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use quorlock::node::{Node as _, NodeError, Request, Responder, Seams, SharedRequest, Vote, ask};
use quorlock::protocol::{Claim, FenceHint, Token};
use quorlock::runtime::{Clock as _, Entropy, SystemClock};
use quorlock::{Coordinator, FencingToken, RestartGuard, Wait};
use quorlock_exec::{ExecKind, ExecNode};
use quorlock_testkit::{patience, scaled, until};

fn node(url: &str) -> ExecNode {
    ExecNode::new(url, &Seams::default()).unwrap()
}

/// Runs the suite, as who writes a program does. Returns what it says.
fn contract(url: &str) -> String {
    let ran = std::process::Command::new(example("contract")).arg(url).output().unwrap();
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

fn keeps_the_contract(url: &str) {
    let text = contract(url);
    assert!(text.contains("keeps the contract"), "{text}");
}

/// An example, which cargo builds with the tests.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().parent().unwrap().join("examples").join(name)
}

fn in_python() -> Option<String> {
    let there = std::process::Command::new("python3").arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: python3 is not installed");
    }
    there.then(|| format!("exec:{}/examples/node.py", env!("CARGO_MANIFEST_DIR")))
}

#[test]
fn a_node_that_is_served_by_another_process_keeps_the_contract() {
    let url = format!("exec:{}", example("serve_memory").display());
    keeps_the_contract(&url);
    keeps_the_contract(&format!("{url}?hints=yes"));
}

#[test]
fn the_program_in_python_keeps_the_contract_unless_it_forgets_under_the_same_identity() {
    let Some(url) = in_python() else { return };
    keeps_the_contract(&url);
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(url.strip_prefix("exec:").unwrap()).unwrap();
    let forgetful = folder.path().join("node.py");
    fs::write(&forgetful, text.replace("uuid.uuid4().hex", "'fixed'")).unwrap();
    let output = contract(&format!("exec:python3?arg={}", forgetful.display()));
    assert!(
        output.contains("breaks 1 of") && output.contains("all is remembered or the history is a new"),
        "{output}"
    );
}

/// Five programs in Python are a deployment of five nodes.
#[tokio::test]
async fn programs_are_the_nodes_of_a_deployment() {
    let Some(url) = in_python() else { return };
    let nodes = (0..5).map(|number| format!("{url}?arg={number}"));
    let builder = Coordinator::builder().kind(ExecKind::new()).nodes(nodes);
    let coordinator = builder.restart_guard(RestartGuard::Off).build().unwrap();
    let lock = coordinator.lock("jobs/a").wait(Wait::UpTo(patience()));
    let lease = lock.acquire().await.unwrap();
    assert!(lease.fencing_token() > FencingToken::ZERO);
    let refused = coordinator.lock("jobs/a").wait(Wait::Never).acquire().await.unwrap_err().to_string();
    assert!(refused.contains("jobs/a"), "{refused}");
    lease.release().await.unwrap();
    let error = coordinator.lock("jobs/a").shared().acquire().await.unwrap_err().to_string();
    assert!(error.contains("shared locks"), "{error}");
}

#[tokio::test]
async fn a_program_with_other_data_at_each_start_is_reported_as_unsafe() {
    let folder = tempfile::tempdir().unwrap();
    // It answers each request by its number.
    let text = |identity: &str| {
        format!(
            "echo '{{\"quorlock\":1,\"identity\":\"'{identity}'\",\"age_ms\":99999}}'\nid=0\n\
             while read asked; do id=$((id+1)); echo '{{\"id\":'$id',\"is\":\"free\"}}'; done"
        )
    };
    for (identity, concerns) in [("$$", 1), ("shared", 0)] {
        let node = node(&script(folder.path(), identity, &text(identity)));
        let facts = node.examine("a".into()).await.unwrap();
        assert_eq!(facts.concerns.len(), concerns, "{identity}: {:?}", facts.concerns);
        assert!(facts.concerns.iter().all(|concern| concern.is_unsafe));
    }
}

/// A child that is a shell script.
fn script(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    // Under another name first: a program that is being written cannot be run.
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("exec:/bin/sh?arg={}", path.display())
}

const HELLO: &str = r#"echo '{"quorlock":1,"identity":"mine","age_ms":99999}'"#;

fn acquire() -> Request {
    let claim = Arc::new(Claim::new("a".into(), Token::new(7, "anna:1")));
    Request::Acquire { claim, ttl: Duration::from_secs(30), fence_hint: None }
}

#[tokio::test]
async fn children_that_hang_flood_lie_die_or_answer_twice_grant_nothing_and_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let answer = |line: &str| format!("{HELLO}\nread asked\necho '{line}'\nsleep 60");
    let wrong_history = r#"echo '{"quorlock":1,"identity":"","age_ms":1}'; sleep 60"#.to_owned();
    let rows: &[(&str, String, &str)] = &[
        ("dies", "exit 3".to_owned(), "exit status: 3"),
        ("dies later", format!("{HELLO}\nread asked\nexit 4"), "exit status: 4"),
        ("says nothing sensible", "echo hello; sleep 60".to_owned(), "none of this protocol"),
        ("floods", "exec yes '                          '".to_owned(), "none of this protocol"),
        ("floods without a line", format!("{HELLO}\nexec tr '\\0' x </dev/zero"), "more than 1048576 bytes"),
        (
            "other version",
            r#"echo '{"quorlock":9,"identity":"x","age_ms":1}'; sleep 60"#.to_owned(),
            "version 9",
        ),
        ("no history", wrong_history, "no identity"),
        ("answers another", answer(r#"{"id":8,"is":"granted"}"#), "answers request 8"),
        ("answers by another", answer(r#"{"id":1,"is":"restored"}"#), "an answer of another request"),
        ("holder without name", answer(r#"{"id":1,"is":"held"}"#), "names no holder"),
        ("large number", answer(r#"{"id":1,"is":"granted","number":9007199254740993}"#), "beyond 2^53"),
        ("over", answer(r#"{"id":1,"is":"granted","before_ms":30000}"#), "30000 ms before the request"),
        ("refuses", answer(r#"{"id":1,"error":"the table is missing"}"#), "the table is missing"),
        ("doubts", answer(r#"{"id":1,"error":"slow","maybe":true}"#), "may have been carried out: slow"),
        (
            "other word",
            answer(r#"{"id":1,"is":"locked"}"#),
            "`{\"id\":1,\"is\":\"locked\"}`: unknown variant `locked`",
        ),
        (
            "negative",
            answer(r#"{"id":1,"is":"held","token":"a","left_ms":-5}"#),
            "invalid value: integer `-5`",
        ),
        ("no text", answer(r#"{"id":1,"error":{"code":5}}"#), "invalid type: map, expected a string"),
    ];
    for (name, text, words) in rows {
        let node = node(&script(folder.path(), name, text));
        let error = format!("{:#}", ask(&node, acquire()).await.unwrap_err());
        assert!(error.contains(words), "{name}: {error}");
    }
    for (name, line, words) in [
        ("numberless", r#"{"id":1,"is":"granted"}"#, "draws no number"),
        ("old number", r#"{"id":1,"is":"granted","number":7}"#, "draws number 7, below"),
    ] {
        let node = node(&script(folder.path(), name, &answer(line)));
        let Request::Acquire { claim, ttl, .. } = acquire() else { unreachable!("it is one") };
        let fence_hint = Some(FenceHint::at(SystemClock::default().wall(), None, ttl));
        let error = ask(&node, Request::Acquire { claim, ttl, fence_hint }).await.unwrap_err();
        assert!(error.may_have_acted() && format!("{error:#}").contains(words), "{error:#}");
    }
    // An answer that was given already ends it, and the next child is asked.
    let twice = format!(
        "{HELLO}\nread asked\necho '{{\"id\":1,\"is\":\"free\"}}'\nread more\necho '{{\"id\":1,\"is\":\"granted\"}}'\nsleep 60"
    );
    let node = node(&script(folder.path(), "twice", &twice));
    assert_eq!(ask(&node, acquire()).await.unwrap().vote, Vote::Free);
    assert!(matches!(ask(&node, acquire()).await, Err(NodeError::Disconnected { .. })));
    let again = async || ask(&node, acquire()).await.is_ok_and(|answer| answer.vote == Vote::Free);
    until("an answer of the next child", again).await;
}

#[tokio::test]
async fn a_grant_whose_time_has_begun_before_counts_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        format!("{HELLO}\nread asked\necho '{{\"id\":1,\"is\":\"granted\",\"before_ms\":5000}}'\nsleep 60");
    let (node, clock) = (node(&script(folder.path(), "before", &text)), SystemClock::default());
    node.ready().await.unwrap();
    let granted = ask(&node, acquire()).await.unwrap();
    let from = granted.counts_from.expect("a moment");
    assert!(clock.now().since(from) >= Duration::from_secs(5), "{from:?}");
}

#[tokio::test]
async fn a_lease_that_lives_as_long_as_a_session_is_planned_by_what_is_proven() {
    let folder = tempfile::tempdir().unwrap();
    let hello = HELLO.replace('}', r#","proven_ms":20000}"#);
    let text = format!("{hello}\nread asked\necho '{{\"id\":1,\"is\":\"granted\"}}'\nsleep 60");
    let (node, seconds) = (node(&script(folder.path(), "session", &text)), Duration::from_secs);
    assert_eq!(node.grant_age(seconds(30)), Duration::ZERO, "it has not been started");
    ask(&node, acquire()).await.unwrap();
    assert_eq!([10, 30].map(|ttl| node.grant_age(seconds(ttl))), [0, 10].map(seconds));
}

fn node_of(folder: &tempfile::TempDir, name: &str) -> ExecNode {
    node(&script(folder.path(), name, &format!("{HELLO}\nexec sleep 60")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_hangs_answers_nothing_in_time_and_holds_no_more_than_its_share() {
    let folder = tempfile::tempdir().unwrap();
    let node = node_of(&folder, "hangs");
    node.ready().await.unwrap();
    let many = (0..5_000).map(|_| ask(&node, acquire()));
    let answers = futures::future::join_all(many).await;
    let overloaded =
        answers.iter().filter(|answer| matches!(answer, Err(NodeError::Overloaded { .. }))).count();
    let unanswered =
        answers.iter().filter(|answer| matches!(answer, Err(NodeError::Unanswered { .. }))).count();
    assert_eq!(overloaded + unanswered, 5_000);
    assert!(overloaded >= 3_000, "{overloaded}");
    // Its overdue answers delay no other.
    let hung = node_of(&folder, "hangs later");
    let clock = SystemClock::default();
    for _ in 0..2 {
        let began = clock.now();
        assert!(matches!(ask(&hung, acquire()).await, Err(NodeError::Unanswered { .. })));
        let passed = clock.now().since(began);
        assert!(passed < scaled(Duration::from_secs(12)), "{passed:?}");
    }
}

/// Appends its process id to `started`, and says its first line.
fn counted(folder: &tempfile::TempDir, then: &str) -> String {
    format!("echo $$ >>{}\n{then}", folder.path().join("started").display())
}

fn started(folder: &tempfile::TempDir) -> Vec<String> {
    let pids = fs::read_to_string(folder.path().join("started")).unwrap_or_default();
    pids.lines().map(str::to_owned).collect()
}

fn is_gone(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    // A zombie is one that nothing but a lack of attention keeps.
    stat.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.starts_with(" Z"))
}

#[tokio::test]
async fn a_child_that_closes_its_output_and_goes_on_is_killed_and_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let text = counted(&folder, &format!("{HELLO}\nread asked\nexec >&- sleep 600"));
    let node = node(&script(folder.path(), "mute", &text));
    let error = format!("{:#}", ask(&node, acquire()).await.unwrap_err());
    assert!(error.contains("closed its output"), "{error}");
    until("another one", async || {
        drop(ask(&node, acquire()).await);
        started(&folder).len() > 1
    })
    .await;
    let first = started(&folder).swap_remove(0);
    until("the end of the first", async || is_gone(&first)).await;
}

/// No pause is shorter than it can be.
#[derive(Debug)]
struct Longest;

impl Entropy for Longest {
    fn next_u128(&self) -> u128 {
        u128::MAX
    }

    fn next_u64(&self) -> u64 {
        u64::MAX
    }
}

/// A good first line is no service: the pauses between starts grow until a request is answered.
#[tokio::test]
async fn a_child_that_ends_at_each_request_is_started_ever_more_rarely() {
    let folder = tempfile::tempdir().unwrap();
    let url = script(folder.path(), "greets", &counted(&folder, &format!("{HELLO}\nread asked\nexit 9")));
    let builder = Coordinator::builder().kind(ExecKind::new()).nodes([&url]).entropy(Longest);
    let coordinator = builder.restart_guard(RestartGuard::Off).build().unwrap();
    let (clock, lock) = (SystemClock::default(), coordinator.lock("a").wait(Wait::UpTo(patience())));
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    let began = clock.now();
    until("six starts", async || started(&folder).len() >= 6).await;
    // Between them are 50, 100, 200, 400 and 800 ms.
    let passed = clock.now().since(began);
    assert!(passed >= Duration::from_millis(1500), "{passed:?}");
    waiting.abort();
}

#[tokio::test]
async fn a_child_that_says_nothing_keeps_no_caller_longer_than_it_would_wait() {
    let folder = tempfile::tempdir().unwrap();
    let url = script(folder.path(), "says nothing", "exec sleep 600");
    let builder = Coordinator::builder().kind(ExecKind::new()).nodes([&url]);
    let coordinator = builder.restart_guard(RestartGuard::Off).build().unwrap();
    let (clock, wait) = (SystemClock::default(), Duration::from_secs(3));
    let began = clock.now();
    let error = coordinator.lock("a").wait(Wait::UpTo(wait)).acquire().await.unwrap_err();
    let passed = clock.now().since(began);
    assert!(passed < scaled(wait + Duration::from_secs(2)), "{passed:?}: {error:#}");
    assert!(format!("{error:#}").contains("has not said a line within 2s"), "{error:#}");
}

#[tokio::test]
async fn what_a_child_has_started_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "sh -c 'echo $$ >>{}; exec sleep 600' >/dev/null 2>&1 &\n{HELLO}\nread asked\nexit 0",
        folder.path().join("started").display()
    );
    let node = node(&script(folder.path(), "leaves one", &text));
    until("what it starts", async || {
        drop(node.ready().await);
        !started(&folder).is_empty()
    })
    .await;
    let error = format!("{:#}", ask(&node, acquire()).await.unwrap_err());
    assert!(error.contains("exit status: 0"), "{error}");
    let left = started(&folder).swap_remove(0);
    until("its end", async || is_gone(&left)).await;
}

#[tokio::test]
async fn a_child_ends_with_its_node() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    // One that ignores the end of its input.
    let text = format!("echo $$ >{}\n{HELLO}\nexec sleep 60", pid.display());
    let node = node(&script(folder.path(), "stays", &text));
    node.ready().await.unwrap();
    let pid = fs::read_to_string(pid).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    assert!(process.exists());
    drop(node);
    until("its end", async || !process.exists()).await;
}

#[tokio::test]
async fn i31_a_panic_of_what_a_node_calls_costs_its_child() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{HELLO}\nread asked\necho '{{\"id\":1,\"is\":\"free\"}}'\nsleep 60");
    let node = node(&script(folder.path(), "once", &counted(&folder, &text)));
    let panics = |_| resume_unwind(Box::new("a panic that the test wants"));
    node.ask(acquire().into(), Responder::from_fn(panics));
    until("an answer of the next child", async || ask(&node, acquire()).await.is_ok()).await;
    assert_eq!(started(&folder).len(), 2);
}

#[tokio::test]
async fn no_more_than_so_many_requests_wait_for_a_program_that_says_nothing() {
    let node = node("exec:sleep?arg=60");
    let request = SharedRequest::from(Request::inspect("a"));
    let asked = (0..1_034).map(|_| ask(&node, request.clone()));
    let answers = join_all(asked).await;
    let refused = answers.iter().filter(|answer| matches!(answer, Err(NodeError::Overloaded { .. })));
    assert_eq!(refused.count(), 10);
}

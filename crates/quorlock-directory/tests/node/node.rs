//! Properties of directory nodes: several processes, what is remembered, and damaged files.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use quorlock::protocol::{Claim, FenceHint, Token};
use quorlock::{
    node::{
        AddressError, Kinds, Node, NodeError, NodeErrorKind, NodeKind, Request, Response, Seams, Vote, ask,
    },
    runtime::{Entropy as _, SystemEntropy},
};
use quorlock_directory::{DirectoryKind, DirectoryNode};

const TTL: Duration = Duration::from_secs(60);

fn node(directory: &Path) -> DirectoryNode {
    DirectoryNode::new("directory", directory.to_owned(), &Seams::default()).unwrap()
}

fn claim(key: &str) -> Arc<Claim> {
    Arc::new(Claim::new(key.into(), Token::new(SystemEntropy::default().next_u128(), "test")))
}

async fn acquire(node: &dyn Node, claim: &Arc<Claim>) -> Result<Response, NodeError> {
    let fence_hint = Some(FenceHint::at(Duration::MAX, None, TTL));
    ask(node, Request::Acquire { claim: Arc::clone(claim), ttl: TTL, fence_hint }).await
}

#[tokio::test]
async fn one_of_many_handles_gets_a_key() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let nodes: Vec<_> = (0..4).map(|_| node(directory.path())).collect();
        let claims: Vec<_> = nodes.iter().map(|_| claim(&format!("orders/{round}"))).collect();
        let asked = nodes.iter().zip(&claims).map(|(node, claim)| acquire(node, claim));
        let votes = join_all(asked).await.into_iter().map(|response| response.unwrap().vote);
        assert_eq!(votes.filter(|vote| *vote == Vote::Granted).count(), 1);
    }
}

#[tokio::test]
async fn locks_numbers_tombstones_and_identity_outlive_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let (holder, cancelled, other) = (claim("a"), claim("b"), claim("a"));
    let before = node(directory.path());
    let first = acquire(&before, &holder).await.unwrap();
    ask(&before, Request::Cancel { claim: Arc::clone(&cancelled), linger: TTL }).await.unwrap();
    drop(before);
    let after = node(directory.path());
    let refused = acquire(&after, &other).await.unwrap();
    assert!(matches!(&refused.vote, Vote::Held(holding) if holding.token == *holder.token()), "{refused:?}");
    assert_eq!(refused.fencing_token, first.fencing_token);
    assert_eq!(refused.identity.id, first.identity.id);
    assert_eq!(acquire(&after, &cancelled).await.unwrap().vote, Vote::Free);
}

#[tokio::test]
async fn a_directory_replaced_during_use_has_a_new_identity() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks");
    let missing = acquire(&node(&path), &claim("a")).await.unwrap_err();
    assert_eq!(missing.kind(), NodeErrorKind::Unreachable);
    assert!(!missing.may_have_acted());
    fs::create_dir(&path).unwrap();
    let node = node(&path);
    let first = acquire(&node, &claim("a")).await.unwrap();
    fs::rename(&path, directory.path().join("old")).unwrap();
    fs::create_dir(&path).unwrap();
    let second = acquire(&node, &claim("a")).await.unwrap();
    assert_eq!(second.vote, Vote::Granted);
    assert_ne!(second.identity.id, first.identity.id);
    assert!(second.identity.age < TTL, "it may have forgotten locks, so it does not vote yet");
}

#[tokio::test]
async fn a_file_of_another_key_is_an_error_and_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path());
    acquire(&node, &claim("a")).await.unwrap();
    let keys = directory.path().join("keys");
    let of = |key| keys.join(DirectoryNode::file_name(key));
    fs::copy(of("a"), of("b")).unwrap();
    let error = acquire(&node, &claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::WrongData, "{error:#}");
}

#[tokio::test]
async fn unsupported_requests_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let node = node(directory.path());
    let several = Arc::new(Claim::clone(&claim("a")).and(["b".into()].into()));
    let error = acquire(&node, &several).await.unwrap_err();
    assert!(error.is_permanent() && !error.may_have_acted());
    assert_eq!(error.to_string(), "nodes of this kind do not support locks of several resources");
}

#[test]
fn urls_are_read_and_written() {
    let parse = |url| DirectoryKind::new().parse(url);
    let address = parse("DIRECTORY:///var//lib/./locks%2Ca/").unwrap();
    assert_eq!(address.to_string(), "directory:///var/lib/locks%2Ca");
    assert_eq!(address.servers(), ["/var/lib/locks,a"]);
    let list = "directory:///a%2Cb,redis://c,directory:///d";
    let kinds = Kinds::default().with(DirectoryKind::new());
    assert_eq!(kinds.split(list).unwrap(), ["directory:///a%2Cb", "redis://c", "directory:///d"]);
    for (url, problem) in [
        ("directory://locks", "has no absolute path"),
        ("directory:///a/../b", "has a `..` in its path"),
        ("directory:///a%2", "has a `%` that is not followed by two hex digits"),
    ] {
        let error = parse(url).unwrap_err();
        let cure = "write `directory:///var/lib/locks`";
        assert_eq!(error, AddressError::malformed("directory://…", problem, cure), "{url}");
    }
}

//! The replies to an acquisition without a script, of which the usual ones are only compared.

use std::sync::Arc;

use futures::future::join;

use super::stream::{CHANGED, CUTS, FREE, plain_node};
use super::{acquire, claim, inspect, release};
use crate::node::{Request, Response, Vote, ask};
use crate::redis::command::plain::NUMBERED;
use quorlock_protocol::FencingToken;
use quorlock_testkit::until;

/// The usual replies to these requests, one by one.
const USUAL: [&str; 2] = ["+OK\r\n", ":1\r\n"];

fn number_of(request: &Request) -> Option<FencingToken> {
    let Request::Acquire { fence_hint: Some(fence_hint), .. } = request else { return None };
    Some(fence_hint.usual())
}

#[tokio::test]
async fn usual_replies_are_understood_in_any_fragments() {
    assert_eq!(USUAL.concat().as_bytes(), NUMBERED);
    for cut in CUTS.chain(CUTS.end..2 * USUAL.concat().len()) {
        let (node, events) = plain_node(cut, |mut server| async move {
            server.hears(3).await?;
            server.says(&[&USUAL.concat(), CHANGED, &USUAL.concat(), FREE].concat()).await?;
            Ok(server)
        });
        let requests = [1, 2].map(|random| acquire(&claim("orders/42", random)));
        let numbers = requests.each_ref().map(number_of);
        let [first, second] = requests.map(|request| ask(&node, request));
        let (acquired, free) = join(join(first, second), ask(&node, inspect())).await;
        let vote_of = |answer: Response| (answer.vote, answer.fencing_token);
        assert_eq!(vote_of(acquired.0.unwrap()), (Vote::Granted, numbers[0]), "cut into {cut}");
        assert_eq!(vote_of(acquired.1.unwrap()), (Vote::Granted, numbers[1]), "cut into {cut}");
        assert_eq!(free.unwrap().vote, Vote::Free, "cut into {cut}");
        assert_eq!(events.entries(), ["Subscribed", "changed"], "cut into {cut}");
    }
}

#[tokio::test]
async fn a_change_between_usual_replies_is_notified() {
    for place in 0..USUAL.len() {
        let (node, events) = plain_node(1024, move |mut server| async move {
            server.hears(2).await?;
            let (before, behind) = USUAL.split_at(place);
            server.says(&[&before.concat(), CHANGED, &behind.concat(), FREE].concat()).await?;
            Ok(server)
        });
        let request = acquire(&claim("orders/42", 1));
        let number = number_of(&request);
        let (acquired, free) = join(ask(&node, request), ask(&node, inspect())).await;
        let acquired = acquired.unwrap();
        assert_eq!((acquired.vote, acquired.fencing_token), (Vote::Granted, number), "{place}");
        assert_eq!((free.unwrap().vote, events.entries()[1].as_str()), (Vote::Free, "changed"), "{place}");
    }
}

#[tokio::test]
async fn unusual_replies_are_parsed() {
    for odd in [
        "+OK\r\n:0\r\n",
        "+OK\r\n:2\r\n",
        "+OK\r\n-WRONGTYPE no\r\n",
        "-OOM no\r\n:1\r\n",
        "+NO\r\n:1\r\n",
        "_\r\n:1\r\n",
        "_\r\n_\r\n",
        "*2\r\n+OK\r\n:1\r\n*-1\r\n",
    ] {
        let (node, _) = plain_node(1024, move |mut server| async move {
            server.hears(2).await?;
            server.says(&[odd, FREE].concat()).await?;
            // A script follows.
            server.hears(1).await?;
            server.says("*2\r\n$7\r\ngranted\r\n:77\r\n").await?;
            Ok(server)
        });
        let ours = claim("orders/42", 1);
        let (acquired, free) = join(ask(&node, acquire(&ours)), ask(&node, inspect())).await;
        let acquired = acquired.unwrap();
        assert_eq!((acquired.vote, acquired.fencing_token), (Vote::Granted, FencingToken::new(77)), "{odd}");
        assert_eq!(free.unwrap().vote, Vote::Free, "{odd}");
    }
}

#[tokio::test]
async fn a_usual_reply_without_request_ends_the_connection() {
    let (node, events) = plain_node(1024, |mut server| async move {
        server.hears(1).await?;
        server.says(&USUAL.concat().repeat(2)).await?;
        Ok(server)
    });
    let node = Arc::new(node);
    let acquired = ask(&*node, acquire(&claim("orders/42", 1))).await.unwrap();
    assert_eq!(acquired.vote, Vote::Granted);
    until("the connection is ended", async || events.entries().contains(&"Unsubscribed".into())).await;
}

/// Renewals and releases have the same usual reply from nearly every node, which is compared as well.
#[tokio::test]
async fn unusual_replies_of_scripts_are_parsed() {
    const DONE: &str = "*1\r\n$7\r\ngranted\r\n";

    for (vote_of, vote) in [
        (DONE, Some(Vote::Granted)),
        ("*2\r\n$7\r\ngranted\r\n:0\r\n", Some(Vote::Granted)),
        ("*1\r\n+granted\r\n", Some(Vote::Granted)),
        ("*1\r\n$6\r\nwanted\r\n", Some(Vote::ReleasedContended)),
        ("*1\r\n$7\r\ngrabbed\r\n", None),
        ("+OK\r\n", None),
    ] {
        for cut in [1, 7, 1024] {
            let (node, events) = plain_node(cut, move |mut server| async move {
                server.hears(3).await?;
                server.says(&[DONE, vote_of, CHANGED, FREE].concat()).await?;
                Ok(server)
            });
            let ours = claim("orders/42", 1);
            let asked = join(ask(&node, release(&ours)), ask(&node, release(&ours)));
            let ((done, answer), free) = join(asked, ask(&node, inspect())).await;
            assert_eq!(done.unwrap().vote, Vote::Granted, "{vote_of} cut into {cut}");
            assert_eq!(answer.ok().map(|answer| answer.vote), vote, "{vote_of} cut into {cut}");
            assert_eq!(free.unwrap().vote, Vote::Free, "{vote_of} cut into {cut}");
            assert_eq!(events.entries(), ["Subscribed", "changed"], "{vote_of} cut into {cut}");
        }
    }
}

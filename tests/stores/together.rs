//! The first clients of a store, which come at the same moment: the tests of all stores that keep a note of their history
//! include this file.

use std::collections::BTreeSet;

use futures::future::join_all;
use quorlock::node::{Node, Request, ask};

/// How many come.
pub(crate) const MANY: usize = 16;

/// All are answered, as by one history.
pub(crate) async fn agree<N: Node>(clients: [N; MANY]) {
    let answers = join_all(clients.iter().map(|client| ask(client, Request::inspect("a")))).await;
    let histories: BTreeSet<_> =
        answers.into_iter().map(|answer| answer.unwrap().identity.id.clone()).collect();
    assert_eq!(histories.len(), 1, "{histories:?}");
}

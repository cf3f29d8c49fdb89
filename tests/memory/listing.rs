//! Listing the names of locks: at enough nodes, and at no more at a time than a quorum can do without.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use quorlock::Coordinator;
use quorlock::node::{KeyPages, ListedKeys, Node, NodeError, Responder, SharedRequest};
use quorlock_testkit::{TokioClock, WrappedNode};

/// What all nodes count together.
#[derive(Debug, Default)]
struct Counts {
    active: AtomicUsize,
    most: AtomicUsize,
    asked: Mutex<Vec<String>>,
}

/// A node that stores these keys, or cannot list them.
#[derive(Debug)]
struct Lists {
    name: String,
    pages: Option<Vec<&'static str>>,
    counts: Arc<Counts>,
}

impl Node for Lists {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, _request: SharedRequest, responder: Responder) {
        responder.send(Err(NodeError::NotAsked));
    }

    fn list_keys(&self, prefix: Arc<str>, _which: ListedKeys) -> KeyPages {
        let (name, counts) = (self.name.clone(), Arc::clone(&self.counts));
        let pages = self.pages.clone();
        KeyPages::unfold(0, move |page| {
            let keys = match &pages {
                None => Err(NodeError::NotAsked),
                Some(pages) if page > pages.len() + 1 => Ok(None),
                // One without a key before the others, and one after them.
                Some(pages) => Ok(Some(page.checked_sub(1).and_then(|page| pages.get(page).copied()))),
            };
            if page == 0 && pages.is_some() {
                counts.asked.lock().unwrap().push(name.clone());
                let active = counts.active.fetch_add(1, Ordering::Relaxed) + 1;
                counts.most.fetch_max(active, Ordering::Relaxed);
            } else if pages.as_ref().is_some_and(|pages| page == pages.len() + 1) {
                counts.active.fetch_sub(1, Ordering::Relaxed);
            }
            let prefix = Arc::clone(&prefix);
            async move {
                tokio::task::yield_now().await;
                let Some(key) = keys? else { return Ok(None) };
                let key = key.filter(|key| key.starts_with(&*prefix));
                Ok(Some((key.map(Arc::from).into_iter().collect(), page + 1)))
            }
        })
    }
}

/// Lists at nodes with these keys; `None` for one that cannot list.
async fn list(nodes: Vec<Option<Vec<&'static str>>>, prefix: &str) -> (BTreeSet<String>, usize, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let nodes: Vec<Lists> = nodes
        .into_iter()
        .enumerate()
        .map(|(number, pages)| Lists { name: format!("n{number}"), pages, counts: Arc::clone(&counts) })
        .collect();
    let coordinator = Coordinator::builder().custom_nodes(nodes).key_prefix("p:").build().unwrap();
    let (mut listing, mut pages) = (coordinator.list(prefix, ListedKeys::Locks), Vec::new());
    while let Some(page) = listing.next_page().await {
        pages.push(page);
    }
    let failed = pages.iter().filter(|page| page.names.is_err()).count();
    let names = pages.into_iter().filter_map(|page| page.names.ok()).flatten();
    (names.map(|name| name.to_string()).collect(), failed, counts)
}

fn keys() -> Vec<&'static str> {
    // With what is stored beside a semaphore's permits.
    vec!["p:a", "p:b", "other", "p:a::quorlock:semaphore:limit"]
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn three_of_five_nodes_list_and_two_at_a_time() {
    let (found, failed, counts) = list(vec![Some(keys()); 5], "").await;
    assert_eq!((found, failed), (names(&["a", "b"]), 0));
    assert_eq!(counts.asked.lock().unwrap().len(), 3, "three intersect every quorum");
    assert_eq!(counts.most.load(Ordering::Relaxed), 2, "a quorum of three is not busy");
}

#[tokio::test]
async fn a_lock_that_only_the_last_three_nodes_store_is_found() {
    let nodes = [Vec::new(), Vec::new(), keys(), keys(), keys()];
    let (found, ..) = list(nodes.map(Some).into(), "b").await;
    assert_eq!(found, names(&["b"]));
}

#[tokio::test]
async fn a_node_that_cannot_list_is_replaced() {
    let (found, failed, counts) = list(vec![None, Some(keys()), None, Some(keys()), Some(keys())], "").await;
    assert_eq!((found, failed), (names(&["a", "b"]), 2));
    assert_eq!(*counts.asked.lock().unwrap(), ["n1", "n3", "n4"]);
    let (_, failed, counts) = list(vec![None, None, None, Some(keys()), Some(keys())], "").await;
    assert_eq!((failed, counts.asked.lock().unwrap().len()), (3, 2), "all were tried");
}

#[tokio::test]
async fn a_single_node_lists() {
    let (found, failed, _) = list(vec![Some(keys())], "a").await;
    assert_eq!((found, failed), (names(&["a"]), 0));
}

/// A node that lies: it lists this page without end.
#[derive(Debug)]
struct Endless(Vec<Arc<str>>);

impl Node for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }

    fn ask(&self, _request: SharedRequest, responder: Responder) {
        responder.send(Err(NodeError::NotAsked));
    }

    fn list_keys(&self, _prefix: Arc<str>, _which: ListedKeys) -> KeyPages {
        let page = self.0.clone();
        KeyPages::unfold((), move |()| {
            let page = page.clone();
            async move { Ok(Some((page, ()))) }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lists_without_end_is_not_waited_for() {
    let empty = Vec::new();
    let full: Vec<Arc<str>> = vec!["p:".repeat(1 << 17).into(); 4];
    for (page, fails) in [(empty, false), (full, true)] {
        for (others, at) in [(2, 0), (2, 1), (2, 2), (4, 0), (4, 2)] {
            let counts = Arc::new(Counts::default());
            let honest = |number| Lists {
                name: format!("n{number}"),
                pages: Some(keys()),
                counts: Arc::clone(&counts),
            };
            let mut nodes: Vec<_> = (0..others).map(|number| WrappedNode::new(honest(number))).collect();
            nodes.insert(at, WrappedNode::new(Endless(page.clone())));
            let builder = Coordinator::builder().custom_nodes(nodes).key_prefix("p:");
            let coordinator = builder.clock(TokioClock::new()).build().unwrap();
            let mut listing = coordinator.list("", ListedKeys::Locks);
            let (mut found, mut kept, mut failed) = (BTreeSet::new(), 0, Vec::new());
            while let Some(page) = listing.next_page().await {
                match page.names {
                    Ok(names) => {
                        kept += names.iter().map(|name| name.len()).sum::<usize>();
                        found.extend(names.iter().filter(|name| name.len() == 1).map(ToString::to_string));
                    }
                    Err(error) => failed.push((page.node, error.to_string())),
                }
            }
            assert_eq!(found, names(&["a", "b"]), "{at} of {others}");
            assert!(kept <= 64 << 20, "{kept} bytes");
            if at == 0 {
                assert_eq!(failed.len(), usize::from(fails), "{failed:?}");
            }
            assert!(
                failed.iter().all(|(node, error)| &**node == "endless" && error.contains("take 64 MB")),
                "{failed:?}"
            );
        }
    }
}

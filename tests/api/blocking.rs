//! Each blocking type has the methods of its async type, except those that make no sense in a thread.

use std::collections::{BTreeMap, BTreeSet};

use crate::listing::Listing;

/// Methods that only async programs have, and why.
const ASYNC_ONLY: &[(&str, &str, &str)] = &[
    ("Coordinator", "builder", "the builder is the same, and has `build_blocking`"),
    ("Lease", "run_until_lost", "a thread cannot be cancelled from outside"),
    ("LeaseWatch", "run_until_lost", "the same"),
];

#[test]
fn each_blocking_type_has_every_method_of_its_async_type() {
    let verbs = verbs(&Listing::of(&super::quorlock()).text);
    let mut lacking = BTreeSet::new();
    let mut compared = 0;
    for (name, of_async) in &verbs {
        let Some(of_threads) = verbs.get(&format!("blocking::{name}")) else { continue };
        lacking.extend(of_async.difference(of_threads).map(|verb| (name.as_str(), verb.as_str())));
        compared += 1;
    }
    assert_eq!(lacking, ASYNC_ONLY.iter().map(|(name, verb, _)| (*name, *verb)).collect());
    assert_eq!(compared, 10, "exactly the types that wait: {:?}", verbs.keys());
}

/// The public functions of each type in a listing.
fn verbs(listing: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut verbs: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let mut of = None;
    for line in listing.lines() {
        if let Some(rest) = line.strip_prefix("impl").and_then(|rest| rest.strip_suffix(" {")) {
            // Parameters, as of `impl<K, F> Lease<K, F>`, are of no interest.
            let rest =
                rest.strip_prefix('<').and_then(|rest| rest.split_once("> ")).map_or(rest, |(_, rest)| rest);
            let rest = if rest.contains(" for ") { rest } else { rest.split('<').next().unwrap_or(rest) };
            let name = rest.trim_start();
            let name = name.trim_start_matches("health::").trim_start_matches("lock::");
            of = (!name.contains(' ')).then(|| name.to_owned());
        } else if line == "}" {
            of = None;
        } else if let (Some(name), Some((_, rest))) = (&of, line.split_once("fn ")) {
            let verb = rest.split(['(', '<']).next().unwrap_or_default();
            verbs.entry(name.clone()).or_default().insert(verb.to_owned());
        }
    }
    verbs
}

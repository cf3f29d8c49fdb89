//! The check in an object store, with conditional puts.

use std::borrow::Cow;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion,
};
use proptest::prelude::*;
use quorlock::FencingToken;
use quorlock::fence::{Stale, check};

use super::{goes_down, token};

const FENCE: Attribute = Attribute::Metadata(Cow::Borrowed("Quorlock-Fencing-Token"));

fn place() -> Path {
    Path::from("account/7")
}

/// Reads the object, and returns the condition under which `token` may replace it.
async fn look(store: &dyn ObjectStore, token: FencingToken) -> Result<PutMode, Stale> {
    match store.get(&place()).await {
        Ok(found) => {
            let newest = found.attributes.get(&FENCE).map(|text| text.parse().expect("a fencing token"));
            check(newest, token)?;
            Ok(PutMode::Update(UpdateVersion { e_tag: found.meta.e_tag, version: found.meta.version }))
        }
        Err(Error::NotFound { .. }) => Ok(PutMode::Create),
        Err(error) => panic!("{error}"),
    }
}

/// Returns whether the object was replaced; otherwise its condition did not hold.
async fn put(store: &dyn ObjectStore, token: FencingToken, mode: PutMode) -> bool {
    let attributes = Attributes::from_iter([(FENCE, token.to_string())]);
    let options = PutOptions { mode, attributes, ..PutOptions::default() };
    match store.put_opts(&place(), token.to_string().into(), options).await {
        Ok(_) => true,
        Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

async fn replace(store: &dyn ObjectStore, token: FencingToken) -> Result<(), Stale> {
    for _ in 0..100 {
        let condition = look(store, token).await?;
        if put(store, token, condition).await {
            return Ok(());
        }
    }
    panic!("lost a hundred races")
}

#[tokio::test]
async fn a_later_holders_object_is_not_replaced() {
    let store = InMemory::new();
    replace(&store, token(33)).await.unwrap();
    replace(&store, token(33)).await.unwrap();
    replace(&store, token(34)).await.unwrap();
    let stale = replace(&store, token(33)).await.unwrap_err();
    assert_eq!(stale.newest, Some(token(34)));
}

#[tokio::test]
async fn a_write_between_get_and_put_is_detected() {
    let store = InMemory::new();
    let absent = look(&store, token(33)).await.unwrap();
    replace(&store, token(34)).await.unwrap();
    assert!(!put(&store, token(33), absent).await, "the object exists now");

    let unchanged = look(&store, token(34)).await.unwrap();
    replace(&store, token(35)).await.unwrap();
    assert!(!put(&store, token(34), unchanged).await, "the object has changed");
}

#[tokio::test]
async fn deleting_an_object_deletes_its_token() {
    let store = InMemory::new();
    replace(&store, token(34)).await.unwrap();
    store.delete(&place()).await.unwrap();
    replace(&store, token(33)).await.expect("no token is left to compare with: put an empty object instead");
}

/// Runs writers that get and put in the order of `schedule`. Returns the tokens in the order of the
/// successful puts.
async fn run(conditional: bool, tokens: &[u64], schedule: &[usize]) -> Vec<u64> {
    let store = InMemory::new();
    let mut conditions = vec![None; tokens.len()];
    let mut accepted = Vec::new();
    for index in schedule {
        let index = index % tokens.len();
        let number = token(tokens[index]);
        match conditions[index].take() {
            None => conditions[index] = look(&store, number).await.ok(),
            Some(condition) => {
                let mode = if conditional { condition } else { PutMode::Overwrite };
                if put(&store, number, mode).await {
                    accepted.push(tokens[index]);
                }
            }
        }
    }
    accepted
}

fn run_now(conditional: bool, tokens: &[u64], schedule: &[usize]) -> Vec<u64> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(
        conditional,
        tokens,
        schedule,
    ))
}

proptest! {
    #[test]
    fn in_any_interleaving_objects_are_replaced_in_order(
        tokens in prop::collection::vec(1..6_u64, 2..5),
        schedule in prop::collection::vec(0..4_usize, 0..60),
    ) {
        let accepted = run_now(true, &tokens, &schedule);
        prop_assert!(!goes_down(&accepted), "{:?}", accepted);
    }
}

#[test]
fn a_check_without_a_conditional_put_is_no_check() {
    assert_eq!(run_now(false, &[33, 34], &[0, 1, 1, 0]), [34, 33]);
}

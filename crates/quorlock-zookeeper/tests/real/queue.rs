//! The library's waiters in the queue of ZooKeeper, among other programs.

use quorlock::Coordinator;
use quorlock_testkit::ZooKeeperCluster;

use crate::foreign::Foreign;
use crate::ordered;
use crate::support::{common, node};

pub(crate) fn process(cluster: &ZooKeeperCluster) -> Coordinator {
    ordered::of(node(cluster))
}

#[tokio::test]
async fn processes_exclude_each_other_and_are_served_in_the_order_of_entry() {
    let Some(cluster) = common().await else { return };
    ordered::exclude_each_other(|| process(cluster), &Foreign::of(cluster).await).await;
}

/// A program that holds its place by a key of its own, as Curator does.
#[tokio::test]
async fn a_foreign_waiter_is_served_between_ours() {
    let Some(cluster) = common().await else { return };
    let foreign = Foreign::of(cluster).await;
    ordered::serve_a_program_between_ours(|| process(cluster), &foreign, "beside").await;
}

#[tokio::test]
async fn a_name_and_what_is_below_it_do_not_hinder_each_other() {
    let Some(cluster) = common().await else { return };
    let names = ["nest", "nest/below", "nest/job-0000000001", "nest/job-0000000001/cd"];
    ordered::do_not_hinder_each_other(|| process(cluster), names).await;
}

#[tokio::test]
async fn i54_a_lease_is_renewed_while_its_node_reports_changes() {
    let Some(cluster) = common().await else { return };
    let foreign = Foreign::of(cluster).await;
    ordered::is_renewed_beside_reports(|| process(cluster), &foreign, "reports").await;
}

#[tokio::test]
async fn a_waiter_that_gives_up_or_dies_delays_no_other() {
    let Some(cluster) = common().await else { return };
    let foreign = Foreign::of(cluster).await;
    ordered::give_up_without_delaying_others(|| process(cluster), &foreign, "gives-up").await;
}

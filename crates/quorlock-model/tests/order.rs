//! Order among those who wait. What is broken on purpose must be found.

mod common;

use common::confirm;

#[test]
fn tickets_let_somebody_go_on_whatever_order_nodes_hear_of_them_in() {
    confirm("tickets let somebody go on whatever order nodes hear of them in");
}

#[test]
fn nodes_that_serve_only_their_own_head_wait_for_each_other() {
    confirm("nodes that serve only their own head wait for each other");
}

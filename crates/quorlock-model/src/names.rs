//! States that differ only in the names of nodes or attempts are equivalent.

/// Returns the least of the states that `renamed` returns for the orders of `K` names, where
/// `order[new] = old`.
pub(crate) fn least<S: Ord, const K: usize>(renamed: impl Fn([usize; K]) -> Option<S>) -> Option<S> {
    let mut order = std::array::from_fn(|name| name);
    let mut least = renamed(order);
    while advance(&mut order) {
        least = least.into_iter().chain(renamed(order)).min();
    }
    least
}

/// Returns what `old` is called in this order.
pub(crate) fn renamed<const K: usize>(order: [usize; K], old: usize) -> Option<usize> {
    order.iter().position(|&name| name == old)
}

/// Advances to the next permutation in lexicographic order; returns `false` after the last.
fn advance(order: &mut [usize]) -> bool {
    let Some(pivot) = order.windows(2).rposition(|pair| pair[0] < pair[1]) else { return false };
    let Some(next) = order.iter().rposition(|&name| name > order[pivot]) else { return false };
    order.swap(pivot, next);
    order[pivot + 1..].reverse();
    true
}

/// Returns the name of an attempt: A, B, C and so on.
pub(crate) fn name(attempt: usize) -> char {
    u8::try_from(attempt).map_or('?', |index| (b'A' + index % 26).into())
}

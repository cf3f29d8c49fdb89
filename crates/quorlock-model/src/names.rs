//! What nodes and attempts are called makes no difference.

/// Goes on to the next permutation, in the order of the dictionary. False after the last.
pub(crate) fn advance(order: &mut [usize]) -> bool {
    let Some(pivot) = order.windows(2).rposition(|pair| pair[0] < pair[1]) else { return false };
    let Some(next) = order.iter().rposition(|&name| name > order[pivot]) else { return false };
    order.swap(pivot, next);
    order[pivot + 1..].reverse();
    true
}

/// A, B, C and so on.
pub(crate) fn name(attempt: usize) -> char {
    u8::try_from(attempt).map_or('?', |index| (b'A' + index % 26).into())
}

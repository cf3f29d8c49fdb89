//! Cases of the check with two marks.

/// Reads or writes, the token, and whether it is accepted.
pub(crate) const STORY: [(bool, u64, bool); 12] = [
    (READ, 30, true),
    (WRITE, 33, true),
    (WRITE, 33, true),
    // An earlier reader that was paused.
    (READ, 30, false),
    // The writer reads on; two readers join, in either order.
    (READ, 33, true),
    (READ, 36, true),
    (READ, 35, true),
    // A late write of the writer, and tokens between those of the readers.
    (WRITE, 33, false),
    (WRITE, 35, false),
    (WRITE, 40, true),
    (READ, 36, false),
    (READ, 40, true),
];
const READ: bool = false;
const WRITE: bool = true;
